//! Checks of a `SELECT` that need no data, and its parts as the executor uses them.
//!
//! ```text
//! SELECT derivative(mean(usage), 1m) / 2 AS rate FROM cpu WHERE time > now() - 1h GROUP BY time(1m), host
//!
//! columns     rate = #0 / 2
//! calls       #0 = derivative(mean(usage), 1m)
//! dimensions  host
//! intervals   1m
//! ```

use jiff::tz::TimeZone;

use crate::error::{Outcome, refuse};
use crate::functions::{Argument, Class, PointFunction};
use crate::syntax::{BinaryOperator, Expr, Fill, FillNumber, Select, SelectedField};
use crate::time::{Clock, Intervals, TimeBounds, split};
use crate::transform::Transformation;
use crate::value::SCALAR_FUNCTIONS;

/// Maximum number of columns of a result, wildcards expanded.
pub(crate) const COLUMNS_MAX: usize = 10_000;

/// Parts of a statement that its subqueries take over.
#[derive(Debug, Clone)]
pub(crate) struct Inherited {
    pub range: TimeBounds,
    pub dimensions: Vec<String>,
    pub intervals: Option<Intervals>,
    pub is_descending: bool,
}

/// Parts of a `SELECT`.
#[derive(Debug, Clone)]
pub(crate) struct SelectFrame {
    pub condition: Option<Expr>,
    pub range: TimeBounds,
    pub intervals: Option<Intervals>,
    /// Tags by name.
    pub dimensions: Vec<String>,
    /// Tags by `*` and regular expressions.
    pub dimension_patterns: Vec<Expr>,
    pub fill: Fill,
    pub is_descending: bool,
    pub zone: TimeZone,
    /// True if a function over points is called.
    pub has_calls: bool,
}

impl SelectFrame {
    /// Checks a statement and returns its parts.
    ///
    /// Errors: what InfluxDB refuses before it looks at data.
    pub fn new(select: &Select, now: i64, outer: Option<&Inherited>) -> Outcome<Self> {
        let zone = match &select.zone {
            // the parser has refused what does not exist
            Some(name) => TimeZone::get(name).unwrap_or(TimeZone::UTC),
            None => TimeZone::UTC,
        };
        let clock = Clock { now, zone: zone.clone() };
        if let Some(condition) = &select.condition {
            check_condition(condition)?;
        }
        let (condition, mut range) = split(select.condition.as_ref(), &clock)?;
        let has_calls = check_fields(&select.fields)?;
        let (mut intervals, mut dimensions, dimension_patterns) = dimensions(&select.dimensions, &clock)?;
        let mut fill = select.fill.unwrap_or(Fill::Null);
        if intervals.is_some() && !has_calls {
            return refuse("GROUP BY requires at least one aggregate function");
        }
        if let Some(shown) = select.fill.filter(|fill| *fill != Fill::Null && !has_calls) {
            return refuse(format!("{} must be used with a function", fill_name(shown)));
        }
        let mut is_descending = select.is_descending;
        if let Some(outer) = outer {
            range = range.and(outer.range);
            for dimension in &outer.dimensions {
                if !dimensions.contains(dimension) {
                    dimensions.push(dimension.clone());
                }
            }
            if intervals.is_none() && has_calls {
                intervals.clone_from(&outer.intervals);
            }
            if select.is_descending && !outer.is_descending {
                return refuse("subqueries must be ordered in the same direction as the query itself");
            }
            is_descending = outer.is_descending;
            if fill == Fill::Null {
                fill = Fill::None;
            }
        }
        if intervals.is_some() && range.max == TimeBounds::ALL.max {
            range.max = now;
        }
        check_calls(&select.fields, intervals.is_some())?;
        Ok(Self {
            condition,
            range,
            intervals,
            dimensions,
            dimension_patterns,
            fill,
            is_descending,
            zone,
            has_calls,
        })
    }

    /// Returns the number that stands where one function has a point in an interval and another has none.
    pub fn missing(&self) -> Option<FillNumber> {
        match self.fill {
            Fill::Number(number) if self.intervals.is_some() => Some(number),
            _ => None,
        }
    }

    /// Returns what a subquery takes over.
    pub fn inherited(&self) -> Inherited {
        Inherited {
            range: self.range,
            dimensions: self.dimensions.clone(),
            intervals: self.intervals.clone(),
            is_descending: self.is_descending,
        }
    }
}

fn fill_name(fill: Fill) -> &'static str {
    match fill {
        Fill::Null => "fill(null)",
        Fill::None => "fill(none)",
        Fill::Previous => "fill(previous)",
        Fill::Linear => "fill(linear)",
        Fill::Number(_) => "fill(value)",
    }
}

fn check_condition(condition: &Expr) -> Outcome<()> {
    match condition {
        Expr::Paren(inner) => check_condition(inner),
        Expr::Binary(BinaryOperator::And | BinaryOperator::Or, left, right) => {
            check_condition(left)?;
            check_condition(right)
        }
        Expr::Binary(operator, left, right) if operator.is_comparison() => {
            for side in [left, right] {
                check_operand(side)?;
            }
            Ok(())
        }
        Expr::Boolean(_) => Ok(()),
        other => refuse(format!("invalid condition expression: {other}")),
    }
}

fn check_operand(side: &Expr) -> Outcome<()> {
    match side {
        Expr::Call(function, arguments) if !(function == "now" && arguments.is_empty()) => {
            refuse(format!("invalid function call in condition: {side}"))
        }
        Expr::Binary(operator, left, right) => {
            if !operator.is_arithmetic() {
                return refuse(format!("invalid condition expression: {side}"));
            }
            // in SQL they name their operands twice, so that a long chain of them would be an endless text
            let is_simple = matches!(right.bare(), Expr::Name(..) | Expr::Integer(_) | Expr::Float(_));
            let is_twice = matches!(operator, BinaryOperator::Divide | BinaryOperator::Modulo) && !is_simple;
            if *operator == BinaryOperator::BitXor || is_twice {
                return refuse(format!(
                    "`{side}` in a condition is not supported: select it in a subquery, and compare its column"
                ));
            }
            check_operand(left)?;
            check_operand(right)
        }
        Expr::Paren(inner) => check_operand(inner),
        Expr::Wildcard(_) | Expr::Distinct(_) => refuse(format!("invalid condition expression: {side}")),
        _ => Ok(()),
    }
}

/// Returns intervals, names and patterns of `GROUP BY`.
fn dimensions(dimensions: &[Expr], clock: &Clock) -> Outcome<(Option<Intervals>, Vec<String>, Vec<Expr>)> {
    let (mut intervals, mut names, mut patterns) = (None, vec![], vec![]);
    for dimension in dimensions {
        match dimension.bare() {
            Expr::Name(name, _) if name == "time" => {
                return refuse("time() is a function and expects at least one argument");
            }
            Expr::Name(name, _) => {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            pattern @ (Expr::Wildcard(_) | Expr::Regex(_)) => patterns.push(pattern.clone()),
            Expr::Call(function, _) if function != "time" => {
                return refuse("only time() calls allowed in dimensions");
            }
            Expr::Call(_, arguments) => {
                if intervals.is_some() {
                    return refuse("multiple time dimensions not allowed");
                }
                intervals = Some(intervals_of(arguments, clock)?);
            }
            _ => return refuse("only time and tag dimensions allowed"),
        }
    }
    Ok((intervals.flatten(), names, patterns))
}

/// Returns the intervals of `time(duration, offset)`; none for a duration of 0.
fn intervals_of(arguments: &[Expr], clock: &Clock) -> Outcome<Option<Intervals>> {
    if arguments.is_empty() || arguments.len() > 2 {
        return refuse("time dimension expected 1 or 2 arguments");
    }
    let Expr::Duration(duration) = *arguments[0].bare() else {
        return refuse("time dimension must have duration argument");
    };
    if duration == 0 {
        return Ok(None);
    }
    let offset = match arguments.get(1).map(Expr::bare) {
        None => 0,
        Some(Expr::Duration(offset)) => offset.wrapping_rem(duration),
        Some(Expr::Call(function, arguments)) if function == "now" && arguments.is_empty() => {
            clock.now % duration
        }
        Some(Expr::Text(text)) => match crate::time::parse(text, &clock.zone) {
            Some(time) => time % duration,
            None => return refuse("time dimension offset must be duration or now()"),
        },
        Some(_) => return refuse("time dimension offset must be duration or now()"),
    };
    if duration < 0 || duration % 1000 != 0 || offset % 1000 != 0 {
        return refuse(format!(
            "time({}) is not supported: times have microseconds, so the interval has to be a positive number of them",
            crate::print::duration(duration)
        ));
    }
    Ok(Some(Intervals { duration, offset, zone: clock.zone.clone() }))
}

/// Checks the columns. Returns whether one calls a function over points.
fn check_fields(fields: &[SelectedField]) -> Outcome<bool> {
    let is_time = |field: &&SelectedField| matches!(field.expr.bare(), Expr::Name(name, _) if name == "time");
    if fields.iter().all(|field| is_time(&field)) {
        return refuse("at least 1 non-time field must be queried");
    }
    let (mut calls, mut names, mut points, mut selectors) = (0_usize, 0_usize, None, 0_usize);
    for field in fields.iter().filter(|field| !is_time(field)) {
        let mut parts = Parts::default();
        collect(&field.expr, &mut parts)?;
        if parts.calls.is_empty() && parts.names == 0 {
            return refuse("field must contain at least one variable");
        }
        let is_bare = matches!(field.expr.bare(), Expr::Call(..) | Expr::Distinct(_));
        for (name, function) in &parts.calls {
            calls += 1;
            selectors += usize::from(matches!(function.class, Class::Selector));
            if function.class == Class::Points {
                points.get_or_insert((name.clone(), is_bare));
            }
        }
        names += parts.names;
        let has_wildcard_argument = parts.has_wildcard_argument;
        if has_wildcard_argument && !is_bare {
            return refuse(format!("unsupported expression with wildcard: {}", field.expr));
        }
    }
    if let Some((name, is_bare)) = points {
        if name == "distinct" && (calls > 1 || names > 0) {
            return refuse("aggregate function distinct() cannot be combined with other functions or fields");
        }
        if calls > 1 {
            return refuse(format!("selector function {name}() cannot be combined with other functions"));
        }
        if !is_bare {
            return refuse(format!("{name}() inside of an expression is not supported: select it by itself"));
        }
        return Ok(true);
    }
    if calls > 0 && names > 0 {
        if selectors != calls {
            return refuse("mixing aggregate and non-aggregate queries is not supported");
        }
        if calls > 1 {
            return refuse("mixing multiple selector functions with tags or fields is not supported");
        }
    }
    Ok(calls > 0)
}

/// Parts of a column.
#[derive(Default)]
struct Parts {
    /// Functions over points that are not arguments of others.
    calls: Vec<(String, &'static PointFunction)>,
    /// Names and wildcards outside of them.
    names: usize,
    has_wildcard_argument: bool,
}

fn collect(expr: &Expr, parts: &mut Parts) -> Outcome<()> {
    match expr {
        Expr::Name(..) | Expr::Wildcard(_) | Expr::Regex(_) => parts.names += 1,
        Expr::Paren(inner) => collect(inner, parts)?,
        Expr::Binary(_, left, right) => {
            if matches!(left.bare(), Expr::Wildcard(_) | Expr::Regex(_))
                || matches!(right.bare(), Expr::Wildcard(_) | Expr::Regex(_))
            {
                return refuse("unable to use wildcard in a binary expression");
            }
            collect(left, parts)?;
            collect(right, parts)?;
        }
        Expr::Distinct(_) => {
            if let Some(function) = PointFunction::of("distinct") {
                parts.calls.push(("distinct".to_owned(), function));
            }
        }
        Expr::Call(name, arguments) => {
            if let Some((_, count)) = SCALAR_FUNCTIONS.iter().find(|(known, _)| known == name) {
                if arguments.len() != *count {
                    return refuse(format!(
                        "invalid number of arguments for {name}, expected {count}, got {}",
                        arguments.len()
                    ));
                }
                return arguments.iter().try_for_each(|argument| collect(argument, parts));
            }
            let Some(function) = PointFunction::of(name) else {
                return refuse(match UNSUPPORTED_FUNCTIONS.contains(&name.as_str()) {
                    true => format!("{name}() is not supported"),
                    false => format!("undefined function {name}()"),
                });
            };
            parts.has_wildcard_argument |=
                arguments.iter().any(|argument| matches!(argument, Expr::Wildcard(_) | Expr::Regex(_)));
            parts.calls.push((name.clone(), function));
        }
        Expr::Integer(_) | Expr::Float(_) | Expr::Text(_) | Expr::Boolean(_) | Expr::Duration(_) => {}
    }
    Ok(())
}

/// Functions that InfluxDB has and that are refused by name.
const UNSUPPORTED_FUNCTIONS: &[&str] = &[
    "chande_momentum_oscillator",
    "double_exponential_moving_average",
    "exponential_moving_average",
    "histogram",
    "holt_winters",
    "holt_winters_with_fit",
    "kaufmans_adaptive_moving_average",
    "kaufmans_efficiency_ratio",
    "relative_strength_index",
    "triple_exponential_derivative",
    "triple_exponential_moving_average",
];

/// Checks the arguments of all functions over points.
fn check_calls(fields: &[SelectedField], has_intervals: bool) -> Outcome<()> {
    for field in fields {
        let mut calls = vec![];
        outermost_calls(&field.expr, &mut calls);
        for call in calls {
            PointCall::new(call, has_intervals)?;
        }
    }
    Ok(())
}

/// Adds the calls of functions over points that are not arguments of others.
pub(crate) fn outermost_calls<'e>(expr: &'e Expr, calls: &mut Vec<&'e Expr>) {
    match expr {
        Expr::Call(name, arguments) if SCALAR_FUNCTIONS.iter().any(|(known, _)| known == name) => {
            arguments.iter().for_each(|argument| outermost_calls(argument, calls));
        }
        Expr::Call(..) | Expr::Distinct(_) => calls.push(expr),
        Expr::Paren(inner) => outermost_calls(inner, calls),
        Expr::Binary(_, left, right) => {
            outermost_calls(left, calls);
            outermost_calls(right, calls);
        }
        _ => {}
    }
}

/// Call of a function over points, with checked arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PointCall {
    /// Function of the values of a field.
    Base {
        function: String,
        /// Name, or a wildcard before it is expanded.
        field: Expr,
        argument: Argument,
        /// Unit of an integral in nanoseconds.
        unit: i64,
        /// Tags of `top` and `bottom`.
        tags: Vec<String>,
    },
    /// Function of the points of a field.
    OfField { transformation: Transformation, name: String, field: Expr },
    /// Function of another function's points.
    OfCall { transformation: Transformation, inner: Box<PointCall> },
}

const SECOND: i64 = 1_000_000_000;

impl PointCall {
    /// Checks a call.
    ///
    /// Errors: arguments that the function does not take.
    pub fn new(expr: &Expr, has_intervals: bool) -> Outcome<Self> {
        let (name, arguments) = match expr {
            Expr::Call(name, arguments) => (name.as_str(), arguments.as_slice()),
            Expr::Distinct(field) => {
                return Ok(Self::base("distinct", Expr::Name(field.clone(), None)));
            }
            other => return refuse(format!("{other} is not a function")),
        };
        let Some(function) = PointFunction::of(name) else {
            return refuse(format!("undefined function {name}()"));
        };
        let (least, most) = function.arguments;
        let found = arguments.len();
        if name == "distinct" && found != 1 {
            return refuse(match found {
                0 => "distinct function requires at least one argument",
                _ => "distinct function can only have one argument",
            });
        }
        if found < least || found > most {
            let expected = match (least, most) {
                (least, usize::MAX) => format!("at least {least}"),
                (least, most) if least == most => least.to_string(),
                // as InfluxDB counts them
                (least, most) => format!("at least {least} but no more than {most}"),
            };
            return refuse(format!(
                "invalid number of arguments for {name}, expected {expected}, got {found}"
            ));
        }
        if function.class == Class::Transformation {
            return Self::transformation(name, arguments, has_intervals);
        }
        Self::of_field(name, arguments)
    }

    fn base(function: &str, field: Expr) -> Self {
        Self::Base {
            function: function.to_owned(),
            field,
            argument: Argument::default(),
            unit: SECOND,
            tags: vec![],
        }
    }

    fn of_field(name: &str, arguments: &[Expr]) -> Outcome<Self> {
        let field = match (name, &arguments[0]) {
            ("distinct", Expr::Wildcard(_) | Expr::Regex(_)) => {
                return refuse("expected field argument in distinct()");
            }
            (_, field @ (Expr::Name(..) | Expr::Wildcard(_) | Expr::Regex(_))) => field.clone(),
            ("count", Expr::Distinct(field)) => {
                return Ok(Self::base("count distinct", Expr::Name(field.clone(), None)));
            }
            ("count", inner @ Expr::Call(function, _)) if function == "distinct" => {
                let Self::Base { field, .. } = Self::new(inner, false)? else {
                    return refuse("expected field argument in distinct()");
                };
                return Ok(Self::base("count distinct", field));
            }
            _ => return refuse(format!("expected field argument in {name}()")),
        };
        let mut call = Self::base(name, field);
        let Self::Base { argument, unit, tags, .. } = &mut call else { return Ok(call) };
        match name {
            "percentile" => match arguments[1] {
                Expr::Integer(number) => argument.number = number as f64,
                Expr::Float(number) => argument.number = number,
                _ => return refuse("expected float argument in percentile()"),
            },
            "integral" => match arguments.get(1) {
                None => {}
                Some(Expr::Duration(duration)) if *duration > 0 => *unit = *duration,
                Some(Expr::Duration(_)) => return refuse("duration argument must be positive"),
                Some(_) => return refuse("second argument must be a duration"),
            },
            "sample" => match arguments[1] {
                Expr::Integer(number) if number > 0 => argument.number = number as f64,
                Expr::Integer(number) => {
                    return refuse(format!("sample window must be greater than 1, got {number}"));
                }
                _ => return refuse("expected integer argument in sample()"),
            },
            "top" | "bottom" => {
                let last = &arguments[arguments.len() - 1];
                let Expr::Integer(number) = *last else {
                    return refuse(format!("expected integer as last argument in {name}(), found {last}"));
                };
                if number < 1 {
                    return refuse(format!("limit ({number}) in {name} function must be at least 1"));
                }
                argument.number = number as f64;
                for tag in &arguments[1..arguments.len() - 1] {
                    let Expr::Name(tag, _) = tag else {
                        return refuse(format!("only fields or tags are allowed in {name}(), found {tag}"));
                    };
                    tags.push(tag.clone());
                }
            }
            _ => {}
        }
        Ok(call)
    }

    fn transformation(name: &str, arguments: &[Expr], has_intervals: bool) -> Outcome<Self> {
        let unit = |default: i64| match arguments.get(1) {
            None => Ok(default),
            Some(Expr::Duration(duration)) if *duration > 0 => Ok(*duration),
            Some(Expr::Duration(duration)) => {
                let shown = crate::print::duration(*duration);
                refuse(format!("duration argument must be positive, got {shown}"))
            }
            Some(other) => refuse(format!("second argument to {name} must be a duration, got {other}")),
        };
        // 0 stands for the interval of the statement, or a second without one
        let transformation = match name {
            "cumulative_sum" => Transformation::CumulativeSum,
            "derivative" => Transformation::Derivative { unit: unit(0)?, is_non_negative: false },
            "non_negative_derivative" => Transformation::Derivative { unit: unit(0)?, is_non_negative: true },
            "difference" => Transformation::Difference { is_non_negative: false },
            "non_negative_difference" => Transformation::Difference { is_non_negative: true },
            "elapsed" => Transformation::Elapsed { unit: unit(1)? },
            "moving_average" => match arguments[1] {
                Expr::Integer(number) if number > 1 => {
                    Transformation::MovingAverage { points: usize::try_from(number).unwrap_or(usize::MAX) }
                }
                Expr::Integer(number) => {
                    return refuse(format!("moving_average window must be greater than 1, got {number}"));
                }
                ref other => {
                    return refuse(format!(
                        "second argument for moving_average must be an integer, got {other}"
                    ));
                }
            },
            _ => return refuse(format!("undefined function {name}()")),
        };
        match &arguments[0] {
            Expr::Name(..) | Expr::Wildcard(_) | Expr::Regex(_) if has_intervals => {
                refuse(format!("aggregate function required inside the call to {name}"))
            }
            field @ (Expr::Name(..) | Expr::Wildcard(_) | Expr::Regex(_)) => {
                Ok(Self::OfField { transformation, name: name.to_owned(), field: field.clone() })
            }
            Expr::Call(inner, _) if SCALAR_FUNCTIONS.iter().any(|(known, _)| known == inner) => {
                refuse(format!("{inner}() inside of {name}() is not supported: use a subquery"))
            }
            inner @ (Expr::Call(..) | Expr::Distinct(_)) if has_intervals => {
                let inner = Self::new(inner, has_intervals)?;
                if let Self::Base { function, .. } = &inner
                    && PointFunction::of(function).is_some_and(|function| function.class == Class::Points)
                {
                    return refuse(format!(
                        "{function}() inside of {name}() is not supported: use a subquery"
                    ));
                }
                Ok(Self::OfCall { transformation, inner: Box::new(inner) })
            }
            Expr::Call(..) | Expr::Distinct(_) => {
                refuse(format!("{name} aggregate requires a GROUP BY interval"))
            }
            _ => refuse(format!("expected field argument in {name}()")),
        }
    }

    /// Returns the innermost function and its field.
    pub fn innermost(&self) -> (&str, &Expr) {
        match self {
            Self::Base { function, field, .. } => (function, field),
            Self::OfField { name, field, .. } => (name, field),
            Self::OfCall { inner, .. } => inner.innermost(),
        }
    }
}

/// Returns the name of a column: that of a field or function, or those in an expression joined by `_`.
pub(crate) fn column_name(expr: &Expr) -> String {
    match expr {
        Expr::Name(name, _) => name.clone(),
        Expr::Call(name, _) => name.clone(),
        Expr::Distinct(_) => "distinct".to_owned(),
        Expr::Paren(inner) => column_name(inner),
        Expr::Binary(_, left, right) => {
            let names = [column_name(left), column_name(right)];
            names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join("_")
        }
        _ => String::new(),
    }
}
