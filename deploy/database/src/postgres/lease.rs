//! A connection on loan from the pool.

use std::ops::Deref;
use std::time::Duration;

use tokio::time::timeout;

use super::background::Background;
use super::pool::verify;
use super::session::Session;

/// How long a connection whose caller has gone may take to become clean; after that it is closed, which does not wait
/// for the server either.
const CLEAN_UP: Duration = Duration::from_millis(500);

/// A connection on loan. It goes back when dropped, and never in the middle of anything: what its caller has left
/// unfinished is ended first, in the background.
pub(crate) struct Lease {
    session: Option<Session>,
    is_in_transaction: bool,
    background: Background,
}

// === impl Lease ===

impl Lease {
    pub(super) fn new(session: Session, background: Background) -> Self {
        Self { session: Some(session), is_in_transaction: false, background }
    }

    /// Until [`end_transaction`](Self::end_transaction) there is something to roll back.
    pub(super) fn begin_transaction(&mut self) {
        self.is_in_transaction = true;
    }

    pub(super) fn end_transaction(&mut self) {
        self.is_in_transaction = false;
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("a lease loses its session only when it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if !session.is_usable() {
            // Closed at once, not when it would be lent next: the server may hold rows for it.
            session.close();
            return;
        }
        if !(self.is_in_transaction || session.is_in_flight()) {
            return;
        }
        // At once, so that no row stays locked for a moment longer than the statement under way takes. A commit under
        // way is neither cancelled nor repeated: the words come after it and find nothing to roll back.
        session.send("ROLLBACK");
        self.background.run(async move {
            if !matches!(timeout(CLEAN_UP, verify(session.client())).await, Ok(Ok(()))) {
                session.close();
            }
        });
    }
}
