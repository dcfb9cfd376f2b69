//! The names of things: numbers small enough to fit many worlds into memory, and never taken for one another.

use std::fmt;

/// An intent's operation; numbered in the sequence in which the register mints them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Op(pub u8);

/// A fencing token. Zero was never granted: the token of an operation that orders has not seen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Token(pub u8);

/// The name of a try at Reserve or Reclaim. [`Attempt::FORGOTTEN`] stands for all that no message and no process can name any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Attempt(pub u8);

/// A payment's name at the acquirer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PaymentId(pub u8);

/// What a client wants done once: the key in one generation, from its first reservation until its retention is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Intent(pub u8);

/// The right to act, as long as nobody has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Grant {
    /// The operation.
    pub op: Op,
    /// The token.
    pub token: Token,
}

/// A process that holds keys: a gateway's operation task, or the reconciler, which is the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Who(pub u8);

/// What an operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// An order, by its place in the rows, as it was rendered.
    Ordered(u8, OrderStatus),
    /// The payment is approved and has paid its order.
    Paid(PaymentId),
    /// The acquirer will not charge.
    Declined,
    /// It was charged, and the money goes back.
    GivenBack,
    /// The acquirer has it and has not decided.
    Pending,
    /// There is no seat.
    SoldOut,
    /// The order cannot be paid as it stands.
    NotPayable,
    /// The call never left the gateway, or was turned away at the door.
    NotSent,
}

/// Where an order stands; what became of it after a cancellation makes no difference to a payment's operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum OrderStatus {
    /// Its seat is held.
    Pending,
    /// Its seat is sold.
    Paid,
    /// Its hold has lapsed and its seat is free.
    Expired,
}

impl Attempt {
    /// Nobody's: see the type.
    pub const FORGOTTEN: Attempt = Attempt(0);
}

impl Outcome {
    /// As the bytes of a stored answer.
    pub fn to_bytes(self) -> [u8; 3] {
        match self {
            Self::Ordered(order, status) => [0, order, status as u8],
            Self::Paid(payment) => [1, payment.0, 0],
            Self::Declined => [2, 0, 0],
            Self::GivenBack => [3, 0, 0],
            Self::Pending => [4, 0, 0],
            Self::SoldOut => [5, 0, 0],
            Self::NotPayable => [6, 0, 0],
            Self::NotSent => [7, 0, 0],
        }
    }

    /// Reads the bytes of a stored answer.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let status = |number| match number {
            0 => OrderStatus::Pending,
            1 => OrderStatus::Paid,
            _ => OrderStatus::Expired,
        };
        match *bytes {
            [0, order, number] => Self::Ordered(order, status(number)),
            [1, payment, _] => Self::Paid(PaymentId(payment)),
            [2, ..] => Self::Declined,
            [3, ..] => Self::GivenBack,
            [4, ..] => Self::Pending,
            [5, ..] => Self::SoldOut,
            [6, ..] => Self::NotPayable,
            _ => Self::NotSent,
        }
    }
}

// === words for traces ===

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}, token {}", self.op.0 + 1, self.token.0)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered(order, status) => write!(f, "201, order {} ({status})", order + 1),
            Self::Paid(payment) => write!(f, "201, payment {} approved", payment.0 + 1),
            Self::Declined => f.write_str("402, payment declined"),
            Self::GivenBack => f.write_str("409, the payment is refunded"),
            Self::Pending => f.write_str("202, the payment is pending"),
            Self::SoldOut => f.write_str("409, sold out"),
            Self::NotPayable => f.write_str("409, the order cannot be paid"),
            Self::NotSent => f.write_str("503, nothing happened"),
        }
    }
}

impl fmt::Display for OrderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Paid => "paid",
            Self::Expired => "expired",
        })
    }
}
