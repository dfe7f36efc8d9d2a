//! Operators: operand types and results.
//!
//! No operator fails at run time. A result that does not exist (an integer overflow, a division by zero, an
//! operand of a type that the operator does not take) is missing, and a missing operand makes the result
//! missing.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::ty::ExprType;
use super::value::RuleValue;

/// Comparison operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompareOp {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl CompareOp {
    /// Returns whether two values in this order satisfy the comparison.
    #[inline]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Eq => order.is_eq(),
            Self::Ne => order.is_ne(),
            Self::Lt => order.is_lt(),
            Self::Le => order.is_le(),
            Self::Gt => order.is_gt(),
            Self::Ge => order.is_ge(),
        }
    }

    /// Returns the equivalent comparison for swapped operands.
    pub fn flip(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            same => same,
        }
    }

    /// Returns the operator as the rule language writes it; SQL differs in `==` only.
    pub fn text(self) -> &'static str {
        match self {
            Self::Eq => "==",
            Self::Ne => "!=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

/// Arithmetic operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

/// A type error in the operands: which operand is wrong and what was expected.
#[derive(Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// The type that the operator expects, with an example where that helps.
    pub expected: String,
    /// True if the right operand is the wrong one.
    pub right: bool,
}

impl TypeMismatch {
    fn left(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), right: false }
    }

    fn right(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), right: true }
    }
}

const SPAN: &str = "a span of time, for example `5 min`";

/// Returns the type of `left op right`.
pub fn arith_type(op: ArithmeticOp, left: ExprType, right: ExprType) -> Result<ExprType, TypeMismatch> {
    match op {
        ArithmeticOp::Add => add_type(left, right),
        ArithmeticOp::Sub => sub_type(left, right),
        ArithmeticOp::Mul => match (left, right) {
            (ExprType::Span, r) if r.may_be(ExprType::Float) => Ok(ExprType::Span),
            (l, ExprType::Span) if l.may_be(ExprType::Float) => Ok(ExprType::Span),
            (ExprType::Span, _) => Err(TypeMismatch::right("a number")),
            _ => number_type(left, right, false),
        },
        ArithmeticOp::Div => match (left, right) {
            (ExprType::Span, ExprType::Span) => Ok(ExprType::Float),
            (ExprType::Span, ExprType::Any) | (ExprType::Any, ExprType::Any) => Ok(ExprType::Any),
            (ExprType::Span, r) if r.is_number() => Ok(ExprType::Span),
            (ExprType::Span, _) => Err(TypeMismatch::right("a number, or a span of time such as `1 min`")),
            (ExprType::Any, ExprType::Span) => Ok(ExprType::Float),
            (l, ExprType::Span) if l.is_number() => {
                Err(TypeMismatch::left("a span of time, because the other side is one"))
            }
            _ => number_type(left, right, true),
        },
        ArithmeticOp::Rem => match (left, right) {
            (ExprType::Span | ExprType::Any, ExprType::Span) | (ExprType::Span, ExprType::Any) => {
                Ok(ExprType::Span)
            }
            (ExprType::Span, _) => Err(TypeMismatch::right(SPAN)),
            _ => number_type(left, right, false),
        },
    }
}

fn add_type(left: ExprType, right: ExprType) -> Result<ExprType, TypeMismatch> {
    match (left, right) {
        (ExprType::Str, r) if r.is_number() || matches!(r, ExprType::Str | ExprType::Any) => {
            Ok(ExprType::Str)
        }
        (l, ExprType::Str) if l.is_number() || l == ExprType::Any => Ok(ExprType::Str),
        (ExprType::Str, _) => Err(TypeMismatch::right("text or a number (`text(…)` converts other values)")),
        (_, ExprType::Str) => Err(TypeMismatch::left("text or a number (`text(…)` converts other values)")),
        (ExprType::Any, ExprType::Any) => Ok(ExprType::Any),
        (ExprType::Any, ExprType::Span) | (ExprType::Span, ExprType::Any) => Ok(ExprType::Any),
        (ExprType::Time, ExprType::Span | ExprType::Any)
        | (ExprType::Span | ExprType::Any, ExprType::Time) => Ok(ExprType::Time),
        (ExprType::Span, ExprType::Span) => Ok(ExprType::Span),
        (ExprType::Time | ExprType::Span, _) => Err(TypeMismatch::right(SPAN)),
        (_, ExprType::Time | ExprType::Span) => Err(TypeMismatch::left(SPAN)),
        (ExprType::Any, r) if r.is_number() => Ok(ExprType::Any),
        (l, ExprType::Any) if l.is_number() => Ok(ExprType::Any),
        (l, r) => {
            number_type(l, r, false).map_err(|m| TypeMismatch { expected: "a number or text".into(), ..m })
        }
    }
}

fn sub_type(left: ExprType, right: ExprType) -> Result<ExprType, TypeMismatch> {
    match (left, right) {
        (ExprType::Time, ExprType::Time) | (ExprType::Any, ExprType::Time) => Ok(ExprType::Span),
        (ExprType::Time, ExprType::Span) => Ok(ExprType::Time),
        (ExprType::Time, ExprType::Any) | (ExprType::Any, ExprType::Any | ExprType::Span) => {
            Ok(ExprType::Any)
        }
        (ExprType::Span, ExprType::Span | ExprType::Any) => Ok(ExprType::Span),
        (ExprType::Time, _) => Err(TypeMismatch::right("a time, or a span of time such as `5 min`")),
        (ExprType::Span, _) => Err(TypeMismatch::right(SPAN)),
        (_, ExprType::Time) => Err(TypeMismatch::left("a time")),
        (_, ExprType::Span) => Err(TypeMismatch::left("a time or a span of time")),
        _ => number_type(left, right, false),
    }
}

/// With `float`, the result is a float even for two integers.
fn number_type(left: ExprType, right: ExprType, float: bool) -> Result<ExprType, TypeMismatch> {
    let fits = |t: ExprType| t.is_number() || t == ExprType::Any;
    if !fits(left) {
        return Err(TypeMismatch::left("a number"));
    }
    if !fits(right) {
        return Err(TypeMismatch::right("a number"));
    }
    Ok(match (left, right) {
        _ if float => ExprType::Float,
        (ExprType::Int, ExprType::Int) => ExprType::Int,
        (ExprType::Any, _) | (_, ExprType::Any) => ExprType::Any,
        _ => ExprType::Float,
    })
}

/// Checks that values of the two types can be compared; the error names the wrong operand and what was
/// expected.
pub fn compare_type(op: CompareOp, left: ExprType, right: ExprType) -> Result<(), TypeMismatch> {
    let ordered = !matches!(op, CompareOp::Eq | CompareOp::Ne);
    if ordered {
        for (ty, is_right) in [(left, false), (right, true)] {
            if matches!(ty, ExprType::Bool | ExprType::Object | ExprType::Array | ExprType::Null) {
                let expected = "a value with an order (a number, text, a time or a span of time)".to_owned();
                return Err(TypeMismatch { expected, right: is_right });
            }
        }
    }
    if left.may_be(right) {
        return Ok(());
    }
    let example = match left {
        ExprType::Span => ", for example `5 min`",
        ExprType::Time => ", for example `time(\"2013-01-01T00:00:00Z\")`",
        ExprType::Str => " in quotes",
        _ => "",
    };
    Err(TypeMismatch::right(format!("{left}{example}, as on the left side")))
}

/// Computes `left op right`.
pub fn arith<'a>(op: ArithmeticOp, left: RuleValue<'a>, right: RuleValue<'a>) -> RuleValue<'a> {
    match op {
        ArithmeticOp::Add => add(left, right),
        ArithmeticOp::Sub => sub(&left, &right),
        ArithmeticOp::Mul => mul(&left, &right),
        ArithmeticOp::Div => div(&left, &right),
        ArithmeticOp::Rem => rem(&left, &right),
    }
    .unwrap_or(RuleValue::Missing)
}

fn add<'a>(left: RuleValue<'a>, right: RuleValue<'a>) -> Option<RuleValue<'a>> {
    Some(match (&left, &right) {
        (RuleValue::Int(a), RuleValue::Int(b)) => RuleValue::Int(a.checked_add(*b)?),
        (RuleValue::Int(_) | RuleValue::Float(_), RuleValue::Int(_) | RuleValue::Float(_)) => {
            RuleValue::Float(left.as_float()? + right.as_float()?)
        }
        // a number beside a time or a span can only come from a document, which stores spans as milliseconds
        (RuleValue::Time(t), d) | (d, RuleValue::Time(t)) => RuleValue::Time(t.checked_add(d.as_span()?)?),
        (RuleValue::Span(_), _) | (_, RuleValue::Span(_)) => {
            RuleValue::Span(left.as_span()?.checked_add(right.as_span()?)?)
        }
        (RuleValue::Str(_), RuleValue::Str(_) | RuleValue::Int(_) | RuleValue::Float(_))
        | (RuleValue::Int(_) | RuleValue::Float(_), RuleValue::Str(_)) => {
            let (a, b) = (text(&left)?, text(&right)?);
            let mut joined = String::with_capacity(a.len() + b.len());
            joined.push_str(&a);
            joined.push_str(&b);
            RuleValue::text(joined)
        }
        _ => return None,
    })
}

fn sub(left: &RuleValue<'_>, right: &RuleValue<'_>) -> Option<RuleValue<'static>> {
    Some(match (left, right) {
        (RuleValue::Int(a), RuleValue::Int(b)) => RuleValue::Int(a.checked_sub(*b)?),
        (RuleValue::Int(_) | RuleValue::Float(_), RuleValue::Int(_) | RuleValue::Float(_)) => {
            RuleValue::Float(left.as_float()? - right.as_float()?)
        }
        (RuleValue::Time(a), RuleValue::Time(b)) => RuleValue::Span(a.checked_sub(*b)?),
        (RuleValue::Time(t), d) => RuleValue::Time(t.checked_sub(d.as_span()?)?),
        (RuleValue::Span(_), _) | (_, RuleValue::Span(_)) => {
            RuleValue::Span(left.as_span()?.checked_sub(right.as_span()?)?)
        }
        _ => return None,
    })
}

fn mul(left: &RuleValue<'_>, right: &RuleValue<'_>) -> Option<RuleValue<'static>> {
    Some(match (left, right) {
        (RuleValue::Int(a), RuleValue::Int(b)) => RuleValue::Int(a.checked_mul(*b)?),
        (RuleValue::Int(_) | RuleValue::Float(_), RuleValue::Int(_) | RuleValue::Float(_)) => {
            RuleValue::Float(left.as_float()? * right.as_float()?)
        }
        (RuleValue::Span(d), RuleValue::Int(n)) | (RuleValue::Int(n), RuleValue::Span(d)) => {
            RuleValue::Span(d.checked_mul(*n)?)
        }
        (RuleValue::Span(d), RuleValue::Float(x)) | (RuleValue::Float(x), RuleValue::Span(d)) => {
            RuleValue::Span(round_to_integer(*d as f64 * x)?)
        }
        _ => return None,
    })
}

fn div(left: &RuleValue<'_>, right: &RuleValue<'_>) -> Option<RuleValue<'static>> {
    Some(match (left, right) {
        (RuleValue::Span(d), RuleValue::Int(_) | RuleValue::Float(_)) => {
            RuleValue::Span(round_to_integer(quotient(*d as f64, right.as_float()?)?)?)
        }
        (RuleValue::Span(_) | RuleValue::Int(_) | RuleValue::Float(_), RuleValue::Span(b)) => {
            RuleValue::Float(quotient(left.as_span()? as f64, *b as f64)?)
        }
        _ => RuleValue::Float(quotient(left.as_float()?, right.as_float()?)?),
    })
}

fn rem(left: &RuleValue<'_>, right: &RuleValue<'_>) -> Option<RuleValue<'static>> {
    Some(match (left, right) {
        (RuleValue::Int(a), RuleValue::Int(b)) => RuleValue::Int(a.checked_rem(*b)?),
        (RuleValue::Span(_), _) | (_, RuleValue::Span(_)) => {
            RuleValue::Span(left.as_span()?.checked_rem(right.as_span()?)?)
        }
        _ => {
            let b = right.as_float()?;
            if b == 0.0 {
                return None;
            }
            RuleValue::Float(left.as_float()? % b)
        }
    })
}

/// Returns `a / b`, or `None` if `b` is 0.
#[inline]
pub fn quotient(a: f64, b: f64) -> Option<f64> {
    (b != 0.0).then(|| a / b)
}

/// Rounds to the nearest integer; `None` if it does not fit into 64 bits.
pub fn round_to_integer(x: f64) -> Option<i64> {
    let near = x.round();
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&near).then_some(near as i64)
}

/// Converts a string or a number to a string.
pub fn text<'v>(value: &'v RuleValue<'_>) -> Option<Cow<'v, str>> {
    Some(match value {
        RuleValue::Str(s) => Cow::Borrowed(s.as_ref()),
        RuleValue::Int(n) => Cow::Owned(n.to_string()),
        RuleValue::Float(x) => Cow::Owned(x.to_string()),
        _ => return None,
    })
}

/// Computes `-x`.
pub fn negate(value: &RuleValue<'_>) -> RuleValue<'static> {
    match value {
        RuleValue::Int(n) => n.checked_neg().map_or(RuleValue::Missing, RuleValue::Int),
        RuleValue::Float(x) => RuleValue::Float(-x),
        RuleValue::Span(d) => d.checked_neg().map_or(RuleValue::Missing, RuleValue::Span),
        _ => RuleValue::Missing,
    }
}

/// Evaluates `left op right` as a condition; `None` is missing.
///
/// The result is also missing for values of types that do not compare, even for `!=`: no rule should fire
/// only because an operand has another type.
#[inline]
pub fn compare(op: CompareOp, left: &RuleValue<'_>, right: &RuleValue<'_>) -> Option<bool> {
    match (op, left, right) {
        // documents and arrays can be equal, but have no order
        (
            CompareOp::Eq | CompareOp::Ne,
            RuleValue::Bson(_) | RuleValue::Owned(_),
            RuleValue::Bson(_) | RuleValue::Owned(_),
        ) => {
            let same = left.as_bson() == right.as_bson();
            Some(same == (op == CompareOp::Eq))
        }
        _ => left.compare(right).map(|order| op.holds(order)),
    }
}
