//! SQL of scans and aggregations.
//!
//! ```text
//! SELECT mean(usage) FROM cpu WHERE host = 'a' AND time >= T GROUP BY time(1m), region
//!
//! SELECT time_bucket('60000000 microseconds', "_time", timestamp '1970-01-01T00:00:00.000000Z'), "region", avg("usage")
//! FROM events."cpu" WHERE "_time" >= T AND "host" = 'a' GROUP BY 1, 2
//! ```
//!
//! A tag that is missing is an empty text in InfluxQL and null in the table; a comparison of different types is false.

use tidemill_types::FieldType;

use crate::catalog::{Column, Measurement};
use crate::pattern;
use crate::rows::{AggregateFunction, AggregateScan, RowScan};
use crate::syntax::{BinaryOperator, Cast, Expr};
use crate::time::{TIME_MAX, TIME_MIN, TimeBounds};
use crate::value::Kind;

const TIME: &str = "\"_time\"";

/// Returns the statement of a scan. Its first column is the time.
pub(crate) fn scan(scan: &RowScan<'_>) -> String {
    let measurement = scan.measurement;
    let mut columns = vec![TIME.to_owned()];
    columns.extend(scan.columns.iter().map(|column| name(&measurement.columns[*column].name)));
    let direction = if scan.is_descending { " DESC" } else { "" };
    let mut order = vec![format!("{TIME}{direction}")];
    order.extend(measurement.tags().map(|tag| {
        let nulls = if scan.is_descending { " DESC NULLS LAST" } else { " NULLS FIRST" };
        format!("{}{nulls}", name(&measurement.columns[tag].name))
    }));
    let limit = scan.limit.map_or_else(String::new, |limit| format!(" LIMIT {limit}"));
    format!(
        "SELECT {} FROM {}{} ORDER BY {}{limit}",
        columns.join(", "),
        table(measurement),
        filter(measurement, scan.condition, scan.range, &scan.any_of),
        order.join(", ")
    )
}

/// Returns the statement for the different values of columns.
pub(crate) fn distinct(scan: &RowScan<'_>) -> String {
    let measurement = scan.measurement;
    let columns: Vec<String> =
        scan.columns.iter().map(|column| tag_text(&measurement.columns[*column])).collect();
    let places: Vec<String> = (1..=columns.len()).map(|place| place.to_string()).collect();
    let limit = scan.limit.map_or_else(String::new, |limit| format!(" LIMIT {limit}"));
    format!(
        "SELECT DISTINCT {} FROM {}{} ORDER BY {}{limit}",
        columns.join(", "),
        table(measurement),
        filter(measurement, scan.condition, scan.range, &scan.any_of),
        places.join(", ")
    )
}

/// Returns the statement of an aggregation: the dimensions, the start of the interval if there are some, then each aggregate
/// and perhaps the time of its point.
pub(crate) fn aggregation(aggregation: &AggregateScan<'_>) -> String {
    let measurement = aggregation.measurement;
    let mut columns: Vec<String> = aggregation
        .dimensions
        .iter()
        .map(|dimension| {
            dimension.map_or_else(|| "''".to_owned(), |column| tag_text(&measurement.columns[column]))
        })
        .collect();
    if let Some(intervals) = aggregation.intervals {
        let origin = time(intervals.offset.rem_euclid(intervals.duration));
        columns.push(format!(
            "time_bucket('{} microseconds', {TIME}, timestamp {origin})",
            intervals.duration / 1000
        ));
    }
    let groups: Vec<String> = (1..=columns.len()).map(|place| place.to_string()).collect();
    for aggregate in &aggregation.aggregates {
        let column = &measurement.columns[aggregate.column];
        let value = name(&column.name);
        let filter = format!("FILTER (WHERE {value} IS NOT NULL)");
        // of points of one time InfluxDB takes the larger value, of booleans `false` for the first
        let first = if column.kind == Kind::Boolean { "ASC" } else { "DESC" };
        let (text, order) = match aggregate.function {
            AggregateFunction::Count => (format!("count({value})"), String::new()),
            AggregateFunction::CountDistinct => (format!("count(DISTINCT {value})"), String::new()),
            AggregateFunction::Sum => (format!("sum({value})"), String::new()),
            AggregateFunction::Mean => (format!("avg({value})"), String::new()),
            AggregateFunction::Median => (format!("median(CAST({value} AS DOUBLE))"), String::new()),
            AggregateFunction::Spread => (format!("max({value}) - min({value})"), String::new()),
            AggregateFunction::Stddev => (
                format!("CASE WHEN count({value}) = 1 THEN CAST('NaN' AS DOUBLE) ELSE stddev({value}) END"),
                String::new(),
            ),
            AggregateFunction::Min => (format!("min({value})"), format!("{value} ASC, {TIME} ASC")),
            AggregateFunction::Max => (format!("max({value})"), format!("{value} DESC, {TIME} ASC")),
            AggregateFunction::First => {
                let order = format!("{TIME} ASC, {value} {first}");
                (format!("first_value({value} ORDER BY {order}) {filter}"), order)
            }
            AggregateFunction::Last => {
                let order = format!("{TIME} DESC, {value} DESC");
                (format!("first_value({value} ORDER BY {order}) {filter}"), order)
            }
        };
        columns.push(text);
        if aggregate.has_time {
            columns.push(format!("first_value({TIME} ORDER BY {order}) {filter}"));
        }
    }
    let mut text = format!(
        "SELECT {} FROM {}{}",
        columns.join(", "),
        table(measurement),
        filter(measurement, aggregation.condition, aggregation.range, &[])
    );
    if !groups.is_empty() {
        text.push_str(&format!(" GROUP BY {}", groups.join(", ")));
    }
    text
}

fn table(measurement: &Measurement) -> String {
    format!("events.{}", name(&measurement.name))
}

fn filter(
    measurement: &Measurement,
    condition: Option<&Expr>,
    range: TimeBounds,
    any_of: &[usize],
) -> String {
    let mut parts = vec![];
    if range.min > TIME_MIN {
        parts.push(format!("{TIME} >= {}", time_up(range.min)));
    }
    if range.max < TIME_MAX {
        parts.push(format!("{TIME} <= {}", time(range.max)));
    }
    if !any_of.is_empty() {
        let names =
            any_of.iter().map(|column| format!("{} IS NOT NULL", name(&measurement.columns[*column].name)));
        let names: Vec<String> = names.collect();
        parts.push(if names.len() == 1 { names.concat() } else { format!("({})", names.join(" OR ")) });
    }
    if let Some(condition) = condition {
        let (text, precedence) = truth(measurement, condition);
        parts.push(if precedence < AND { format!("({text})") } else { text });
    }
    if parts.is_empty() { String::new() } else { format!(" WHERE {}", parts.join(" AND ")) }
}

const OR: u8 = 1;
const AND: u8 = 2;
const ATOM: u8 = 3;

/// Returns a condition with its precedence.
fn truth(measurement: &Measurement, condition: &Expr) -> (String, u8) {
    match condition.bare() {
        Expr::Binary(operator @ (BinaryOperator::And | BinaryOperator::Or), left, right) => {
            let (word, precedence) =
                if *operator == BinaryOperator::And { (" AND ", AND) } else { (" OR ", OR) };
            let side = |side: &Expr| {
                let (text, found) = truth(measurement, side);
                if found < precedence { format!("({text})") } else { text }
            };
            (format!("{}{word}{}", side(left), side(right)), precedence)
        }
        Expr::Binary(operator @ (BinaryOperator::Matches | BinaryOperator::MatchesNot), left, right) => {
            let Expr::Regex(pattern) = right.bare() else { return falsehood() };
            matching(measurement, left.bare(), pattern, *operator == BinaryOperator::MatchesNot)
        }
        Expr::Binary(operator, left, right) if operator.is_comparison() => {
            comparison(measurement, *operator, left.bare(), right.bare())
        }
        Expr::Boolean(value) => (value.to_string(), ATOM),
        expr @ Expr::Name(..)
            if operand(measurement, expr).is_some_and(|found| found.kind == Some(Kind::Boolean)) =>
        {
            (operand(measurement, expr).map(|found| found.text).unwrap_or_default(), ATOM)
        }
        _ => falsehood(),
    }
}

fn falsehood() -> (String, u8) {
    ("false".to_owned(), ATOM)
}

/// Condition with a regular expression. A tag that is missing is an empty text, and so is a name that does not exist.
fn matching(measurement: &Measurement, left: &Expr, pattern: &str, is_not: bool) -> (String, u8) {
    let Expr::Name(found, cast) = left else { return falsehood() };
    let matches_empty = pattern::compile(pattern).is_ok_and(|pattern| pattern.is_match("")) != is_not;
    let column = measurement.column(found).map(|column| &measurement.columns[column]);
    let Some(column) = column.filter(|column| cast_fits(column, *cast)) else {
        return (matches_empty.to_string(), ATOM);
    };
    let test = format!("{} {} {}", as_text(column), if is_not { "!~" } else { "~" }, text(pattern));
    match column.kind {
        Kind::Tag if matches_empty => (format!("{test} OR {} IS NULL", name(&column.name)), OR),
        Kind::Tag | Kind::Text => (test, ATOM),
        _ => falsehood(),
    }
}

fn cast_fits(column: &Column, cast: Option<Cast>) -> bool {
    match cast {
        None => true,
        Some(Cast::Tag) => column.kind == Kind::Tag,
        Some(Cast::Field) => column.kind != Kind::Tag,
        Some(Cast::String) => matches!(column.kind, Kind::Text | Kind::Tag),
        Some(Cast::Boolean) => column.kind == Kind::Boolean,
        Some(Cast::Float | Cast::Integer) => column.kind.is_number(),
    }
}

fn comparison(
    measurement: &Measurement,
    operator: BinaryOperator,
    left: &Expr,
    right: &Expr,
) -> (String, u8) {
    // a tag, or a name that does not exist, beside a text
    for (found, other, operator) in [(left, right, operator), (right, left, operator.mirrored())] {
        if let (Expr::Name(found, cast), Expr::Text(value)) = (found, other) {
            let column = measurement.column(found).map(|column| &measurement.columns[column]);
            let column = column.filter(|column| cast_fits(column, *cast));
            if column.is_none_or(|column| column.kind == Kind::Tag) {
                return tag_comparison(column, operator, value);
            }
        }
    }
    let (Some(left), Some(right)) = (operand(measurement, left), operand(measurement, right)) else {
        return falsehood();
    };
    let fits = match (left.kind, right.kind) {
        (Some(a), Some(b)) if a.is_number() && b.is_number() => true,
        (Some(Kind::Boolean), Some(Kind::Boolean))
        | (Some(Kind::Text | Kind::Tag), Some(Kind::Text | Kind::Tag)) => {
            matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual)
        }
        _ => false,
    };
    if !fits {
        return falsehood();
    }
    let symbol = if operator == BinaryOperator::NotEqual { "<>" } else { operator.symbol() };
    (format!("{} {symbol} {}", left.bracketed(), right.bracketed()), ATOM)
}

fn tag_comparison(column: Option<&Column>, operator: BinaryOperator, value: &str) -> (String, u8) {
    let is_not = match operator {
        BinaryOperator::Equal => false,
        BinaryOperator::NotEqual => true,
        _ => return falsehood(),
    };
    let Some(column) = column else { return (((value.is_empty()) != is_not).to_string(), ATOM) };
    let (quoted, value_text) = (name(&column.name), text(value));
    match (value.is_empty(), is_not) {
        (true, false) => (format!("{quoted} IS NULL OR {quoted} = ''"), OR),
        (false, true) => (format!("{quoted} <> {value_text} OR {quoted} IS NULL"), OR),
        (_, false) => (format!("{quoted} = {value_text}"), ATOM),
        (_, true) => (format!("{quoted} <> ''"), ATOM),
    }
}

/// Operand of a comparison.
struct Operand {
    text: String,
    kind: Option<Kind>,
    is_atom: bool,
}

impl Operand {
    fn atom(text: String, kind: Kind) -> Option<Self> {
        Some(Self { text, kind: Some(kind), is_atom: true })
    }

    fn bracketed(&self) -> String {
        if self.is_atom { self.text.clone() } else { format!("({})", self.text) }
    }
}

/// Returns the SQL of an operand; `None` if it is null in every row.
fn operand(measurement: &Measurement, expr: &Expr) -> Option<Operand> {
    match expr.bare() {
        Expr::Name(found, cast) => {
            let column = &measurement.columns[measurement.column(found)?];
            if !cast_fits(column, *cast) {
                return None;
            }
            let quoted = name(&column.name);
            match (column.kind, cast) {
                (Kind::Integer, Some(Cast::Float)) => {
                    Operand::atom(format!("CAST({quoted} AS DOUBLE)"), Kind::Float)
                }
                (Kind::Float, Some(Cast::Integer)) => {
                    Operand::atom(format!("CAST({quoted} AS BIGINT)"), Kind::Integer)
                }
                (Kind::Tag, _) => Operand::atom(format!("coalesce({}, '')", as_text(column)), Kind::Tag),
                (Kind::Text, _) => Operand::atom(as_text(column), Kind::Text),
                (kind, _) => Operand::atom(quoted, kind),
            }
        }
        Expr::Integer(value) | Expr::Duration(value) => Operand::atom(value.to_string(), Kind::Integer),
        Expr::Float(value) => Operand::atom(float(*value), Kind::Float),
        Expr::Text(value) => Operand::atom(text(value), Kind::Text),
        Expr::Boolean(value) => Operand::atom(value.to_string(), Kind::Boolean),
        Expr::Binary(operator, left, right) if operator.is_arithmetic() => {
            let (left, right) = (operand(measurement, left)?, operand(measurement, right)?);
            arithmetic(*operator, &left, &right)
        }
        _ => None,
    }
}

fn arithmetic(operator: BinaryOperator, left: &Operand, right: &Operand) -> Option<Operand> {
    let (a, b) = (left.bracketed(), right.bracketed());
    let kinds = (left.kind?, right.kind?);
    if kinds == (Kind::Boolean, Kind::Boolean) {
        let text = match operator {
            BinaryOperator::BitAnd => format!("({a} AND {b})"),
            BinaryOperator::BitOr => format!("({a} OR {b})"),
            BinaryOperator::BitXor => format!("({a} <> {b})"),
            _ => return None,
        };
        return Operand::atom(text, Kind::Boolean);
    }
    if !(kinds.0.is_number() && kinds.1.is_number()) {
        return None;
    }
    let is_whole = kinds == (Kind::Integer, Kind::Integer);
    let kind = if is_whole { Kind::Integer } else { Kind::Float };
    let (text, kind, is_atom) = match operator {
        BinaryOperator::Add | BinaryOperator::Subtract | BinaryOperator::Multiply => {
            (format!("{a} {} {b}", operator.symbol()), kind, false)
        }
        // in conditions integers divide to whole numbers
        BinaryOperator::Divide if is_whole => {
            (format!("CASE WHEN {b} = 0 THEN 0 ELSE {a} / {b} END"), kind, false)
        }
        BinaryOperator::Divide => {
            (format!("CASE WHEN {b} = 0 THEN 0.0 ELSE CAST({a} AS DOUBLE) / {b} END"), Kind::Float, false)
        }
        BinaryOperator::Modulo => (format!("CASE WHEN {b} = 0 THEN 0 ELSE {a} % {b} END"), kind, false),
        BinaryOperator::BitAnd if is_whole => (format!("{a} & {b}"), kind, false),
        BinaryOperator::BitOr if is_whole => (format!("{a} | {b}"), kind, false),
        _ => return None,
    };
    Some(Operand { text, kind: Some(kind), is_atom })
}

/// Returns a column as a text.
fn as_text(column: &Column) -> String {
    let quoted = name(&column.name);
    match column.stored {
        FieldType::String | FieldType::Object => quoted,
        _ => format!("CAST({quoted} AS VARCHAR)"),
    }
}

/// Returns a column as a text that is empty where it is null.
fn tag_text(column: &Column) -> String {
    format!("coalesce({}, '')", as_text(column))
}

/// Returns a name in quotes.
fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a text in quotes.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn float(value: f64) -> String {
    if value.is_finite() {
        format!("CAST('{value:?}' AS DOUBLE)")
    } else {
        "CAST('Infinity' AS DOUBLE)".to_owned()
    }
}

/// Returns a time of nanoseconds as a text with microseconds; what is finer is cut off.
fn time(nanoseconds: i64) -> String {
    let micros = nanoseconds.div_euclid(1000);
    let instant = jiff::Timestamp::from_microsecond(micros).unwrap_or_default();
    format!("'{}'", instant.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"))
}

/// Returns the first microsecond that does not lie before a time.
fn time_up(nanoseconds: i64) -> String {
    let rest = nanoseconds.rem_euclid(1000);
    time(if rest == 0 { nanoseconds } else { nanoseconds + (1000 - rest) })
}
