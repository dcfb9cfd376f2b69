//! How large a world is checked: who takes part, and how much may go wrong.

use crate::acquirer::Word;

/// What clients ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Workload {
    /// `POST /v1/orders` for the last seat.
    Orders,
    /// `POST /v1/payments` for an order whose seat is held.
    Payments,
}

/// A world to check, before anything has happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// What it is called.
    pub name: &'static str,
    /// What clients ask for.
    pub workload: Workload,
    /// Gateways; each serves one request at a time.
    pub gateways: u8,
    /// What the acquirer may answer to a charge that it sees for the first time.
    pub words: &'static [Word],
    /// Calls to the register fail like all others. Where they do not, another configuration looks at that.
    pub is_register_faulty: bool,
    /// What may go wrong or happen by itself.
    pub left: Left,
}

/// What is left of every kind of event that is not bound to happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Left {
    /// Requests that clients still send with the key, whichever gateway serves them.
    pub requests: u8,
    /// Faults of any kind: a call lost, late, repeated or unanswered, a process killed, a holder that sleeps past its lease.
    pub faults: u8,
    /// Times that somebody else takes the seat or gives it back.
    pub seats: u8,
    /// Times that a retention ends.
    pub retentions: u8,
    /// Times that the reconciler takes a key whose payment the acquirer has not decided.
    pub idle_rounds: u8,
    /// Times that an order is paid otherwise.
    pub paid_elsewhere: u8,
    /// Times that a hold lapses.
    pub lapses: u8,
}

impl Configuration {
    /// What the tests check.
    pub fn small_ones() -> Vec<Self> {
        vec![Self::small(Workload::Orders), Self::small(Workload::Payments)]
    }

    /// What is checked by its own command.
    pub fn large_ones() -> Vec<Self> {
        vec![Self::large(Workload::Orders), Self::large(Workload::Payments), Self::faults(), Self::generations()]
    }

    /// Seconds of checking: two gateways, the reconciler, two faults.
    pub fn small(workload: Workload) -> Self {
        let none =
            Left { requests: 2, faults: 2, seats: 0, retentions: 0, idle_rounds: 1, paid_elsewhere: 0, lapses: 1 };
        match workload {
            Workload::Orders => Self {
                name: "small, orders",
                workload,
                gateways: 2,
                words: &[],
                is_register_faulty: true,
                left: Left { requests: 3, seats: 2, retentions: 1, ..none },
            },
            // What the register does when calls fail is seen with orders.
            Workload::Payments => Self {
                name: "small, payments",
                workload,
                gateways: 2,
                words: &[Word::Approved, Word::Pending],
                is_register_faulty: false,
                left: Left { paid_elsewhere: 1, idle_rounds: 0, ..none },
            },
        }
    }

    /// Minutes of checking: three gateways, one more of most.
    pub fn large(workload: Workload) -> Self {
        let small = Self::small(workload);
        match workload {
            Workload::Orders => {
                let left = Left { requests: 4, faults: 3, ..small.left };
                Self { name: "large, orders", gateways: 3, left, ..small }
            }
            Workload::Payments => Self {
                name: "large, payments",
                gateways: 3,
                words: &[Word::Approved, Word::Pending, Word::Declined],
                is_register_faulty: true,
                left: Left { requests: 3, idle_rounds: 1, ..small.left },
                ..small
            },
        }
    }

    /// Payments with three faults, for fewer requests.
    pub fn faults() -> Self {
        let large = Self::large(Workload::Payments);
        let left = Left { requests: 2, faults: 3, ..large.left };
        Self { name: "large, three faults", left, ..large }
    }

    /// Payments of a key in two generations, with fewer faults.
    pub fn generations() -> Self {
        let large = Self::large(Workload::Payments);
        let left = Left { faults: 1, retentions: 1, ..large.left };
        Self { name: "large, two generations", left, ..large }
    }
}
