//! Promises broken on purpose, so that the campaign of faults can show that it would notice. Only with the feature `sabotage`,
//! and then only those that `IDEM_SABOTAGE` names.

use std::sync::OnceLock;

/// Is this promise to be broken?
pub(crate) fn breaks(promise: &str) -> bool {
    static NAMED: OnceLock<String> = OnceLock::new();
    NAMED.get_or_init(|| std::env::var("IDEM_SABOTAGE").unwrap_or_default()).split(',').any(|named| named == promise)
}
