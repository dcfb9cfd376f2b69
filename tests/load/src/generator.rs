//! The load generator: one thread, the same for the product and for everything it is compared with.
//!
//! One thread and no task per connection, because it shares the cores with what it measures.

pub mod connection;
pub mod loops;
pub mod measured;
pub mod pace;
pub mod script;

/// One caller, who asks one thing at a time.
pub trait Session {
    /// Asks once and waits for the answer.
    async fn once(&mut self) -> Answer;
}

/// What a session says of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was the right one.
    Expected,
    /// It was not, and this is what it was.
    Unexpected(String),
    /// Nothing was asked: there is nothing left to ask for.
    Exhausted,
}
