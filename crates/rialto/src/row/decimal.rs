//! [`Decimal`]: an exact decimal number of at most 38 digits.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// The most digits that a [`Decimal`] has.
pub const DECIMAL_DIGITS_MAX: u8 = 38;

/// `10^n` for `n` from 0 to 38.
pub(crate) const POWERS_OF_TEN: [i128; DECIMAL_DIGITS_MAX as usize + 1] = {
    let mut powers = [1i128; DECIMAL_DIGITS_MAX as usize + 1];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = powers[n - 1] * 10;
        n += 1;
    }
    powers
};

/// The exact number `unscaled / 10^scale`, of at most 38 digits.
///
/// Numbers are compared by value: 1.5 equals 1.50, though they print as they were made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decimal {
    /// Invariant: `|unscaled| < 10^38` and `scale <= 38`.
    unscaled: i128,
    scale: u8,
}

/// Text that is no number, or that is a number of more than 38 digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is no decimal number of at most 38 digits")]
pub struct ParseDecimalError {
    text: String,
}

impl Decimal {
    /// Zero, with no decimal places.
    pub const ZERO: Decimal = Decimal { unscaled: 0, scale: 0 };

    /// `unscaled / 10^scale`, or `None` if that has more than 38 digits or decimal places.
    pub const fn new(unscaled: i128, scale: u8) -> Option<Decimal> {
        let limit = POWERS_OF_TEN[DECIMAL_DIGITS_MAX as usize];
        if scale > DECIMAL_DIGITS_MAX || unscaled >= limit || unscaled <= -limit {
            return None;
        }
        Some(Decimal { unscaled, scale })
    }

    /// The digits as one integer: the number times `10^scale`.
    pub const fn unscaled(self) -> i128 {
        self.unscaled
    }

    /// The number of decimal places.
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// The same number with `scale` decimal places, or `None` if digits would be lost on either side.
    pub fn rescale(self, scale: u8) -> Option<Decimal> {
        if scale > DECIMAL_DIGITS_MAX {
            return None;
        }
        if scale == self.scale {
            return Some(self);
        }
        if scale > self.scale {
            let unscaled = self.unscaled.checked_mul(POWERS_OF_TEN[usize::from(scale - self.scale)])?;
            return Decimal::new(unscaled, scale);
        }
        let divisor = POWERS_OF_TEN[usize::from(self.scale - scale)];
        (self.unscaled % divisor == 0).then_some(Decimal { unscaled: self.unscaled / divisor, scale })
    }

    /// The nearest number with `scale` decimal places, halves away from zero; `None` if it has more than 38 digits.
    pub fn round_to(self, scale: u8) -> Option<Decimal> {
        if scale >= self.scale {
            return self.rescale(scale);
        }
        let divisor = POWERS_OF_TEN[usize::from(self.scale - scale)];
        let (quotient, rest) = (self.unscaled / divisor, self.unscaled % divisor);
        let away = if rest.abs() >= divisor - rest.abs() { self.unscaled.signum() } else { 0 };
        Decimal::new(quotient + away, scale)
    }

    /// Whether the number fits `decimal(precision, scale)` of its own scale: `|unscaled| < 10^precision`.
    pub(crate) fn fits_precision(self, precision: u8) -> bool {
        self.unscaled.unsigned_abs()
            < POWERS_OF_TEN[usize::from(precision.min(DECIMAL_DIGITS_MAX))].unsigned_abs()
    }

    /// The sum, with the larger of both scales; `None` if it has more than 38 digits.
    pub fn checked_add(self, other: Decimal) -> Option<Decimal> {
        let scale = self.scale.max(other.scale);
        let (left, right) = (self.rescale(scale)?, other.rescale(scale)?);
        Decimal::new(left.unscaled.checked_add(right.unscaled)?, scale)
    }

    /// The difference, with the larger of both scales; `None` if it has more than 38 digits.
    pub fn checked_sub(self, other: Decimal) -> Option<Decimal> {
        self.checked_add(-other)
    }

    /// The product, with the sum of both scales; `None` if it has more than 38 digits or decimal places.
    pub fn checked_mul(self, other: Decimal) -> Option<Decimal> {
        Decimal::new(self.unscaled.checked_mul(other.unscaled)?, self.scale + other.scale)
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        // Converted through text: dividing two rounded floats would round twice more.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Without trailing zeros behind the point: equal numbers have equal normal forms.
    fn normal(self) -> (i128, u8) {
        let (mut unscaled, mut scale) = (self.unscaled, self.scale);
        while scale > 0 && unscaled % 10 == 0 {
            unscaled /= 10;
            scale -= 1;
        }
        (unscaled, scale)
    }
}

impl std::ops::Neg for Decimal {
    type Output = Decimal;

    fn neg(self) -> Decimal {
        Decimal { unscaled: -self.unscaled, scale: self.scale }
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Decimal {
        Decimal { unscaled: value.into(), scale: 0 }
    }
}

impl From<i32> for Decimal {
    fn from(value: i32) -> Decimal {
        Decimal { unscaled: value.into(), scale: 0 }
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        // Bringing both to one scale could overflow, so the whole parts are compared first. The fraction of each is
        // below one and fits 38 digits at any scale.
        let split = |number: &Decimal| {
            let one = POWERS_OF_TEN[usize::from(number.scale)];
            (number.unscaled.div_euclid(one), number.unscaled.rem_euclid(one))
        };
        let ((left, left_rest), (right, right_rest)) = (split(self), split(other));
        let scale = self.scale.max(other.scale);
        left.cmp(&right).then_with(|| {
            let left_rest = left_rest * POWERS_OF_TEN[usize::from(scale - self.scale)];
            left_rest.cmp(&(right_rest * POWERS_OF_TEN[usize::from(scale - other.scale)]))
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Decimal) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.normal().hash(state);
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = POWERS_OF_TEN[usize::from(self.scale)].unsigned_abs();
        let (digits, scale) = (self.unscaled.unsigned_abs(), usize::from(self.scale));
        let sign = if self.unscaled < 0 { "-" } else { "" };
        match scale {
            0 => write!(f, "{sign}{digits}"),
            _ => write!(f, "{sign}{}.{:0scale$}", digits / one, digits % one),
        }
    }
}

impl FromStr for Decimal {
    type Err = ParseDecimalError;

    /// `[+-]digits[.digits][e[+-]digits]`, with digits on at least one side of the point.
    fn from_str(text: &str) -> Result<Decimal, ParseDecimalError> {
        parse(text.trim()).ok_or_else(|| ParseDecimalError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Decimal> {
    let (negative, number) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match number.find(['e', 'E']) {
        Some(at) => (&number[..at], number[at + 1..].parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut unscaled = 0i128;
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return None;
        }
        unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
    }
    let mut scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    if unscaled == 0 {
        scale = scale.clamp(0, i32::from(DECIMAL_DIGITS_MAX));
    }
    while scale < 0 {
        unscaled = unscaled.checked_mul(10)?;
        scale += 1;
    }
    Decimal::new(if negative { -unscaled } else { unscaled }, u8::try_from(scale).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn prints_what_it_parsed() {
        for text in ["0", "1", "-1", "0.05", "-0.05", "123.4500", "99999999999999999999999999999999999999"] {
            assert_eq!(decimal(text).to_string(), text);
        }
        assert_eq!(decimal("+1.5e2").to_string(), "150");
        assert_eq!(decimal("1.5e-2").to_string(), "0.015");
        assert_eq!(decimal(".5").to_string(), "0.5");
        assert_eq!(decimal("5.").to_string(), "5");
        for text in
            ["", "-", ".", "1.2.3", "12a", "1e", "1e999", "100000000000000000000000000000000000000", "--1"]
        {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
    }

    #[test]
    fn compares_by_value() {
        assert_eq!(decimal("1.5"), decimal("1.500"));
        assert!(decimal("-1.5") < decimal("-1.49"));
        assert!(decimal("-0.5") > decimal("-1"));
        let large = decimal("99999999999999999999999999999999999999");
        let small = decimal("0.00000000000000000000000000000000000001");
        assert!(small < large && -large < -small && -small < small);
    }

    #[test]
    fn rescales_only_without_loss() {
        assert_eq!(decimal("1.50").rescale(1).unwrap().to_string(), "1.5");
        assert!(decimal("1.55").rescale(1).is_none());
        assert_eq!(decimal("1.55").round_to(1).unwrap().to_string(), "1.6");
        assert_eq!(decimal("-1.55").round_to(1).unwrap().to_string(), "-1.6");
        assert_eq!(decimal("1.54").round_to(1).unwrap().to_string(), "1.5");
        assert!(decimal("99999999999999999999999999999999999999").rescale(1).is_none());
    }

    #[test]
    fn calculates_or_says_that_it_cannot() {
        assert_eq!(decimal("1.5").checked_add(decimal("0.25")).unwrap().to_string(), "1.75");
        assert_eq!(decimal("1.5").checked_sub(decimal("2")).unwrap().to_string(), "-0.5");
        assert_eq!(decimal("1.5").checked_mul(decimal("0.25")).unwrap().to_string(), "0.375");
        assert!(decimal("99999999999999999999999999999999999999").checked_add(decimal("1")).is_none());
        assert_eq!(decimal("0.1").to_f64(), 0.1);
    }
}
