//! Many items in one call: each is carried out as if it had come alone, at the same time as the others. The first round of all is
//! one write.

use futures::FutureExt as _;
use futures::future::join_all;
use idem_proto::idem::v1 as proto;
use prost::Message;
use tracing::Span;

use super::{Call, Rpc};
use crate::engine::{Begun, Outcome};
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
        let told = |outcome: &Outcome| Ok(((kind.answer)(outcome)?, observe::note_outcome(outcome)));
        let (mut answers, mut open) = (Vec::with_capacity(spans.len()), Vec::new());
        for (place, ((begun, (key, command)), span)) in begun.into_iter().zip(asked).zip(spans).enumerate() {
            match begun {
                // Nearly all: they need no future of their own.
                Begun::Through(outcome) => answers.push(Some(observe::ended(kind.command, &span, || told(&outcome)))),
                Begun::Open(begun) => {
                    answers.push(None);
                    let end = async move { told(&self.engine.end(begun, key, command).await?) };
                    open.push(observe::item(kind.command, span, end).map(move |answer| (place, answer)));
                }
            }
        }
        for (place, answer) in join_all(open).await {
            answers[place] = Some(answer);
        }
        let answers = answers.into_iter().flatten().collect::<Result<Vec<A>, Refusal>>()?;
        let bytes: usize = answers.iter().map(Message::encoded_len).sum();
        if bytes > ANSWER_MAX { Err(Refusal::TooLarge) } else { Ok(answers) }
    }
}
