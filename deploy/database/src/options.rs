//! How a store is opened; the defaults fit a laptop and a production server.

use std::time::Duration;

/// How a store is opened. `Options::default()` fits; every field says what it trades.
#[derive(Clone, Debug)]
pub struct Options {
    /// Postgres connections at most. A call holds one only while its statements run.
    pub pool_size: usize,
    /// How long a call waits for a free connection before it answers `Unavailable`.
    pub pool_wait: Duration,
    /// How long one Postgres host may take to accept and greet before the next one is tried.
    pub connect_timeout: Duration,
    /// How long one statement may take. Enforced by the server, and a second later by this side, in case the server
    /// has fallen silent.
    pub statement_timeout: Duration,
    /// How long a Postgres transaction may sit idle before the server ends it: a stopped process must not hold the
    /// rows that others wait for.
    pub idle_in_transaction_timeout: Duration,
    /// What `pg_stat_activity` calls this program; the schema's name when `None`.
    pub application_name: Option<String>,
    /// Plan every Postgres statement once, through indexes. For stores whose statements find their rows by key: a plan
    /// that was made while a table was small would read all of it for as long as it is kept, however large the table
    /// grows. Behind a pooler nothing is kept and every statement is planned for the table as it is.
    pub plan_by_index: bool,
    /// SQLite connections for reading.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pool_size: 16,
            pool_wait: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            statement_timeout: Duration::from_secs(5),
            idle_in_transaction_timeout: Duration::from_secs(5),
            application_name: None,
            plan_by_index: false,
            readers: 4,
        }
    }
}
