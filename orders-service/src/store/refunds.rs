//! The outbox of refunds: a row is sent until the acquirer has acknowledged it.

use database::{Row, Tx, params};

use crate::{
    acquirer::Return,
    error::OrdersError,
    operation_id::{PaymentId, RefundId},
    store::payments::PaymentRow,
    timestamp::Timestamp,
};

/// A refund to be sent.
#[derive(Clone, Debug)]
pub struct RefundRow {
    /// What to send.
    pub back: Return,
    /// When.
    pub next_try_at: Timestamp,
    /// How often it was sent.
    pub tries: u32,
}

const ORDER: &str = "\
-- orders.refund_order
INSERT INTO refunds (id, payment_id, amount, currency, created_at, next_try_at)
VALUES ($1, $2, $3, $4, $5, $5)";

const DUE: &str = "\
-- orders.refunds_due
SELECT id, payment_id, amount, currency, next_try_at, tries
  FROM refunds
 WHERE next_try_at <= $1
 ORDER BY next_try_at
 LIMIT $2";

const CLAIM: &str = "\
-- orders.refund_claim
UPDATE refunds
   SET next_try_at = $3, tries = tries + 1
 WHERE id = $1
   AND next_try_at = $2";

const ACKNOWLEDGE: &str = "\
-- orders.refund_acknowledge
UPDATE refunds
   SET acknowledged_at = $2, next_try_at = NULL
 WHERE id = $1
   AND acknowledged_at IS NULL";

/// Orders the one refund of a payment, to be sent at once. Its id follows from the payment, so a second one cannot be written.
pub async fn order(tx: &mut Tx<'_>, payment: &PaymentRow) -> Result<(), OrdersError> {
    let params = params![
        payment.operation.refund().to_string(),
        payment.id.to_string(),
        payment.amount.amount,
        payment.amount.currency.as_str(),
        tx.now(),
    ];
    super::exactly(1, tx.execute(ORDER, &params).await?)
}

/// Refunds whose time has come.
pub async fn due(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<RefundRow>, OrdersError> {
    let params = params![tx.now(), limit];
    tx.query(DUE, &params).await?.iter().map(read).collect()
}

/// Takes the turn to send a refund and sets the next; false when another replica was faster.
pub async fn claim(tx: &mut Tx<'_>, row: &RefundRow, next: Timestamp) -> Result<bool, OrdersError> {
    let params = params![row.back.refund.to_string(), row.next_try_at.0, next.0];
    Ok(tx.execute(CLAIM, &params).await? == 1)
}

/// The acquirer has it: it is sent no more. False when that was known.
pub async fn acknowledge(tx: &mut Tx<'_>, id: RefundId) -> Result<bool, OrdersError> {
    let params = params![id.to_string(), tx.now()];
    Ok(tx.execute(ACKNOWLEDGE, &params).await? == 1)
}

fn read(row: &Row) -> Result<RefundRow, OrdersError> {
    Ok(RefundRow {
        back: Return {
            refund: super::id(row, "id", RefundId::parse)?,
            payment: super::id(row, "payment_id", PaymentId::parse)?,
            amount: super::money(row, "amount")?,
        },
        next_try_at: Timestamp(row.get("next_try_at")?),
        tries: row.get("tries")?,
    })
}
