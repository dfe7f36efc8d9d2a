//! Arithmetic of Decimal128: exact, rounded half to even to 34 digits.

use bson::Decimal128;
use num_bigint::BigUint;

/// Digits of a coefficient.
const DIGITS: u32 = 34;
const EXPONENT_MIN: i32 = -6176;
const EXPONENT_MAX: i32 = 6111;
/// Numbers whose digits lie further apart than this do not change each other's 34 digits.
const APART_MAX: i32 = 80;

/// A decoded number.
#[derive(Debug, Clone)]
enum DecodedNumber {
    Nan,
    Infinite(bool),
    Finite(Finite),
}

/// `(-1)^negative × coefficient × 10^exponent`
#[derive(Debug, Clone)]
struct Finite {
    negative: bool,
    coefficient: BigUint,
    exponent: i32,
}

fn decode(number: Decimal128) -> DecodedNumber {
    let bits = u128::from_le_bytes(number.bytes());
    let negative = bits >> 127 == 1;
    match (bits >> 122) & 0x1F {
        0x1F => return DecodedNumber::Nan,
        0x1E => return DecodedNumber::Infinite(negative),
        _ => {}
    }
    let large = (bits >> 125) & 3 == 3;
    let shift = if large { 111 } else { 113 };
    let exponent = ((bits >> shift) & 0x3FFF) as i32 + EXPONENT_MIN;
    let coefficient = if large { 0 } else { bits & ((1 << 113) - 1) };
    DecodedNumber::Finite(Finite { negative, coefficient: coefficient.into(), exponent })
}

fn special(bits: u128) -> Decimal128 {
    Decimal128::from_bytes(bits.to_le_bytes())
}

fn nan() -> Decimal128 {
    special(0x1F << 122)
}

fn infinite(negative: bool) -> Decimal128 {
    special((u128::from(negative) << 127) | (0x1E << 122))
}

fn power_of_ten(exponent: u32) -> BigUint {
    BigUint::from(10_u32).pow(exponent)
}

fn digits(number: &BigUint) -> u32 {
    if *number == BigUint::ZERO { 0 } else { number.to_string().len() as u32 }
}

impl Finite {
    fn zero() -> Self {
        Self { negative: false, coefficient: BigUint::ZERO, exponent: 0 }
    }

    fn is_zero(&self) -> bool {
        self.coefficient == BigUint::ZERO
    }

    /// Drops the last `count` digits. `round_up` decides by whether the kept number is odd, and how the dropped digits compare to half.
    fn drop_digits(&mut self, count: u32, round_up: impl FnOnce(bool, std::cmp::Ordering, bool) -> bool) {
        if count == 0 {
            return;
        }
        let unit = power_of_ten(count);
        let (kept, dropped) = (&self.coefficient / &unit, &self.coefficient % &unit);
        let half = (&dropped * 2_u32).cmp(&unit);
        let up = round_up(kept.bit(0), half, dropped != BigUint::ZERO);
        self.coefficient = if up { kept + 1_u32 } else { kept };
        self.exponent = self.exponent.saturating_add_unsigned(count);
    }

    fn encode(mut self) -> Decimal128 {
        let surplus = digits(&self.coefficient).saturating_sub(DIGITS);
        let below = u32::try_from(EXPONENT_MIN.saturating_sub(self.exponent)).unwrap_or(0);
        let count = surplus.max(below).min(digits(&self.coefficient) + 1);
        self.drop_digits(count, half_even);
        if digits(&self.coefficient) > DIGITS {
            self.drop_digits(1, half_even);
        }
        if self.is_zero() {
            self.exponent = self.exponent.clamp(EXPONENT_MIN, EXPONENT_MAX);
        }
        // a number that is too large for its exponent may have room for zeros
        let above = u32::try_from(self.exponent.saturating_sub(EXPONENT_MAX)).unwrap_or(0);
        if above > 0 && digits(&self.coefficient) + above <= DIGITS {
            self.coefficient *= power_of_ten(above);
            self.exponent = EXPONENT_MAX;
        }
        if self.exponent > EXPONENT_MAX {
            return infinite(self.negative);
        }
        let coefficient = u128::try_from(&self.coefficient).unwrap_or(0);
        let exponent = (self.exponent.max(EXPONENT_MIN) - EXPONENT_MIN) as u128;
        special((u128::from(self.negative) << 127) | (exponent << 113) | coefficient)
    }

    /// Returns both coefficients at the lower exponent, and it.
    fn aligned(a: &Self, b: &Self) -> (BigUint, BigUint, i32) {
        let (mut a, mut b) = (a.near(b), b.near(a));
        if a.is_zero() {
            a.exponent = b.exponent.min(a.exponent).max(b.exponent - APART_MAX);
        }
        if b.is_zero() {
            b.exponent = a.exponent.min(b.exponent).max(a.exponent - APART_MAX);
        }
        let exponent = a.exponent.min(b.exponent);
        let scaled =
            |number: &Self| &number.coefficient * power_of_ten((number.exponent - exponent).unsigned_abs());
        (scaled(&a), scaled(&b), exponent)
    }

    /// Returns the number, or one closer to `other` if it lies far below: then it only tells the rounding that it is there.
    fn near(&self, other: &Self) -> Self {
        let top = self.exponent + digits(&self.coefficient) as i32;
        if other.is_zero() || self.is_zero() || other.exponent - top <= APART_MAX {
            return self.clone();
        }
        Self { coefficient: 1_u32.into(), exponent: other.exponent - APART_MAX, ..self.clone() }
    }

    fn plus(&self, other: &Self) -> Self {
        let (a, b, exponent) = Self::aligned(self, other);
        let (negative, coefficient) = match (self.negative == other.negative, a >= b) {
            (true, _) => (self.negative, a + b),
            (false, true) => (self.negative, a - b),
            (false, false) => (other.negative, b - a),
        };
        let negative = negative && coefficient != BigUint::ZERO;
        Self { negative, coefficient, exponent }
    }

    fn negated(&self) -> Self {
        Self { negative: !self.negative, ..self.clone() }
    }
}

fn half_even(odd: bool, half: std::cmp::Ordering, _: bool) -> bool {
    half.is_gt() || (half.is_eq() && odd)
}

/// Returns a whole number as a decimal.
pub fn of_whole(n: i64) -> Decimal128 {
    Finite { negative: n < 0, coefficient: n.unsigned_abs().into(), exponent: 0 }.encode()
}

/// Returns a double with 15 digits, as MongoDB converts it.
pub fn of_double(x: f64) -> Decimal128 {
    if x.is_nan() {
        return nan();
    }
    if x.is_infinite() {
        return infinite(x < 0.0);
    }
    format!("{x:.14e}").parse().map_or_else(|_| nan(), shortened)
}

/// Removes zeros at the end of a fraction.
fn shortened(number: Decimal128) -> Decimal128 {
    let DecodedNumber::Finite(mut finite) = decode(number) else { return number };
    while finite.exponent < 0 && !finite.is_zero() && &finite.coefficient % 10_u32 == BigUint::ZERO {
        finite.coefficient /= 10_u32;
        finite.exponent += 1;
    }
    if finite.is_zero() {
        finite.exponent = 0;
    }
    finite.encode()
}

/// Returns the nearest double.
pub fn to_double(number: Decimal128) -> f64 {
    match decode(number) {
        DecodedNumber::Nan => f64::NAN,
        DecodedNumber::Infinite(negative) => {
            if negative {
                f64::NEG_INFINITY
            } else {
                f64::INFINITY
            }
        }
        DecodedNumber::Finite(f) => {
            let sign = if f.negative { "-" } else { "" };
            format!("{sign}{}e{}", f.coefficient, f.exponent).parse().unwrap_or(f64::NAN)
        }
    }
}

/// Returns the whole part, if it fits.
pub fn to_whole(number: Decimal128) -> Option<i64> {
    let DecodedNumber::Finite(finite) = decode(round_to(number, 0, Rounding::TowardsZero)) else {
        return None;
    };
    let exponent = u32::try_from(finite.exponent).ok().filter(|e| *e < 20)?;
    let magnitude = i128::try_from(finite.coefficient * power_of_ten(exponent)).ok()?;
    i64::try_from(if finite.negative { -magnitude } else { magnitude }).ok()
}

fn is_zero(number: &DecodedNumber) -> bool {
    matches!(number, DecodedNumber::Finite(finite) if finite.is_zero())
}

/// Returns the sum.
pub fn add(a: Decimal128, b: Decimal128) -> Decimal128 {
    match (decode(a), decode(b)) {
        (DecodedNumber::Finite(a), DecodedNumber::Finite(b)) => a.plus(&b).encode(),
        (DecodedNumber::Nan, _) | (_, DecodedNumber::Nan) => nan(),
        (DecodedNumber::Infinite(a), DecodedNumber::Infinite(b)) if a != b => nan(),
        (DecodedNumber::Infinite(negative), _) | (_, DecodedNumber::Infinite(negative)) => infinite(negative),
    }
}

/// Returns the difference.
pub fn subtract(a: Decimal128, b: Decimal128) -> Decimal128 {
    let negated = match decode(b) {
        DecodedNumber::Finite(finite) => finite.negated().encode(),
        DecodedNumber::Infinite(negative) => infinite(!negative),
        DecodedNumber::Nan => nan(),
    };
    add(a, negated)
}

/// Returns the product.
pub fn multiply(a: Decimal128, b: Decimal128) -> Decimal128 {
    match (decode(a), decode(b)) {
        (DecodedNumber::Finite(a), DecodedNumber::Finite(b)) => Finite {
            negative: a.negative != b.negative,
            coefficient: a.coefficient * b.coefficient,
            exponent: a.exponent + b.exponent,
        }
        .encode(),
        (DecodedNumber::Nan, _) | (_, DecodedNumber::Nan) => nan(),
        (a, b) if is_zero(&a) || is_zero(&b) => nan(),
        (a, b) => infinite(is_negative(&a) != is_negative(&b)),
    }
}

fn is_negative(number: &DecodedNumber) -> bool {
    match number {
        DecodedNumber::Nan => false,
        DecodedNumber::Infinite(negative) => *negative,
        DecodedNumber::Finite(finite) => finite.negative,
    }
}

/// Divides; a division by zero is infinite, or not a number.
pub fn divide(a: Decimal128, b: Decimal128) -> Decimal128 {
    let (a, b) = (decode(a), decode(b));
    let negative = is_negative(&a) != is_negative(&b);
    match (&a, &b) {
        (DecodedNumber::Nan, _)
        | (_, DecodedNumber::Nan)
        | (DecodedNumber::Infinite(_), DecodedNumber::Infinite(_)) => nan(),
        (DecodedNumber::Infinite(_), _) => infinite(negative),
        (_, DecodedNumber::Infinite(_)) => Finite { negative, ..Finite::zero() }.encode(),
        (DecodedNumber::Finite(x), DecodedNumber::Finite(y)) if y.is_zero() => {
            if x.is_zero() {
                nan()
            } else {
                infinite(negative)
            }
        }
        (DecodedNumber::Finite(x), DecodedNumber::Finite(y)) => {
            // enough digits that the rest only decides the rounding
            let more = DIGITS + 2 + digits(&y.coefficient);
            let scaled = &x.coefficient * power_of_ten(more);
            let (mut quotient, rest) = (&scaled / &y.coefficient, &scaled % &y.coefficient);
            let exact = rest == BigUint::ZERO;
            if !exact {
                quotient = quotient * 10_u32 + 1_u32;
            }
            let exponent = x.exponent - y.exponent - more as i32 - i32::from(!exact);
            let mut result = Finite { negative, coefficient: quotient, exponent };
            // an exact quotient has the exponent that it would have by hand
            let ideal = x.exponent - y.exponent;
            while exact
                && result.exponent < ideal
                && &result.coefficient % 10_u32 == BigUint::ZERO
                && !result.is_zero()
            {
                result.coefficient /= 10_u32;
                result.exponent += 1;
            }
            result.encode()
        }
    }
}

/// Returns the remainder of a division, with the sign of the dividend.
pub fn remainder(a: Decimal128, b: Decimal128) -> Decimal128 {
    match (decode(a), decode(b)) {
        (DecodedNumber::Finite(x), DecodedNumber::Finite(y))
            if !y.is_zero() && (x.exponent - y.exponent).abs() < 200 =>
        {
            let exponent = x.exponent.min(y.exponent);
            let scaled = |n: &Finite| &n.coefficient * power_of_ten((n.exponent - exponent).unsigned_abs());
            Finite { negative: x.negative, coefficient: scaled(&x) % scaled(&y), exponent }.encode()
        }
        (DecodedNumber::Finite(_), DecodedNumber::Infinite(_)) => a,
        _ => nan(),
    }
}

/// Returns the number without its sign.
pub fn abs(number: Decimal128) -> Decimal128 {
    special(u128::from_le_bytes(number.bytes()) & !(1 << 127))
}

/// Rounding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest one, and to an even digit in the middle.
    HalfEven,
    /// Towards zero.
    TowardsZero,
    /// To the larger one.
    Up,
    /// To the smaller one.
    Down,
}

/// Rounds to a number of decimal places.
pub fn round_to(number: Decimal128, places: i32, rounding: Rounding) -> Decimal128 {
    let DecodedNumber::Finite(mut finite) = decode(number) else { return number };
    let Ok(count) = u32::try_from((-places).saturating_sub(finite.exponent)) else { return number };
    let negative = finite.negative;
    // beyond its digits only zeros are dropped
    let count = count.min(digits(&finite.coefficient) + 1);
    finite.drop_digits(count, |odd, half, inexact| match rounding {
        Rounding::HalfEven => half_even(odd, half, inexact),
        Rounding::TowardsZero => false,
        Rounding::Up => inexact && !negative,
        Rounding::Down => inexact && negative,
    });
    finite.exponent = -places;
    finite.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal128 {
        text.parse().unwrap()
    }

    #[test]
    fn sums_products_and_quotients_are_exact() {
        for (result, expected) in [
            (add(d("0.1"), d("0.2")), "0.3"),
            (add(d("9999999999999999999999999999999999"), d("1")), "1.000000000000000000000000000000000E+34"),
            (add(d("1E+6000"), d("1E-6000")), "1.000000000000000000000000000000000E+6000"),
            (subtract(d("1.10"), d("1.1")), "0.00"),
            (subtract(d("1"), d("3")), "-2"),
            (multiply(d("1.20"), d("3")), "3.60"),
            (multiply(d("1E+6000"), d("1E+6000")), "Infinity"),
            (divide(d("1"), d("3")), "0.3333333333333333333333333333333333"),
            (divide(d("2"), d("3")), "0.6666666666666666666666666666666667"),
            (divide(d("10"), d("4")), "2.5"),
            (divide(d("6"), d("2")), "3"),
            (divide(d("1"), d("0")), "Infinity"),
            (divide(d("0"), d("0")), "NaN"),
            (remainder(d("7.5"), d("2")), "1.5"),
            (remainder(d("-7"), d("4")), "-3"),
            (round_to(d("2.5"), 0, Rounding::HalfEven), "2"),
            (round_to(d("3.5"), 0, Rounding::HalfEven), "4"),
            (round_to(d("-1.21"), 1, Rounding::Down), "-1.3"),
            (round_to(d("1.29"), 1, Rounding::TowardsZero), "1.2"),
            (round_to(d("0.004"), 0, Rounding::Up), "1"),
            (round_to(d("1250"), -2, Rounding::HalfEven), "1.2E+3"),
            (of_double(0.1), "0.1"),
            (of_double(1e300), "1.00000000000000E+300"),
            (of_whole(i64::MIN), "-9223372036854775808"),
        ] {
            assert_eq!(result.to_string(), expected);
        }
        assert_eq!(to_whole(d("-12.9")), Some(-12));
        assert_eq!(to_whole(d("1E+30")), None);
        assert_eq!(to_double(d("0.1")), 0.1);
    }
}
