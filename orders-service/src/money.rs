//! Money in minor units.

use std::fmt;

/// Above this an amount is a mistake. 2500 seats at this price still fit a double exactly, as JSON readers use it.
pub const AMOUNT_MAX: i64 = 1_000_000_000_000;

/// An amount of minor units in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Money {
    /// Minor units, for example cents.
    pub amount: i64,
    /// Which money.
    pub currency: Currency,
}

/// An ISO 4217 code: three capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Currency(String);

impl Currency {
    /// Takes three capital letters.
    pub fn new(code: &str) -> Option<Self> {
        (code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase())).then(|| Self(code.to_owned()))
    }

    /// The code itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.amount, self.currency.0)
    }
}
