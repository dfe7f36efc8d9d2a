//! Columns of a result: wildcards expanded, names chosen, calls numbered.

use std::collections::{BTreeMap, HashMap};

use super::inputs::{Input, matching};
use super::names::NameList;
use crate::error::{Outcome, refuse};
use crate::functions::{Class, PointFunction};
use crate::plan::{COLUMNS_MAX, PointCall, SelectFrame, column_name};
use crate::series::{ResultSeries, SeriesRow};
use crate::syntax::{BinaryOperator, Cast, Expr, Select};
use crate::value::{Evaluator, InfluxValue, Kind, SCALAR_FUNCTIONS};

/// First character of the names that stand for calls in the expressions of columns. The lexer takes it in no name.
const CALL_MARK: char = '\0';

/// Maximum number of different calls of a statement.
const CALLS_MAX: usize = 1000;

/// Columns of a result.
pub(super) struct ResultColumns {
    /// Name of the column of times.
    time_name: String,
    names: Vec<String>,
    /// Expressions in which calls are replaced by their numbers.
    pub expressions: Vec<Expr>,
    pub calls: Vec<PointCall>,
    /// Names of tags and fields that the expressions have beside calls.
    pub fields: NameList,
    /// Tags of `GROUP BY`, sorted.
    pub dimensions: Vec<String>,
    evaluator: Evaluator,
}

impl ResultColumns {
    pub fn new(select: &Select, frame: &SelectFrame, inputs: &BTreeMap<String, Input<'_>>) -> Outcome<Self> {
        let mut all: BTreeMap<String, Kind> = BTreeMap::new();
        for input in inputs.values() {
            for (name, kind) in &input.columns {
                let known = all.entry(name.clone()).or_insert(*kind);
                *known = (*known).max(*kind);
            }
        }
        let mut dimensions = frame.dimensions.clone();
        for pattern in &frame.dimension_patterns {
            let tags = all.iter().filter(|(_, kind)| **kind == Kind::Tag);
            dimensions.extend(matching(pattern, tags)?.into_iter().map(|(name, _)| name.clone()));
        }
        dimensions.sort();
        dimensions.dedup();
        if let Some(name) = dimensions.iter().find(|name| all.get(*name) == Some(&Kind::Float)) {
            let name = crate::print::name(name);
            return refuse(format!(
                "GROUP BY of the float field {name} is not supported: group by tags, texts or integers"
            ));
        }

        let mut columns = Self {
            time_name: "time".to_owned(),
            names: vec![],
            expressions: vec![],
            calls: vec![],
            fields: NameList::default(),
            dimensions,
            evaluator: Evaluator::default(),
        };
        let mut named: Vec<(Option<String>, Expr)> = vec![];
        for field in &select.fields {
            columns.expand(&field.expr, field.alias.as_deref(), &all, &mut named)?;
            if named.len() > COLUMNS_MAX {
                return refuse(format!(
                    "the result has more than {COLUMNS_MAX} columns: name those that are needed"
                ));
            }
        }
        columns.names = unique_names(&named);
        for (_, expr) in named {
            let expr = columns.without_calls(expr, frame)?;
            columns.note_fields(&expr);
            columns.expressions.push(expr);
        }
        Ok(columns)
    }

    fn expand(
        &mut self,
        expr: &Expr,
        alias: Option<&str>,
        all: &BTreeMap<String, Kind>,
        named: &mut Vec<(Option<String>, Expr)>,
    ) -> Outcome<()> {
        match expr {
            Expr::Name(name, _) if name == "time" => {
                if let Some(alias) = alias {
                    self.time_name = alias.to_owned();
                }
            }
            pattern @ (Expr::Wildcard(_) | Expr::Regex(_)) => {
                let shown = all.iter().filter(|(name, _)| !self.dimensions.contains(name));
                for (name, _) in matching(pattern, shown)? {
                    named.push((None, Expr::Name(name.clone(), None)));
                }
            }
            Expr::Call(function, arguments) => {
                let mut pattern = arguments.first();
                let mut innermost = function.as_str();
                while let Some(Expr::Call(inner, arguments)) = pattern {
                    innermost = inner;
                    pattern = arguments.first();
                }
                let (Some(pattern @ (Expr::Wildcard(_) | Expr::Regex(_))), Some(known)) =
                    (pattern, PointFunction::of(innermost))
                else {
                    named.push((alias.map(str::to_owned), expr.clone()));
                    if let "top" | "bottom" = function.as_str() {
                        // further tags become columns
                        let tags = arguments.iter().skip(1).filter(|tag| matches!(tag, Expr::Name(..)));
                        named.extend(tags.map(|tag| (None, tag.clone())));
                    }
                    return Ok(());
                };
                let fields = all.iter().filter(|(_, kind)| known.accepts.kind(**kind));
                for (name, _) in matching(pattern, fields)? {
                    let column = format!("{}_{name}", alias.unwrap_or(function));
                    named.push((Some(column), with_field(expr, name)));
                }
            }
            other => named.push((alias.map(str::to_owned), other.clone())),
        }
        Ok(())
    }

    /// Replaces the calls of functions over points by their numbers.
    fn without_calls(&mut self, expr: Expr, frame: &SelectFrame) -> Outcome<Expr> {
        Ok(match expr {
            Expr::Call(name, arguments) if SCALAR_FUNCTIONS.iter().any(|(known, _)| *known == name) => {
                let arguments = arguments.into_iter().map(|argument| self.without_calls(argument, frame));
                Expr::Call(name, arguments.collect::<Outcome<_>>()?)
            }
            call @ (Expr::Call(..) | Expr::Distinct(_)) => {
                let call = PointCall::new(&call, frame.intervals.is_some())?;
                let number = match self.calls.iter().position(|known| *known == call) {
                    Some(number) => number,
                    None if self.calls.len() == CALLS_MAX => {
                        return refuse(format!("the statement calls more than {CALLS_MAX} functions"));
                    }
                    None => {
                        self.calls.push(call);
                        self.calls.len() - 1
                    }
                };
                Expr::Name(format!("{CALL_MARK}{number}"), None)
            }
            Expr::Paren(inner) => Expr::Paren(Box::new(self.without_calls(*inner, frame)?)),
            Expr::Binary(operator, left, right) => Expr::Binary(
                operator,
                Box::new(self.without_calls(*left, frame)?),
                Box::new(self.without_calls(*right, frame)?),
            ),
            other => other,
        })
    }

    fn note_fields(&mut self, expr: &Expr) {
        expr.walk(&mut |part| {
            if let Expr::Name(name, _) = part
                && !name.starts_with(CALL_MARK)
            {
                self.fields.add(name);
            }
        });
    }

    /// Checks that the operands of calculations have kinds that go together.
    pub fn check_types(&self, input: &Input<'_>) -> Outcome<()> {
        self.expressions.iter().try_for_each(|expr| kind_of(expr, input).map(drop))
    }

    /// Returns the values of a row. `calls` are those of the calls, `field` returns the value of a tag or field.
    pub fn values(
        &self,
        calls: &[Option<InfluxValue>],
        field: &dyn Fn(&str) -> Option<InfluxValue>,
    ) -> Vec<Option<InfluxValue>> {
        let values = self.expressions.iter().map(|expr| {
            self.evaluator.value(expr, &|name, cast| {
                let value = match name.strip_prefix(CALL_MARK) {
                    Some(number) => calls.get(number.parse::<usize>().ok()?)?.clone(),
                    None => field(name),
                };
                match cast {
                    Some(cast) => value?.cast(cast),
                    None => value,
                }
            })
        });
        values.collect()
    }

    /// Returns a series of the result.
    pub fn series(&self, input: &Input<'_>, key: Vec<String>, rows: Vec<SeriesRow>) -> ResultSeries {
        let mut columns = vec![self.time_name.clone()];
        columns.extend(self.names.iter().cloned());
        let tags = self.dimensions.iter().cloned().zip(key).collect();
        ResultSeries { name: input.name.clone(), tags, columns, rows, zone: jiff::tz::TimeZone::UTC }
    }

    /// Returns whether the only call selects a point, whose time is the one of the row.
    pub fn is_one_selector(&self) -> bool {
        let [call] = self.calls.as_slice() else { return false };
        matches!(call, PointCall::Base { function, .. } if PointFunction::of(function).is_some_and(|f| f.class == Class::Selector))
    }
}

fn with_field(expr: &Expr, field: &str) -> Expr {
    match expr {
        Expr::Call(function, arguments) => {
            let mut arguments = arguments.clone();
            if let Some(first) = arguments.first_mut() {
                *first = with_field(first, field);
            }
            Expr::Call(function.clone(), arguments)
        }
        _ => Expr::Name(field.to_owned(), None),
    }
}

/// Returns the names of columns: aliases as they are, others with a number where they occur again.
fn unique_names(named: &[(Option<String>, Expr)]) -> Vec<String> {
    let mut counts: HashMap<String, usize> =
        named.iter().filter_map(|(alias, _)| alias.clone()).map(|alias| (alias, 1)).collect();
    let mut names = Vec::with_capacity(named.len());
    for (alias, expr) in named {
        if let Some(alias) = alias {
            names.push(alias.clone());
            continue;
        }
        let mut name = column_name(expr);
        if let Some(count) = counts.get(&name).copied() {
            let mut count = count;
            while counts.contains_key(&format!("{name}_{count}")) {
                count += 1;
            }
            counts.insert(name.clone(), count + 1);
            name = format!("{name}_{count}");
        }
        counts.insert(name.clone(), 1);
        names.push(name);
    }
    names
}

/// Returns the kind of an expression; `None` where it is not known.
///
/// Errors: kinds that no operator takes together.
fn kind_of(expr: &Expr, input: &Input<'_>) -> Outcome<Option<Kind>> {
    Ok(match expr {
        Expr::Name(name, None) => input.columns.get(name).copied(),
        Expr::Integer(_) | Expr::Duration(_) => Some(Kind::Integer),
        Expr::Float(_) => Some(Kind::Float),
        Expr::Text(_) => Some(Kind::Text),
        Expr::Boolean(_) => Some(Kind::Boolean),
        Expr::Paren(inner) => kind_of(inner, input)?,
        Expr::Binary(operator, left, right) => {
            let (Some(a), Some(b)) = (kind_of(left, input)?, kind_of(right, input)?) else { return Ok(None) };
            let is_bitwise =
                matches!(operator, BinaryOperator::BitAnd | BinaryOperator::BitOr | BinaryOperator::BitXor);
            match (a, b) {
                (Kind::Integer, Kind::Integer) if *operator == BinaryOperator::Divide => Some(Kind::Float),
                (Kind::Integer, Kind::Integer) => Some(Kind::Integer),
                (Kind::Boolean, Kind::Boolean) if is_bitwise => Some(Kind::Boolean),
                (a, b) if a.is_number() && b.is_number() && !is_bitwise => Some(Kind::Float),
                (a, b) => {
                    return refuse(format!(
                        "type error: {}: incompatible types: {} and {}",
                        with_kinds(expr, input),
                        a.name(),
                        b.name()
                    ));
                }
            }
        }
        Expr::Call(..) => Some(Kind::Float),
        _ => None,
    })
}

/// Returns an expression in which each name has its kind, as errors show it.
fn with_kinds(expr: &Expr, input: &Input<'_>) -> Expr {
    match expr {
        Expr::Name(name, None) => {
            let cast = input.columns.get(name).map(|kind| match kind {
                Kind::Tag => Cast::Tag,
                Kind::Boolean => Cast::Boolean,
                Kind::Text => Cast::String,
                Kind::Integer => Cast::Integer,
                Kind::Float => Cast::Float,
            });
            Expr::Name(name.clone(), cast)
        }
        Expr::Paren(inner) => Expr::Paren(Box::new(with_kinds(inner, input))),
        Expr::Binary(operator, left, right) => {
            Expr::Binary(*operator, Box::new(with_kinds(left, input)), Box::new(with_kinds(right, input)))
        }
        other => other.clone(),
    }
}
