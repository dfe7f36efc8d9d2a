//! Rewriting of expressions so that times meet in microseconds, and reading of texts that are times or intervals.

use std::sync::Arc;

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::functions::expr_fn::round;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_types::Timestamp;

use super::{is_text, is_utc, micros};
use crate::error::literal_error;

/// Analyzer rule that comes before DataFusion coerces types.
#[derive(Debug, Default)]
pub(crate) struct MicrosecondTimes;

impl AnalyzerRule for MicrosecondTimes {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node)?;
            let names = NamePreserver::new(&node);
            let node = node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|expr| rewrite(expr, &schema))?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })?;
            // types of columns below may have changed
            node.map_data(LogicalPlan::recompute_schema)
        })
        .data()
    }

    fn name(&self) -> &str {
        "microsecond_times"
    }
}

fn input_schema(node: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = node {
        let source = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    Ok(schema)
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if meets(op) => {
            let (left, right) = pair(*left, *right, op, schema)?;
            let expr = BinaryExpr { left: Box::new(left), op, right: Box::new(right) };
            Ok(Transformed::yes(Expr::BinaryExpr(expr)))
        }
        Expr::Between(Between { expr, negated, low, high }) => {
            let (expr, low) = pair(*expr, *low, Operator::GtEq, schema)?;
            let (expr, high) = pair(expr, *high, Operator::LtEq, schema)?;
            let between = Between { expr: Box::new(expr), negated, low: Box::new(low), high: Box::new(high) };
            Ok(Transformed::yes(Expr::Between(between)))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let mut expr = *expr;
            let mut converted = Vec::with_capacity(list.len());
            for item in list {
                let (left, right) = pair(expr, item, Operator::Eq, schema)?;
                expr = left;
                converted.push(right);
            }
            Ok(Transformed::yes(Expr::InList(InList { expr: Box::new(expr), list: converted, negated })))
        }
        Expr::Cast(Cast { expr, field }) => match (text_of(&expr), field.data_type()) {
            (Some(text), DataType::Timestamp(TimeUnit::Microsecond, zone)) if is_utc(zone) => {
                time_literal(text, zone, None).map(Transformed::yes)
            }
            _ => Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        },
        Expr::ScalarFunction(call) => function(call, schema),
        expr => Ok(Transformed::no(expr)),
    }
}

/// Returns whether the operands of an operator come to one type.
fn meets(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
            | Operator::Minus
    )
}

/// Brings two operands to microseconds if one of them has this type.
fn pair(left: Expr, right: Expr, op: Operator, schema: &DFSchema) -> Result<(Expr, Expr)> {
    // DataFusion reports operands without a type
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok((left, right));
    };
    match (&left_type, &right_type) {
        (DataType::Timestamp(TimeUnit::Microsecond, zone), other) => {
            let right = to_micros(right, other, zone, op, &left)?;
            Ok((left, right))
        }
        (other, DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            let left = to_micros(left, other, zone, op, &right)?;
            Ok((left, right))
        }
        (DataType::Duration(_), DataType::Interval(_)) => Ok((left, duration(right))),
        (DataType::Interval(_), DataType::Duration(_)) => Ok((duration(left), right)),
        _ => Ok((left, right)),
    }
}

/// Returns a constant interval without months as a duration: DataFusion would make the other side an interval, which
/// ends at 292 years.
fn duration(expr: Expr) -> Expr {
    let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), metadata) = &expr else {
        return expr;
    };
    let days = i64::from(interval.days).checked_mul(86_400_000_000);
    let micros = days.and_then(|days| days.checked_add(interval.nanoseconds / 1_000));
    match micros {
        Some(micros) if interval.months == 0 && interval.nanoseconds % 1_000 == 0 => {
            Expr::Literal(ScalarValue::DurationMicrosecond(Some(micros)), metadata.clone())
        }
        _ => expr,
    }
}

fn to_micros(
    expr: Expr,
    ty: &DataType,
    zone: &Option<Arc<str>>,
    op: Operator,
    beside: &Expr,
) -> Result<Expr> {
    match ty {
        // of a difference, a text may be an interval
        ty if is_text(ty) && op != Operator::Minus => match text_of(&expr) {
            Some(text) if is_utc(zone) => time_literal(text, zone, Some(beside)),
            _ => Ok(cast(expr, micros(zone))),
        },
        DataType::Timestamp(TimeUnit::Nanosecond, own) => Ok(cast(expr, micros(own))),
        DataType::Date32 | DataType::Date64 => Ok(cast(expr, micros(zone))),
        _ => Ok(expr),
    }
}

fn function(call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let ScalarFunction { func, args } = call;
    let name = func.name();
    let call = |args| Expr::ScalarFunction(ScalarFunction { func: func.clone(), args });
    match (name, args.as_slice()) {
        ("now" | "current_timestamp", []) => {
            let now = call(args);
            Ok(Transformed::yes(match now.get_type(schema)? {
                DataType::Timestamp(TimeUnit::Nanosecond, zone) => cast(now, micros(&zone)),
                _ => now,
            }))
        }
        ("to_timestamp", [time]) => {
            let given = time.get_type(schema);
            let call = call(args.clone());
            let DataType::Timestamp(TimeUnit::Nanosecond, zone) = call.get_type(schema)? else {
                return Ok(Transformed::no(call));
            };
            match (text_of(time), given) {
                (Some(text), _) if is_utc(&zone) => time_literal(text, &zone, None).map(Transformed::yes),
                (None, Ok(ty)) if is_text(&ty) => Ok(Transformed::yes(cast(time.clone(), micros(&zone)))),
                (_, Ok(ty)) if ty.is_integer() => {
                    let seconds = cast(time.clone(), DataType::Int64);
                    let seconds = cast(seconds, DataType::Timestamp(TimeUnit::Second, zone.clone()));
                    Ok(Transformed::yes(cast(seconds, micros(&zone))))
                }
                // DataFusion would make nanoseconds of them, and the last ones it can of those that are out of range
                (_, Ok(ty)) if ty.is_floating() || ty.is_decimal() => {
                    let micros_of = cast(time.clone(), DataType::Float64) * lit(1e6);
                    let whole = cast(round(vec![micros_of]), DataType::Int64);
                    Ok(Transformed::yes(cast(whole, micros(&zone))))
                }
                (_, Ok(DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)) => {
                    Ok(Transformed::yes(cast(time.clone(), micros(&zone))))
                }
                _ => Ok(Transformed::yes(cast(call, micros(&zone)))),
            }
        }
        // the digits have the type that the function takes: a cast of them would hide from it which type its result has
        ("round" | "trunc", [value, Expr::Literal(ScalarValue::Int64(Some(digits)), _)]) => {
            match i32::try_from(*digits) {
                Ok(digits) => Ok(Transformed::yes(call(vec![value.clone(), lit(digits)]))),
                Err(_) => Ok(Transformed::no(call(args))),
            }
        }
        ("arrow_cast" | "arrow_try_cast", [value, ty]) => {
            let Some(micros) = text_of(ty).and_then(in_micros) else {
                return Ok(Transformed::no(call(args)));
            };
            Ok(Transformed::yes(call(vec![value.clone(), lit(micros)])))
        }
        ("date_bin" | "time_bucket_gapfill" | "date_bin_gapfill", [interval, times @ ..]) => {
            if let Some(text) = text_of(interval)
                && parse_interval_month_day_nano(text).is_err()
            {
                return literal_error(&format!(
                    "`{text}` is no interval: write a number and a unit, for example '5 minutes', '1 hour 30 minutes' \
                         or '3 months'"
                ));
            }
            let times = times.iter().map(|time| match text_of(time) {
                Some(text) => time_literal(text, &None, None),
                None => Ok(time.clone()),
            });
            let times = times.collect::<Result<Vec<_>>>()?;
            Ok(Transformed::yes(call(std::iter::once(interval.clone()).chain(times).collect())))
        }
        ("date_trunc", [unit, time]) if text_of(time).is_some() => {
            let time = time_literal(text_of(time).unwrap_or_default(), &None, None)?;
            Ok(Transformed::yes(call(vec![unit.clone(), time])))
        }
        _ => Ok(Transformed::no(call(args))),
    }
}

/// Returns the type of times in microseconds for one in nanoseconds, as `arrow_cast` takes it.
fn in_micros(ty: &str) -> Option<String> {
    let units = ["Timestamp(Nanosecond", "Timestamp(ns"];
    let rest = units.iter().find_map(|unit| ty.trim_start().strip_prefix(unit))?;
    Some(format!("Timestamp(Microsecond{rest}"))
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        Expr::Alias(alias) => text_of(&alias.expr),
        _ => None,
    }
}

/// Returns the time that `expr` is if it is a constant text; `None` if it is something else.
///
/// Errors: those of a text that is not a time.
pub(crate) fn of_text(expr: &Expr, zone: &Option<Arc<str>>) -> Result<Option<Expr>> {
    text_of(expr).filter(|_| is_utc(zone)).map(|text| time_literal(text, zone, None)).transpose()
}

/// Returns the time that a constant text is.
///
/// Errors: `Invalid` with the place of the text, and the forms of times.
fn time_literal(text: &str, zone: &Option<Arc<str>>, beside: Option<&Expr>) -> Result<Expr> {
    let time = match Timestamp::parse(text.trim()) {
        Ok(time) => ScalarValue::TimestampMicrosecond(Some(time.0), zone.clone()),
        // other forms that Arrow takes, such as names of time zones
        Err(_) => match ScalarValue::from(text).cast_to(&micros(zone)) {
            Ok(time) if !time.is_null() => time,
            _ => {
                let compared = match beside {
                    Some(Expr::Column(column)) => format!(" to compare with `{}`", column.name),
                    _ => String::new(),
                };
                return literal_error(&format!(
                    "`{text}` is no time{compared}: write, for example, '2013-01-01T05:15:00Z', '2013-01-01 05:15' or \
                         '2013-01-01' (UTC), or now() - interval '1 day'"
                ));
            }
        },
    };
    Ok(Expr::Literal(time, None))
}
