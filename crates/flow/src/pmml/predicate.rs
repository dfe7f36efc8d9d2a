//! Conditions of nodes and segments, in three-valued logic: a missing value makes a comparison unknown.

use super::field::{DataField, FieldValue, field_of};
use super::xml::Element;

/// Names of the elements of conditions.
pub(super) const NAMES: [&str; 5] =
    ["True", "False", "SimplePredicate", "SimpleSetPredicate", "CompoundPredicate"];

#[derive(Debug)]
pub(super) enum Predicate {
    Always(bool),
    Compare {
        field: usize,
        operator: Operator,
        value: FieldValue,
    },
    IsMissing {
        field: usize,
        missing: bool,
    },
    Among {
        field: usize,
        inside: bool,
        values: Vec<FieldValue>,
    },
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
    /// Exclusive or: true if an odd number of them holds.
    Odd(Vec<Predicate>),
    /// The first that is not unknown.
    Surrogate(Vec<Predicate>),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Predicate {
    /// Reads the condition of a node or segment.
    pub(super) fn of(parent: &Element, fields: &[DataField]) -> Result<Self, String> {
        let found = parent.children.iter().find(|child| NAMES.contains(&child.name.as_str()));
        Self::read(found.ok_or_else(|| parent.wrong("expected a condition such as <True/>"))?, fields)
    }

    fn read(element: &Element, fields: &[DataField]) -> Result<Self, String> {
        let field = || field_of(element, element.required("field")?, fields);
        Ok(match element.name.as_str() {
            "True" => Self::Always(true),
            "False" => Self::Always(false),
            "SimplePredicate" => {
                let field = field()?;
                let operator = match element.required("operator")? {
                    "isMissing" => return Ok(Self::IsMissing { field, missing: true }),
                    "isNotMissing" => return Ok(Self::IsMissing { field, missing: false }),
                    "equal" => Operator::Equal,
                    "notEqual" => Operator::NotEqual,
                    "lessThan" => Operator::Less,
                    "lessOrEqual" => Operator::LessOrEqual,
                    "greaterThan" => Operator::Greater,
                    "greaterOrEqual" => Operator::GreaterOrEqual,
                    other => return Err(element.wrong(&format!("the operator `{other}`"))),
                };
                let value = fields[field].kind.constant(element, element.required("value")?)?;
                if matches!(value, FieldValue::Text(_))
                    && !matches!(operator, Operator::Equal | Operator::NotEqual)
                {
                    return Err(
                        element.wrong("strings have no order: expected the operator equal or notEqual")
                    );
                }
                Self::Compare { field, operator, value }
            }
            "SimpleSetPredicate" => {
                let field = field()?;
                let inside = match element.required("booleanOperator")? {
                    "isIn" => true,
                    "isNotIn" => false,
                    other => return Err(element.wrong(&format!("the operator `{other}`"))),
                };
                let array = element.child("Array").ok_or_else(|| element.wrong("expected <Array>"))?;
                let kind = fields[field].kind;
                let values =
                    words(array)?.iter().map(|word| kind.constant(array, word)).collect::<Result<_, _>>()?;
                Self::Among { field, inside, values }
            }
            "CompoundPredicate" => {
                let parts = element.children.iter().filter(|child| child.name != "Extension");
                let parts = parts.map(|part| Self::read(part, fields)).collect::<Result<Vec<_>, _>>()?;
                match element.required("booleanOperator")? {
                    "and" => Self::All(parts),
                    "or" => Self::Any(parts),
                    "xor" => Self::Odd(parts),
                    "surrogate" => Self::Surrogate(parts),
                    other => return Err(element.wrong(&format!("the operator `{other}`"))),
                }
            }
            _ => return Err(element.wrong("is no condition")),
        })
    }

    /// Returns whether the condition holds; `None` if that is unknown.
    pub(super) fn holds(&self, row: &[FieldValue]) -> Option<bool> {
        match self {
            Self::Always(holds) => Some(*holds),
            Self::IsMissing { field, missing } => Some((row[*field] == FieldValue::Missing) == *missing),
            Self::Compare { field, operator, value } => match (&row[*field], value) {
                (FieldValue::Missing, _) => None,
                (cell, value) => Some(operator.holds(cell, value)),
            },
            Self::Among { field, inside, values } => match &row[*field] {
                FieldValue::Missing => None,
                cell => Some(values.contains(cell) == *inside),
            },
            Self::All(parts) => decided(parts, row, false),
            Self::Any(parts) => decided(parts, row, true),
            Self::Odd(parts) => parts.iter().try_fold(false, |odd, part| Some(odd ^ part.holds(row)?)),
            Self::Surrogate(parts) => parts.iter().find_map(|part| part.holds(row)),
        }
    }
}

/// Returns `decides` if a part is that, else unknown if a part is unknown.
fn decided(parts: &[Predicate], row: &[FieldValue], decides: bool) -> Option<bool> {
    let mut unknown = false;
    for part in parts {
        match part.holds(row) {
            Some(holds) if holds == decides => return Some(decides),
            Some(_) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(!decides) }
}

impl Operator {
    fn holds(self, cell: &FieldValue, value: &FieldValue) -> bool {
        let order = match (cell, value) {
            (FieldValue::Number(a), FieldValue::Number(b)) => a.partial_cmp(b),
            (FieldValue::Text(a), FieldValue::Text(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match self {
            Self::Equal => order.is_some_and(|order| order.is_eq()),
            Self::NotEqual => !order.is_some_and(|order| order.is_eq()),
            Self::Less => order.is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => order.is_some_and(|order| order.is_le()),
            Self::Greater => order.is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => order.is_some_and(|order| order.is_ge()),
        }
    }
}

/// Returns the values of an array: words, or strings in double quotes.
fn words(array: &Element) -> Result<Vec<String>, String> {
    let (mut words, mut rest) = (vec![], array.text.trim_start());
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (mut word, mut chars, mut closed) = (String::new(), quoted.char_indices(), None);
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' if quoted[at + 1..].starts_with('"') => {
                        word.push('"');
                        chars.next();
                    }
                    '"' => {
                        closed = Some(at + 1);
                        break;
                    }
                    c => word.push(c),
                }
            }
            let end = closed.ok_or_else(|| array.wrong("a string without its closing quote"))?;
            words.push(word);
            rest = quoted[end..].trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
    }
    match array.attribute("n").map(|n| n.trim().parse::<usize>()) {
        None => Ok(words),
        Some(Ok(n)) if n == words.len() => Ok(words),
        Some(_) => Err(array.wrong(&format!("`n` is not the number of its {} values", words.len()))),
    }
}
