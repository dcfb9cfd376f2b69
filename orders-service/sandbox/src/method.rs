//! The payment methods of the sandbox: each one names how the payment goes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How a payment goes. Part of what was asked, so another method under the same payment id is another body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Approved at once.
    Approved,
    /// Declined at once.
    Declined,
    /// Pending until it is settled by hand.
    Pending,
    /// Pending from the start, approved after this long; the answer comes then.
    Slow(Duration),
    /// 500, and nothing is charged or kept.
    Error,
    /// Charges, and never answers.
    ChargeThenHang,
    /// Charges, and closes the connection.
    ChargeThenDrop,
    /// Closes the connection before charging.
    Drop,
    /// Pending until it is settled by hand, and the answer never comes.
    PendingChargeThenHang,
    /// Closes the connection, is unknown for this long, and charges then: a request that was still on its way.
    Late(Duration),
}

/// The text names no method of the sandbox.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "unknown payment method; the sandbox has pm_approved, pm_declined, pm_pending, pm_slow_<ms>, pm_error, \
         pm_charge_then_hang, pm_charge_then_drop, pm_drop, pm_pending_charge_then_hang and pm_late_<ms>"
)]
pub(crate) struct UnknownMethod;

// === impl Method ===

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        Ok(match text {
            "pm_approved" => Method::Approved,
            "pm_declined" => Method::Declined,
            "pm_pending" => Method::Pending,
            "pm_error" => Method::Error,
            "pm_charge_then_hang" => Method::ChargeThenHang,
            "pm_charge_then_drop" => Method::ChargeThenDrop,
            "pm_drop" => Method::Drop,
            "pm_pending_charge_then_hang" => Method::PendingChargeThenHang,
            _ => match (text.strip_prefix("pm_slow_"), text.strip_prefix("pm_late_")) {
                (Some(ms), _) => Method::Slow(milliseconds(ms)?),
                (_, Some(ms)) => Method::Late(milliseconds(ms)?),
                (None, None) => return Err(UnknownMethod),
            },
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::Approved => f.write_str("pm_approved"),
            Method::Declined => f.write_str("pm_declined"),
            Method::Pending => f.write_str("pm_pending"),
            Method::Slow(delay) => write!(f, "pm_slow_{}", delay.as_millis()),
            Method::Error => f.write_str("pm_error"),
            Method::ChargeThenHang => f.write_str("pm_charge_then_hang"),
            Method::ChargeThenDrop => f.write_str("pm_charge_then_drop"),
            Method::Drop => f.write_str("pm_drop"),
            Method::PendingChargeThenHang => f.write_str("pm_pending_charge_then_hang"),
            Method::Late(delay) => write!(f, "pm_late_{}", delay.as_millis()),
        }
    }
}

/// Digits only (`u32::from_str` alone would take a plus sign), which bounds a delay to 49 days.
fn milliseconds(digits: &str) -> Result<Duration, UnknownMethod> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UnknownMethod);
    }
    digits.parse::<u32>().map(|ms| Duration::from_millis(ms.into())).map_err(|_| UnknownMethod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_reads_back_as_its_name() {
        let names = [
            "pm_approved",
            "pm_declined",
            "pm_pending",
            "pm_slow_1500",
            "pm_error",
            "pm_charge_then_hang",
            "pm_charge_then_drop",
            "pm_drop",
            "pm_pending_charge_then_hang",
            "pm_late_3000",
        ];
        for name in names {
            assert_eq!(name.parse::<Method>().unwrap().to_string(), name);
        }
        assert_eq!("pm_slow_0".parse(), Ok(Method::Slow(Duration::ZERO)));
    }

    #[test]
    fn anything_else_is_unknown() {
        for name in ["", "approved", "PM_APPROVED", "pm_slow", "pm_slow_", "pm_slow_+5", "pm_slow_-1", "pm_late_1.5"] {
            assert_eq!(name.parse::<Method>(), Err(UnknownMethod), "{name}");
        }
        assert_eq!("pm_late_99999999999".parse::<Method>(), Err(UnknownMethod));
    }
}
