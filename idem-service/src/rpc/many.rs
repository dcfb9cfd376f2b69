//! Many items in one call: each is carried out as if it had come alone, at the same time as the others. The first round of all is
//! one write.

use futures::future::join_all;
use idem_proto::idem::v1 as proto;
use prost::Message;
use tracing::Span;

use super::{Call, Rpc};
use crate::engine::Outcome;
use crate::observe;
use crate::status::Refusal;
use crate::wire::{answer, many as read};

/// What clients read at most. Only replays can be more than that: up to 500 bodies of a mebibyte.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// How the items of a call are read and answered.
pub(super) struct Items<M, A> {
    command: &'static str,
    /// Of an item's span, as of a call that comes alone.
    name: &'static str,
    read: fn(Vec<M>) -> Result<Vec<read::Item>, Refusal>,
    answer: fn(&Outcome) -> Result<A, Refusal>,
}

pub(super) const RESERVE: Items<proto::ReserveRequest, proto::ReserveResponse> =
    Items { command: "reserve", name: "reserve key", read: read::reserves, answer: answer::reserve };
pub(super) const COMPLETE: Items<proto::CompleteRequest, proto::CompleteResponse> =
    Items { command: "complete", name: "complete key", read: read::completes, answer: answer::complete };

impl Rpc {
    /// Nothing is begun unless every item can be; what was begun is carried to its end, whatever becomes of the others.
    pub(super) async fn each<M, A: Message>(
        &self,
        kind: &Items<M, A>,
        call: Call,
        items: Vec<M>,
    ) -> Result<Vec<A>, Refusal> {
        observe::note_items(kind.command, items.len());
        let read = (kind.read)(items).and_then(|items| {
            let granted = items.iter().all(|item| call.may_use(&item.asked.key));
            if granted { Ok(items) } else { Err(Refusal::ScopeNotGranted) }
        });
        let mut items = observe::unbegun(kind.command, read)?;
        let carrier = chassis::trace::current_traceparent();
        let spans: Vec<Span> = items
            .iter_mut()
            .map(|item| {
                let span = observe::item_span(kind.name, item.traced.take(), carrier.as_deref());
                observe::note_key_on(&span, &item.asked.key);
                span
            })
            .collect();
        let asked: Vec<_> = items.iter().map(|item| (&item.asked.key, &item.asked.command)).collect();
        let begun = self.engine.begin_each(&asked, call.deadline).await;
        let answers = join_all(begun.into_iter().zip(asked).zip(spans).map(|((begun, (key, command)), span)| {
            observe::item(kind.command, span, async move {
                let outcome = self.engine.end(begun, key, command).await?;
                Ok(((kind.answer)(&outcome)?, observe::note_outcome(&outcome)))
            })
        }));
        let answers = answers.await.into_iter().collect::<Result<Vec<A>, Refusal>>()?;
        let bytes: usize = answers.iter().map(Message::encoded_len).sum();
        if bytes > ANSWER_MAX { Err(Refusal::TooLarge) } else { Ok(answers) }
    }
}
