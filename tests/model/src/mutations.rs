//! Rules of the protocol, left out one at a time: what the checks must be able to see.

use crate::{
    acquirer::Word,
    configuration::{Configuration, Left, Workload},
    properties::Rule,
};

/// A rule that is left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// Reclaim grants the key under the token that the former holder has.
    DropTheFence,
    /// The register releases a key whoever asks for it, in whatever state it is.
    ReleaseWithoutToken,
    /// Reclaim begins another operation.
    NewOperationOnReclaim,
    /// A release deletes the record, so the next attempt is another operation.
    DeleteOnRelease,
    /// A release forgets the counter of tokens.
    CountAnewAfterRelease,
    /// A recovery asks the acquirer and not the orders service's own rows, so nobody is fenced there.
    AskOnlyTheAcquirer,
    /// A holder that has reclaimed executes without asking.
    ExecuteBeforeAsking,
    /// A holder that does not know what became of its own call releases the key when the look-up knows nothing.
    ReleaseAfterUnknown,
    /// A holder whose call never left releases the key although a former holder's payment may be on its way.
    ReleaseWhatNeverLeft,
    /// The reconciler releases what is unknown without giving the payment up first.
    ReleaseWithoutClosing,
    /// A holder gives its refusal although the register says that it is superseded.
    RefuseAlthoughSuperseded,
    /// A holder that cannot reach the register says that nothing happened.
    SayNothingHappenedUnreleased,
    /// The orders service accepts tokens lower than one it has seen.
    IgnoreTokensInOrders,
    /// Order ids, and the rows of an operation, derive from the attempt and not from the operation.
    OrderIdsFromAttempt,
    /// Payment ids derive from the attempt and not from the operation.
    PaymentIdsFromAttempt,
    /// Payment ids derive from the key alone and not from its operation.
    IdsFromKeyAlone,
    /// The guards of a payment are judged also when it is open already.
    GuardOpenPayments,
    /// A charge found on a payment that was given up is adopted.
    AdoptOnClosed,
    /// A recovered answer is rendered from the rows as they are now.
    RenderTodaysRows,
    /// A payment that was given up is not watched.
    ForgetClosed,
    /// Every try at a refund has an id of its own.
    RefundIdPerTry,
    /// There is no reconciler.
    NoReconciler,
    /// The acquirer charges every time it is asked. Not ours to prevent: shows what the assumption is worth.
    AcquirerForgetsIds,
}

impl Mutation {
    /// Every mutation, with the name that it has on the command line.
    pub const ALL: [(Mutation, &'static str); 23] = [
        (Mutation::DropTheFence, "drop-the-fence"),
        (Mutation::ReleaseWithoutToken, "release-without-token"),
        (Mutation::NewOperationOnReclaim, "new-operation-on-reclaim"),
        (Mutation::DeleteOnRelease, "delete-on-release"),
        (Mutation::CountAnewAfterRelease, "count-anew-after-release"),
        (Mutation::AskOnlyTheAcquirer, "ask-only-the-acquirer"),
        (Mutation::ExecuteBeforeAsking, "execute-before-asking"),
        (Mutation::ReleaseAfterUnknown, "release-after-unknown"),
        (Mutation::ReleaseWhatNeverLeft, "release-what-never-left"),
        (Mutation::ReleaseWithoutClosing, "release-without-closing"),
        (Mutation::RefuseAlthoughSuperseded, "refuse-although-superseded"),
        (Mutation::SayNothingHappenedUnreleased, "say-nothing-happened-unreleased"),
        (Mutation::IgnoreTokensInOrders, "ignore-tokens-in-orders"),
        (Mutation::OrderIdsFromAttempt, "order-ids-from-attempt"),
        (Mutation::PaymentIdsFromAttempt, "payment-ids-from-attempt"),
        (Mutation::IdsFromKeyAlone, "ids-from-key-alone"),
        (Mutation::GuardOpenPayments, "guard-open-payments"),
        (Mutation::AdoptOnClosed, "adopt-on-closed"),
        (Mutation::RenderTodaysRows, "render-todays-rows"),
        (Mutation::ForgetClosed, "forget-closed"),
        (Mutation::RefundIdPerTry, "refund-id-per-try"),
        (Mutation::NoReconciler, "no-reconciler"),
        (Mutation::AcquirerForgetsIds, "acquirer-forgets-ids"),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(mutation, _)| *mutation == self).map_or("", |(_, name)| name)
    }

    /// The mutation of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(mutation, _)| mutation)
    }

    /// The rule that the checker must see broken.
    pub fn breaks(self) -> Rule {
        match self {
            Self::DropTheFence
            | Self::AskOnlyTheAcquirer
            | Self::ReleaseAfterUnknown
            | Self::ReleaseWhatNeverLeft
            | Self::ReleaseWithoutClosing
            | Self::GuardOpenPayments => Rule::ReleasedMeansNothing,
            Self::ReleaseWithoutToken => Rule::StoredNeverChanges,
            Self::DeleteOnRelease | Self::PaymentIdsFromAttempt => Rule::OneChargePerIntent,
            Self::CountAnewAfterRelease => Rule::TokensGrow,
            Self::ExecuteBeforeAsking => Rule::AskFirst,
            Self::RefuseAlthoughSuperseded | Self::SayNothingHappenedUnreleased => Rule::RefusalsAreTrue,
            Self::IgnoreTokensInOrders => Rule::OldHoldersActNowhere,
            Self::OrderIdsFromAttempt => Rule::OneOrderPerOperation,
            Self::NewOperationOnReclaim => Rule::OneOrderPerIntent,
            Self::IdsFromKeyAlone => Rule::PaidMeansCharged,
            Self::AdoptOnClosed => Rule::GivenUpIsNeverKept,
            Self::RenderTodaysRows => Rule::OneAnswer,
            Self::ForgetClosed => Rule::MoneySettles,
            Self::RefundIdPerTry => Rule::RefundedOnce,
            Self::NoReconciler => Rule::KeysSettle,
            Self::AcquirerForgetsIds => Rule::OneChargePerPayment,
        }
    }

    /// The world in which it shows, as small as may be: the smaller the world, the more readable the trace.
    pub fn configuration(self) -> Configuration {
        let one =
            Left { requests: 1, faults: 2, seats: 0, retentions: 0, idle_rounds: 0, paid_elsewhere: 0, lapses: 0 };
        let two = Left { requests: 2, ..one };
        let (workload, left) = match self {
            Self::DropTheFence
            | Self::AskOnlyTheAcquirer
            | Self::ReleaseAfterUnknown
            | Self::IgnoreTokensInOrders
            | Self::NoReconciler => (Workload::Orders, one),
            Self::ReleaseWithoutToken | Self::ExecuteBeforeAsking => (Workload::Orders, two),
            Self::CountAnewAfterRelease => (Workload::Orders, Left { seats: 1, ..two }),
            // Sold out for one, and a seat for the other.
            Self::RefuseAlthoughSuperseded | Self::SayNothingHappenedUnreleased => {
                (Workload::Orders, Left { seats: 2, ..two })
            }
            Self::RenderTodaysRows => (Workload::Orders, Left { lapses: 1, ..one }),
            Self::OrderIdsFromAttempt | Self::NewOperationOnReclaim => (Workload::Orders, Left { lapses: 1, ..two }),
            Self::ReleaseWithoutClosing
            | Self::AdoptOnClosed
            | Self::ForgetClosed
            | Self::RefundIdPerTry
            | Self::AcquirerForgetsIds => (Workload::Payments, one),
            Self::DeleteOnRelease | Self::ReleaseWhatNeverLeft | Self::PaymentIdsFromAttempt => {
                (Workload::Payments, two)
            }
            Self::GuardOpenPayments => (Workload::Payments, Left { lapses: 1, ..two }),
            Self::IdsFromKeyAlone => (Workload::Payments, Left { retentions: 1, ..two }),
        };
        let words: &[Word] = if workload == Workload::Payments { &[Word::Approved] } else { &[] };
        Configuration { name: self.name(), words, left, ..Configuration::small(workload) }
    }
}
