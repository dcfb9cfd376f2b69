//! A store in memory, over a clock that stands still until it is moved: the double for tests, held to the same conformance suite.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use database::Clock;
use idem_core::{IdempotencyKey, Put, Record, Response, Scope, State, StateName, Until};

use super::{
    Audit, AuditRow, Counts, Cursor, Entry, Filter, KeyId, LIVE_SCOPES_MAX, LiveKeys, Open, ScopePattern, Snapshot,
    Store, StoreError, Swap, SwapRequest, Times, Version, stored,
};

/// 2030-01-01T00:00:00Z, where the clock starts.
const START: Duration = Duration::from_secs(1_893_456_000);

/// A store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    rows: Mutex<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    keys: BTreeMap<KeyId, Row>,
    audits: Vec<AuditRow>,
}

#[derive(Debug)]
struct Row {
    record: Record,
    number: i64,
    times: Times,
    handed_out_until: Option<SystemTime>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty store. Its clock starts in 2030 and moves by hand only.
    pub fn new(clock: Clock) -> Self {
        Self { clock, rows: Mutex::default() }
    }

    /// What was audited, oldest first.
    pub fn audited(&self) -> Vec<AuditRow> {
        self.rows().audits.clone()
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + START + self.clock.offset()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().expect("nothing panics while it holds this lock")
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load(&self, keys: &[KeyId]) -> Result<Vec<Snapshot>, StoreError> {
        let (now, rows) = (self.now(), self.rows());
        Ok(keys.iter().map(|key| rows.snapshot(key, now)).collect())
    }

    async fn swap(&self, writes: Vec<SwapRequest>) -> Result<Vec<Swap>, StoreError> {
        let (now, mut rows) = (self.now(), self.rows());
        // As in an engine, a statement is carried out as a whole or not at all.
        writes.iter().try_for_each(|write| check(&write.put))?;
        Ok(writes.into_iter().map(|write| rows.swap(write, now)).collect())
    }

    async fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: u32) -> Result<Vec<Entry>, StoreError> {
        let (now, rows) = (self.now(), self.rows());
        let mut listed: Vec<(&KeyId, &Row)> =
            rows.keys.iter().filter(|(key, row)| row.fits(filter, key, now)).collect();
        let since = |row: &Row| row.snapshot(now).since();
        listed.sort_by_key(|(key, row)| (since(row), *key));
        let after = after.map(|cursor| (cursor.since, &cursor.key));
        let page = listed.into_iter().filter(|(key, row)| after.is_none_or(|after| (since(row), *key) > after));
        Ok(page.take(limit as usize).map(|(key, row)| row.entry(key, now)).collect())
    }

    async fn count(&self, scopes: &[ScopePattern]) -> Result<Counts, StoreError> {
        let (now, rows) = (self.now(), self.rows());
        let mut counts = Counts::default();
        for (_, row) in rows.keys.iter().filter(|(key, _)| scopes.iter().any(|scope| scope.matches(&key.scope))) {
            row.count(&mut counts, now);
        }
        Ok(counts)
    }

    async fn count_open(&self) -> Result<Open, StoreError> {
        let (now, rows) = (self.now(), self.rows());
        let mut open = Open::default();
        let older = |oldest: Option<Duration>, age: Duration| Some(oldest.map_or(age, |oldest| oldest.max(age)));
        for row in rows.keys.values() {
            let record = row.snapshot(now).record.expect("a row has a record");
            let age = now.duration_since(row.times.created_at).unwrap_or_default();
            match record.state.name() {
                StateName::InProgress if record.is_lease_over() => {
                    open.lease_over += 1;
                    open.oldest_lease_over = older(open.oldest_lease_over, age);
                }
                StateName::InProgress => open.held += 1,
                StateName::InDoubt => {
                    open.in_doubt += 1;
                    open.oldest_in_doubt = older(open.oldest_in_doubt, age);
                }
                StateName::Completed | StateName::Released => {}
            }
        }
        Ok(open)
    }

    async fn audits(
        &self,
        scopes: &[ScopePattern],
        key: Option<&IdempotencyKey>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let rows = self.rows();
        let is_wanted = |row: &&AuditRow| {
            scopes.iter().any(|scope| scope.matches(&row.key.scope))
                && key.is_none_or(|key| row.key.key == *key)
                && before.is_none_or(|before| row.id < before)
        };
        Ok(rows.audits.iter().rev().filter(is_wanted).take(limit as usize).cloned().collect())
    }

    async fn count_live(&self, scopes: &[ScopePattern]) -> Result<Vec<LiveKeys>, StoreError> {
        let rows = self.rows();
        let mut live: BTreeMap<&Scope, u64> = BTreeMap::new();
        let is_live = |row: &Row| matches!(row.record.state, State::InProgress | State::InDoubt);
        for (key, _) in rows.keys.iter().filter(|(_, row)| is_live(row)) {
            if scopes.iter().any(|scope| scope.matches(&key.scope)) {
                *live.entry(&key.scope).or_default() += 1;
            }
        }
        let mut live: Vec<LiveKeys> =
            live.into_iter().map(|(scope, keys)| LiveKeys { scope: scope.clone(), keys }).collect();
        live.sort_by(|a, b| (b.keys, &a.scope).cmp(&(a.keys, &b.scope)));
        live.truncate(LIVE_SCOPES_MAX as usize);
        Ok(live)
    }

    async fn hand_out_stale(
        &self,
        scopes: &[ScopePattern],
        limit: u32,
        hide: Duration,
    ) -> Result<Vec<Entry>, StoreError> {
        let (now, mut rows) = (self.now(), self.rows());
        let mut stale: Vec<(&KeyId, &mut Row)> = rows
            .keys
            .iter_mut()
            .filter(|(key, row)| row.is_waiting(now) && scopes.iter().any(|scope| scope.matches(&key.scope)))
            .collect();
        stale.sort_by_key(|(key, row)| (row.times.lease_until.unwrap_or(row.times.updated_at), *key));
        stale.truncate(limit as usize);
        Ok(stale
            .into_iter()
            .map(|(key, row)| {
                row.handed_out_until = Some(now + hide);
                row.entry(key, now)
            })
            .collect())
    }

    async fn purge(&self, limit: u32) -> Result<u64, StoreError> {
        let (now, mut rows) = (self.now(), self.rows());
        let is_over = |(_, row): &(&KeyId, &Row)| row.times.expires_at.is_some_and(|expires_at| expires_at <= now);
        let over: Vec<KeyId> =
            rows.keys.iter().filter(is_over).take(limit as usize).map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| drop(rows.keys.remove(key)));
        Ok(over.len() as u64)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

// === impl Rows ===

impl Rows {
    fn snapshot(&self, key: &KeyId, now: SystemTime) -> Snapshot {
        self.keys.get(key).map_or_else(|| stored::absent(now), |row| row.snapshot(now))
    }

    fn swap(&mut self, write: SwapRequest, now: SystemTime) -> Swap {
        let SwapRequest { key, seen, put, audit, until: _ } = write;
        let truth = self.snapshot(&key, now);
        let is_over = truth.record.as_ref().is_none_or(Record::is_over);
        if truth.version != seen || put.is_new != is_over {
            return Swap::Lost(truth);
        }
        let number = match seen {
            Version::Absent => 1,
            Version::At { number, .. } => number + 1,
        };
        let created_at = if put.is_new { now } else { truth.times.created_at };
        let times = Times { created_at, ..stored::times(&put, now) };
        let snapshot = stored::written(&put, number, times);
        let record = snapshot.record.clone().expect("what was written is there");
        if let Some(audit) = audit {
            let token_before = truth.record.map(|record| record.token);
            let (operation_id, token_after) = (record.operation_id, record.token);
            let id = self.audits.len() as i64 + 1;
            let Audit { action, reason, operator, service } = audit;
            let (key, action) = (key.clone(), action.to_owned());
            let line = AuditRow {
                id,
                key,
                operation_id,
                token_before,
                token_after,
                action,
                reason,
                operator,
                service,
                at: now,
            };
            self.audits.push(line);
        }
        let handed_out_until = self.keys.get(&key).filter(|_| !put.is_new).and_then(|row| row.handed_out_until);
        self.keys.insert(key, Row { record, number, times, handed_out_until });
        Swap::Won(snapshot)
    }
}

/// What the engines refuse by a `CHECK`: a deadline that does not belong to the state.
fn check(put: &Put) -> Result<(), StoreError> {
    match (&put.record.state, put.until) {
        (State::InProgress, Until::Lease(_))
        | (State::InDoubt, Until::Never)
        | (State::Completed(_) | State::Released, Until::Retention(_)) => Ok(()),
        (state, until) => {
            let mistake = format!("a record {} cannot be kept until {until:?}", state.name().as_str());
            Err(StoreError::Broken(mistake.into()))
        }
    }
}

// === impl Row ===

impl Row {
    fn snapshot(&self, now: SystemTime) -> Snapshot {
        let deadline = stored::judge(&self.record.state, &self.times, now);
        let record = Record { deadline, ..self.record.clone() };
        let version = Version::At { operation_id: record.operation_id, number: self.number };
        Snapshot { record: Some(record), version, times: self.times, now }
    }

    /// The snapshot as listings show it: without the body of an answer.
    fn entry(&self, key: &KeyId, now: SystemTime) -> Entry {
        let mut snapshot = self.snapshot(now);
        if let Some(Record { state: State::Completed(response), .. }) = &mut snapshot.record {
            let (headers, resource_id) = (response.headers().to_vec(), response.resource_id().to_owned());
            *response = Response::new(response.status().into(), headers, Bytes::new(), resource_id)
                .expect("a response without its body is within the bounds");
        }
        Entry { key: key.clone(), snapshot }
    }

    fn fits(&self, filter: &Filter, key: &KeyId, now: SystemTime) -> bool {
        filter.scopes.iter().any(|scope| scope.matches(&key.scope))
            && (filter.states.is_empty() || filter.states.contains(&self.record.state.name()))
            && filter.operation_id.is_none_or(|operation_id| self.record.operation_id == operation_id)
            && now.duration_since(self.snapshot(now).since()).is_ok_and(|age| age >= filter.older_than)
    }

    fn is_waiting(&self, now: SystemTime) -> bool {
        let is_stale = match self.record.state {
            State::InProgress => self.times.lease_until.is_some_and(|lease_until| lease_until <= now),
            State::InDoubt => true,
            State::Completed(_) | State::Released => false,
        };
        is_stale && self.handed_out_until.is_none_or(|until| until <= now)
    }

    fn count(&self, counts: &mut Counts, now: SystemTime) {
        let record = self.snapshot(now).record.expect("a row has a record");
        match record.state.name() {
            _ if record.is_over() => counts.expired += 1,
            StateName::InProgress => {
                counts.in_progress += 1;
                counts.lease_over += u64::from(record.is_lease_over());
            }
            StateName::InDoubt => {
                counts.in_doubt += 1;
                let oldest = counts.oldest_in_doubt_at.unwrap_or(self.times.created_at);
                counts.oldest_in_doubt_at = Some(oldest.min(self.times.created_at));
            }
            StateName::Completed => counts.completed += 1,
            StateName::Released => counts.released += 1,
        }
    }
}
