//! `within … per …`: selection of the buckets to read.

use std::ops::Range;

use tidemill_lang::siddhi::ast::{self, PeriodUnit};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{FieldType, did_you_mean};

use super::calendar;
use crate::catalog::AggregationPlan;
use crate::columns::value::Value;
use crate::compile::compiler::{Compiler, Scope};
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, Expr, Frame, Node, QueriedGranularity, QueriedRange};
use crate::registry::Registry;

/// Names of the granularities; the first of each is that of `every`.
const UNITS: [(PeriodUnit, [&str; 3]); 6] = [
    (PeriodUnit::Second, ["sec", "seconds", "second"]),
    (PeriodUnit::Minute, ["min", "minutes", "minute"]),
    (PeriodUnit::Hour, ["hour", "hours", "hour"]),
    (PeriodUnit::Day, ["day", "days", "day"]),
    (PeriodUnit::Month, ["month", "months", "month"]),
    (PeriodUnit::Year, ["year", "years", "year"]),
];

/// Compiles `within … per …` in `scope`. `slot` is the slot of the aggregation's row, which the clause cannot
/// read because it is evaluated before the rows are found.
///
/// Errors: wrong types, or constants that are not readable.
pub(crate) fn compile_bucket_query(
    clause: &ast::Within,
    of: &AggregationPlan,
    slot: usize,
    scope: &mut dyn Scope,
    registry: &Registry,
) -> Result<BucketQuery, Diagnostic> {
    let mut expr = |from: &ast::Expr| -> Result<Expr, Diagnostic> {
        let compiled = Compiler { scope: &mut *scope, registry, aggregates: None }.compile(from)?;
        let mut own = false;
        compiled.walk(&mut |x| own |= matches!(x.node, Node::Column { slot: of, .. } if of == slot));
        match own {
            false => Ok(compiled),
            true => {
                let message = format!(
                    "`within` and `per` select the buckets of `{}`; they cannot use its column `{from}`",
                    of.name
                );
                Err(Diagnostic::error("F0726", from.span, message))
            }
        }
    };
    let instant = |from: &ast::Expr, compiled: &Expr| match compiled.ty {
        FieldType::Long | FieldType::String => Ok(()),
        ty => {
            let message =
                format!("`within` needs values of type long or string, found `{from}` of type {}", ty.name());
            Err(Diagnostic::error("F0720", from.span, message)
                .help("write a long with `L`, for example 1678788000000L"))
        }
    };
    let unreadable = |span, message| Diagnostic::error("F0721", span, message);
    let within = match &clause.to {
        None => {
            let text = expr(&clause.from)?;
            if text.ty != FieldType::String {
                let message = format!(
                    "`within` with a single value needs a string, found `{}` of type {}",
                    clause.from,
                    text.ty.name()
                );
                return Err(Diagnostic::error("F0720", clause.from.span, message)
                    .help("write a pattern such as '2023-03-** **:**:**', or add the end after a comma"));
            }
            match text.as_const() {
                None => QueriedRange::Pattern(text),
                Some(value) => {
                    let range = to_time_range(value).map_err(|e| unreadable(clause.from.span, e))?;
                    QueriedRange::Known(range.start, range.end)
                }
            }
        }
        Some(to) => {
            let (from_expr, to_expr) = (expr(&clause.from)?, expr(to)?);
            instant(&clause.from, &from_expr)?;
            instant(to, &to_expr)?;
            let known = |x: &ast::Expr, compiled: &Expr| {
                let value = compiled.as_const().map(to_instant).transpose();
                value.map_err(|e| unreadable(x.span, e))
            };
            match (known(&clause.from, &from_expr)?, known(to, &to_expr)?) {
                (Some(a), Some(b)) => {
                    let range = between(a, b).map_err(|e| Diagnostic::error("F0722", clause.from.span, e))?;
                    QueriedRange::Known(range.start, range.end)
                }
                _ => QueriedRange::Between(from_expr, to_expr),
            }
        }
    };
    let per = expr(&clause.per)?;
    if per.ty != FieldType::String {
        let message = format!("`per` needs a string, found `{}` of type {}", clause.per, per.ty.name());
        return Err(
            Diagnostic::error("F0723", clause.per.span, message).help("write for example: per 'hours'")
        );
    }
    let per = match per.as_const() {
        None => QueriedGranularity::Name(per),
        Some(name) => {
            let place =
                granularity_index(name, of).map_err(|e| Diagnostic::error("F0724", clause.per.span, e))?;
            QueriedGranularity::Known(place)
        }
    };
    Ok(BucketQuery { within, per })
}

/// Builds the error for an aggregation that is read without `within`.
pub(crate) fn missing_within(name: &str, span: Span) -> Diagnostic {
    let message = format!("`{name}` is an aggregation: `within` and `per` must select the buckets to read");
    Diagnostic::error("F0725", span, message)
        .expected(["`within`"])
        .help("write for example: within '2023-**-** **:**:**' per 'hours'")
}

impl BucketQuery {
    /// Evaluates the clause to the range of bucket starts and the index of the granularity.
    ///
    /// Errors: a string is not readable, or the aggregation lacks the granularity.
    pub(super) fn eval(
        &self,
        of: &AggregationPlan,
        frame: &Frame<'_>,
    ) -> Result<(Range<i64>, usize), EvalError> {
        let range = match &self.within {
            QueriedRange::Known(from, to) => *from..*to,
            QueriedRange::Pattern(text) => to_time_range(&text.eval(frame)?).map_err(EvalError::argument)?,
            QueriedRange::Between(from, to) => {
                let (from, to) = (to_instant(&from.eval(frame)?), to_instant(&to.eval(frame)?));
                between(from.map_err(EvalError::argument)?, to.map_err(EvalError::argument)?)
                    .map_err(EvalError::argument)?
            }
        };
        let level = match &self.per {
            QueriedGranularity::Known(level) => *level,
            QueriedGranularity::Name(name) => {
                granularity_index(&name.eval(frame)?, of).map_err(EvalError::argument)?
            }
        };
        Ok((range, level))
    }
}

/// Returns the granularity of this name; case is ignored.
pub(super) fn unit(name: &str) -> Result<PeriodUnit, String> {
    let known =
        UNITS.iter().find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name.trim())));
    known.map(|(unit, _)| *unit).ok_or_else(|| {
        let hint = did_you_mean(name, UNITS.iter().map(|(_, names)| names[1]));
        format!("there are no buckets of `{name}`{hint}")
    })
}

impl AggregationPlan {
    /// Checks that the aggregation has buckets of the granularity that `per` names.
    ///
    /// Errors: the granularities that it has.
    pub fn check_granularity(&self, per: &str) -> Result<(), String> {
        granularity_index(&Value::Str(per.into()), self).map(|_| ())
    }
}

fn granularity_index(name: &Value, of: &AggregationPlan) -> Result<usize, String> {
    let name = name
        .as_str()
        .ok_or("`per` is null: expected 'seconds', 'minutes', 'hours', 'days', 'months' or 'years'")?;
    let unit = unit(name)?;
    of.units.iter().position(|kept| *kept == unit).ok_or_else(|| {
        let kept: Vec<&str> = of.units.iter().map(|unit| unit.text()).collect();
        format!("`{}` has no buckets of `{name}`: its buckets are {}", of.name, kept.join(", "))
    })
}

fn to_instant(value: &Value) -> Result<i64, String> {
    match value {
        Value::Long(ms) => Ok(*ms),
        Value::Str(text) => calendar::parse_instant(text)
            .ok_or_else(|| format!("`{text}` is not a time: expected {}", calendar::INSTANT_FORMAT)),
        _ => Err("a value of `within` is null: expected a time".into()),
    }
}

fn to_time_range(value: &Value) -> Result<Range<i64>, String> {
    let text = value.as_str().ok_or("`within` is null: expected a time range")?;
    calendar::parse_range(text).ok_or_else(|| {
        format!("`{text}` is not a time range: write a time whose last fields are `**`, such as `2023-03-** **:**:**`, or two times")
    })
}

fn between(from: i64, to: i64) -> Result<Range<i64>, String> {
    match from < to {
        true => Ok(from..to),
        false => Err("the range of `within` is empty: the first time must be before the second".into()),
    }
}
