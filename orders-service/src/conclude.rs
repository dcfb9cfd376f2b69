//! What the acquirer answered to a charge is written down, with whatever else waits to be; the call is answered with it.

use std::sync::Arc;

use chassis::deadline::Deadline;
use database::{Database, DatabaseError, Tx};
use fault_point::fault_point;
use lane::{Lane, Load};
use tracing::{Instrument as _, Span};

use crate::{
    error::OrdersError,
    operation_id::{Grant, PaymentId},
    outcome::{Answer, Kind, Outcome},
    payment::Verdict,
    settle::{self, Applied, Standing},
    settle_payments::{self, Heard},
    shop::Shop,
    store::{
        operations,
        payments::{self, PaymentRow},
    },
    trip::{self, Passenger},
    watch,
};

/// What is settled in one transaction at most: few enough to hold a hot ticket type only for a moment.
const LOAD: Load = Load { questions: 128, bytes: usize::MAX };

/// Transactions at a time: two would wait for each other at a hot ticket type, and each would carry half.
const FLIGHTS: usize = 1;

/// A verdict that waits to be written down.
#[derive(Clone)]
pub(crate) struct Waiting {
    heard: Heard,
    span: Span,
}

/// Where verdicts wait for each other. What one comes to; none when it is to be applied alone.
pub(crate) type Verdicts = Lane<Waiting, Option<Applied>, OrdersError>;

impl Shop {
    /// Applies the verdict that a call heard of its charge, and answers its token with it.
    pub(crate) async fn settle(
        &self,
        grant: Grant,
        payment: &PaymentRow,
        verdict: Verdict,
    ) -> Result<Answer, OrdersError> {
        let id = payment.id;
        let (applied, answer) = match self.settle_together(payment, verdict).await? {
            Some(Applied { standing: Standing::Final(kept), settlement }) => {
                let answer = kept.clone().answer(grant);
                (Applied { standing: Standing::Final(kept), settlement }, Some(answer))
            }
            _ => {
                self.act("settle payment", move |tx| Box::pin(async move { settle_call(tx, grant, id, verdict).await }))
                    .await?
            }
        };
        self.after(id, &applied);
        if let Standing::Pending(_) = applied.standing {
            self.left_open.notify_one();
        }
        answer.ok_or(OrdersError::StaleToken)
    }

    async fn settle_together(&self, payment: &PaymentRow, verdict: Verdict) -> Result<Option<Applied>, OrdersError> {
        // It is known beforehand that there is no company for these.
        if verdict != Verdict::Approved {
            return Ok(None);
        }
        let waiting = Waiting { heard: Heard { payment: payment.clone(), verdict }, span: Span::current() };
        fault_point!("settle payment: line up" => Err(DatabaseError::Conflict.into()));
        let applied = self.verdicts.carry_one(waiting).await?;
        fault_point!("settle payment: carried" => Err(DatabaseError::CommitUnknown.into()));
        Ok(applied)
    }
}

/// The lane of a shop over this store.
pub(crate) fn lane(store: &Database) -> Verdicts {
    let store = store.clone();
    Lane::new(
        FLIGHTS,
        LOAD,
        |_| 0,
        move |verdicts: Vec<Waiting>| {
            let (store, span) = (store.clone(), trip_span(&verdicts));
            Box::pin(settle(store, verdicts.into_iter().map(|it| it.heard).collect()).instrument(span))
        },
    )
}

async fn settle(store: Database, words: Vec<Heard>) -> Result<Vec<Option<Applied>>, OrdersError> {
    let words: Arc<[Heard]> = words.into();
    store
        .transact("settle payments", move |tx| {
            let words = Arc::clone(&words);
            Box::pin(async move { settle_payments::apply_all(tx, &words).await })
        })
        .await
}

/// Applies the word that this call heard. No answer when a higher token took over and nothing is decided.
async fn settle_call(
    tx: &mut Tx<'_>,
    grant: Grant,
    id: PaymentId,
    verdict: Verdict,
) -> Result<(Applied, Option<Answer>), OrdersError> {
    let applied = settle::apply(tx, id, verdict).await?;
    let answer = match &applied.standing {
        Standing::Final(kept) => Some(kept.clone().answer(grant)),
        Standing::Pending(payment) => {
            let answer = Answer::unknown(Some(Outcome::Payment(payment.clone())));
            payments::watch_anew(tx, id, watch::FIRST).await?;
            operations::keep(tx, grant, Kind::Pay, &answer).await?.then_some(answer)
        }
        Standing::Undecided => None,
    };
    Ok((applied, answer))
}

impl Passenger for Waiting {
    fn span(&self) -> &Span {
        &self.span
    }

    /// From the charge on nothing is cut short.
    fn deadline(&self) -> Option<Deadline> {
        None
    }
}

/// In the trace of the first, and linked from those of the others.
fn trip_span(verdicts: &[Waiting]) -> Span {
    let span = tracing::info_span!(parent: trip::parent(verdicts), "settle payments", payments = verdicts.len() as i64);
    trip::linked(span, verdicts)
}
