//! Proto ⇄ core: what comes in is checked here, every field against its bound, and what goes out is written here.

pub(crate) mod admin;
pub(crate) mod answer;
pub(crate) mod many;
mod page;
pub(crate) mod record;
pub(crate) mod request;
mod violations;

use std::time::SystemTime;

use idem_core::StateName;
use idem_proto::idem::v1::State;

fn timestamp(time: Option<SystemTime>) -> Option<prost_types::Timestamp> {
    time.map(prost_types::Timestamp::from)
}

fn state(name: StateName) -> State {
    match name {
        StateName::InProgress => State::InProgress,
        StateName::InDoubt => State::InDoubt,
        StateName::Completed => State::Completed,
        StateName::Released => State::Released,
    }
}
