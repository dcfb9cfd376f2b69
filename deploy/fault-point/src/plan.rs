//! What is to happen where: `settle payment: committed#2=kill`.

use std::{fmt, str::FromStr};

/// What happens at an armed point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The call that the point stands for fails with its typed error.
    Fail,
    /// The task goes away here, as a panic does but without its message: what it had in memory is lost.
    Die,
    /// The process goes away here, as by `kill -9`.
    Kill,
}

/// One action at one crossing of one point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Name of the point.
    pub point: String,
    /// At which crossing, counted from 1.
    pub nth: u32,
    /// What happens there.
    pub action: Action,
}

/// The text is not a plan.
#[derive(Debug)]
pub struct PlanError(String);

// === impl Plan ===

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wrong = || PlanError(text.to_owned());
        let (place, action) = text.rsplit_once('=').ok_or_else(wrong)?;
        let (point, nth) = place.rsplit_once('#').ok_or_else(wrong)?;
        let nth = nth.parse().ok().filter(|nth| *nth > 0).ok_or_else(wrong)?;
        let action = match action {
            "fail" => Action::Fail,
            "die" => Action::Die,
            "kill" => Action::Kill,
            _ => return Err(wrong()),
        };
        Ok(Self { point: point.to_owned(), nth, action })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Fail => "fail",
            Action::Die => "die",
            Action::Kill => "kill",
        };
        write!(f, "{}#{}={action}", self.point, self.nth)
    }
}

// === impl PlanError ===

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a fault point: write NAME#N=ACTION, where ACTION is fail, die or kill", self.0)
    }
}

impl std::error::Error for PlanError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_back_as_it_is_written() {
        for text in ["pay: commit#1=fail", "begin payment: orders.payment_start#12=die", "a#b=c#2=kill"] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_plan_is_refused_with_the_way_to_write_one() {
        for text in ["", "pay", "pay=fail", "pay#1", "pay#0=fail", "pay#x=fail", "pay#1=explode"] {
            let error = text.parse::<Plan>().unwrap_err();
            assert!(error.to_string().contains("NAME#N=ACTION"), "{text}: {error}");
        }
    }
}
