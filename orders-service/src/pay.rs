//! Paying: record, commit, charge, commit. A crash between any two is resumed from the rows and the acquirer.

use std::time::Duration;

use chassis::deadline::Deadline;
use fault_point::fault_point;

use crate::{
    acquirer::{Charge, Reply, Word},
    begin_payment::{Begun, Sending, Waiting},
    entry::Call,
    error::OrdersError,
    operation_id::{Grant, OrderId, PaymentId},
    outcome::{Answer, Kind, Label},
    resolve::Learnt,
    shop::{Shop, alert, within},
    store::{
        operations,
        payments::{self, LastWord, PaymentRow},
    },
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

impl Shop {
    /// Charges the total of an order at the acquirer, under the payment id of the operation.
    pub async fn pay(&self, ask: Pay, deadline: Option<Deadline>) -> Result<Answer, OrdersError> {
        // Nothing is recorded that there is no time to send.
        self.patience(deadline)?;
        let grant = ask.grant;
        // From the charge on nothing is cut short: what is sent is settled, or left to the watch.
        let waiting = Waiting::new(ask, deadline);
        let mut begun = within(deadline, self.begin(&waiting)).await?;
        loop {
            match begun {
                Begun::Answered(answer) => return Ok(answer),
                Begun::Running => return self.wait_for_answer(grant, deadline).await,
                Begun::Send(payment, sending) => {
                    let word = self.charge(&payment, sending, deadline).await;
                    return self.conclude(grant, &payment, word).await;
                }
                // Nobody is told that nothing was charged before the acquirer has said so.
                Begun::GivenUp(payment) => match self.ask(&payment, deadline).await? {
                    Learnt::Final(kept) => return Ok(kept.answer(grant)),
                    Learnt::Pending | Learnt::Unreachable(_) => return Ok(Answer::unknown(None)),
                    Learnt::NotFound => begun = within(deadline, self.begin_given_up(&waiting)).await?,
                },
            }
        }
    }

    /// Sends the charge; when the answer does not come, asks once what became of it, if there is time.
    async fn charge(&self, payment: &PaymentRow, sending: Sending, deadline: Option<Deadline>) -> Word {
        let charge = Charge { payment: payment.id, amount: payment.amount.clone(), method: payment.method.clone() };
        let Ok(patience) = self.patience(deadline) else {
            return Word::Unreachable("there was no time left to send it".to_owned());
        };
        let word = match (self.acquirer.charge(&charge, patience).await, sending) {
            // It says that this try has left nothing there, and nothing about one that may still be on its way.
            (Reply::Refused(cause), Sending::Again) => Word::Unreachable(cause),
            (reply, _) => reply.about(&payment.amount),
        };
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
        self.settle(grant, payment, verdict).await
    }

    /// A charge may be on its way: the payment is asked for soon, and the token is answered with what is known, which is nothing.
    async fn leave_unknown(&self, grant: Grant, id: PaymentId, word: LastWord) -> Result<Answer, OrdersError> {
        let answer = self.act("leave payment unknown", move |tx| {
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
        });
        let answer = answer.await?;
        self.left_open.notify_one();
        Ok(answer)
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
