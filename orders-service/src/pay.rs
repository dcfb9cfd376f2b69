//! Paying: record, commit, charge, commit. A crash between any two is resumed from the rows and the acquirer.

use std::{sync::Arc, time::Duration};

use chassis::deadline::Deadline;
use database::Tx;
use fault_point::fault_point;

use crate::{
    acquirer::{Charge, Word},
    entry::{self, Call, Entry},
    error::OrdersError,
    operation_id::{Grant, OrderId, PaymentId},
    order::OrderState,
    outcome::{Answer, Kind, Label, Outcome, Refusal, RefusalReason},
    payment::{PaymentStatus, Verdict},
    resolve::Learnt,
    settle::{self, Standing},
    shop::{Shop, alert, within},
    store::{
        operations, orders,
        payments::{self, LastWord, PaymentRow},
    },
    timestamp::Timestamp,
    watch,
};

/// How often a repeat looks whether the call it repeats has answered.
const GLANCE: Duration = Duration::from_millis(100);

/// A payment to make. Always keyed: its id follows from the operation.
#[derive(Clone, Debug)]
pub struct Pay {
    /// Who asks.
    pub call: Call,
    /// The grant of the call.
    pub grant: Grant,
    /// What to pay; none when the name cannot be one of an order.
    pub order: Option<OrderId>,
    /// Token of the payment method.
    pub method: String,
}

/// What the first transaction came to.
#[derive(Debug)]
enum Begun {
    /// The answer is there.
    Answered(Answer),
    /// Another call with this token is at work.
    Running,
    /// Recorded: to be sent.
    Send(PaymentRow),
    /// An earlier try was given up, and the order can be paid no more: whether its charge has landed is not known here.
    GivenUp(PaymentRow),
}

/// What is known of an earlier try of the payment that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenUp {
    /// Nothing.
    NotAsked,
    /// The acquirer has been asked a moment ago and has no charge.
    NotFound,
}

impl Shop {
    /// Charges the total of an order at the acquirer, under the payment id of the operation.
    pub async fn pay(&self, ask: Pay, deadline: Option<Deadline>) -> Result<Answer, OrdersError> {
        // Nothing is recorded that there is no time to send.
        self.patience(deadline)?;
        let grant = ask.grant;
        // From the charge on nothing is cut short: what is sent is settled, or left to the watch.
        let ask = Arc::new(ask);
        let mut given_up = GivenUp::NotAsked;
        loop {
            match within(deadline, self.begin(Arc::clone(&ask), given_up)).await? {
                Begun::Answered(answer) => return Ok(answer),
                Begun::Running => return self.wait_for_answer(grant, deadline).await,
                Begun::Send(payment) => {
                    let word = self.charge(&payment, deadline).await;
                    return self.conclude(grant, &payment, word).await;
                }
                // Nobody is told that nothing was charged before the acquirer has said so.
                Begun::GivenUp(payment) => match self.ask(&payment, deadline).await? {
                    Learnt::Final(kept) => return Ok(kept.answer(grant)),
                    Learnt::Pending | Learnt::Unreachable(_) => return Ok(Answer::unknown(None)),
                    Learnt::NotFound => given_up = GivenUp::NotFound,
                },
            }
        }
    }

    async fn begin(&self, ask: Arc<Pay>, given_up: GivenUp) -> Result<Begun, OrdersError> {
        let settings = Arc::clone(&self.settings);
        self.act("begin payment", move |tx| {
            let (ask, settings) = (Arc::clone(&ask), Arc::clone(&settings));
            Box::pin(async move { begin(tx, &ask, given_up, settings.hold_ttl, settings.acquirer_timeout).await })
        })
        .await
    }

    /// Sends the charge; when the answer does not come, asks once what became of it, if there is time.
    async fn charge(&self, payment: &PaymentRow, deadline: Option<Deadline>) -> Word {
        let charge = Charge { payment: payment.id, amount: payment.amount.clone(), method: payment.method.clone() };
        let Ok(patience) = self.patience(deadline) else {
            return Word::Unreachable("there was no time left to send it".to_owned());
        };
        let word = self.acquirer.charge(&charge, patience).await.about(&payment.amount);
        let Word::Unreachable(cause) = word else { return word };
        tracing::warn!(payment.id = %payment.id, cause, "the acquirer did not answer a charge; asking for it");
        match self.patience(deadline) {
            Ok(patience) => self.acquirer.find(payment.id, patience).await.about(&payment.amount),
            Err(_) => Word::Unreachable(cause),
        }
    }

    /// Writes down what the acquirer said, and answers this token with it.
    async fn conclude(&self, grant: Grant, payment: &PaymentRow, word: Word) -> Result<Answer, OrdersError> {
        let verdict = match word {
            Word::Verdict(verdict) => verdict,
            Word::NotFound => return self.leave_unknown(grant, payment.id, LastWord::NotFound).await,
            Word::Unreachable(_) => return self.leave_unknown(grant, payment.id, LastWord::Unreachable).await,
            Word::Mismatch(what) => {
                alert("mismatch", &format!("payment {}: {what}", payment.id));
                return self.leave_unknown(grant, payment.id, LastWord::Mismatch).await;
            }
        };
        let id = payment.id;
        let (applied, answer) = self
            .act("settle payment", move |tx| Box::pin(async move { settle_call(tx, grant, id, verdict).await }))
            .await?;
        self.after(id, &applied);
        answer.ok_or(OrdersError::StaleToken)
    }

    /// A charge may be on its way: the payment is asked for soon, and the token is answered with what is known, which is nothing.
    async fn leave_unknown(&self, grant: Grant, id: PaymentId, word: LastWord) -> Result<Answer, OrdersError> {
        self.act("leave payment unknown", move |tx| {
            Box::pin(async move {
                let operation = operations::lock(tx, grant.operation).await?;
                match operation.kept {
                    // A webhook or the watch was faster.
                    Some(kept) if kept.label == Label::Final => return Ok(kept.answer(grant)),
                    _ if operation.token > grant.token => return Err(OrdersError::StaleToken),
                    _ => {}
                }
                payments::note(tx, id, word).await?;
                payments::watch_anew(tx, id, watch::FIRST).await?;
                let answer = Answer::unknown(None);
                operations::keep(tx, grant, Kind::Pay, &answer).await?;
                Ok(answer)
            })
        })
        .await
    }

    /// A repeat of a token does not act: it waits for the answer of the call it repeats.
    async fn wait_for_answer(&self, grant: Grant, deadline: Option<Deadline>) -> Result<Answer, OrdersError> {
        // A charge, a question, and the writing: whoever takes longer was killed.
        let longest = self.settings.acquirer_timeout * 2 + Duration::from_secs(5);
        let patience = deadline.map_or(longest, |deadline| deadline.remaining().saturating_sub(GLANCE).min(longest));
        let answered = async {
            loop {
                let seen = self
                    .store
                    .read("wait for answer", move |tx| {
                        Box::pin(async move { operations::find(tx, grant.operation).await })
                    })
                    .await?
                    .ok_or(OrdersError::Corrupt("an operation is gone"))?;
                match seen.kept {
                    Some(kept) if kept.label == Label::Final || kept.token == grant.token => {
                        return Ok(kept.answer(grant));
                    }
                    _ if seen.token > grant.token => return Err(OrdersError::StaleToken),
                    _ => {}
                }
                fault_point!("wait for answer: pause");
                tokio::time::sleep(GLANCE).await;
            }
        };
        tokio::time::timeout(patience, answered).await.unwrap_or_else(|_| Ok(Answer::unknown(None)))
    }
}

async fn begin(
    tx: &mut Tx<'_>,
    ask: &Pay,
    given_up: GivenUp,
    hold_ttl: Duration,
    acquirer_timeout: Duration,
) -> Result<Begun, OrdersError> {
    match entry::enter(tx, &ask.call).await? {
        Entry::Act => {}
        Entry::Answered(answer) => return Ok(Begun::Answered(answer)),
        Entry::Running => return Ok(Begun::Running),
    }
    let known = payments::find(tx, ask.grant.operation.payment()).await?;
    match known.as_ref().map(|payment| payment.status) {
        // Its charge may be on its way, so whatever the order became since, this payment is to be decided: the guards are behind it.
        Some(PaymentStatus::Started | PaymentStatus::Pending) | None => {}
        Some(PaymentStatus::Closed) => {}
        Some(_) => return Err(OrdersError::Corrupt("a decided payment without its answer")),
    }
    if let Some(open) = known.as_ref().filter(|payment| payment.status.is_open()) {
        operations::begin(tx, ask.grant).await?;
        return Ok(Begun::Send(open.clone()));
    }
    let order = match ask.order {
        Some(id) => orders::lock(tx, id).await?.filter(|order| order.tenant == ask.call.tenant.as_str()),
        None => None,
    };
    let Some(order) = order else { return refuse(tx, ask, RefusalReason::NotFound.plain()).await };
    let state = OrderState {
        status: order.status,
        hold: order.hold(tx.now()),
        has_open_payment: payments::has_open(tx, order.id).await?,
    };
    if let Err(reason) = state.may_be_paid() {
        return match known {
            Some(closed) if given_up == GivenUp::NotAsked => Ok(Begun::GivenUp(closed)),
            Some(_) => refuse(tx, ask, after_giving_up(reason)).await,
            None => refuse(tx, ask, reason.plain()).await,
        };
    }
    let payment = match known {
        Some(closed) => {
            payments::reopen(tx, closed.id, acquirer_timeout).await?;
            PaymentRow { status: PaymentStatus::Started, ..closed }
        }
        None => {
            let payment = new_payment(ask, &order, Timestamp(tx.now()).plus(acquirer_timeout));
            payments::start(tx, &payment).await?;
            payment
        }
    };
    orders::hold_on(tx, order.id, hold_ttl).await?;
    operations::begin(tx, ask.grant).await?;
    Ok(Begun::Send(payment))
}

async fn refuse(tx: &mut Tx<'_>, ask: &Pay, refusal: Refusal) -> Result<Begun, OrdersError> {
    entry::leave(tx, &ask.call, Answer::refused(refusal)).await.map(Begun::Answered)
}

/// The acquirer has no charge now; one that is still on its way goes back when it lands.
fn after_giving_up(reason: RefusalReason) -> Refusal {
    let Refusal { reason, detail } = reason.plain();
    reason.because(format!("{detail}; an earlier try was given up: should its charge still arrive, it is refunded"))
}

/// The row of a payment about to be sent. The watch asks for it only when the call that sends it must have ended.
fn new_payment(ask: &Pay, order: &orders::OrderRow, next_ask_at: Timestamp) -> PaymentRow {
    PaymentRow {
        id: ask.grant.operation.payment(),
        operation: ask.grant.operation,
        tenant: order.tenant.clone(),
        order: order.id,
        amount: order.total.clone(),
        method: ask.method.clone(),
        status: PaymentStatus::Started,
        closed_at: None,
        next_ask_at: Some(next_ask_at),
        asks: 0,
        last_word: None,
    }
}

/// Applies the word that this call heard. No answer when a higher token took over and nothing is decided.
async fn settle_call(
    tx: &mut Tx<'_>,
    grant: Grant,
    id: PaymentId,
    verdict: Verdict,
) -> Result<(settle::Applied, Option<Answer>), OrdersError> {
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
