//! One thing that was seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line of the history. Moments are milliseconds of the campaign's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The campaign begins.
    Course(Course),
    /// A buyer wants something.
    Intent(Intent),
    /// A buyer is done with it.
    IntentEnded {
        /// Which.
        id: IntentId,
        /// When.
        ms: u64,
        /// How it came to that.
        how: How,
    },
    /// A request is about to be sent.
    Sent(Call),
    /// What came back for it.
    Heard {
        /// Which request.
        call: u64,
        /// When.
        ms: u64,
        /// What.
        heard: Heard,
    },
    /// Something was done past the gateways.
    Control(Control),
    /// The stock was looked at.
    Stock(StockSample),
    /// The fencing tokens were looked at.
    Tokens {
        /// When.
        #[serde(default)]
        ms: u64,
        /// Those that were new or had changed.
        seen: Vec<TokenSample>,
    },
    /// The nemesis has stopped and everything is healed.
    FaultsStopped {
        /// When.
        ms: u64,
    },
    /// From here on, every key with an answer is sent once more.
    SweepBegan {
        /// When.
        ms: u64,
    },
}

/// What a campaign was, as far as its checker must know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// All randomness comes from it.
    pub seed: u64,
    /// What was typed to begin it.
    pub command: String,
    /// `--lease` of the gateways.
    pub lease_ms: u64,
    /// `--upstream-timeout` of the gateways.
    pub upstream_timeout_ms: u64,
    /// `--hold-ttl` of the orders services.
    #[serde(default)]
    pub hold_ttl_ms: u64,
    /// Who buys.
    pub tenants: Vec<String>,
    /// The time of day when the campaign's clock began, in milliseconds since 1970, by a clock that no fault moved.
    #[serde(default)]
    pub began_at_ms: u64,
    /// The services' store has a clock of its own, and does not go by theirs.
    #[serde(default)]
    pub has_store_clock: bool,
    /// See [`Event::FaultsStopped`].
    #[serde(default)]
    pub faults_stopped_ms: Option<u64>,
    /// See [`Event::SweepBegan`].
    #[serde(default)]
    pub sweep_began_ms: Option<u64>,
}

/// The number of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IntentId(pub u64);

/// Something a buyer wants once: one key, one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// Its number.
    pub id: IntentId,
    /// Whose.
    pub buyer: u32,
    /// What.
    pub kind: Kind,
    /// On whose behalf.
    pub tenant: String,
    /// What names it; optional routes do without.
    pub key: Option<String>,
    /// Where it is sent, by POST.
    pub path: String,
    /// What is sent.
    pub body: String,
    /// When and how it ended.
    #[serde(default)]
    pub ended: Option<(u64, How)>,
}

/// What an intent is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An order.
    Place,
    /// A payment at the acquirer.
    Pay,
    /// A payment elsewhere.
    Confirm,
    /// A cancellation.
    Cancel,
    /// A ticket that is used.
    CheckIn,
}

/// How an intent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// With an answer that is kept for good.
    Final,
    /// With a refusal after which the buyer wants something else.
    Refused,
    /// The buyer walked away, and never comes back to it.
    Abandoned,
    /// The buyer asked until the campaign was over, and never got an answer.
    Unanswered,
}

/// A request, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Its number.
    pub id: u64,
    /// The intent it is a try of; reads have none.
    pub intent: Option<IntentId>,
    /// Who sent it.
    pub buyer: u32,
    /// Why it was sent.
    pub purpose: Purpose,
    /// To which gateway.
    pub gateway: usize,
    /// With whose API key.
    pub tenant: String,
    /// GET or POST.
    pub method: String,
    /// The path.
    pub path: String,
    /// The key, as text; how it was spelt in its header does not matter.
    pub key: Option<String>,
    /// The body, byte for byte.
    pub body: String,
    /// `Prefer: wait`.
    pub wait_s: Option<u64>,
    /// When it was sent.
    pub sent_ms: u64,
    /// When something came back, or the wait for it ended.
    #[serde(default)]
    pub done_ms: Option<u64>,
    /// What.
    #[serde(default)]
    pub heard: Option<Heard>,
}

/// Why a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The first try of an intent.
    First,
    /// The same again, because there is no answer yet.
    Retry,
    /// The same at the same time, at another gateway.
    Duplicate,
    /// Another request under the key of an intent.
    OtherBody,
    /// The same again, long after the answer.
    LateRetry,
    /// The same again, when all is over.
    Sweep,
    /// A read.
    Read,
    /// A read of what belongs to another tenant.
    Trespass,
}

/// What came back for a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// An answer.
    Answer(Answer),
    /// None.
    Nothing(Why),
}

/// An answer, as far as anybody promised anything about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// Headers that the contract speaks of, by their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: String,
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The buyer hung up.
    Left,
    /// The buyer waited as long as it would.
    TimedOut,
    /// The connection broke, or was refused.
    Broken(String),
}

/// Something done past the gateways, or to them by no buyer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// When.
    pub ms: u64,
    /// What.
    pub deed: Deed,
    /// The payment, or the event, it was done to.
    pub target: String,
    /// The status of the answer; none when there was no answer.
    pub status: Option<u16>,
}

/// What is done past the gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// A pending payment is approved at the sandbox.
    Approve,
    /// A pending payment is declined at the sandbox.
    Decline,
    /// A webhook is sent again.
    Redeliver,
    /// A webhook that nobody at the acquirer signed; the target is the id of its event.
    Forge,
    /// A ticket type gets another capacity.
    Resize,
}

/// The stock at one moment, read in one transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StockSample {
    /// When.
    pub ms: u64,
    /// Each ticket type of the campaign.
    pub types: Vec<TypeSample>,
}

/// One ticket type at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeSample {
    /// Its name.
    pub id: String,
    /// How many seats there are.
    pub capacity: i64,
    /// How many are sold.
    pub sold: i64,
    /// How many are held; lapsed holds that nobody has swept yet are among them when it comes from the database.
    pub held: i64,
    /// Seats of paid orders and of pending ones, counted in the same transaction; only in some samples.
    pub orders: Option<(i64, i64)>,
}

/// A fencing token at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenSample {
    /// When.
    pub ms: u64,
    /// Which database.
    pub store: TokenStore,
    /// `scope key` in the idempotency database, the operation id in the orders database.
    pub name: String,
    /// The operation id.
    pub operation: String,
    /// The token.
    pub token: i64,
    /// The state of the key, or the label of the operation.
    pub state: String,
}

/// Where a token was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenStore {
    /// The idempotency service's.
    Idem,
    /// The orders service's.
    Orders,
}

// === impl Call ===

impl Call {
    /// The answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.heard {
            Some(Heard::Answer(answer)) => Some(answer),
            Some(Heard::Nothing(_)) | None => None,
        }
    }

    /// The answer and when it came.
    pub fn answered(&self) -> Option<(u64, &Answer)> {
        self.done_ms.zip(self.answer())
    }
}

// === impl Answer ===

impl Answer {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Says that it comes from an earlier execution.
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed").is_some()
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}
