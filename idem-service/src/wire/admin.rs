//! Requests and answers of the admin service ⇄ what the engine is asked.

use std::time::Duration;

use idem_core::{Command, FencingToken, IdempotencyKey, OperationId, Scope, State, StateName};
use idem_proto::idem::v1 as proto;
use proto::resolve_request::Action;

use super::violations::Violations;
use super::{page, record, timestamp};
use crate::engine::Outcome;
use crate::status::Refusal;
use crate::store::{AuditRow, Counts, Cursor, Entry, KeyId, LiveKeys, ScopePattern};

const PAGE_SIZE_DEFAULT: u32 = 100;
const PAGE_SIZE_MAX: u32 = 500;
const REASON_CHARS_MAX: usize = 1000;
const OPERATOR_CHARS_MAX: usize = 200;

/// Which records to list, in the caller's words.
pub(crate) struct List {
    pub(crate) scope: Option<ScopePattern>,
    pub(crate) states: Vec<StateName>,
    pub(crate) older_than: Duration,
    pub(crate) operation_id: Option<OperationId>,
    pub(crate) after: Option<Cursor>,
    pub(crate) page_size: u32,
}

/// Which lines of the audit table to list.
pub(crate) struct ListAudit {
    pub(crate) scope: Option<ScopePattern>,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) before: Option<i64>,
    pub(crate) page_size: u32,
}

/// Which stale keys to hand out, and how long to hide them.
pub(crate) struct ListStale {
    pub(crate) scope: Option<ScopePattern>,
    pub(crate) limit: u32,
    pub(crate) hide: Duration,
}

/// A key to settle by hand, and what goes into the audit table.
pub(crate) struct Resolve {
    pub(crate) key: KeyId,
    pub(crate) command: Command,
    pub(crate) action: &'static str,
    pub(crate) reason: String,
    pub(crate) operator: String,
}

pub(crate) fn list(request: proto::ListRequest) -> Result<List, Refusal> {
    let mut violations = Violations::default();
    let scope = scope_pattern(&mut violations, request.scope);
    let states: Vec<_> = request.states.into_iter().map(|state| state_name(&mut violations, state)).collect();
    let older_than = violations.duration("older_than", request.older_than, Duration::ZERO);
    let operation_id = match request.operation_id.as_str() {
        "" => Some(None),
        text => violations.operation_id(text).map(Some),
    };
    let page_size = page_size(&mut violations, "page_size", request.page_size);
    let after = page_token(&mut violations, &request.page_token);
    let list = || {
        Some(List {
            scope: scope?,
            states: states.into_iter().collect::<Option<_>>()?,
            older_than: older_than?,
            operation_id: operation_id?,
            after: after?,
            page_size: page_size?,
        })
    };
    let list = list();
    violations.finish(list)
}

/// `entries` may hold one more than `page_size`: then there is a next page.
pub(crate) fn list_response(mut entries: Vec<Entry>, page_size: u32) -> proto::ListResponse {
    let page_size = page_size as usize;
    let has_more = entries.len() > page_size;
    entries.truncate(page_size);
    let next_page_token = match entries.last() {
        Some(last) if has_more => page::write(&Cursor { since: last.snapshot.since(), key: last.key.clone() }),
        _ => String::new(),
    };
    proto::ListResponse { records: entries.iter().filter_map(record::listed).collect(), next_page_token }
}

/// The scopes that a Stats asks for; none for every scope of the caller.
pub(crate) fn stats(request: proto::StatsRequest) -> Result<Option<ScopePattern>, Refusal> {
    let mut violations = Violations::default();
    let scope = scope_pattern(&mut violations, request.scope);
    violations.finish(scope)
}

pub(crate) fn stats_response(counts: &Counts) -> proto::StatsResponse {
    proto::StatsResponse {
        in_progress: counts.in_progress,
        lease_over: counts.lease_over,
        in_doubt: counts.in_doubt,
        completed: counts.completed,
        released: counts.released,
        expired: counts.expired,
        oldest_in_doubt_at: timestamp(counts.oldest_in_doubt_at),
    }
}

pub(crate) fn list_audit(request: proto::ListAuditRequest) -> Result<ListAudit, Refusal> {
    let mut violations = Violations::default();
    let scope = scope_pattern(&mut violations, request.scope);
    let key = match request.key {
        none if none.is_empty() => Some(None),
        key => violations.take("key", IdempotencyKey::new(key)).map(Some),
    };
    let page_size = page_size(&mut violations, "page_size", request.page_size);
    let before = Some(request.before_id).filter(|id| *id != 0);
    let list_audit = || Some(ListAudit { scope: scope?, key: key?, before, page_size: page_size? });
    let list_audit = list_audit();
    violations.finish(list_audit)
}

pub(crate) fn list_audit_response(lines: Vec<AuditRow>) -> proto::ListAuditResponse {
    let entry = |line: AuditRow| proto::AuditEntry {
        id: line.id,
        scope: line.key.scope.as_str().to_owned(),
        key: line.key.key.as_str().to_owned(),
        operation_id: line.operation_id.to_string(),
        fencing_token_before: line.token_before.map_or(0, |token| token.0),
        fencing_token_after: line.token_after.0,
        action: line.action,
        reason: line.reason,
        operator: line.operator,
        service: line.service,
        at: timestamp(Some(line.at)),
    };
    proto::ListAuditResponse { entries: lines.into_iter().map(entry).collect() }
}

/// The scopes that a CountLive asks for; none for every scope of the caller.
pub(crate) fn count_live(request: proto::CountLiveRequest) -> Result<Option<ScopePattern>, Refusal> {
    let mut violations = Violations::default();
    let scope = scope_pattern(&mut violations, request.scope);
    violations.finish(scope)
}

pub(crate) fn count_live_response(live: Vec<LiveKeys>) -> proto::CountLiveResponse {
    let scope = |live: LiveKeys| proto::LiveKeys { scope: live.scope.as_str().to_owned(), keys: live.keys };
    proto::CountLiveResponse { scopes: live.into_iter().map(scope).collect() }
}

pub(crate) fn list_stale(request: proto::ListStaleRequest) -> Result<ListStale, Refusal> {
    let mut violations = Violations::default();
    let limit = page_size(&mut violations, "limit", request.limit);
    let hide = violations.lease("recovery_lease", request.recovery_lease);
    let scope = scope_pattern(&mut violations, request.scope);
    let list_stale = || Some(ListStale { scope: scope?, limit: limit?, hide: hide?.get() });
    let list_stale = list_stale();
    violations.finish(list_stale)
}

pub(crate) fn list_stale_response(entries: &[Entry]) -> proto::ListStaleResponse {
    proto::ListStaleResponse { records: entries.iter().filter_map(record::listed).collect() }
}

pub(crate) fn resolve(request: proto::ResolveRequest) -> Result<Resolve, Refusal> {
    let mut violations = Violations::default();
    let key = violations.key_id(request.scope, request.key);
    let seen = match request.fencing_token {
        0 => Some(None),
        token if token > 0 => Some(Some(FencingToken(token))),
        _ => violations.refuse("fencing_token", "must be the token that you saw, or 0 for whatever is there"),
    };
    let reason = text(&mut violations, "reason", request.reason, 1, REASON_CHARS_MAX);
    let operator = text(&mut violations, "operator", request.operator, 0, OPERATOR_CHARS_MAX);
    let outcome = match request.action {
        Some(Action::Complete(response)) => {
            violations.final_response("complete", response).map(|response| ("complete", State::Completed(response)))
        }
        Some(Action::Release(_)) => Some(("release", State::Released)),
        Some(Action::Abandon(_)) => Some(("abandon", State::InDoubt)),
        None => violations.refuse("action", "is missing: complete, release or abandon"),
    };
    let resolve = || {
        let (action, outcome) = outcome?;
        let command = Command::Resolve { seen: seen?, outcome };
        Some(Resolve { key: key?, command, action, reason: reason?, operator: operator? })
    };
    let resolve = resolve();
    violations.finish(resolve)
}

pub(crate) fn resolve_response(key: &KeyId, outcome: &Outcome) -> proto::ResolveResponse {
    proto::ResolveResponse {
        record: record::key_record(key, &outcome.snapshot),
        resolved_at: timestamp(Some(outcome.snapshot.times.updated_at)),
    }
}

/// Nothing for an empty text; otherwise an exact scope, or a prefix that ends in `*`.
fn scope_pattern(violations: &mut Violations, text: String) -> Option<Option<ScopePattern>> {
    if text.is_empty() {
        return Some(None);
    }
    let pattern = match text.strip_suffix('*') {
        Some("") => Ok(ScopePattern::Prefix(String::new())),
        Some(prefix) => Scope::new(prefix).map(|prefix| ScopePattern::Prefix(prefix.as_str().to_owned())),
        None => Scope::new(text).map(|scope| ScopePattern::Exact(scope.as_str().to_owned())),
    };
    violations.take("scope", pattern).map(Some)
}

fn state_name(violations: &mut Violations, state: i32) -> Option<StateName> {
    match proto::State::try_from(state) {
        Ok(proto::State::InProgress) => Some(StateName::InProgress),
        Ok(proto::State::InDoubt) => Some(StateName::InDoubt),
        Ok(proto::State::Completed) => Some(StateName::Completed),
        Ok(proto::State::Released) => Some(StateName::Released),
        Ok(proto::State::Unspecified) | Err(_) => violations.refuse("states", format_args!("{state} is no state")),
    }
}

fn page_size(violations: &mut Violations, field: &str, size: u32) -> Option<u32> {
    match size {
        0 => Some(PAGE_SIZE_DEFAULT),
        1..=PAGE_SIZE_MAX => Some(size),
        _ => violations.refuse(field, format_args!("must be at most {PAGE_SIZE_MAX}")),
    }
}

fn page_token(violations: &mut Violations, token: &str) -> Option<Option<Cursor>> {
    match page::read(token) {
        Some(cursor) => Some(Some(cursor)),
        None if token.is_empty() => Some(None),
        None => violations.refuse("page_token", "is not a next_page_token of this service"),
    }
}

fn text(violations: &mut Violations, field: &str, text: String, min: usize, max: usize) -> Option<String> {
    let text = text.trim();
    if text.chars().any(|char| char.is_control() && char != '\n') {
        return violations.refuse(field, "must not contain control characters");
    }
    match text.chars().count() {
        chars if chars < min => violations.refuse(field, "is missing"),
        chars if chars > max => violations.refuse(field, format_args!("must be at most {max} characters")),
        _ => Some(text.to_owned()),
    }
}
