//! The network: what becomes of a call, and what is still on its way when nobody waits any more.
//!
//! A call and its answer are one step when both arrive, since hearing an answer changes only who hears it. Everything else is a fault
//! and costs one. What is late arrives at any later moment, in any sequence.

use crate::{
    names::{Grant, Op, PaymentId},
    register::Ask,
};

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrives, and so does its answer.
    Arrives,
    /// It arrives, and so does its answer; a copy of it is still on its way.
    ArrivesTwice,
    /// It arrives; its answer does not.
    AnswerLost,
    /// It is still on its way when the caller gives it up.
    Late,
    /// It never arrives.
    Lost,
    /// It never leaves, and the caller knows.
    NeverLeft,
    /// It is on its way when the caller dies.
    LateAndDead,
}

/// A call that is still on its way. Its answer will interest nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Message {
    /// To the register.
    Register(Ask),
    /// To the orders service: place the order.
    Place(Grant),
    /// To the orders service: pay.
    Pay(Grant),
    /// To the orders service: what happened?
    LookUp(Grant),
    /// To the orders service: give the payment up.
    Close(Grant),
    /// To the acquirer: charge under this id.
    Charge(Op, PaymentId),
    /// To the acquirer: refund this payment; the second is the refund's own id.
    Refund(PaymentId, u8),
}

impl Fate {
    /// Does it cost one of the faults?
    pub fn is_fault(self) -> bool {
        self != Self::Arrives
    }

    /// Does the callee see the call now?
    pub fn arrives(self) -> bool {
        matches!(self, Self::Arrives | Self::ArrivesTwice | Self::AnswerLost)
    }

    /// Does the caller hear the answer?
    pub fn is_heard(self) -> bool {
        matches!(self, Self::Arrives | Self::ArrivesTwice)
    }

    /// Is a copy of the call left on its way?
    pub fn leaves_copy(self) -> bool {
        matches!(self, Self::ArrivesTwice | Self::Late | Self::LateAndDead)
    }

    /// For traces.
    pub fn words(self) -> &'static str {
        match self {
            Self::Arrives => "",
            Self::ArrivesTwice => " (and a copy of the call is still on its way)",
            Self::AnswerLost => " (the answer is lost)",
            Self::Late => " (the call is late: the caller gives it up while it is on its way)",
            Self::Lost => " (the call is lost)",
            Self::NeverLeft => " (the call never leaves)",
            Self::LateAndDead => " and is killed while the call is on its way",
        }
    }
}
