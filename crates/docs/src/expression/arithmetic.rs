//! Arithmetic over ints, longs, doubles and decimals; sums and differences of dates. A result has the wider type of its operands; an
//! int that overflows becomes a long, and a long a double.

use bson::{Bson, DateTime, Decimal128};

use super::compare::values;
use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, ErrorCode, Result};
use crate::values::decimal_math::{self, Rounding};

#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i32),
    Long(i64),
    Double(f64),
    Decimal(Decimal128),
}

/// An operation on two numbers, by their types.
struct ArithmeticOperation {
    whole: fn(i64, i64) -> Option<i64>,
    double: fn(f64, f64) -> f64,
    decimal: fn(Decimal128, Decimal128) -> Decimal128,
}

const ADD: ArithmeticOperation =
    ArithmeticOperation { whole: i64::checked_add, double: |a, b| a + b, decimal: decimal_math::add };
const SUBTRACT: ArithmeticOperation =
    ArithmeticOperation { whole: i64::checked_sub, double: |a, b| a - b, decimal: decimal_math::subtract };
const MULTIPLY: ArithmeticOperation =
    ArithmeticOperation { whole: i64::checked_mul, double: |a, b| a * b, decimal: decimal_math::multiply };
const REMAINDER: ArithmeticOperation =
    ArithmeticOperation { whole: i64::checked_rem, double: |a, b| a % b, decimal: decimal_math::remainder };

impl Number {
    fn of(name: &str, value: &EvalValue) -> Result<Self> {
        match value {
            Some(Bson::Int32(n)) => Ok(Self::Int(*n)),
            Some(Bson::Int64(n)) => Ok(Self::Long(*n)),
            Some(Bson::Double(n)) => Ok(Self::Double(*n)),
            Some(Bson::Decimal128(n)) => Ok(Self::Decimal(*n)),
            other => Err(wrong_type(name, "numbers", other)),
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Int(n) => n.into(),
            Self::Long(n) => n as f64,
            Self::Double(n) => n,
            Self::Decimal(n) => decimal_math::to_double(n),
        }
    }

    fn decimal(self) -> Decimal128 {
        match self {
            Self::Int(n) => decimal_math::of_whole(n.into()),
            Self::Long(n) => decimal_math::of_whole(n),
            Self::Double(n) => decimal_math::of_double(n),
            Self::Decimal(n) => n,
        }
    }

    fn is_decimal(self) -> bool {
        matches!(self, Self::Decimal(_))
    }

    fn whole(self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(n.into()),
            Self::Long(n) => Some(n),
            Self::Double(_) | Self::Decimal(_) => None,
        }
    }

    fn bson(self) -> Bson {
        match self {
            Self::Int(n) => Bson::Int32(n),
            Self::Long(n) => Bson::Int64(n),
            Self::Double(n) => Bson::Double(n),
            Self::Decimal(n) => Bson::Decimal128(n),
        }
    }

    /// Combines two numbers: as decimals if one is, as whole ones if both are and the result fits.
    fn combine(self, other: Self, operation: &ArithmeticOperation) -> Self {
        if self.is_decimal() || other.is_decimal() {
            return Self::Decimal((operation.decimal)(self.decimal(), other.decimal()));
        }
        let is_int = matches!((self, other), (Self::Int(_), Self::Int(_)));
        match self.whole().zip(other.whole()).map(|(a, b)| (operation.whole)(a, b)) {
            Some(Some(n)) => match i32::try_from(n) {
                Ok(n) if is_int => Self::Int(n),
                _ => Self::Long(n),
            },
            _ => Self::Double((operation.double)(self.double(), other.double())),
        }
    }
}

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

pub(super) fn add(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    if arguments.iter().any(is_nullish) {
        return null();
    }
    let (mut sum, mut date) = (Number::Int(0), None);
    for argument in arguments {
        if let Some(Bson::DateTime(at)) = argument {
            if date.replace(*at).is_some() {
                return Err(DocsError::type_mismatch("only one date allowed in an $add expression"));
            }
            continue;
        }
        sum = sum.combine(Number::of(name, argument)?, &ADD);
    }
    Ok(Some(match date {
        Some(at) => Bson::DateTime(DateTime::from_millis(at.timestamp_millis().saturating_add(millis(sum)))),
        None => sum.bson(),
    }))
}

fn millis(number: Number) -> i64 {
    number.whole().unwrap_or_else(|| number.double().round() as i64)
}

pub(super) fn subtract(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [a, b] = arguments else { return null() };
    if is_nullish(a) || is_nullish(b) {
        return null();
    }
    Ok(Some(match (a, b) {
        (Some(Bson::DateTime(a)), Some(Bson::DateTime(b))) => {
            Bson::Int64(a.timestamp_millis().saturating_sub(b.timestamp_millis()))
        }
        (Some(Bson::DateTime(a)), b) => {
            let left = a.timestamp_millis().saturating_sub(millis(Number::of(name, b)?));
            Bson::DateTime(DateTime::from_millis(left))
        }
        (a, b) => Number::of(name, a)?.combine(Number::of(name, b)?, &SUBTRACT).bson(),
    }))
}

pub(super) fn multiply(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    if arguments.iter().any(is_nullish) {
        return null();
    }
    let mut product = Number::Int(1);
    for argument in arguments {
        product = product.combine(Number::of(name, argument)?, &MULTIPLY);
    }
    Ok(Some(product.bson()))
}

pub(super) fn divide(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((a, b)) = pair(name, arguments)? else { return null() };
    match b.double() == 0.0 {
        true => Err(DocsError::new(ErrorCode::BadValue, "can't $divide by zero")),
        false if a.is_decimal() || b.is_decimal() => {
            Ok(Some(Bson::Decimal128(decimal_math::divide(a.decimal(), b.decimal()))))
        }
        false => Ok(Some(Bson::Double(a.double() / b.double()))),
    }
}

pub(super) fn modulo(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((a, b)) = pair(name, arguments)? else { return null() };
    if b.double() == 0.0 {
        return Err(DocsError::new(ErrorCode::ModuloByZero, "can't $mod by zero"));
    }
    Ok(Some(a.combine(b, &REMAINDER).bson()))
}

pub(super) fn pow(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((a, b)) = pair(name, arguments)? else { return null() };
    if a.double() == 0.0 && b.double() < 0.0 {
        return Err(DocsError::bad_value("$pow cannot take a base of 0 and a negative exponent"));
    }
    let operation = ArithmeticOperation {
        whole: |a, b| u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        double: f64::powf,
        decimal: |a, b| decimal_math::of_double(decimal_math::to_double(a).powf(decimal_math::to_double(b))),
    };
    Ok(Some(a.combine(b, &operation).bson()))
}

/// Returns two numbers; `None` if one is null.
fn pair(name: &str, arguments: &[EvalValue]) -> Result<Option<(Number, Number)>> {
    match arguments {
        [a, b] if !is_nullish(a) && !is_nullish(b) => Ok(Some((Number::of(name, a)?, Number::of(name, b)?))),
        _ => Ok(None),
    }
}

pub(super) fn abs(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(number) = single(name, arguments)? else { return null() };
    Ok(Some(match number {
        Number::Int(n) => n.checked_abs().map_or(Bson::Int64(i64::from(n).abs()), Bson::Int32),
        Number::Long(n) => Bson::Int64(
            n.checked_abs().ok_or_else(|| DocsError::bad_value("can't take $abs of long long min"))?,
        ),
        Number::Double(n) => Bson::Double(n.abs()),
        Number::Decimal(n) => Bson::Decimal128(decimal_math::abs(n)),
    }))
}

fn single(name: &str, arguments: &[EvalValue]) -> Result<Option<Number>> {
    match arguments.first() {
        Some(value) if !is_nullish(value) => Number::of(name, value).map(Some),
        _ => Ok(None),
    }
}

/// Applies a function to a double; whole numbers stay.
fn rounded(
    name: &str,
    arguments: &[EvalValue],
    function: fn(f64) -> f64,
    decimal: Rounding,
) -> Result<EvalValue> {
    let Some(number) = single(name, arguments)? else { return null() };
    Ok(Some(match number {
        Number::Double(n) => Bson::Double(function(n)),
        Number::Decimal(n) => Bson::Decimal128(decimal_math::round_to(n, 0, decimal)),
        whole => whole.bson(),
    }))
}

pub(super) fn ceil(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    rounded(name, arguments, f64::ceil, Rounding::Up)
}

pub(super) fn floor(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    rounded(name, arguments, f64::floor, Rounding::Down)
}

pub(super) fn round(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    to_place(name, arguments, f64::round_ties_even, Rounding::HalfEven)
}

pub(super) fn trunc(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    to_place(name, arguments, f64::trunc, Rounding::TowardsZero)
}

/// Rounds to a number of decimal places, -20 to 100.
fn to_place(
    name: &str,
    arguments: &[EvalValue],
    function: fn(f64) -> f64,
    decimal: Rounding,
) -> Result<EvalValue> {
    let Some(number) = single(name, arguments)? else { return null() };
    let place = match arguments.get(1) {
        None => 0,
        Some(place) if is_nullish(place) => return null(),
        Some(place) => {
            Number::of(name, place)?.whole().filter(|place| (-20..=100).contains(place)).ok_or_else(|| {
                DocsError::bad_value(format!("{name} expects a whole number of places from -20 to 100"))
            })?
        }
    };
    let scale = 10_f64.powi(place.unsigned_abs() as i32);
    let at = |n: f64| if place >= 0 { function(n * scale) / scale } else { function(n / scale) * scale };
    Ok(Some(match number {
        Number::Double(n) if n.is_finite() && (n * scale).is_finite() => Bson::Double(at(n)),
        Number::Decimal(n) => Bson::Decimal128(decimal_math::round_to(n, place as i32, decimal)),
        Number::Int(n) if place < 0 => {
            let whole = at(n.into()) as i64;
            i32::try_from(whole).map_or(Bson::Int64(whole), Bson::Int32)
        }
        Number::Long(n) if place < 0 => Bson::Int64(at(n as f64) as i64),
        number => number.bson(),
    }))
}

/// Applies a function whose result is a double.
fn real(
    name: &str,
    arguments: &[EvalValue],
    allowed: fn(f64) -> bool,
    function: fn(f64) -> f64,
) -> Result<EvalValue> {
    let Some(number) = single(name, arguments)? else { return null() };
    let n = number.double();
    match allowed(n) || n.is_nan() {
        true if number.is_decimal() => Ok(Some(Bson::Decimal128(decimal_math::of_double(function(n))))),
        true => Ok(Some(Bson::Double(function(n)))),
        false => Err(DocsError::bad_value(format!("{name} is not defined for {n}"))),
    }
}

/// Gives the error of a number for which a function is not defined MongoDB's code.
fn coded(code: ErrorCode) -> impl Fn(DocsError) -> DocsError {
    move |error| match error.error_code() {
        ErrorCode::BadValue => DocsError::new(code, error.message()),
        _ => error,
    }
}

pub(super) fn sqrt(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    real(name, arguments, |n| n >= 0.0, f64::sqrt).map_err(coded(ErrorCode::NegativeRoot))
}

pub(super) fn exp(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    real(name, arguments, |_| true, f64::exp)
}

pub(super) fn ln(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    real(name, arguments, |n| n > 0.0, f64::ln).map_err(coded(ErrorCode::NaturalLogarithm))
}

pub(super) fn log10(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    real(name, arguments, |n| n > 0.0, f64::log10).map_err(coded(ErrorCode::DecimalLogarithm))
}

pub(super) fn log(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((number, base)) = pair(name, arguments)? else { return null() };
    let (number, base) = (number.double(), base.double());
    match number > 0.0 && base > 0.0 && base != 1.0 {
        true => Ok(Some(Bson::Double(number.ln() / base.ln()))),
        false => Err(DocsError::bad_value(format!("{name} is not defined for {number} to the base {base}"))),
    }
}

/// Adds the numbers; other values do not count.
pub(super) fn sum(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    Ok(Some(total(arguments).0.bson()))
}

pub(super) fn avg(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let (total, count) = total(arguments);
    Ok(Some(match total {
        _ if count == 0 => Bson::Null,
        Number::Decimal(n) => Bson::Decimal128(decimal_math::divide(n, decimal_math::of_whole(count.into()))),
        total => Bson::Double(total.double() / f64::from(count)),
    }))
}

fn total(arguments: &[EvalValue]) -> (Number, u32) {
    let (mut total, mut count) = (Number::Int(0), 0);
    for value in values(arguments) {
        if let Ok(number) = Number::of("", &Some(value.clone())) {
            total = total.combine(number, &ADD);
            count += 1;
        }
    }
    (total, count)
}

macro_rules! reals {
    ($($function:ident => $allowed:expr, $of:expr;)*) => {
        $(pub(super) fn $function(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
            real(name, arguments, $allowed, $of)
        })*
    };
}

reals! {
    sin => f64::is_finite, f64::sin;
    cos => f64::is_finite, f64::cos;
    tan => f64::is_finite, f64::tan;
    asin => |n| n.abs() <= 1.0, f64::asin;
    acos => |n| n.abs() <= 1.0, f64::acos;
    atan => |_| true, f64::atan;
    sinh => |_| true, f64::sinh;
    cosh => |_| true, f64::cosh;
    tanh => |_| true, f64::tanh;
    asinh => |_| true, f64::asinh;
    acosh => |n| n >= 1.0, f64::acosh;
    atanh => |n| n.abs() <= 1.0, f64::atanh;
    to_radians => |_| true, f64::to_radians;
    to_degrees => |_| true, f64::to_degrees;
}

pub(super) fn atan2(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((y, x)) = pair(name, arguments)? else { return null() };
    let angle = y.double().atan2(x.double());
    Ok(Some(match y.is_decimal() || x.is_decimal() {
        true => Bson::Decimal128(decimal_math::of_double(angle)),
        false => Bson::Double(angle),
    }))
}
