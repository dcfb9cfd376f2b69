//! Relations that must hold between durations given by different flags.

use std::{fmt, time::Duration};

/// One side of a relation: a flag with its value, or a sum of them.
///
/// ```
/// use chassis::flags::{Term, check_less};
/// use std::time::Duration;
///
/// let lease = Term::new("--lease", Duration::from_secs(60));
/// let upstream = Term::new("--upstream-timeout", Duration::from_secs(25));
/// let retention = Term::new("--retention", Duration::from_secs(30));
/// assert!(check_less(&upstream, &lease).is_ok());
/// let refused = check_less(&lease.plus(&upstream), &retention).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "--lease (1m) plus --upstream-timeout (25s) must be shorter than --retention (30s)"
/// );
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    flags: Vec<(&'static str, Duration)>,
}

/// A relation between flags that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{smaller} must be shorter than {larger}")]
pub struct RelationError {
    smaller: Term,
    larger: Term,
}

/// Checks that `smaller < larger`; the refusal names both flags and both values.
pub fn check_less(smaller: &Term, larger: &Term) -> Result<(), RelationError> {
    if smaller.total() < larger.total() {
        return Ok(());
    }
    Err(RelationError { smaller: smaller.clone(), larger: larger.clone() })
}

// === impl Term ===

impl Term {
    /// The value that `flag` has.
    pub fn new(flag: &'static str, value: Duration) -> Self {
        Self { flags: vec![(flag, value)] }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Term) -> Self {
        Self { flags: [self.flags.as_slice(), other.flags.as_slice()].concat() }
    }

    fn total(&self) -> Duration {
        self.flags.iter().fold(Duration::ZERO, |sum, (_, value)| sum.saturating_add(*value))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (flag, value)) in self.flags.iter().enumerate() {
            let separator = if place == 0 { "" } else { " plus " };
            write!(f, "{separator}{flag} ({})", humantime::format_duration(*value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_refused_too() {
        let acquirer = Term::new("--acquirer-timeout", Duration::from_secs(25));
        let upstream = Term::new("--upstream-timeout", Duration::from_secs(25));
        let error = check_less(&acquirer, &upstream).unwrap_err();
        assert_eq!(error.to_string(), "--acquirer-timeout (25s) must be shorter than --upstream-timeout (25s)");
    }

    #[test]
    fn a_sum_that_overflows_is_the_longest_duration() {
        let longest = Term::new("--lease", Duration::MAX);
        assert!(check_less(&longest.plus(&longest), &longest).is_err());
    }
}
