//! What the databases and the acquirer say: read past every service, with statements of its own.

mod acquirer;
mod database;
mod quiet;
mod read;
mod sampler;

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::checker::KeyId;

pub use database::Database;
pub use quiet::until_quiet;
pub use read::Reader;
pub use sampler::Sampler;

/// The file of the ledger, in the directory of a run.
pub const FILE: &str = "ledger.json";

/// Both databases and the acquirer at one moment, when nothing was moving any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// When it was read, by the campaign's clock.
    pub read_ms: u64,
    /// The idempotency database: one row a key.
    pub keys: Vec<KeyRow>,
    /// The orders database: one row an operation.
    pub operations: Vec<OperationRow>,
    /// Its stock.
    pub ticket_types: Vec<TypeRow>,
    /// Its orders.
    pub orders: Vec<OrderRow>,
    /// Its payments.
    pub payments: Vec<PaymentRow>,
    /// Its refunds.
    pub refunds: Vec<RefundRow>,
    /// The ids of the events it believed.
    pub events: Vec<String>,
    /// The acquirer's payments, by id. What it does not know is not in here.
    pub acquirer: BTreeMap<String, AcquirerPayment>,
    /// The acquirer's totals over all payments, asked for or not.
    pub totals: Totals,
}

/// A key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyRow {
    /// `rest/<tenant>`.
    pub scope: String,
    /// The key.
    pub key: String,
    /// Its operation.
    pub operation: String,
    /// Its fencing token.
    pub token: i64,
    /// `in_progress`, `in_doubt`, `completed` or `released`.
    pub state: String,
    /// How often it was granted.
    pub attempts: i64,
    /// The stored answer's status.
    pub status: Option<i64>,
    /// The stored answer's body.
    pub body: Option<String>,
}

/// An operation, as the orders service remembers it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationRow {
    /// The operation id.
    pub id: String,
    /// On whose behalf; none before a mutation named it.
    pub tenant: Option<String>,
    /// What it is.
    pub kind: Option<String>,
    /// The highest token seen.
    pub token: i64,
    /// The token that was answered.
    pub answered_token: Option<i64>,
    /// `final`, `no_effect` or `unknown`.
    pub label: Option<String>,
}

/// A ticket type's stock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TypeRow {
    /// Its name.
    pub id: String,
    /// How many seats there are.
    pub capacity: i64,
    /// How many are sold.
    pub sold: i64,
    /// How many are held.
    pub held: i64,
}

/// An order with its items and tickets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrderRow {
    /// Its id.
    pub id: String,
    /// Whose.
    pub tenant: String,
    /// Where.
    pub venue: String,
    /// Where it stands.
    pub status: String,
    /// What it costs, in minor units.
    pub total: i64,
    /// In what.
    pub currency: String,
    /// The payment that paid it at the acquirer.
    pub paid_by: Option<String>,
    /// Ticket type, quantity and price of one seat, in the buyer's sequence.
    pub items: Vec<(String, i64, i64)>,
    /// Ticket id, and when it was used (microseconds since 1970), in the sequence of the seats.
    pub tickets: Vec<(String, Option<i64>)>,
}

/// A payment, as the orders service has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PaymentRow {
    /// Its id, here and at the acquirer.
    pub id: String,
    /// Its operation.
    pub operation: String,
    /// Whose.
    pub tenant: String,
    /// What it pays.
    pub order: String,
    /// How much.
    pub amount: i64,
    /// In what.
    pub currency: String,
    /// Where it stands.
    pub status: String,
    /// The acquirer is to be asked for it again.
    pub is_watched: bool,
}

/// A refund, as the orders service has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RefundRow {
    /// Its id.
    pub id: String,
    /// Of which payment.
    pub payment: String,
    /// How much.
    pub amount: i64,
    /// The acquirer has it.
    pub is_acknowledged: bool,
}

/// A payment, as the acquirer has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcquirerPayment {
    /// `pending`, `approved` or `declined`.
    pub status: String,
    /// How much, in minor units.
    pub amount: i64,
    /// In what.
    pub currency: String,
    /// How often it was charged.
    pub charges: i64,
    /// Ids and amounts of what went back.
    pub refunds: Vec<(String, i64)>,
}

/// The acquirer's totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// How many charges.
    pub charges: i64,
    /// What they took, in minor units.
    pub captured: i64,
    /// What went back, in minor units.
    pub refunded: i64,
}

impl Ledger {
    /// Reads the ledger of a recorded run.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let text = std::fs::read(&path).with_context(|| format!("no ledger at {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no ledger", path.display()))
    }

    /// Writes it beside the history.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(FILE);
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("the ledger cannot be written to {}", path.display()))
    }
}

impl KeyRow {
    /// Whose key it is.
    pub fn id(&self) -> KeyId {
        let tenant = self.scope.strip_prefix("rest/").unwrap_or(&self.scope).to_owned();
        KeyId { tenant, key: self.key.clone() }
    }

    /// Neither completed nor released.
    pub fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "in_progress" | "in_doubt")
    }
}
