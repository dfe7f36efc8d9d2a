//! Decimal128 as exact digits, for comparison only, without decimal arithmetic.

use std::cmp::Ordering;

use smallvec::{Array, SmallVec};

/// A decoded Decimal128.
pub(crate) enum DecimalValue {
    Nan,
    Infinite { negative: bool },
    Finite(Decimal),
}

/// The number `0.DIGITS × 10^point`; `digits` has no zeros at either end and is empty for zero.
pub(crate) struct Decimal {
    pub negative: bool,
    pub digits: Vec<u8>,
    pub point: i32,
}

impl DecimalValue {
    /// Decodes the binary-integer form (IEEE 754-2008 BID) that BSON uses.
    pub fn decode(bytes: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(bytes);
        let negative = bits >> 127 == 1;
        match (bits >> 122) & 0x1F {
            0x1F => return Self::Nan,
            0x1E => return Self::Infinite { negative },
            _ => {}
        }
        let (exponent, coefficient) = if (bits >> 125) & 3 == 3 {
            // the large form has a coefficient above 34 digits, which the standard reads as zero
            (((bits >> 111) & 0x3FFF) as i32, 0)
        } else {
            (((bits >> 113) & 0x3FFF) as i32, bits & ((1 << 113) - 1))
        };
        let coefficient =
            if coefficient > 9_999_999_999_999_999_999_999_999_999_999_999 { 0 } else { coefficient };
        Self::Finite(Decimal::new(negative, &coefficient.to_string(), exponent - 6176))
    }
}

impl Decimal {
    fn new(negative: bool, digits: &str, exponent: i32) -> Self {
        let point = exponent + digits.len() as i32;
        let leading = digits.bytes().take_while(|b| *b == b'0').count();
        let trimmed = digits[leading..].trim_end_matches('0').as_bytes().to_vec();
        Self { negative: negative && !trimmed.is_empty(), digits: trimmed, point: point - leading as i32 }
    }

    /// Returns all digits of a finite double.
    fn of_double(x: f64) -> Self {
        // 767 significant digits represent any double exactly
        let text = format!("{:.800e}", x.abs());
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let digits = mantissa.replace('.', "");
        let exponent = exponent.parse::<i32>().unwrap_or_default();
        let fraction = digits.len() as i32 - 1;
        Self::new(x < 0.0, &digits, exponent - fraction)
    }

    /// Returns the largest double that is not above this number, and whether it equals this number.
    pub fn floor(&self) -> (f64, bool) {
        if self.digits.is_empty() {
            return (0.0, true);
        }
        let sign = if self.negative { "-" } else { "" };
        let digits = String::from_utf8_lossy(&self.digits);
        let near: f64 = format!("{sign}0.{digits}e{}", self.point).parse().unwrap_or(f64::NAN);
        if near == f64::INFINITY {
            return (f64::MAX, false);
        }
        if near == f64::NEG_INFINITY {
            return (f64::NEG_INFINITY, false);
        }
        match Self::of_double(near).compare(self) {
            Ordering::Equal => (near, true),
            Ordering::Less => (near, false),
            Ordering::Greater => (near.next_down(), false),
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let sign = |d: &Self| {
            if d.digits.is_empty() {
                0
            } else if d.negative {
                -1
            } else {
                1
            }
        };
        let by_sign = sign(self).cmp(&sign(other));
        if by_sign != Ordering::Equal || self.digits.is_empty() {
            return by_sign;
        }
        // digits have no zeros at their ends, so a prefix is the smaller number
        let size = self.point.cmp(&other.point).then_with(|| self.digits.cmp(&other.digits));
        if self.negative { size.reverse() } else { size }
    }
}

/// Appends `0.DIGITS × 10^point` in an order-preserving form. `digits` may end in zeros.
pub(crate) fn put_digits(
    buf: &mut SmallVec<impl Array<Item = u8>>,
    negative: bool,
    digits: &[u8],
    point: i32,
) {
    let end = digits.iter().rposition(|d| *d != b'0').map_or(0, |at| at + 1);
    buf.push(u8::from(!negative));
    let start = buf.len();
    buf.extend_from_slice(&((point as u32) ^ (1 << 31)).to_be_bytes());
    buf.extend_from_slice(&digits[..end]);
    buf.push(0);
    if negative {
        buf[start..].iter_mut().for_each(|b| *b = !*b);
    }
}
