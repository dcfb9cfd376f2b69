//! Where the next page starts, as an opaque text.

use std::time::{Duration, SystemTime};

use idem_core::{IdempotencyKey, Scope};

use crate::store::{Cursor, KeyId};

/// Names the layout, so that a token of another release is refused rather than misread.
const LAYOUT: u8 = 1;

/// The end of the year 9999: no change is later, and every store can hold it.
const TIME_MAX: Duration = Duration::from_secs(253_402_300_800);

/// Writes the token of the page after `last`.
pub(super) fn write(last: &Cursor) -> String {
    let micros = last.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
    let micros = u64::try_from(micros).unwrap_or(u64::MAX);
    let scope = last.key.scope.as_str().as_bytes();
    let mut bytes = vec![LAYOUT];
    bytes.extend(micros.to_be_bytes());
    // A scope has at most 200 bytes.
    bytes.push(scope.len() as u8);
    bytes.extend(scope);
    bytes.extend(last.key.key.as_str().as_bytes());
    hex::encode(bytes)
}

/// Reads a token; none when it is not one of ours.
pub(super) fn read(token: &str) -> Option<Cursor> {
    let bytes = hex::decode(token).ok()?;
    let (&LAYOUT, rest) = bytes.split_first()? else { return None };
    let (micros, rest) = rest.split_first_chunk::<8>()?;
    let (&scope_len, rest) = rest.split_first()?;
    let (scope, key) = rest.split_at_checked(scope_len.into())?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let since = Some(Duration::from_micros(u64::from_be_bytes(*micros))).filter(|since| *since < TIME_MAX)?;
    let since = SystemTime::UNIX_EPOCH.checked_add(since)?;
    let key = KeyId { scope: Scope::new(text(scope)?).ok()?, key: IdempotencyKey::new(text(key)?).ok()? };
    Some(Cursor { since, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_anything_else_refused() {
        let key = KeyId { scope: Scope::new("rest/é").unwrap(), key: IdempotencyKey::new("k 🎟").unwrap() };
        let last = Cursor { since: SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456), key };
        let token = write(&last);
        assert_eq!(read(&token), Some(last));
        assert_eq!(read(&token.replacen("01", "02", 1)), None);
        for cut in 0..=token.len() - 12 {
            assert_eq!(read(&token[..cut]), None, "{cut}");
        }
        let late = ["01ffffffffffffffff016162", "017fffffffffffffff016162", "010384440ccc736000016162"];
        for bad in ["", "xyz", "01", "0100000000000000000961"].into_iter().chain(late) {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
