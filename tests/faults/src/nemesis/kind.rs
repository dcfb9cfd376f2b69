//! The kinds of faults, as `--faults` names them.

use std::{collections::BTreeSet, str::FromStr};

use crate::world::Store;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// `kill -9` of a process, started again a while later.
    Kill,
    /// SIGSTOP until the leases of whatever it held have run out, then SIGCONT.
    Stop,
    /// SIGTERM, and started again when it has ended.
    Restart,
    /// The connections of a road are reset, and new ones too.
    Cut,
    /// A road is slow.
    Delay,
    /// What is sent on a road arrives when the fault ends.
    Stall,
    /// A road swallows everything and says nothing.
    HalfOpen,
    /// Requests arrive, answers do not.
    DropReply,
    /// Every session of the services is ended by the database.
    EndSessions,
    /// The primary is stopped at once, and started again.
    PostgresRestart,
    /// The primary is killed and the standby takes its place.
    Failover,
    /// The acquirer answers 503.
    Outage,
    /// The acquirer's front answers 400 to everything.
    Refusals,
    /// The acquirer answers later than anybody waits.
    SlowAcquirer,
    /// Webhooks do not arrive.
    WebhookLost,
    /// Webhooks arrive several times.
    WebhookRepeated,
    /// Webhooks arrive in another order, late.
    WebhookReordered,
    /// Webhooks arrive that the acquirer did not sign.
    WebhookForged,
    /// The wall clock of one process is ten minutes off.
    Clock,
    /// The disk of the SQLite files is full.
    DiskFull,
    /// Buyers hang up in the middle of requests. They do it by themselves, all the time.
    ClientGone,
}

/// Each kind, its name, and how often it is chosen among the others.
const ALL: [(Kind, &str, u32); 21] = [
    (Kind::Kill, "kill", 14),
    (Kind::Stop, "stop", 8),
    (Kind::Restart, "restart", 8),
    (Kind::Cut, "cut", 12),
    (Kind::Delay, "delay", 8),
    (Kind::Stall, "stall", 10),
    (Kind::HalfOpen, "half-open", 10),
    (Kind::DropReply, "drop-reply", 14),
    (Kind::EndSessions, "end-sessions", 5),
    (Kind::PostgresRestart, "postgres-restart", 3),
    (Kind::Failover, "failover", 5),
    (Kind::Outage, "outage", 4),
    (Kind::Refusals, "refusals", 4),
    (Kind::SlowAcquirer, "slow-acquirer", 5),
    (Kind::WebhookLost, "webhook-lost", 3),
    (Kind::WebhookRepeated, "webhook-repeated", 3),
    (Kind::WebhookReordered, "webhook-reordered", 3),
    (Kind::WebhookForged, "webhook-forged", 3),
    (Kind::Clock, "clock", 5),
    (Kind::DiskFull, "disk-full", 12),
    (Kind::ClientGone, "client-gone", 0),
];

/// What `--faults` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kinds(BTreeSet<Kind>);

// === impl Kind ===

impl Kind {
    /// As in `--faults`.
    pub fn name(self) -> &'static str {
        ALL[self as usize].1
    }

    /// How often it is chosen among the others.
    pub fn weight(self) -> u32 {
        ALL[self as usize].2
    }

    /// Does it exist on this store?
    pub fn is_possible_on(self, store: Store) -> bool {
        match self {
            Self::DiskFull => store == Store::Sqlite,
            Self::EndSessions | Self::PostgresRestart | Self::Failover => store == Store::Postgres,
            _ => true,
        }
    }
}

// === impl Kinds ===

impl Kinds {
    /// The chosen ones that exist on this store, in a fixed order.
    pub fn on(&self, store: Store) -> Vec<Kind> {
        self.0.iter().copied().filter(|kind| kind.is_possible_on(store)).collect()
    }

    /// Is it among them?
    pub fn contains(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |name: &str| ALL.iter().find(|(_, of, _)| *of == name).map(|(kind, ..)| *kind);
        match text {
            "none" => Ok(Self(BTreeSet::new())),
            "all" => Ok(Self(ALL.iter().map(|(kind, ..)| *kind).collect())),
            list => list
                .split(',')
                .map(|name| named(name.trim()).ok_or_else(|| format!("{name} is none of: all, none, {}", names())))
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

impl std::fmt::Display for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.len() {
            0 => f.write_str("none"),
            count if count == ALL.len() => f.write_str("all"),
            _ => f.write_str(&self.0.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")),
        }
    }
}

fn names() -> String {
    ALL.map(|(_, name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_kinds_and_names_are_read_back() {
        for (place, (kind, name, _)) in ALL.iter().enumerate() {
            assert_eq!((*kind as usize, kind.name()), (place, *name));
        }
        for text in ["all", "none", "kill,failover", "client-gone"] {
            assert_eq!(text.parse::<Kinds>().unwrap().to_string(), text);
        }
        assert!("kill,meteor".parse::<Kinds>().unwrap_err().contains("meteor is none of: all, none, kill"));
    }

    #[test]
    fn each_store_has_its_own_faults() {
        let all: Kinds = "all".parse().unwrap();
        let (postgres, sqlite) = (all.on(Store::Postgres), all.on(Store::Sqlite));
        assert!(postgres.contains(&Kind::Failover) && !postgres.contains(&Kind::DiskFull));
        assert!(sqlite.contains(&Kind::DiskFull) && !sqlite.contains(&Kind::Failover));
    }
}
