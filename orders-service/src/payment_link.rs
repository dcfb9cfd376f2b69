//! Payment links: nothing is stored, the link carries its own proof.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::{
    error::OrdersError,
    operation_id::{OrderId, Tenant},
    order::OrderStatus,
    outcome::{Refusal, RefusalReason},
    shop::Shop,
    store::orders,
    timestamp::Timestamp,
};

/// Keeps signatures of links apart from signatures of anything else under the same secret.
const PURPOSE: &[u8] = b"payment-link\0";

/// A link under which an order can be paid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentLink {
    /// Where to go.
    pub url: String,
    /// When it stops to be of use.
    pub expires_at: Timestamp,
}

impl Shop {
    /// Makes a link under which a pending order can be paid until its hold expires.
    pub async fn payment_link(
        &self,
        tenant: Tenant,
        order: Option<OrderId>,
    ) -> Result<Result<PaymentLink, Refusal>, OrdersError> {
        let Some(id) = order else { return Ok(Err(RefusalReason::NotFound.plain())) };
        let (row, now) = self
            .store
            .read("make payment link", move |tx| {
                let tenant = tenant.clone();
                Box::pin(async move { Ok::<_, OrdersError>((orders::find_of(tx, &tenant, id).await?, tx.now())) })
            })
            .await?;
        let Some(row) = row else { return Ok(Err(RefusalReason::NotFound.plain())) };
        if row.status.seen(row.hold(now)) != OrderStatus::Pending || row.hold_expires_at.0 <= now {
            return Ok(Err(RefusalReason::NotPending.plain()));
        }
        Ok(Ok(PaymentLink { url: self.link(id, row.hold_expires_at), expires_at: row.hold_expires_at }))
    }

    fn link(&self, order: OrderId, expires_at: Timestamp) -> String {
        let claim = format!("{order}?expires={}", expires_at.0.div_euclid(1_000_000));
        let secret = &self.settings.webhook_secret;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
        mac.update(PURPOSE);
        mac.update(claim.as_bytes());
        let signature = hex::encode(mac.finalize().into_bytes());
        format!("{}/{claim}&sig={signature}", self.settings.payment_link_base.trim_end_matches('/'))
    }
}
