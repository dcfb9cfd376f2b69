//! The port to the acquirer: charge, find, refund, each by an id of ours, so that all three are safe to repeat.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    money::Money,
    operation_id::{PaymentId, RefundId},
    payment::Verdict,
};

mod client;
pub mod http;
pub(crate) mod road;

/// A charge to make under a payment id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The name of the payment; the acquirer charges once under it.
    pub payment: PaymentId,
    /// How much.
    pub amount: Money,
    /// Token of the payment method.
    pub method: String,
}

/// A charge to give back under a refund id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// The name of the refund; the acquirer refunds once under it.
    pub refund: RefundId,
    /// The payment it belongs to.
    pub payment: PaymentId,
    /// How much.
    pub amount: Money,
}

/// What came back from the acquirer about a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It knows the payment.
    Known {
        /// What it says.
        verdict: Verdict,
        /// Minor units, as it has them.
        amount: i64,
        /// Currency, as it has it.
        currency: String,
    },
    /// It does not know the payment now. A create that is on its way may land later.
    NotFound,
    /// It will never take this charge, and has recorded nothing.
    Refused(String),
    /// It has something else under this id.
    Conflict,
    /// It could not be asked, or what it said cannot be relied on; anything may have happened.
    Unreachable(String),
}

/// What a reply means for our payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The acquirer's word about exactly our payment.
    Verdict(Verdict),
    /// Not known there now.
    NotFound,
    /// It has another amount, currency or method under our id: never adopted.
    Mismatch(String),
    /// Nothing was learnt.
    Unreachable(String),
}

/// Whether a refund was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundReply {
    /// The money is on its way back.
    Acknowledged,
    /// It will not do this refund as it stands; somebody must look.
    Refused(String),
    /// Not acknowledged; the same refund is sent again.
    Unreachable(String),
}

/// The acquirer.
#[async_trait]
pub trait Acquirer: Send + Sync + 'static {
    /// Charges once under the payment id. Repeated with the same charge, answers what became of it.
    async fn charge(&self, charge: &Charge, patience: Duration) -> Reply;
    /// Asks what became of a payment.
    async fn find(&self, payment: PaymentId, patience: Duration) -> Reply;
    /// Refunds once under the refund id.
    async fn refund(&self, back: &Return, patience: Duration) -> RefundReply;
}

impl Reply {
    /// Judges the reply against the money of our own row.
    pub fn about(self, ours: &Money) -> Word {
        match self {
            Self::Known { verdict, amount, currency } => {
                if amount == ours.amount && currency == ours.currency.as_str() {
                    Word::Verdict(verdict)
                } else {
                    Word::Mismatch(format!("it has {amount} {currency}, ours is {ours}"))
                }
            }
            Self::NotFound => Word::NotFound,
            // Of a first try: it has recorded nothing and never will, which is as good as a decline.
            Self::Refused(_) => Word::Verdict(Verdict::Declined),
            Self::Conflict => Word::Mismatch("it has another charge under this id".to_owned()),
            Self::Unreachable(cause) => Word::Unreachable(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Currency;

    #[test]
    fn another_amount_or_currency_is_never_taken_for_ours() {
        let ours = Money { amount: 2000, currency: Currency::new("EUR").expect("three capitals") };
        let reply =
            |amount, currency: &str| Reply::Known { verdict: Verdict::Approved, amount, currency: currency.to_owned() };
        assert_eq!(reply(2000, "EUR").about(&ours), Word::Verdict(Verdict::Approved));
        assert!(matches!(reply(2001, "EUR").about(&ours), Word::Mismatch(_)));
        assert!(matches!(reply(2000, "USD").about(&ours), Word::Mismatch(_)));
        assert!(matches!(Reply::Conflict.about(&ours), Word::Mismatch(_)));
    }
}
