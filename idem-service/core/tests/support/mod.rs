//! Values that the tests of the core share.
#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use bytes::Bytes;
use idem_core::{
    AttemptId, Command, Deadline, FencingToken, Fingerprint, GrantedBy, LeaseDuration, OperationId, Record, Response,
    RetentionPeriod, State, TraceContext,
};
use uuid::Uuid;

pub fn operation(n: u128) -> OperationId {
    OperationId(Uuid::from_u128(0x0b00 + n))
}

pub fn attempt(n: u128) -> AttemptId {
    AttemptId(Uuid::from_u128(0xa000 + n))
}

pub fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint::from_slice(&[n; 32]).unwrap()
}

pub fn lease() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(60)).unwrap()
}

pub fn retention() -> RetentionPeriod {
    RetentionPeriod::new(Duration::from_secs(3600), lease()).unwrap()
}

pub fn response(n: u32) -> Response {
    Response::new(200 + n, vec![], Bytes::from_static(b"answer"), String::new()).unwrap()
}

pub fn record(state: State, deadline: Deadline) -> Record {
    Record {
        operation_id: operation(1),
        token: FencingToken(5),
        fingerprint: fingerprint(1),
        attempt_id: attempt(1),
        granted_by: GrantedBy::Reserve,
        past_attempts: vec![attempt(0)],
        attempts: 2,
        retention: retention(),
        trace_context: TraceContext::default(),
        state,
        deadline,
    }
}

pub fn reserve(asked: u8, tried: u128, fresh: u128) -> Command {
    Command::Reserve {
        fingerprint: fingerprint(asked),
        attempt_id: attempt(tried),
        operation_id: operation(fresh),
        lease: lease(),
        retention: retention(),
        trace_context: TraceContext::default(),
    }
}
