//! A thousand callers go away at any moment, on a pool of one connection: each key is as before or as after, no claim is lost, and
//! the next caller is served in time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use database::testing::{Scratch, postgres_url};
use database::{Clock, Database, Options, StoreUrl};
use idem_core::{Answer, Command, Record, State, decide};
use idem_service::Sealing;
use idem_service::batch::{BatchingStore, Flights};
use idem_service::engine::Engine;
use idem_service::store::postgres::PostgresStore;
use idem_service::store::{KeyId, SCHEMA, Store};
use tokio::time::{Instant, timeout};
use tokio_postgres::NoTls;

use super::bench::*;
use super::postgres::Chance;

const KEYS: u128 = 250;
const ROUNDS: u128 = 4;
/// Calls at a time: some wait for the connection, some for a place in a batch, some for an answer.
const AT_ONCE: usize = 10;

const BUSY: &str = "\
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";

struct Crowd {
    engine: Engine,
    store: Arc<dyn Store>,
    scratch: Scratch,
    chance: Chance,
    /// What stands under each key, as far as everybody knows.
    known: BTreeMap<KeyId, Option<Record>>,
}

impl Crowd {
    async fn gather(is_batching: bool) -> Self {
        let scratch = postgres_url("dropped").await;
        let options = Options { pool_size: 1, plan_by_index: true, ..Options::default() };
        let Database::Postgres(postgres) = Database::open(&scratch, &SCHEMA, Clock::system(), options).await.unwrap()
        else {
            panic!("not Postgres")
        };
        let plain: Arc<dyn Store> = Arc::new(PostgresStore::new(postgres, Sealing::off()));
        let store: Arc<dyn Store> =
            if is_batching { Arc::new(BatchingStore::new(plain, Flights::POSTGRES)) } else { plain };
        let seed = std::env::var("IDEM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        println!("IDEM_TEST_SEED={seed}");
        let known = (0..KEYS).map(|n| (key(&format!("k{n}")), None)).collect();
        let engine = Engine::new(store.clone(), Clock::system(), 0);
        Self { engine, store, scratch, chance: Chance(seed), known }
    }

    /// Something that can be asked of a key as it is. An attempt is named after its key and repeated as it was.
    fn command(&mut self, key: &KeyId, n: u128) -> Command {
        match &self.known[key] {
            Some(record) if record.state == State::InProgress => match self.chance.below(4) {
                0 => completing(record, answer("done")),
                1 => releasing(record),
                2 => abandoning(record),
                _ => renewing(record),
            },
            Some(record) if record.state == State::InDoubt => reclaiming(record, n + 1_000_000),
            _ => reserving(n + 1),
        }
    }

    /// One call for every key, each dropped at a moment of its own. Returns what each key may have become.
    async fn drop_a_round(&mut self, round: u128) -> BTreeMap<KeyId, Option<Record>> {
        let keys: Vec<_> = self.known.keys().cloned().collect();
        let calls: Vec<_> = keys
            .into_iter()
            .zip(0..)
            .map(|(key, n)| {
                let command = self.command(&key, round * KEYS + n);
                (key, command, self.chance.below(40), self.chance.below(2500))
            })
            .collect();
        let mut after = BTreeMap::new();
        let engine = &self.engine;
        for some in calls.chunks(AT_ONCE) {
            let dropped = some.iter().map(|(key, command, polls, micros)| async move {
                let call = engine.carry_out(key, command.clone(), None);
                let moment = async {
                    for _ in 0..*polls {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::sleep(Duration::from_micros(*micros)).await;
                };
                tokio::select! {
                    biased;
                    () = moment => {}
                    done = call => drop(done.unwrap()),
                }
            });
            futures::future::join_all(dropped).await;
        }
        for (key, command, ..) in calls {
            let next = match decide(self.known[&key].as_ref(), command) {
                idem_core::Verdict::Put(put, _) => Some(put.record),
                idem_core::Verdict::Keep(_) => self.known[&key].clone(),
            };
            after.insert(key, next);
        }
        after
    }

    /// What stands under every key now.
    async fn look(&self) -> BTreeMap<KeyId, Option<Record>> {
        let keys: Vec<_> = self.known.keys().cloned().collect();
        let snapshots = self.store.load(&keys).await.unwrap();
        keys.into_iter().zip(snapshots.into_iter().map(|snapshot| snapshot.record)).collect()
    }
}

/// Waits until no session of ours is active or in a transaction.
async fn until_quiet(scratch: &Scratch) {
    let StoreUrl::Postgres(config) = scratch.direct() else { panic!("not Postgres") };
    let (client, connection) = config.connect(NoTls).await.unwrap();
    drop(chassis::tasks::Tasks::new().spawn("client", connection));
    let (end, mut quiet) = (Instant::now() + Duration::from_secs(10), 0);
    // Several times in a row: between two statements of one batch it is quiet, too.
    while quiet < 5 {
        let is_busy = client.query_one(BUSY, &[]).await.unwrap().get::<_, i64>(0) != 0;
        quiet = if is_busy { 0 } else { quiet + 1 };
        assert!(Instant::now() < end, "a session stays active or in a transaction");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_thousand_calls_are_dropped(is_batching: bool) {
    let mut crowd = Crowd::gather(is_batching).await;
    let (mut landed, mut lost) = (0, 0);
    for round in 0..ROUNDS {
        let after = crowd.drop_a_round(round).await;
        until_quiet(&crowd.scratch).await;
        let now = timeout(Duration::from_secs(2), crowd.look()).await.expect("the next one is served in time");
        for (key, record) in &now {
            let (before, after) = (&crowd.known[key], &after[key]);
            assert!(record == before || record == after, "{key:?}: {record:?} is neither {before:?} nor {after:?}");
            if record == after && before != after {
                landed += 1;
            } else {
                lost += 1;
            }
        }
        crowd.known = now;
    }
    println!("{landed} calls landed and {lost} did not");
    assert!(landed > 0 && lost > 0, "both happened: {landed} landed, {lost} did not");
    // No claim is lost: whoever was granted a key and never heard of it asks again with the same attempt.
    for (key, record) in &crowd.known {
        let Some(record) = record.as_ref().filter(|record| record.state == State::InProgress) else { continue };
        let n = record.attempt_id.0.as_u128();
        if n > 1_000_000 {
            continue;
        }
        let granted = crowd.engine.carry_out(key, reserving(n), None).await.unwrap().answer;
        let Answer::Granted(grant) = granted else { panic!("{key:?}: {granted:?}") };
        assert_eq!((grant.operation_id, grant.token), (record.operation_id, record.token));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dropped_calls_leave_a_pool_of_one_in_order_on_postgres() {
    a_thousand_calls_are_dropped(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_dropped_calls_in_batches_leave_a_pool_of_one_in_order_on_postgres() {
    a_thousand_calls_are_dropped(true).await;
}
