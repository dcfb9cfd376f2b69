//! What will be done when to whom: everything follows from the seed before the first fault begins.

use std::{collections::BTreeSet, fmt, ops::Range, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde::Serialize;

use super::kind::{Kind, Kinds};
use crate::world::{Store, layout::LEASE};

/// Buyers get going before the first fault.
const WARM_UP_MS: u64 = 3_000;

/// No fault begins so shortly before the end.
const LAST_MS: u64 = 1_000;

/// After so many faults there is a longer pause, in which leases run out, everything recovers, and nothing excuses a failure.
const BREATH_EVERY: usize = 5;
/// How much longer than a lease that pause is.
const BREATH_MS: Range<u64> = 8_000..12_000;

/// One fault.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// Its place in the plan.
    pub number: usize,
    #[serde(serialize_with = "as_name")]
    /// What.
    pub kind: Kind,
    /// To whom: a process, a road or a store.
    pub target: String,
    /// When it begins, counted from the begin of the plan.
    pub begin_ms: u64,
    /// How long it lasts before it is healed.
    pub length_ms: u64,
    /// How much: milliseconds of a delay, seconds that a clock is off.
    pub amount: i64,
}

/// All faults of a campaign, in the order of their begin.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Kinds {
    /// Refuses a target that none of these kinds can harm: a slip of the pen would make a campaign without faults.
    pub fn refuse_strangers(&self, targets: &[String], store: Store) -> anyhow::Result<()> {
        let known: BTreeSet<String> = self.on(store).into_iter().flat_map(|kind| kind.targets(store)).collect();
        let stranger = targets.iter().find(|target| !known.contains(*target));
        let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        stranger.map_or(Ok(()), |it| {
            Err(anyhow::anyhow!("--targets {it}: there is no such target for these faults; there are {known}"))
        })
    }
}

// === impl Plan ===

impl Plan {
    /// The plan of a seed. Equal arguments give equal plans. Where targets are named, no other one is harmed.
    pub fn of(seed: u64, duration: Duration, kinds: &Kinds, targets: &[String], store: Store) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let victims = |kind: Kind| {
            let all = kind.targets(store).into_iter();
            all.filter(|target| targets.is_empty() || targets.contains(target)).collect::<Vec<_>>()
        };
        let kinds: Vec<(Kind, Vec<String>)> = kinds.on(store).into_iter().map(|kind| (kind, victims(kind))).collect();
        let kinds: Vec<_> = kinds.into_iter().filter(|(kind, on)| kind.weight() > 0 && !on.is_empty()).collect();
        let end = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).saturating_sub(LAST_MS);
        let mut faults: Vec<Fault> = Vec::new();
        let mut begin_ms = WARM_UP_MS;
        while begin_ms < end && !kinds.is_empty() {
            let mut fault = draw(&mut random, &kinds);
            let has_company = faults.last().is_some_and(|last| last.begin_ms + last.length_ms > begin_ms);
            if has_company && faults.iter().rev().take(4).any(|other| other.resource() == fault.resource()) {
                // Not two at once on the same: the later one waits for its turn.
                begin_ms += 1_500;
            }
            (fault.number, fault.begin_ms) = (faults.len() + 1, begin_ms);
            begin_ms += if random.random_bool(0.35) {
                // The next one begins while this one is at work.
                random.random_range(100..800)
            } else {
                fault.length_ms + fault.kind.recovery_ms() + random.random_range(500..2_500)
            };
            if fault.number.is_multiple_of(BREATH_EVERY) {
                begin_ms += u64::try_from(LEASE.as_millis()).unwrap_or(0) + random.random_range(BREATH_MS);
            }
            faults.push(fault);
        }
        Self { faults }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

// === impl Fault ===

impl Fault {
    /// What only one fault at a time may touch.
    pub fn resource(&self) -> &str {
        match self.kind {
            Kind::WebhookLost | Kind::WebhookRepeated | Kind::WebhookReordered | Kind::WebhookForged => "webhooks",
            Kind::Outage | Kind::Refusals => "acquirer",
            _ if self.target.starts_with("postgres") => "postgres",
            _ => &self.target,
        }
    }

    /// How long it lasts before it is healed.
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.length_ms)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, target, begin_ms, length_ms, amount } = self;
        let (begin, length) = (Seconds(*begin_ms), Seconds(*length_ms));
        write!(f, "{number:>4}  at {begin}  for {length}  {:<17}  {target}", kind.name())?;
        match kind {
            Kind::Delay | Kind::SlowAcquirer => write!(f, "  by {amount} ms each way"),
            Kind::Clock => write!(f, "  {amount:+} s"),
            _ => Ok(()),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// About how long the system needs to be itself again, for the pauses of the plan only.
    fn recovery_ms(self) -> u64 {
        match self {
            Self::Failover => 6_000,
            Self::Kill | Self::Restart | Self::PostgresRestart => 2_000,
            _ => 500,
        }
    }

    /// How long it lasts, in milliseconds.
    fn length_ms(self) -> Range<u64> {
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(0);
        match self {
            Self::Kill => 100..4_000,
            // Past the lease of whoever held a key when it began.
            Self::Stop => lease + 200..lease + 4_000,
            Self::Restart | Self::PostgresRestart => 50..1_500,
            Self::Failover | Self::EndSessions | Self::ClientGone => 0..1,
            Self::Cut | Self::DropReply => 500..5_000,
            // Also longer than the lease.
            Self::Delay | Self::Stall | Self::HalfOpen => 500..lease + 3_000,
            Self::Outage | Self::Refusals | Self::SlowAcquirer | Self::DiskFull => 1_000..6_000,
            Self::WebhookLost | Self::WebhookRepeated | Self::WebhookReordered | Self::WebhookForged => 3_000..8_000,
            Self::Clock => 4_000..9_000,
        }
    }

    fn targets(self, store: Store) -> Vec<String> {
        let services = if store == Store::Postgres { 2 } else { 1 };
        let each = |name: &str, count: usize| (0..count).map(|i| format!("{name}-{i}")).collect::<Vec<_>>();
        let gateways = each("gateway", 2);
        let (idems, orders) = (each("idem", services), each("orders", services));
        match self {
            Self::Kill | Self::Restart => [gateways, idems, orders].concat(),
            Self::Stop => [gateways, idems, orders, vec!["acquirer".to_owned()]].concat(),
            // The clock of a process that holds an SQLite file is the store's clock; a store's clock is trusted.
            Self::Clock if store == Store::Sqlite => [gateways, vec!["acquirer".to_owned()]].concat(),
            Self::Clock => [gateways, idems, orders].concat(),
            Self::Cut | Self::Delay | Self::Stall | Self::HalfOpen | Self::DropReply => {
                let to_services = ["client/gateway-0", "client/gateway-1"].map(str::to_owned).into_iter();
                let to_services = to_services.chain(gateways.iter().flat_map(|from| {
                    // The roads on which exactly once is decided come up more often.
                    [format!("{from}/idem"), format!("{from}/idem"), format!("{from}/orders"), format!("{from}/orders")]
                }));
                let to_acquirer = orders.iter().map(|from| format!("{from}/acquirer"));
                let all = to_services.chain(to_acquirer);
                if store == Store::Sqlite {
                    return all.collect();
                }
                let stored = idems.iter().chain(&orders);
                let to_postgres = stored.flat_map(|from| (0..2).map(move |i| format!("{from}/postgres-{i}")));
                all.chain(to_postgres).chain(["postgres/replication".to_owned()]).collect()
            }
            Self::EndSessions | Self::PostgresRestart | Self::Failover => vec!["postgres".to_owned()],
            Self::Outage | Self::Refusals => vec!["acquirer".to_owned()],
            Self::SlowAcquirer => orders.iter().map(|from| format!("{from}/acquirer")).collect(),
            Self::WebhookLost | Self::WebhookRepeated | Self::WebhookReordered | Self::WebhookForged => {
                vec!["webhooks".to_owned()]
            }
            Self::DiskFull => vec!["disk".to_owned()],
            Self::ClientGone => vec!["client".to_owned()],
        }
    }

    fn amount(self, random: &mut StdRng) -> i64 {
        match self {
            // Now and then so slow that nobody waits for it, and what was given up arrives all the same.
            Self::Delay if random.random_bool(0.4) => random.random_range(4_500..7_000),
            Self::Delay => random.random_range(50..700),
            // Longer than the acquirer timeout, so that what was asked for still happens after it was given up.
            Self::SlowAcquirer => random.random_range(800..2_000),
            Self::Clock if random.random_bool(0.5) => 600,
            Self::Clock => -600,
            _ => 0,
        }
    }
}

// === helpers ===

fn draw(random: &mut StdRng, kinds: &[(Kind, Vec<String>)]) -> Fault {
    let chosen = kinds.choose_weighted(random, |(kind, _)| kind.weight());
    let (kind, targets) = chosen.expect("there are kinds, and all have a weight");
    let target = targets.choose(random).expect("each kind has a target").clone();
    let length_ms = random.random_range(kind.length_ms());
    let amount = kind.amount(random);
    Fault { number: 0, kind: *kind, target, begin_ms: 0, length_ms, amount }
}

fn as_name<S: serde::Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>4}.{:03} s", self.0 / 1_000, self.0 % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seed: u64, store: Store) -> Plan {
        Plan::of(seed, Duration::from_secs(1_800), &"all".parse().unwrap(), &[], store)
    }

    #[test]
    fn a_seed_gives_the_same_plan_every_time_and_another_seed_another() {
        for store in [Store::Postgres, Store::Sqlite] {
            let text = plan(7, store).to_string();
            assert_eq!(text, plan(7, store).to_string());
            assert_ne!(text, plan(8, store).to_string());
        }
    }

    #[test]
    fn half_an_hour_has_every_kind_and_more_than_two_hundred_faults_and_pauses_longer_than_the_lease() {
        for store in [Store::Postgres, Store::Sqlite] {
            let faults = plan(1, store).faults;
            assert!(faults.len() > 200, "{} faults", faults.len());
            let all: Kinds = "all".parse().unwrap();
            for kind in all.on(store).into_iter().filter(|kind| *kind != Kind::ClientGone) {
                assert!(faults.iter().any(|fault| fault.kind == kind), "{kind:?} on {store:?}");
            }
            let pauses =
                faults.windows(2).filter(|pair| pair[0].begin_ms + pair[0].length_ms + 4_000 < pair[1].begin_ms);
            assert!(pauses.count() > 10);
        }
    }

    #[test]
    fn a_target_that_nobody_can_harm_is_refused_by_name() {
        let refuse = |kinds: &str, target: &str| {
            kinds.parse::<Kinds>().unwrap().refuse_strangers(&[target.to_owned()], Store::Sqlite)
        };
        assert!(refuse("all", "gateway-0/orders").is_ok() && refuse("all", "disk").is_ok());
        for (kinds, target) in [("all", "gatway-0"), ("kill", "disk"), ("all", "idem-1")] {
            let refusal = refuse(kinds, target).unwrap_err().to_string();
            assert!(refusal.contains(target) && refusal.contains("gateway-0"), "{refusal}");
        }
    }

    #[test]
    fn no_faults_means_an_empty_plan_and_only_named_targets_are_harmed() {
        let minute = |kinds: &str, targets: &[String]| {
            Plan::of(1, Duration::from_secs(60), &kinds.parse().unwrap(), targets, Store::Postgres).faults
        };
        assert!(minute("none", &[]).is_empty() && minute("all", &["nobody".to_owned()]).is_empty());
        let named = minute("all", &["gateway-1".to_owned()]);
        assert!(!named.is_empty() && named.iter().all(|fault| fault.target == "gateway-1"));
    }
}
