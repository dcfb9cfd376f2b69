//! What must be seen somewhere: a model too narrow to show these would prove nothing by finding no fault.

use crate::configuration::Workload;

/// Something worth seeing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Witness {
    /// The orders service turns an old holder away.
    FencedZombie,
    /// A holder is told by the register that it is not the holder any more.
    Superseded,
    /// A holder with a refusal is told so, and discards it.
    SupersededRefusal,
    /// A stored answer is replayed.
    Replay,
    /// A client takes over from a holder whose lease is over.
    Reclaimed,
    /// A recovery finds that it was done, and completes the key with the answer kept then.
    RecoveredAnswer,
    /// The reconciler completes a key.
    ReconcilerCompleted,
    /// The reconciler releases a key.
    ReconcilerReleased,
    /// A released key is executed again.
    ExecutedAfterRelease,
    /// A refusal is given to a client.
    RefusalTold,
    /// A success is given before it is stored.
    ToldBeforeStored,
    /// A late repeat of an ended attempt is granted nothing.
    EndedAttempt,
    /// A key begins a new generation.
    NewGeneration,
    /// A payment is given up.
    PaymentClosed,
    /// A payment that was given up is opened again, under the same id.
    PaymentReopened,
    /// A charge lands after its payment was given up, and is ordered back.
    ClosedPaymentCharged,
    /// A charge has gone back.
    Refunded,
    /// An open payment is sent once more, by another holder.
    PaymentResumed,
    /// A create arrives at the acquirer when nobody waits for it any more.
    LateCreate,
    /// A client is told that its payment is pending.
    PendingTold,
    /// A seat that was lost when the hold lapsed is taken again for a late approval.
    SeatTakenAgain,
    /// A late approval is refunded because its seat is gone.
    SeatGone,
}

impl Witness {
    /// Every witness, with its name as a property.
    pub const ALL: [(Witness, &'static str); 22] = [
        (Witness::FencedZombie, "seen: an old holder is turned away by the orders service"),
        (Witness::Superseded, "seen: a holder is superseded at the register"),
        (Witness::SupersededRefusal, "seen: a superseded holder discards its refusal"),
        (Witness::Replay, "seen: a stored answer is replayed"),
        (Witness::Reclaimed, "seen: a client takes over from a dead or sleeping holder"),
        (Witness::RecoveredAnswer, "seen: a recovery completes the key with the answer kept then"),
        (Witness::ReconcilerCompleted, "seen: the reconciler completes a key"),
        (Witness::ReconcilerReleased, "seen: the reconciler releases a key"),
        (Witness::ExecutedAfterRelease, "seen: a released key is executed again"),
        (Witness::RefusalTold, "seen: a client is refused"),
        (Witness::ToldBeforeStored, "seen: a success is told before it is stored"),
        (Witness::EndedAttempt, "seen: a late repeat of an ended attempt is granted nothing"),
        (Witness::NewGeneration, "seen: a key begins a new generation"),
        (Witness::PaymentClosed, "seen: a payment is given up"),
        (Witness::PaymentReopened, "seen: a payment that was given up is opened again"),
        (Witness::ClosedPaymentCharged, "seen: a charge lands on a payment that was given up"),
        (Witness::Refunded, "seen: a charge goes back"),
        (Witness::PaymentResumed, "seen: an open payment is sent again by another holder"),
        (Witness::LateCreate, "seen: a create lands when nobody waits for it any more"),
        (Witness::PendingTold, "seen: a client is told that its payment is pending"),
        (Witness::SeatTakenAgain, "seen: a late approval takes its seat again"),
        (Witness::SeatGone, "seen: a late approval finds its seat gone"),
    ];

    /// Its bit in a state.
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    /// Must a world with this workload show it?
    pub fn is_of(self, workload: Workload) -> bool {
        match self {
            // What comes of calls to the register that fail, and of a second generation, is seen with orders.
            Self::SupersededRefusal | Self::ToldBeforeStored | Self::EndedAttempt | Self::NewGeneration => {
                workload == Workload::Orders
            }
            Self::PaymentClosed
            | Self::PaymentReopened
            | Self::ClosedPaymentCharged
            | Self::Refunded
            | Self::PaymentResumed
            | Self::LateCreate
            | Self::PendingTold
            | Self::SeatTakenAgain
            | Self::SeatGone => workload == Workload::Payments,
            _ => true,
        }
    }
}
