//! One request, before it is sent.

use crate::history::{IntentId, Purpose};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) purpose: Purpose,
    pub(super) intent: Option<IntentId>,
    pub(super) buyer: u32,
    /// Its place among the tenants of the edge.
    pub(super) tenant: usize,
    pub(super) gateway: usize,
    pub(super) method: &'static str,
    pub(super) path: String,
    /// The key, and how it is spelt in its header.
    pub(super) key: Option<(String, String)>,
    pub(super) body: String,
    pub(super) wait_s: Option<u64>,
}
