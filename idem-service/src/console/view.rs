//! What the page asks and sees, as JSON. A body is written by it, never shown.

use idem_proto::idem::v1 as proto;
use proto::resolve_request::Action;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StatsQuery {
    #[serde(default)]
    scope: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeysQuery {
    #[serde(default)]
    scope: String,
    /// State names, separated by commas; empty for all.
    #[serde(default)]
    states: String,
    #[serde(default)]
    older_than_seconds: u32,
    #[serde(default)]
    operation_id: String,
    #[serde(default)]
    page_size: u32,
    #[serde(default)]
    page_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AuditQuery {
    #[serde(default)]
    scope: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    page_size: u32,
    #[serde(default)]
    before_id: i64,
}

#[derive(Serialize)]
pub(super) struct AuditPage {
    entries: Vec<AuditLine>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AuditLine {
    id: i64,
    scope: String,
    key: String,
    operation_id: String,
    fencing_token_before: i64,
    fencing_token_after: i64,
    action: String,
    reason: String,
    operator: String,
    service: String,
    at: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneQuery {
    pub(super) scope: String,
    pub(super) key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ResolveBody {
    scope: String,
    key: String,
    /// As shown; 0 settles whatever is there.
    fencing_token: i64,
    reason: String,
    #[serde(default)]
    operator: String,
    action: ResolveAction,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum ResolveAction {
    Complete {
        status: u32,
        #[serde(default, rename = "contentType")]
        content_type: String,
        #[serde(default)]
        body: String,
        #[serde(default, rename = "resourceId")]
        resource_id: String,
    },
    Release {},
    Abandon {},
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stats {
    in_progress: u64,
    lease_over: u64,
    in_doubt: u64,
    completed: u64,
    released: u64,
    expired: u64,
    oldest_in_doubt_at: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Keys {
    keys: Vec<Key>,
    next_page_token: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Key {
    scope: String,
    key: String,
    state: &'static str,
    /// What this state means here, and what happens next.
    explanation: &'static str,
    lease_over: bool,
    operation_id: String,
    fencing_token: i64,
    attempts: u32,
    created_at: Option<String>,
    updated_at: Option<String>,
    lease_expires_at: Option<String>,
    completed_at: Option<String>,
    expires_at: Option<String>,
    status: Option<u32>,
    resource_id: String,
    trace_context: String,
}

impl From<StatsQuery> for proto::StatsRequest {
    fn from(query: StatsQuery) -> Self {
        Self { scope: query.scope }
    }
}

impl TryFrom<KeysQuery> for proto::ListRequest {
    type Error = String;

    fn try_from(query: KeysQuery) -> Result<Self, String> {
        let names = query.states.split(',').map(str::trim).filter(|name| !name.is_empty());
        let states: Result<Vec<i32>, String> =
            names.map(|name| state_number(name).ok_or_else(|| unknown(name))).collect();
        Ok(Self {
            scope: query.scope,
            states: states?,
            older_than: Some(prost_types::Duration { seconds: query.older_than_seconds.into(), nanos: 0 }),
            page_size: query.page_size,
            page_token: query.page_token,
            operation_id: query.operation_id,
        })
    }
}

impl From<AuditQuery> for proto::ListAuditRequest {
    fn from(query: AuditQuery) -> Self {
        let AuditQuery { scope, key, page_size, before_id } = query;
        Self { scope, key, page_size, before_id }
    }
}

impl From<proto::ListAuditResponse> for AuditPage {
    fn from(page: proto::ListAuditResponse) -> Self {
        let line = |entry: proto::AuditEntry| AuditLine {
            id: entry.id,
            scope: entry.scope,
            key: entry.key,
            operation_id: entry.operation_id,
            fencing_token_before: entry.fencing_token_before,
            fencing_token_after: entry.fencing_token_after,
            action: entry.action,
            reason: entry.reason,
            operator: entry.operator,
            service: entry.service,
            at: text(entry.at),
        };
        Self { entries: page.entries.into_iter().map(line).collect() }
    }
}

impl From<ResolveBody> for proto::ResolveRequest {
    fn from(body: ResolveBody) -> Self {
        let ResolveBody { scope, key, fencing_token, reason, operator, action } = body;
        let action = match action {
            ResolveAction::Release {} => Action::Release(proto::ResolveRelease {}),
            ResolveAction::Abandon {} => Action::Abandon(proto::ResolveAbandon {}),
            ResolveAction::Complete { status, content_type, body, resource_id } => {
                let header = proto::Header { name: "content-type".to_owned(), value: content_type };
                let headers = if header.value.is_empty() { Vec::new() } else { vec![header] };
                Action::Complete(proto::StoredResponse { status, headers, body: body.into(), resource_id })
            }
        };
        Self { scope, key, fencing_token, reason, operator, action: Some(action) }
    }
}

impl From<proto::StatsResponse> for Stats {
    fn from(stats: proto::StatsResponse) -> Self {
        Self {
            in_progress: stats.in_progress,
            lease_over: stats.lease_over,
            in_doubt: stats.in_doubt,
            completed: stats.completed,
            released: stats.released,
            expired: stats.expired,
            oldest_in_doubt_at: text(stats.oldest_in_doubt_at),
        }
    }
}

impl From<proto::ListResponse> for Keys {
    fn from(list: proto::ListResponse) -> Self {
        let keys = list.records.into_iter().map(Key::from).collect();
        Self { keys, next_page_token: list.next_page_token }
    }
}

impl From<proto::KeyRecord> for Key {
    fn from(record: proto::KeyRecord) -> Self {
        let state = record.state();
        Self {
            state: state_name(state),
            explanation: explain(state, record.lease_over),
            lease_over: record.lease_over,
            status: (state == proto::State::Completed).then_some(record.status),
            scope: record.scope,
            key: record.key,
            operation_id: record.operation_id,
            fencing_token: record.fencing_token,
            attempts: record.attempts,
            created_at: text(record.created_at),
            updated_at: text(record.updated_at),
            lease_expires_at: text(record.lease_expires_at),
            completed_at: text(record.completed_at),
            expires_at: text(record.expires_at),
            resource_id: record.resource_id,
            trace_context: record.trace_context,
        }
    }
}

/// Why a key is as it is, for somebody who was woken up.
fn explain(state: proto::State, lease_over: bool) -> &'static str {
    match state {
        proto::State::Unspecified => "There is no record.",
        proto::State::InProgress if lease_over => {
            "Its holder has not come back in time and may or may not have acted. The next retry, or a reconciler, takes \
             over, asks the system of record, and finishes it. If neither happens, see whether they run and reach it."
        }
        proto::State::InProgress => {
            "Somebody is working on it and is presumed alive until the lease ends. Retries are told to wait."
        }
        proto::State::InDoubt => {
            "Its holder said that it does not know what happened, or the acquirer has not decided. The next retry, or a \
             reconciler, asks the system of record. It stays so until the answer is in; it never expires."
        }
        proto::State::Completed => "The answer is stored; every retry is answered with it until the retention ends.",
        proto::State::Released => {
            "Nothing happened, or it was given up and whatever may still arrive of it goes back. A retry with the same request executes again."
        }
    }
}

fn state_name(state: proto::State) -> &'static str {
    match state {
        proto::State::Unspecified => "absent",
        proto::State::InProgress => "in_progress",
        proto::State::InDoubt => "in_doubt",
        proto::State::Completed => "completed",
        proto::State::Released => "released",
    }
}

fn state_number(name: &str) -> Option<i32> {
    use proto::State::{Completed, InDoubt, InProgress, Released};
    [InProgress, InDoubt, Completed, Released].into_iter().find(|state| state_name(*state) == name).map(i32::from)
}

fn unknown(name: &str) -> String {
    format!("{name:?} is no state: in_progress, in_doubt, completed, released")
}

fn text(timestamp: Option<prost_types::Timestamp>) -> Option<String> {
    timestamp.map(|timestamp| timestamp.to_string())
}
