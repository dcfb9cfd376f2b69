//! Exact decimals: significant digits and a power of ten, of any size, never expanded.

use std::cmp::Ordering;

/// A number in a text.
pub(super) struct Number<'t> {
    /// How many bytes of the text it takes.
    pub len: usize,
    is_negative: bool,
    whole: &'t [u8],
    fraction: &'t [u8],
    exponent_is_negative: bool,
    exponent: &'t [u8],
}

/// Reads the JSON number at the start of `text`; an error is the offset at which it stops being one.
pub(super) fn read(text: &[u8]) -> Result<Number<'_>, usize> {
    let is_negative = text.first() == Some(&b'-');
    let whole_at = usize::from(is_negative);
    let whole = digits(text, whole_at)?;
    if whole.len() > 1 && whole[0] == b'0' {
        return Err(whole_at + 1);
    }
    let mut len = whole_at + whole.len();
    let mut fraction: &[u8] = &[];
    if text.get(len) == Some(&b'.') {
        fraction = digits(text, len + 1)?;
        len += 1 + fraction.len();
    }
    let mut exponent: &[u8] = &[];
    let mut exponent_is_negative = false;
    if matches!(text.get(len), Some(b'e' | b'E')) {
        len += 1;
        let sign = text.get(len).copied().filter(|b| matches!(b, b'+' | b'-'));
        exponent_is_negative = sign == Some(b'-');
        len += usize::from(sign.is_some());
        exponent = digits(text, len)?;
        len += exponent.len();
    }
    Ok(Number { len, is_negative, whole, fraction, exponent_is_negative, exponent })
}

/// The value of a JSON number that is a whole number in the range of `i64`; `2`, `2.0` and `20e-1` are all 2.
pub fn integer(text: &str) -> Option<i64> {
    let number = read(text.as_bytes()).ok().filter(|n| n.len == text.len())?;
    let mut form = Vec::new();
    number.write(&mut form);
    let form = std::str::from_utf8(&form).ok()?;
    let Some((digits, power)) = form.split_once('e') else { return Some(0) };
    // More zeros than an i64 has digits, or a fraction: not an integer of ours.
    let power: u32 = power.parse().ok().filter(|power| *power < 19)?;
    digits.parse::<i64>().ok()?.checked_mul(10_i64.checked_pow(power)?)
}

fn digits(text: &[u8], at: usize) -> Result<&[u8], usize> {
    let rest = text.get(at..).unwrap_or_default();
    let len = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if len == 0 { Err(at.min(text.len())) } else { Ok(&rest[..len]) }
}

impl Number<'_> {
    /// Writes the canonical form: `0`, or `[-]digits e [-]power` with no zero at either end of the digits.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let all = || self.whole.iter().chain(self.fraction).copied();
        let total = self.whole.len() + self.fraction.len();
        let leading = all().take_while(|d| *d == b'0').count();
        if leading == total {
            out.push(b'0');
            return;
        }
        let trailing = all().rev().take_while(|d| *d == b'0').count();
        if self.is_negative {
            out.push(b'-');
        }
        out.extend(all().skip(leading).take(total - leading - trailing));
        out.push(b'e');
        // Each trailing zero dropped raises the power by one, each digit of the fraction lowers it.
        let shift = trailing as i64 - self.fraction.len() as i64;
        write_power(out, self.exponent_is_negative, self.exponent, shift);
    }
}

/// Writes `±exponent + shift`. The exponent may have any number of digits; the shift is at most the length of a body.
fn write_power(out: &mut Vec<u8>, is_negative: bool, exponent: &[u8], shift: i64) {
    let exponent = trim_zeros(exponent);
    if let Ok(small) = std::str::from_utf8(exponent).unwrap_or_default().parse::<i64>() {
        // Below 10^18 + the length of a body there is no overflow.
        if small < 1_000_000_000_000_000_000 {
            let power = if is_negative { -small } else { small } + shift;
            out.extend_from_slice(power.to_string().as_bytes());
            return;
        }
    } else if exponent.is_empty() {
        out.extend_from_slice(shift.to_string().as_bytes());
        return;
    }
    let other = shift.unsigned_abs().to_string();
    if is_negative {
        out.push(b'-');
    }
    // The exponent is the larger of the two by far, so its sign stays.
    let grows = is_negative == (shift < 0);
    out.extend(if grows { add(exponent, other.as_bytes()) } else { subtract(exponent, other.as_bytes()) });
}

fn trim_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|d| **d == b'0').count()..]
}

/// Decimal addition of digit strings.
fn add(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut sum = Vec::with_capacity(a.len() + 1);
    let mut carry = 0;
    for at in 0..a.len().max(b.len()) {
        let digit = digit_from_end(a, at) + digit_from_end(b, at) + carry;
        sum.push(b'0' + digit % 10);
        carry = digit / 10;
    }
    if carry > 0 {
        sum.push(b'0' + carry);
    }
    sum.reverse();
    sum
}

/// Decimal subtraction of digit strings; `a` is the larger.
fn subtract(a: &[u8], b: &[u8]) -> Vec<u8> {
    debug_assert_ne!(a.len().cmp(&b.len()), Ordering::Less);
    let mut difference = Vec::with_capacity(a.len());
    let mut borrow = 0;
    for at in 0..a.len() {
        let minus = digit_from_end(b, at) + borrow;
        let digit = digit_from_end(a, at);
        borrow = u8::from(digit < minus);
        difference.push(b'0' + digit + 10 * borrow - minus);
    }
    difference.reverse();
    trim_zeros(&difference).to_vec()
}

fn digit_from_end(digits: &[u8], at: usize) -> u8 {
    digits.len().checked_sub(at + 1).map_or(0, |i| digits[i] - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_exactly_whatever_their_spelling() {
        let cases = [
            ("2", Some(2)),
            ("2.0", Some(2)),
            ("20e-1", Some(2)),
            ("0.2e1", Some(2)),
            ("-0", Some(0)),
            ("0e99", Some(0)),
            ("1e3", Some(1000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9007199254740993.0", Some(9007199254740993)),
            ("9223372036854775808", None),
            ("2.5", None),
            ("2.0000000000000000001", None),
            ("1e19", None),
            ("1e999999999999999999999", None),
            ("1e-1", None),
            ("", None),
            ("2x", None),
            ("-1", Some(-1)),
        ];
        for (text, value) in cases {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    #[test]
    fn exponents_of_any_size_are_added_exactly() {
        let cases: &[(bool, &str, i64, &str)] = &[
            (false, "99999999999999999999", 1, "100000000000000000000"),
            (false, "100000000000000000000", -1, "99999999999999999999"),
            (true, "99999999999999999999", -1, "-100000000000000000000"),
            (true, "100000000000000000000", 1, "-99999999999999999999"),
            (true, "0", 0, "0"),
            (false, "", -3, "-3"),
            (false, "000", 7, "7"),
            (true, "5", 9, "4"),
        ];
        for (is_negative, exponent, shift, power) in cases {
            let mut out = Vec::new();
            write_power(&mut out, *is_negative, exponent.as_bytes(), *shift);
            assert_eq!(String::from_utf8(out).unwrap(), *power, "{exponent} {shift}");
        }
    }
}
