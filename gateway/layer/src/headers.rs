//! The headers of idempotency, read and written.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use idem_core::IdempotencyKey;

use crate::Problem;

/// The client's name for one intent; echoed on every keyed answer.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `true` on every answer that comes from an earlier execution, on no other.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Until when a stored answer is replayed, as an HTTP date.
pub const IDEMPOTENCY_KEY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-key-expires");
/// Says which preference was honoured.
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

// The last second that an HTTP date can name is in the year 9999.
const DATE_MAX: Duration = Duration::from_secs(253_402_300_799);

/// A key as it was sent.
pub(crate) struct SentKey {
    /// What it names.
    pub(crate) key: IdempotencyKey,
    /// The line itself, for the echo.
    pub(crate) line: HeaderValue,
}

/// The key of a request, if it has one.
pub(crate) fn sent_key(headers: &HeaderMap) -> Result<Option<SentKey>, Problem> {
    let mut lines = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(Problem::several_keys());
    }
    let key = IdempotencyKey::from_header(line.as_bytes()).map_err(Problem::invalid_key)?;
    Ok(Some(SentKey { key, line: line.clone() }))
}

/// Marks an answer that comes from an earlier execution.
pub(crate) fn mark_replayed(headers: &mut HeaderMap) {
    headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
}

/// Says until when the answer is replayed.
pub(crate) fn mark_expires(headers: &mut HeaderMap, expires_at: SystemTime) {
    let is_writable = expires_at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since <= DATE_MAX);
    if is_writable {
        let date = httpdate::fmt_http_date(expires_at);
        headers.insert(IDEMPOTENCY_KEY_EXPIRES, HeaderValue::try_from(date).expect("an HTTP date is ASCII"));
    }
}

/// Says that the answer was waited for.
pub(crate) fn mark_waited(headers: &mut HeaderMap, wait: Duration) {
    let applied = format!("wait={}", wait.as_secs());
    headers.insert(PREFERENCE_APPLIED, HeaderValue::try_from(applied).expect("a number is ASCII"));
}
