//! What happened to this operation? Fence first, then the rows, then the acquirer; and giving up what is unknown everywhere.

use chassis::deadline::Deadline;

use crate::{
    acquirer::Word,
    error::OrdersError,
    operation_id::{Grant, OperationId},
    outcome::{Kind, Label, Outcome},
    payment::PaymentStatus,
    settle::{self, Standing},
    shop::{Shop, alert, within},
    store::{
        operations::{self, Kept},
        orders,
        payments::{self, LastWord, PaymentRow},
    },
    watch,
};

/// What a look-up answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Decided.
    Settled {
        /// What was asked.
        kind: Kind,
        /// What it came to.
        outcome: Outcome,
        /// Final, or without effect when that was the answer to this very token.
        label: Label,
    },
    /// The acquirer has it and has not decided.
    Pending,
    /// Not known here nor there, now.
    Unknown,
}

/// What closing answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Given up, or there was nothing to give up.
    Closed,
    /// Decided meanwhile.
    Settled(Kind, Outcome),
    /// The acquirer has it and has not decided.
    Pending,
}

/// What the rows say once the token is raised.
#[derive(Debug)]
enum Rows {
    Answered(Kept),
    Ask(PaymentRow),
    Nothing,
}

/// What asking the acquirer taught.
#[derive(Debug)]
pub(crate) enum Learnt {
    Final(Kept),
    Pending,
    NotFound,
    Unreachable(String),
}

impl Shop {
    /// Says what happened to an operation. Its token is recorded before anything is looked at, so no older holder acts after the answer.
    ///
    /// In the background the acquirer is asked only when its growing interval is due; else the answer is what was last learnt.
    pub async fn lookup(
        &self,
        grant: Grant,
        is_background: bool,
        deadline: Option<Deadline>,
    ) -> Result<Found, OrdersError> {
        self.patience(deadline)?;
        let payment = match within(deadline, self.fence(grant)).await? {
            Rows::Answered(kept) => return found(kept),
            Rows::Nothing => return Ok(Found::Unknown),
            Rows::Ask(payment) => payment,
        };
        if is_background
            && let Some(last_word) = payment.last_word
            && !self.claim(&payment).await?
        {
            return match last_word {
                LastWord::Pending | LastWord::Mismatch => Ok(Found::Pending),
                LastWord::NotFound => Ok(Found::Unknown),
                LastWord::Unreachable => Err(OrdersError::AcquirerUnreachable("it was not a moment ago".to_owned())),
            };
        }
        match self.ask(&payment, deadline).await? {
            Learnt::Final(kept) => found(kept),
            Learnt::Pending => Ok(Found::Pending),
            Learnt::NotFound => Ok(Found::Unknown),
            Learnt::Unreachable(cause) => Err(OrdersError::AcquirerUnreachable(cause)),
        }
    }

    /// Gives up a payment that is unknown everywhere: the order is free for others, and the payment stays watched.
    pub async fn close(&self, grant: Grant, deadline: Option<Deadline>) -> Result<Closing, OrdersError> {
        self.patience(deadline)?;
        let payment = match within(deadline, self.fence(grant)).await? {
            Rows::Answered(kept) if kept.label == Label::Final => return closing(kept),
            Rows::Answered(_) | Rows::Nothing => return Ok(Closing::Closed),
            Rows::Ask(payment) if payment.status == PaymentStatus::Closed => return Ok(Closing::Closed),
            Rows::Ask(payment) => payment,
        };
        // The last moment to find it: what was not found at the look-up may have landed since.
        match self.ask(&payment, deadline).await? {
            Learnt::Final(kept) => closing(kept),
            Learnt::Pending => Ok(Closing::Pending),
            Learnt::Unreachable(cause) => Err(OrdersError::AcquirerUnreachable(cause)),
            Learnt::NotFound => within(deadline, self.give_up(grant, payment)).await,
        }
    }

    /// The tenant of an operation, once a mutation has named it.
    pub async fn tenant_of(&self, operation: OperationId) -> Result<Option<String>, OrdersError> {
        let seen = self
            .store
            .read("find operation", move |tx| Box::pin(async move { operations::find(tx, operation).await }))
            .await?;
        Ok(seen.and_then(|seen| seen.identity).map(|identity| identity.tenant))
    }

    async fn fence(&self, grant: Grant) -> Result<Rows, OrdersError> {
        self.act("fence operation", move |tx| {
            Box::pin(async move {
                let operation = operations::raise(tx, grant).await?;
                match operation.kept {
                    Some(kept) if kept.label == Label::Final => return Ok(Rows::Answered(kept)),
                    // Without effect: for its own token that is the answer; a higher one may execute.
                    Some(kept) if kept.label == Label::NoEffect && kept.token == grant.token => {
                        return Ok(Rows::Answered(kept));
                    }
                    _ => {}
                }
                let payment = payments::find(tx, grant.operation.payment()).await?;
                Ok(payment.map_or(Rows::Nothing, Rows::Ask))
            })
        })
        .await
    }

    /// Asks the acquirer for a payment and writes down what it says.
    pub(crate) async fn ask(&self, payment: &PaymentRow, deadline: Option<Deadline>) -> Result<Learnt, OrdersError> {
        let patience = self.patience(deadline)?;
        let word = self.acquirer.find(payment.id, patience).await.about(&payment.amount);
        let id = payment.id;
        let (last_word, learnt) = match word {
            Word::Verdict(verdict) => {
                let applied = self
                    .act("settle payment", move |tx| Box::pin(async move { settle::apply(tx, id, verdict).await }))
                    .await?;
                self.after(id, &applied);
                return match applied.standing {
                    Standing::Final(kept) => Ok(Learnt::Final(kept)),
                    Standing::Pending(_) => Ok(Learnt::Pending),
                    // Given up, and now the acquirer has it: not decided, so neither may anything be executed.
                    Standing::Undecided => self.note(payment, LastWord::Pending, Learnt::Pending).await,
                };
            }
            Word::NotFound => (LastWord::NotFound, Learnt::NotFound),
            Word::Unreachable(cause) => (LastWord::Unreachable, Learnt::Unreachable(cause)),
            Word::Mismatch(what) => {
                alert("mismatch", &format!("payment {id}: {what}"));
                (LastWord::Mismatch, Learnt::Pending)
            }
        };
        self.note(payment, last_word, learnt).await
    }

    /// Notes what was learnt, unless the payment was decided meanwhile.
    async fn note(&self, payment: &PaymentRow, word: LastWord, learnt: Learnt) -> Result<Learnt, OrdersError> {
        let (id, operation) = (payment.id, payment.operation);
        let kept = self
            .act("note payment", move |tx| {
                Box::pin(async move {
                    payments::note(tx, id, word).await?;
                    Ok(operations::find(tx, operation).await?.and_then(|operation| operation.kept))
                })
            })
            .await?;
        Ok(match kept {
            Some(kept) if kept.label == Label::Final => Learnt::Final(kept),
            _ => learnt,
        })
    }

    async fn give_up(&self, grant: Grant, payment: PaymentRow) -> Result<Closing, OrdersError> {
        self.act("close payment", move |tx| {
            let (id, order) = (payment.id, payment.order);
            Box::pin(async move {
                let operation = operations::lock(tx, grant.operation).await?;
                match operation.kept {
                    Some(kept) if kept.label == Label::Final => return closing(kept),
                    _ if operation.token > grant.token => return Err(OrdersError::StaleToken),
                    _ => {}
                }
                orders::lock(tx, order).await?;
                if payments::lock(tx, id).await?.status.is_open() {
                    payments::close(tx, id, watch::FIRST).await?;
                    orders::hold_on(tx, order, std::time::Duration::ZERO).await?;
                }
                Ok(Closing::Closed)
            })
        })
        .await
    }
}

fn closing(kept: Kept) -> Result<Closing, OrdersError> {
    let kind = kept.kind;
    settled(kept).map(|outcome| Closing::Settled(kind, outcome))
}

fn found(kept: Kept) -> Result<Found, OrdersError> {
    let (kind, label) = (kept.kind, kept.label);
    settled(kept).map(|outcome| Found::Settled { kind, outcome, label })
}

fn settled(kept: Kept) -> Result<Outcome, OrdersError> {
    kept.outcome.ok_or(OrdersError::Corrupt("a decision without an outcome"))
}
