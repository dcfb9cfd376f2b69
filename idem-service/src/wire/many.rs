//! The items of one call → commands of the core, each read as if it had come alone.

use chassis::trace::Parent;
use idem_proto::idem::v1 as proto;
use tonic_types::FieldViolation;

use super::request::{self, OnKey};
use super::violations::Violations;
use crate::status::Refusal;

/// So many are one or two statements.
const ITEMS_MAX: usize = 500;

/// One item, and the trace it belongs to.
pub(crate) struct Item {
    pub(crate) asked: OnKey,
    pub(crate) traced: Option<Parent>,
}

pub(crate) fn reserves(items: Vec<proto::ReserveRequest>) -> Result<Vec<Item>, Refusal> {
    read(items, |item| {
        let traced = Parent::from_traceparent(&item.trace_context);
        let request::Reserve { key, command, wait } = request::reserve(item)?;
        let mut violations = Violations::default();
        let wait = if wait.is_zero() {
            Some(())
        } else {
            violations.refuse("wait", "must be absent: nobody waits for a holder in a call of many")
        };
        violations.finish(wait.map(|()| Item { asked: OnKey { key, command }, traced }))
    })
}

pub(crate) fn completes(items: Vec<proto::CompleteRequest>) -> Result<Vec<Item>, Refusal> {
    read(items, |item| {
        let traced = Parent::from_traceparent(&item.trace_context);
        Ok(Item { asked: request::complete(item)?, traced })
    })
}

/// Reads every item, up to the first that is out of bounds: naming more of them could be longer than a refusal may be.
fn read<M>(items: Vec<M>, read: fn(M) -> Result<Item, Refusal>) -> Result<Vec<Item>, Refusal> {
    if items.len() > ITEMS_MAX {
        let mut violations = Violations::default();
        let none = violations.refuse("items", format_args!("must be at most {ITEMS_MAX}"));
        return violations.finish(none);
    }
    items.into_iter().enumerate().map(|(at, item)| read(item).map_err(|refusal| of_item(at, refusal))).collect()
}

fn of_item(at: usize, refusal: Refusal) -> Refusal {
    let Refusal::Invalid(violations) = refusal else { return refusal };
    let named = |it: FieldViolation| FieldViolation { field: format!("items[{at}].{}", it.field), ..it };
    Refusal::Invalid(violations.into_iter().map(named).collect())
}
