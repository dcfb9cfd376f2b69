//! Who acts, and every id that follows from it.
//!
//! An operation id is minted once for a client's intent and kept through every retry. Order, payment and refund ids are UUIDv5 of it,
//! so a second execution of the same intent meets the first one's rows, here and at the acquirer, instead of making new ones.

use std::fmt;

use uuid::Uuid;

/// The namespace of order ids. Fixed for good: changing one would give retries of running operations other ids.
const ORDERS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a01);
/// The namespace of payment ids.
const PAYMENTS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a02);
/// The namespace of refund ids.
const REFUNDS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a03);
/// The namespace of ticket ids.
const TICKETS: Uuid = Uuid::from_u128(0x6f1d_3c52_9b1e_4a77_8a0f_2d8e_51c3_0a04);

/// Declares an id: a UUID that cannot be taken for one of its neighbours.
macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Uuid);

        impl $name {
            /// Reads the id from its text; `None` when it is not a UUID, so that nothing can be stored under it.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(out)
            }
        }
    };
}

uuid_id! {
    /// The name of one intent, minted at the first reservation of its key.
    OperationId
}
uuid_id! {
    /// The name of an order.
    OrderId
}
uuid_id! {
    /// The name of a payment, here and at the acquirer.
    PaymentId
}
uuid_id! {
    /// The name of a refund at the acquirer. It follows from the payment's operation, so a payment is refunded at most once.
    RefundId
}
uuid_id! {
    /// The name of a ticket.
    TicketId
}

impl OperationId {
    /// The order this operation places.
    pub fn order(self) -> OrderId {
        OrderId(Uuid::new_v5(&ORDERS, self.0.as_bytes()))
    }

    /// The payment this operation makes.
    pub fn payment(self) -> PaymentId {
        PaymentId(Uuid::new_v5(&PAYMENTS, self.0.as_bytes()))
    }

    /// The refund of the payment this operation made.
    pub fn refund(self) -> RefundId {
        RefundId(Uuid::new_v5(&REFUNDS, self.0.as_bytes()))
    }
}

impl OrderId {
    /// The ticket of the seat at `position`, counted from zero through the whole order.
    pub fn ticket(self, position: u32) -> TicketId {
        let mut name = [0u8; 20];
        name[..16].copy_from_slice(self.0.as_bytes());
        name[16..].copy_from_slice(&position.to_be_bytes());
        TicketId(Uuid::new_v5(&TICKETS, &name))
    }
}

/// The number of a grant. It only grows, and a mutation that carries a lower one than was seen is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FencingToken(i64);

impl FencingToken {
    /// Takes a positive number as a token; grants start at 1.
    pub fn new(number: i64) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    /// The number itself.
    pub fn get(self) -> i64 {
        self.0
    }
}

/// The integration on whose behalf something is done. What belongs to one tenant does not exist for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant(String);

impl Tenant {
    /// Takes a name of 1 to 200 bytes.
    pub fn new(name: &str) -> Option<Self> {
        (1..=200).contains(&name.len()).then(|| Self(name.to_owned()))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The grant under which a keyed mutation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The intent.
    pub operation: OperationId,
    /// The number of this attempt at it.
    pub token: FencingToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published: other implementations must derive the same ids. Computed with Python's `hashlib.sha1` and `uuid.UUID(version=5)` over
    /// the sixteen bytes of the operation id (of the order id and a big-endian position for tickets).
    const VECTORS: [[&str; 6]; 2] = [
        [
            "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11",
            "9d459477-9c2e-593f-909b-eb13578767b0",
            "b53fa452-4f75-5e80-a5dd-9e73c8c35518",
            "ba982275-eca5-5e65-bdd1-8c545ea5378d",
            "e9eb3c9c-592d-5c16-b02b-a644deacb04d",
            "3f0726a3-7ea0-5741-b39f-ab318ace8219",
        ],
        [
            "00000000-0000-0000-0000-000000000000",
            "258994ee-a52d-54e5-a65d-a78f06f66dfa",
            "19a2168c-9968-5d72-9885-0e18b24ebdc2",
            "81a36aa8-305d-5378-af3e-fbbb59d4ae3e",
            "01cdc852-30c2-5e07-96df-7beb06d1b236",
            "779ef58c-6b2b-589d-86b3-f3ac089ebe9d",
        ],
    ];

    #[test]
    fn ids_follow_from_the_operation_as_published() {
        for [operation, order, payment, refund, first, fiftieth] in VECTORS {
            let operation = OperationId::parse(operation).expect("a UUID");
            assert_eq!(operation.order().to_string(), order);
            assert_eq!(operation.payment().to_string(), payment);
            assert_eq!(operation.refund().to_string(), refund);
            assert_eq!(operation.order().ticket(0).to_string(), first);
            assert_eq!(operation.order().ticket(49).to_string(), fiftieth);
        }
    }

    #[test]
    fn an_id_is_the_same_in_whatever_case_it_is_written() {
        let text = "0b7c2f0e-3f5d-4a39-9d5a-5a9f6d2c1e11";
        assert_eq!(OrderId::parse(text), OrderId::parse(&text.to_uppercase()));
        assert_eq!(OrderId::parse("not one"), None);
        assert_eq!(FencingToken::new(0), None);
    }
}
