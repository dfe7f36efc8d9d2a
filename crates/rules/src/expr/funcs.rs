//! Functions of the rule language: names, argument types, results.

use jiff::tz::TimeZone;
use tidemill_types::{Duration, Timestamp};

use super::ops::{self, CompareOp};
use super::ty::ExprType;
use super::value::RuleValue;

/// Limit on the bytes that `replace` inserts into a string; beyond it the result is missing.
pub const TEXT_BYTES_MAX: usize = 16 << 20;

const DAY: i64 = 86_400_000_000;
const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;

/// A function. `if`, `coalesce`, `exists` and `matches` are expression kinds instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the function of its name")]
pub enum Func {
    Abs,
    Round,
    Floor,
    Ceil,
    Sqrt,
    Pow,
    Min,
    Max,
    Div,
    Mod,
    Lower,
    Upper,
    Trim,
    Length,
    Contains,
    StartsWith,
    EndsWith,
    Substring,
    Replace,
    Concat,
    Text,
    Number,
    Time,
    Truncate,
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Weekday,
    Format,
}

/// Every function with its name, in the order in which messages list them.
const TABLE: [(&str, Func); 31] = [
    ("abs", Func::Abs),
    ("round", Func::Round),
    ("floor", Func::Floor),
    ("ceil", Func::Ceil),
    ("sqrt", Func::Sqrt),
    ("pow", Func::Pow),
    ("min", Func::Min),
    ("max", Func::Max),
    ("div", Func::Div),
    ("mod", Func::Mod),
    ("lower", Func::Lower),
    ("upper", Func::Upper),
    ("trim", Func::Trim),
    ("length", Func::Length),
    ("contains", Func::Contains),
    ("starts_with", Func::StartsWith),
    ("ends_with", Func::EndsWith),
    ("substring", Func::Substring),
    ("replace", Func::Replace),
    ("concat", Func::Concat),
    ("text", Func::Text),
    ("number", Func::Number),
    ("time", Func::Time),
    ("truncate", Func::Truncate),
    ("year", Func::Year),
    ("month", Func::Month),
    ("day", Func::Day),
    ("hour", Func::Hour),
    ("minute", Func::Minute),
    ("weekday", Func::Weekday),
    ("format", Func::Format),
];

/// Names that are called like functions, but are expression kinds.
const SPECIAL: [&str; 4] = ["if", "coalesce", "exists", "matches"];

/// A call with a wrong number or wrong types of arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct ArgumentError {
    /// Index of the wrong argument; `None` if their number is wrong.
    pub argument: Option<usize>,
    /// The expected type or the expected call, for messages.
    pub expected: String,
}

impl Func {
    /// Returns the function called `name`.
    pub fn parse(name: &str) -> Option<Self> {
        TABLE.iter().find(|(n, _)| *n == name).map(|(_, f)| *f)
    }

    /// Returns the name of the function in the rule language.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|(_, f)| *f == self).map_or("", |(n, _)| n)
    }

    /// Returns all names that may be called in an expression.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        TABLE.iter().map(|(n, _)| *n).chain(SPECIAL)
    }

    /// Returns an example call for messages.
    pub fn usage(self) -> &'static str {
        match self {
            Self::Abs => "abs(x)",
            Self::Round => "round(x) or round(x, digits)",
            Self::Floor => "floor(x)",
            Self::Ceil => "ceil(x)",
            Self::Sqrt => "sqrt(x)",
            Self::Pow => "pow(x, y)",
            Self::Min => "min(a, b, …)",
            Self::Max => "max(a, b, …)",
            Self::Div => "div(a, b)",
            Self::Mod => "mod(a, b)",
            Self::Lower => "lower(text)",
            Self::Upper => "upper(text)",
            Self::Trim => "trim(text)",
            Self::Length => "length(text)",
            Self::Contains => "contains(text, part)",
            Self::StartsWith => "starts_with(text, part)",
            Self::EndsWith => "ends_with(text, part)",
            Self::Substring => "substring(text, from) or substring(text, from, characters)",
            Self::Replace => "replace(text, part, by)",
            Self::Concat => "concat(a, b, …)",
            Self::Text => "text(x)",
            Self::Number => "number(text)",
            Self::Time => "time(\"2013-01-01T00:00:00Z\")",
            Self::Truncate => "truncate(t, 1 hour)",
            Self::Year => "year(t)",
            Self::Month => "month(t)",
            Self::Day => "day(t)",
            Self::Hour => "hour(t)",
            Self::Minute => "minute(t)",
            Self::Weekday => "weekday(t)",
            Self::Format => "format(t, \"%Y-%m-%d\")",
        }
    }

    /// Returns the result type of a call with arguments of these types.
    pub fn check(self, args: &[ExprType]) -> Result<ExprType, ArgumentError> {
        let (least, most) = self.arity();
        if args.len() < least || args.len() > most {
            return Err(ArgumentError { argument: None, expected: format!("`{}`", self.usage()) });
        }
        let want = |position: usize, wanted: ExprType| match args.get(position) {
            Some(ty) if !ty.may_be(wanted) => {
                let example = if wanted == ExprType::Span { ", for example `1 hour`" } else { "" };
                Err(ArgumentError { argument: Some(position), expected: format!("{wanted}{example}") })
            }
            _ => Ok(()),
        };
        match self {
            Self::Abs => match args[0] {
                ExprType::Span => Ok(ExprType::Span),
                ty => want(0, ExprType::Float).map(|()| ty),
            },
            Self::Round | Self::Floor | Self::Ceil => {
                want(0, ExprType::Float)?;
                want(1, ExprType::Int)?;
                Ok(args[0])
            }
            Self::Sqrt => want(0, ExprType::Float).map(|()| ExprType::Float),
            Self::Pow => {
                want(0, ExprType::Float).and_then(|()| want(1, ExprType::Float)).map(|()| ExprType::Float)
            }
            Self::Min | Self::Max => least_greatest_type(args),
            Self::Div | Self::Mod => {
                let span = args.contains(&ExprType::Span);
                let wanted = if span { ExprType::Span } else { ExprType::Float };
                want(0, wanted)?;
                want(1, wanted)?;
                Ok(match (self, span) {
                    (Self::Div, _) => ExprType::Int,
                    (_, true) => ExprType::Span,
                    _ if args == [ExprType::Int, ExprType::Int] => ExprType::Int,
                    _ if args.contains(&ExprType::Any) => ExprType::Any,
                    _ => ExprType::Float,
                })
            }
            Self::Lower | Self::Upper | Self::Trim => want(0, ExprType::Str).map(|()| ExprType::Str),
            Self::Length => match args[0] {
                ExprType::Array => Ok(ExprType::Int),
                _ => want(0, ExprType::Str).map(|()| ExprType::Int),
            },
            Self::Contains | Self::StartsWith | Self::EndsWith => {
                want(0, ExprType::Str).and_then(|()| want(1, ExprType::Str)).map(|()| ExprType::Bool)
            }
            Self::Substring => {
                want(0, ExprType::Str)?;
                want(1, ExprType::Int)?;
                want(2, ExprType::Int)?;
                Ok(ExprType::Str)
            }
            Self::Replace => (0..3).try_for_each(|i| want(i, ExprType::Str)).map(|()| ExprType::Str),
            Self::Concat | Self::Text => {
                match args.iter().position(|t| matches!(t, ExprType::Object | ExprType::Array)) {
                    Some(i) => Err(ArgumentError {
                        argument: Some(i),
                        expected: "text, a number, a time or a boolean".into(),
                    }),
                    None => Ok(ExprType::Str),
                }
            }
            Self::Number => match args[0] {
                ExprType::Int | ExprType::Float => Ok(args[0]),
                _ => want(0, ExprType::Str).map(|()| ExprType::Float),
            },
            Self::Time => match args[0] {
                ExprType::Time => Ok(ExprType::Time),
                _ => want(0, ExprType::Str).map(|()| ExprType::Time),
            },
            Self::Truncate => {
                want(0, ExprType::Time).and_then(|()| want(1, ExprType::Span)).map(|()| ExprType::Time)
            }
            Self::Year | Self::Month | Self::Day | Self::Hour | Self::Minute | Self::Weekday => {
                want(0, ExprType::Time).map(|()| ExprType::Int)
            }
            Self::Format => {
                want(0, ExprType::Time).and_then(|()| want(1, ExprType::Str)).map(|()| ExprType::Str)
            }
        }
    }

    fn arity(self) -> (usize, usize) {
        match self {
            Self::Round => (1, 2),
            Self::Min | Self::Max => (2, 64),
            Self::Concat => (1, 64),
            Self::Pow | Self::Div | Self::Mod | Self::Contains | Self::StartsWith | Self::EndsWith => (2, 2),
            Self::Truncate | Self::Format => (2, 2),
            Self::Substring => (2, 3),
            Self::Replace => (3, 3),
            _ => (1, 1),
        }
    }
}

fn least_greatest_type(args: &[ExprType]) -> Result<ExprType, ArgumentError> {
    let mut all = args[0];
    for (position, ty) in args.iter().enumerate() {
        let ordered =
            ty.is_number() || matches!(ty, ExprType::Str | ExprType::Time | ExprType::Span | ExprType::Any);
        match all.join(*ty) {
            Some(joined) if ordered => all = joined,
            _ => {
                let expected = if position == 0 {
                    "a number, text, a time or a span of time".to_owned()
                } else {
                    format!("{all}, as the arguments before it")
                };
                return Err(ArgumentError { argument: Some(position), expected });
            }
        }
    }
    Ok(all)
}

/// Calls `func`; an absent argument makes the result missing. May move values out of `args`.
pub fn call<'a>(func: Func, args: &mut [RuleValue<'a>]) -> RuleValue<'a> {
    if args.iter().any(RuleValue::is_absent) {
        return RuleValue::Missing;
    }
    compute(func, args).unwrap_or(RuleValue::Missing)
}

fn compute<'a>(func: Func, args: &mut [RuleValue<'a>]) -> Option<RuleValue<'a>> {
    match func {
        Func::Min | Func::Max => least_greatest(func == Func::Min, args),
        Func::Abs
        | Func::Round
        | Func::Floor
        | Func::Ceil
        | Func::Sqrt
        | Func::Pow
        | Func::Div
        | Func::Mod
        | Func::Number => number(func, args),
        Func::Time
        | Func::Truncate
        | Func::Year
        | Func::Month
        | Func::Day
        | Func::Hour
        | Func::Minute
        | Func::Weekday
        | Func::Format => time(func, args),
        _ => text(func, args),
    }
}

fn least_greatest<'a>(least: bool, args: &mut [RuleValue<'a>]) -> Option<RuleValue<'a>> {
    let op = if least { CompareOp::Lt } else { CompareOp::Gt };
    let mut best = 0;
    for i in 1..args.len() {
        if ops::compare(op, &args[i], &args[best])? {
            best = i;
        }
    }
    Some(std::mem::replace(&mut args[best], RuleValue::Missing))
}

fn number(func: Func, args: &[RuleValue<'_>]) -> Option<RuleValue<'static>> {
    Some(match (func, args) {
        (Func::Abs, [RuleValue::Int(n)]) => RuleValue::Int(n.checked_abs()?),
        (Func::Abs, [RuleValue::Span(d)]) => RuleValue::Span(d.checked_abs()?),
        (Func::Abs, [RuleValue::Float(x)]) => RuleValue::Float(x.abs()),
        (Func::Round, [RuleValue::Float(x), RuleValue::Int(digits)]) => {
            RuleValue::Float(round_digits(*x, *digits)?)
        }
        (Func::Round | Func::Floor | Func::Ceil, [RuleValue::Int(n), ..]) => RuleValue::Int(*n),
        (Func::Round, [RuleValue::Float(x)]) => RuleValue::Float(x.round()),
        (Func::Floor, [RuleValue::Float(x)]) => RuleValue::Float(x.floor()),
        (Func::Ceil, [RuleValue::Float(x)]) => RuleValue::Float(x.ceil()),
        (Func::Sqrt, [x]) => {
            let x = x.as_float()?;
            RuleValue::Float((x >= 0.0).then(|| x.sqrt())?)
        }
        (Func::Pow, [x, y]) => {
            let power = x.as_float()?.powf(y.as_float()?);
            RuleValue::Float((!power.is_nan()).then_some(power)?)
        }
        (Func::Div, [RuleValue::Int(a), RuleValue::Int(b)]) => RuleValue::Int(a.checked_div(*b)?),
        (Func::Div, [a @ RuleValue::Span(_), b] | [a, b @ RuleValue::Span(_)]) => {
            RuleValue::Int(a.as_span()?.checked_div(b.as_span()?)?)
        }
        (Func::Div, [a, b]) => {
            let quotient = ops::quotient(a.as_float()?, b.as_float()?)?;
            RuleValue::Int(ops::round_to_integer(quotient.trunc())?)
        }
        (Func::Mod, [a, b]) => {
            ops::arith(ops::ArithmeticOp::Rem, a.clone().into_owned(), b.clone().into_owned())
        }
        (Func::Number, [RuleValue::Int(n)]) => RuleValue::Int(*n),
        (Func::Number, [RuleValue::Float(x)]) => RuleValue::Float(*x),
        (Func::Number, [RuleValue::Str(s)]) => {
            RuleValue::Float(s.trim().parse().ok().filter(|x: &f64| x.is_finite())?)
        }
        _ => return None,
    })
}

fn round_digits(x: f64, digits: i64) -> Option<f64> {
    let scale = 10_f64.powi(i32::try_from(digits).ok().filter(|d| d.abs() <= 18)?);
    let rounded = (x * scale).round() / scale;
    Some(if rounded.is_finite() { rounded } else { x })
}

fn time<'a>(func: Func, args: &[RuleValue<'a>]) -> Option<RuleValue<'a>> {
    if func == Func::Time {
        return match &args[0] {
            RuleValue::Time(t) => Some(RuleValue::Time(*t)),
            RuleValue::Str(s) => Timestamp::parse(s).ok().map(|t| RuleValue::Time(t.0)),
            _ => None,
        };
    }
    let RuleValue::Time(t) = args[0] else { return None };
    Some(match func {
        Func::Truncate => RuleValue::Time(truncate(t, args[1].as_span()?)?),
        Func::Hour => RuleValue::Int(t.rem_euclid(DAY) / HOUR),
        Func::Minute => RuleValue::Int(t.rem_euclid(HOUR) / MINUTE),
        // 1970-01-01 was a Thursday
        Func::Weekday => RuleValue::Int((t.div_euclid(DAY) + 3).rem_euclid(7) + 1),
        _ => {
            let civil = jiff::Timestamp::from_microsecond(t).ok()?.to_zoned(TimeZone::UTC);
            match func {
                Func::Year => RuleValue::Int(civil.year().into()),
                Func::Month => RuleValue::Int(civil.month().into()),
                Func::Day => RuleValue::Int(civil.day().into()),
                Func::Format => match &args[1] {
                    RuleValue::Str(format) => {
                        RuleValue::text(jiff::fmt::strtime::format(format.as_bytes(), &civil).ok()?)
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    })
}

/// Returns the start of the interval of length `span` that contains `t`, counted from 1970. `None` if `span`
/// is not positive.
pub fn truncate(t: i64, span: i64) -> Option<i64> {
    if span <= 0 {
        return None;
    }
    t.checked_sub(t.rem_euclid(span))
}

fn text<'a>(func: Func, args: &mut [RuleValue<'a>]) -> Option<RuleValue<'a>> {
    match func {
        Func::Text => return text_of(std::mem::replace(&mut args[0], RuleValue::Missing)),
        Func::Concat => {
            let mut out = String::new();
            for arg in args {
                let Some(RuleValue::Str(part)) = text_of(std::mem::replace(arg, RuleValue::Missing)) else {
                    return None;
                };
                out.push_str(&part);
            }
            return Some(RuleValue::text(out));
        }
        Func::Length if args[0].as_bson().is_some() => {
            return args[0].as_bson()?.as_array().map(|a| RuleValue::Int(a.into_iter().count() as i64));
        }
        _ => {}
    }
    let (RuleValue::Str(s), rest) =
        args.split_first_mut().map(|(first, rest)| (std::mem::replace(first, RuleValue::Missing), rest))?
    else {
        return None;
    };
    let part = match rest.first() {
        Some(RuleValue::Str(p)) => p.as_ref(),
        _ => "",
    };
    let needs_text = matches!(func, Func::Contains | Func::StartsWith | Func::EndsWith | Func::Replace);
    if needs_text && rest.iter().any(|v| !matches!(v, RuleValue::Str(_))) {
        return None;
    }
    Some(match func {
        Func::Lower => RuleValue::text(s.to_lowercase()),
        Func::Upper => RuleValue::text(s.to_uppercase()),
        Func::Trim => RuleValue::text(s.trim().to_owned()),
        Func::Length => RuleValue::Int(s.chars().count() as i64),
        Func::Contains => RuleValue::Bool(s.contains(part)),
        Func::StartsWith => RuleValue::Bool(s.starts_with(part)),
        Func::EndsWith => RuleValue::Bool(s.ends_with(part)),
        Func::Substring => RuleValue::text(substring(&s, rest)?),
        Func::Replace => match &rest[1] {
            RuleValue::Str(by) => RuleValue::text(replace(&s, part, by)?),
            _ => return None,
        },
        _ => return None,
    })
}

fn replace(text: &str, part: &str, by: &str) -> Option<String> {
    if part.is_empty() {
        return Some(text.to_owned());
    }
    let grown = text.len().checked_add(text.matches(part).count().checked_mul(by.len())?)?;
    (grown <= TEXT_BYTES_MAX + text.len()).then(|| text.replace(part, by))
}

/// Returns the characters from index `from` on; a negative start counts as 0.
fn substring(text: &str, rest: &[RuleValue<'_>]) -> Option<String> {
    let whole = |v: &RuleValue<'_>| match v {
        RuleValue::Int(n) => Some(usize::try_from(*n).unwrap_or(0)),
        _ => None,
    };
    let from = whole(&rest[0])?;
    let count = match rest.get(1) {
        Some(v) => whole(v)?,
        None => usize::MAX,
    };
    Some(text.chars().skip(from).take(count).collect())
}

/// Converts a scalar to a string.
fn text_of(value: RuleValue<'_>) -> Option<RuleValue<'_>> {
    Some(match value {
        RuleValue::Str(_) => value,
        RuleValue::Int(n) => RuleValue::text(n.to_string()),
        RuleValue::Float(x) => RuleValue::text(x.to_string()),
        RuleValue::Bool(b) => RuleValue::text(b.to_string()),
        RuleValue::Time(t) => RuleValue::text(Timestamp(t).to_string()),
        RuleValue::Span(d) => RuleValue::text(Duration(d).to_string()),
        _ => return None,
    })
}

/// Checks that `format` is a valid format string; the error is the message of the formatter.
pub fn check_format(format: &str) -> Result<(), String> {
    let probe = jiff::Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format.as_bytes(), &probe).map(drop).map_err(|e| e.to_string())
}
