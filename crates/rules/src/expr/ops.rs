//! Operators: which types they take, and what they give.
//!
//! Nothing here fails while it runs. A result that does not exist (an integer too large, a division by zero, an
//! operand of another type than the operator takes) is missing, and a missing operand makes the result missing.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::ty::Ty;
use super::value::Val;

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmp {
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

impl Cmp {
    /// Whether two values in this order satisfy it.
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

    /// The comparison that says the same with its sides exchanged.
    pub fn flip(self) -> Self {
        match self {
            Self::Lt => Self::Gt,
            Self::Le => Self::Ge,
            Self::Gt => Self::Lt,
            Self::Ge => Self::Le,
            same => same,
        }
    }

    /// How it is written; SQL and the rule language differ in `==` only.
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

/// Arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arith {
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

/// Why two operands do not go together: what was expected, and of which of the two.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What the operator takes there, with an example where that helps.
    pub expected: String,
    /// Whether the right operand is the wrong one.
    pub right: bool,
}

impl Mismatch {
    fn left(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), right: false }
    }

    fn right(expected: impl Into<String>) -> Self {
        Self { expected: expected.into(), right: true }
    }
}

const SPAN: &str = "a span of time, for example `5 min`";

/// The type of `left op right`.
pub fn arith_type(op: Arith, left: Ty, right: Ty) -> Result<Ty, Mismatch> {
    match op {
        Arith::Add => add_type(left, right),
        Arith::Sub => sub_type(left, right),
        Arith::Mul => match (left, right) {
            (Ty::Span, r) if r.may_be(Ty::Float) => Ok(Ty::Span),
            (l, Ty::Span) if l.may_be(Ty::Float) => Ok(Ty::Span),
            (Ty::Span, _) => Err(Mismatch::right("a number")),
            _ => numbers(left, right, false),
        },
        Arith::Div => match (left, right) {
            (Ty::Span, Ty::Span) => Ok(Ty::Float),
            (Ty::Span, Ty::Any) | (Ty::Any, Ty::Any) => Ok(Ty::Any),
            (Ty::Span, r) if r.is_number() => Ok(Ty::Span),
            (Ty::Span, _) => Err(Mismatch::right("a number, or a span of time such as `1 min`")),
            (Ty::Any, Ty::Span) => Ok(Ty::Float),
            (l, Ty::Span) if l.is_number() => Err(Mismatch::left("a span of time, as the other side is one")),
            _ => numbers(left, right, true),
        },
        Arith::Rem => match (left, right) {
            (Ty::Span | Ty::Any, Ty::Span) | (Ty::Span, Ty::Any) => Ok(Ty::Span),
            (Ty::Span, _) => Err(Mismatch::right(SPAN)),
            _ => numbers(left, right, false),
        },
    }
}

fn add_type(left: Ty, right: Ty) -> Result<Ty, Mismatch> {
    match (left, right) {
        (Ty::Str, r) if r.is_number() || matches!(r, Ty::Str | Ty::Any) => Ok(Ty::Str),
        (l, Ty::Str) if l.is_number() || l == Ty::Any => Ok(Ty::Str),
        (Ty::Str, _) => Err(Mismatch::right("text or a number; `text(…)` makes text of other values")),
        (_, Ty::Str) => Err(Mismatch::left("text or a number; `text(…)` makes text of other values")),
        (Ty::Any, Ty::Any) => Ok(Ty::Any),
        (Ty::Any, Ty::Span) | (Ty::Span, Ty::Any) => Ok(Ty::Any),
        (Ty::Time, Ty::Span | Ty::Any) | (Ty::Span | Ty::Any, Ty::Time) => Ok(Ty::Time),
        (Ty::Span, Ty::Span) => Ok(Ty::Span),
        (Ty::Time | Ty::Span, _) => Err(Mismatch::right(SPAN)),
        (_, Ty::Time | Ty::Span) => Err(Mismatch::left(SPAN)),
        (Ty::Any, r) if r.is_number() => Ok(Ty::Any),
        (l, Ty::Any) if l.is_number() => Ok(Ty::Any),
        (l, r) => numbers(l, r, false).map_err(|m| Mismatch { expected: "a number or text".into(), ..m }),
    }
}

fn sub_type(left: Ty, right: Ty) -> Result<Ty, Mismatch> {
    match (left, right) {
        (Ty::Time, Ty::Time) | (Ty::Any, Ty::Time) => Ok(Ty::Span),
        (Ty::Time, Ty::Span) => Ok(Ty::Time),
        (Ty::Time, Ty::Any) | (Ty::Any, Ty::Any | Ty::Span) => Ok(Ty::Any),
        (Ty::Span, Ty::Span | Ty::Any) => Ok(Ty::Span),
        (Ty::Time, _) => Err(Mismatch::right("a time, or a span of time such as `5 min`")),
        (Ty::Span, _) => Err(Mismatch::right(SPAN)),
        (_, Ty::Time) => Err(Mismatch::left("a time")),
        (_, Ty::Span) => Err(Mismatch::left("a time or a span of time")),
        _ => numbers(left, right, false),
    }
}

/// `float`: the result is a float even for two whole numbers.
fn numbers(left: Ty, right: Ty, float: bool) -> Result<Ty, Mismatch> {
    let fits = |t: Ty| t.is_number() || t == Ty::Any;
    if !fits(left) {
        return Err(Mismatch::left("a number"));
    }
    if !fits(right) {
        return Err(Mismatch::right("a number"));
    }
    Ok(match (left, right) {
        _ if float => Ty::Float,
        (Ty::Int, Ty::Int) => Ty::Int,
        (Ty::Any, _) | (_, Ty::Any) => Ty::Any,
        _ => Ty::Float,
    })
}

/// Whether `left op right` compares what can be compared; the error says what was expected on the right.
pub fn compare_type(op: Cmp, left: Ty, right: Ty) -> Result<(), Mismatch> {
    let ordered = !matches!(op, Cmp::Eq | Cmp::Ne);
    if ordered {
        for (ty, is_right) in [(left, false), (right, true)] {
            if matches!(ty, Ty::Bool | Ty::Object | Ty::Array | Ty::Null) {
                let expected = "a number, text, a time or a span of time, which have an order".to_owned();
                return Err(Mismatch { expected, right: is_right });
            }
        }
    }
    if left.may_be(right) {
        return Ok(());
    }
    let example = match left {
        Ty::Span => ", for example `5 min`",
        Ty::Time => ", for example `time(\"2013-01-01T00:00:00Z\")`",
        Ty::Str => " in quotes",
        _ => "",
    };
    Err(Mismatch::right(format!("{left}{example}, as on the left side")))
}

/// `left op right`.
pub fn arith<'a>(op: Arith, left: Val<'a>, right: Val<'a>) -> Val<'a> {
    match op {
        Arith::Add => add(left, right),
        Arith::Sub => sub(&left, &right),
        Arith::Mul => mul(&left, &right),
        Arith::Div => div(&left, &right),
        Arith::Rem => rem(&left, &right),
    }
    .unwrap_or(Val::Missing)
}

fn add<'a>(left: Val<'a>, right: Val<'a>) -> Option<Val<'a>> {
    Some(match (&left, &right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_add(*b)?),
        (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
            Val::Float(left.as_float()? + right.as_float()?)
        }
        // a number next to a time or a span can only come from a document, which keeps spans as milliseconds
        (Val::Time(t), d) | (d, Val::Time(t)) => Val::Time(t.checked_add(d.as_span()?)?),
        (Val::Span(_), _) | (_, Val::Span(_)) => Val::Span(left.as_span()?.checked_add(right.as_span()?)?),
        (Val::Str(_), Val::Str(_) | Val::Int(_) | Val::Float(_))
        | (Val::Int(_) | Val::Float(_), Val::Str(_)) => {
            let (a, b) = (text(&left)?, text(&right)?);
            let mut joined = String::with_capacity(a.len() + b.len());
            joined.push_str(&a);
            joined.push_str(&b);
            Val::text(joined)
        }
        _ => return None,
    })
}

fn sub(left: &Val<'_>, right: &Val<'_>) -> Option<Val<'static>> {
    Some(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_sub(*b)?),
        (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
            Val::Float(left.as_float()? - right.as_float()?)
        }
        (Val::Time(a), Val::Time(b)) => Val::Span(a.checked_sub(*b)?),
        (Val::Time(t), d) => Val::Time(t.checked_sub(d.as_span()?)?),
        (Val::Span(_), _) | (_, Val::Span(_)) => Val::Span(left.as_span()?.checked_sub(right.as_span()?)?),
        _ => return None,
    })
}

fn mul(left: &Val<'_>, right: &Val<'_>) -> Option<Val<'static>> {
    Some(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_mul(*b)?),
        (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
            Val::Float(left.as_float()? * right.as_float()?)
        }
        (Val::Span(d), Val::Int(n)) | (Val::Int(n), Val::Span(d)) => Val::Span(d.checked_mul(*n)?),
        (Val::Span(d), Val::Float(x)) | (Val::Float(x), Val::Span(d)) => Val::Span(whole(*d as f64 * x)?),
        _ => return None,
    })
}

fn div(left: &Val<'_>, right: &Val<'_>) -> Option<Val<'static>> {
    Some(match (left, right) {
        (Val::Span(d), Val::Int(_) | Val::Float(_)) => {
            Val::Span(whole(quotient(*d as f64, right.as_float()?)?)?)
        }
        (Val::Span(_) | Val::Int(_) | Val::Float(_), Val::Span(b)) => {
            Val::Float(quotient(left.as_span()? as f64, *b as f64)?)
        }
        _ => Val::Float(quotient(left.as_float()?, right.as_float()?)?),
    })
}

fn rem(left: &Val<'_>, right: &Val<'_>) -> Option<Val<'static>> {
    Some(match (left, right) {
        (Val::Int(a), Val::Int(b)) => Val::Int(a.checked_rem(*b)?),
        (Val::Span(_), _) | (_, Val::Span(_)) => Val::Span(left.as_span()?.checked_rem(right.as_span()?)?),
        _ => {
            let b = right.as_float()?;
            if b == 0.0 {
                return None;
            }
            Val::Float(left.as_float()? % b)
        }
    })
}

/// `a / b`; nothing for `b` = 0.
#[inline]
pub fn quotient(a: f64, b: f64) -> Option<f64> {
    (b != 0.0).then(|| a / b)
}

/// The nearest whole number, if it is one of 64 bits.
pub fn whole(x: f64) -> Option<i64> {
    let near = x.round();
    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&near).then_some(near as i64)
}

/// Text of a text or a number.
pub fn text<'v>(value: &'v Val<'_>) -> Option<Cow<'v, str>> {
    Some(match value {
        Val::Str(s) => Cow::Borrowed(s.as_ref()),
        Val::Int(n) => Cow::Owned(n.to_string()),
        Val::Float(x) => Cow::Owned(x.to_string()),
        _ => return None,
    })
}

/// `-x`
pub fn negate(value: &Val<'_>) -> Val<'static> {
    match value {
        Val::Int(n) => n.checked_neg().map_or(Val::Missing, Val::Int),
        Val::Float(x) => Val::Float(-x),
        Val::Span(d) => d.checked_neg().map_or(Val::Missing, Val::Span),
        _ => Val::Missing,
    }
}

/// `left op right` as a condition sees it; `None` is missing.
///
/// Values of types that do not compare are not equal when both are there: no rule should fire because one of the
/// two was of another type, so that too is missing.
#[inline]
pub fn compare(op: Cmp, left: &Val<'_>, right: &Val<'_>) -> Option<bool> {
    match (op, left, right) {
        // documents and arrays are equal or not; they have no order
        (Cmp::Eq | Cmp::Ne, Val::Bson(_) | Val::Owned(_), Val::Bson(_) | Val::Owned(_)) => {
            let same = left.as_bson() == right.as_bson();
            Some(same == (op == Cmp::Eq))
        }
        _ => left.compare(right).map(|order| op.holds(order)),
    }
}
