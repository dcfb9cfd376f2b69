//! The acquirer: charges once under a payment id, refunds once under a refund id, and decides when it likes.

use crate::{
    mutations::Mutation,
    names::{Op, PaymentId},
    step::Step,
    witness::Witness,
};

/// What the acquirer says about a payment that it knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Word {
    /// It has charged.
    Approved,
    /// It will not charge.
    Declined,
    /// It has not decided.
    Pending,
}

/// A payment at the acquirer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Account {
    /// Its id.
    pub id: PaymentId,
    /// The operation that sent it first. The acquirer does not know it; the rules do.
    pub op: Op,
    /// What it says.
    pub word: Word,
    /// How often it has charged.
    pub charges: u8,
    /// The refunds it has made, by the number in their ids; a bit each.
    pub refunds: u8,
}

impl Step<'_> {
    /// A charge arrives. What it says to one that it has not seen before is `first`.
    pub fn charge(&mut self, op: Op, id: PaymentId, first: Option<Word>) -> Word {
        let forgets = self.is_mutated(Mutation::AcquirerForgetsIds);
        if let Some(account) = self.world.accounts.iter_mut().find(|account| account.id == id) {
            if forgets && account.word == Word::Approved {
                account.charges += 1;
            }
            let word = account.word;
            self.say(|| format!("the acquirer knows payment {} already: {word}", id.0 + 1));
            return word;
        }
        let word = first.unwrap_or(Word::Approved);
        let charges = u8::from(word == Word::Approved);
        self.world.accounts.push(Account { id, op, word, charges, refunds: 0 });
        self.world.accounts.sort_by_key(|account| account.id);
        self.say(|| format!("the acquirer takes payment {}: {word}", id.0 + 1));
        word
    }

    /// A charge that nobody waits for arrives.
    pub fn charge_late(&mut self, op: Op, id: PaymentId, first: Option<Word>) {
        self.say(|| format!("the late charge of payment {} lands at the acquirer", id.0 + 1));
        if self.world.account(id).is_none() {
            self.show(Witness::LateCreate);
        }
        self.charge(op, id, first);
    }

    /// It decides a payment that is pending.
    pub fn decide_payment(&mut self, id: PaymentId, word: Word) {
        self.say(|| format!("the acquirer decides payment {}: {word}", id.0 + 1));
        if let Some(account) = self.world.accounts.iter_mut().find(|account| account.id == id) {
            account.word = word;
            account.charges = u8::from(word == Word::Approved);
        }
    }

    /// A refund arrives; true when there is such a charge to give back.
    pub fn give_back(&mut self, id: PaymentId, refund: u8) {
        self.say(|| format!("the acquirer refunds payment {} (refund id {refund})", id.0 + 1));
        if let Some(account) = self.world.accounts.iter_mut().find(|account| account.id == id) {
            account.refunds |= 1 << refund;
        }
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Approved => "approved",
            Self::Declined => "declined",
            Self::Pending => "pending",
        })
    }
}
