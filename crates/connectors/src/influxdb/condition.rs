//! Conditions as InfluxQL: what it evaluates as SiddhiQL does, and a reason for what it does not.
//!
//! InfluxQL has no negation, no test for a field that is null, no order of texts, and times only as bounds of the whole
//! statement. Comparisons with null are false in SiddhiQL; in InfluxQL a point without a tag has an empty one.

use tidemill_connect::{StoreComparison, StoreExpr, TypedValue, is_missing};
use tidemill_types::{Error, FieldType, Result, Value};

use super::layout::{Layout, Part, TIME_MS_MAX, identifier, literal};
use super::text_of;

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InfluxCondition {
    Always,
    Never,
    /// A text of InfluxQL.
    Test {
        text: String,
        has_fields: bool,
        has_time: bool,
    },
}

/// Columns of the table and the values of one event.
pub(super) struct Translation<'t> {
    pub layout: &'t Layout,
    pub parameters: &'t [TypedValue],
}

impl InfluxCondition {
    /// Returns what stands behind `WHERE`, empty for all points; `None` if no point satisfies it.
    pub(super) fn filter(&self) -> Option<String> {
        match self {
            Self::Always => Some(String::new()),
            Self::Never => None,
            Self::Test { text, .. } => Some(text.clone()),
        }
    }

    /// Returns whether it reads fields.
    pub(super) fn has_fields(&self) -> bool {
        matches!(self, Self::Test { has_fields: true, .. })
    }

    fn has_time(&self) -> bool {
        matches!(self, Self::Test { has_time: true, .. })
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, other) | (other, Self::Always) => other,
            (Self::Never, _) | (_, Self::Never) => Self::Never,
            (one, other) => one.joined("AND", &other),
        }
    }

    fn or(self, other: Self) -> Result<Self> {
        match (self, other) {
            (Self::Never, other) | (other, Self::Never) => Ok(other),
            (Self::Always, _) | (_, Self::Always) => Ok(Self::Always),
            (one, other) if one.has_time() || other.has_time() => {
                Err(refused("a condition of `time` cannot be one side of `or`"))
            }
            (one, other) => Ok(one.joined("OR", &other)),
        }
    }

    fn joined(&self, word: &str, other: &Self) -> Self {
        let text = |of: &Self| match of {
            Self::Test { text, has_time: true, .. } => text.clone(),
            Self::Test { text, .. } => format!("({text})"),
            _ => String::new(),
        };
        Self::Test {
            text: format!("{} {word} {}", text(self), text(other)),
            has_fields: self.has_fields() || other.has_fields(),
            has_time: self.has_time() || other.has_time(),
        }
    }
}

impl Translation<'_> {
    /// Translates a condition.
    ///
    /// Errors: `Invalid`, what InfluxDB does not evaluate.
    pub(super) fn condition(&self, x: &StoreExpr) -> Result<InfluxCondition> {
        self.signed(x, true)
    }

    /// Translates a condition, or its negation.
    fn signed(&self, x: &StoreExpr, is_positive: bool) -> Result<InfluxCondition> {
        Ok(match x {
            StoreExpr::And(left, right) | StoreExpr::Or(left, right) => {
                let (left, right) = (self.signed(left, is_positive)?, self.signed(right, is_positive)?);
                match matches!(x, StoreExpr::And(..)) == is_positive {
                    true => left.and(right),
                    false => left.or(right)?,
                }
            }
            StoreExpr::Not(inner) => self.signed(inner, !is_positive)?,
            StoreExpr::Parameter(parameter) => {
                let holds = matches!(self.parameters.get(*parameter), Some((_, Value::Bool(true))));
                if holds == is_positive { InfluxCondition::Always } else { InfluxCondition::Never }
            }
            StoreExpr::Column(column) => {
                self.compare(StoreComparison::Eq, *column, &Value::Bool(true), is_positive)?
            }
            StoreExpr::IsNull(inner) => match &**inner {
                StoreExpr::Column(column) => self.is_null(*column, is_positive)?,
                StoreExpr::Parameter(parameter) => {
                    let is_null = self.parameters.get(*parameter).is_none_or(|(_, value)| is_missing(value));
                    if is_null == is_positive { InfluxCondition::Always } else { InfluxCondition::Never }
                }
                _ => return Err(refused("`is null` of a computed value")),
            },
            StoreExpr::Compare(operator, left, right) => match (&**left, &**right) {
                (StoreExpr::Column(column), StoreExpr::Parameter(parameter)) => {
                    self.compare(*operator, *column, &self.parameter(*parameter), is_positive)?
                }
                (StoreExpr::Parameter(parameter), StoreExpr::Column(column)) => {
                    self.compare(operator.mirrored(), *column, &self.parameter(*parameter), is_positive)?
                }
                _ => return Err(refused("a comparison of two columns, or of a computed value")),
            },
            StoreExpr::Arithmetic(..) => return Err(refused("arithmetic")),
        })
    }

    fn parameter(&self, parameter: usize) -> Value<'static> {
        self.parameters.get(parameter).map_or(Value::Missing, |(_, value)| value.clone())
    }

    fn is_null(&self, column: usize, is_positive: bool) -> Result<InfluxCondition> {
        let name = identifier(self.layout.name(column));
        match self.layout.part(column) {
            Part::Time if is_positive => Ok(InfluxCondition::Never),
            Part::Time => Ok(InfluxCondition::Always),
            Part::Tag => {
                let operator = if is_positive { "=" } else { "!=" };
                Ok(InfluxCondition::Test {
                    text: format!("{name} {operator} ''"),
                    has_fields: false,
                    has_time: false,
                })
            }
            Part::Field => Err(refused("`is null` of a column without an index")),
        }
    }

    fn compare(
        &self,
        operator: StoreComparison,
        column: usize,
        value: &Value<'static>,
        is_positive: bool,
    ) -> Result<InfluxCondition> {
        if is_missing(value) {
            return Ok(if is_positive { InfluxCondition::Never } else { InfluxCondition::Always });
        }
        match self.layout.part(column) {
            Part::Time => time(if is_positive { operator } else { negated(operator) }, value),
            Part::Tag => self.tag(operator, column, value, is_positive),
            Part::Field if is_positive => self.field(operator, column, value),
            Part::Field => {
                Err(refused("`not` of a comparison with a column without an index, which may be null"))
            }
        }
    }

    fn tag(
        &self,
        operator: StoreComparison,
        column: usize,
        value: &Value<'static>,
        is_positive: bool,
    ) -> Result<InfluxCondition> {
        let name = identifier(self.layout.name(column));
        // a number is the same tag only if it is whole
        let text = literal(&match value {
            Value::Float(x) if x.fract() == 0.0 => (*x as i64).to_string(),
            value => text_of(value),
        });
        let text = match (operator, is_positive) {
            (StoreComparison::Eq, true) => format!("{name} = {text}"),
            (StoreComparison::Eq, false) => format!("{name} != {text}"),
            (StoreComparison::Ne, true) => format!("{name} != {text} AND {name} != ''"),
            (StoreComparison::Ne, false) => format!("{name} = {text} OR {name} = ''"),
            _ => {
                return Err(refused(
                    "an order of columns with an index, which are tags; only `==` and `!=` are",
                ));
            }
        };
        Ok(InfluxCondition::Test { text, has_fields: false, has_time: false })
    }

    fn field(
        &self,
        operator: StoreComparison,
        column: usize,
        value: &Value<'static>,
    ) -> Result<InfluxCondition> {
        let is_order = !matches!(operator, StoreComparison::Eq | StoreComparison::Ne);
        let value = match (value, self.layout.ty(column)) {
            (Value::Str(text), FieldType::String) if !is_order => literal(text),
            (Value::Bool(flag), FieldType::Bool) if !is_order => flag.to_string(),
            (Value::Str(_) | Value::Bool(_), _) if is_order => return Err(refused("an order of texts")),
            (Value::Int(n), FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double) => {
                n.to_string()
            }
            (Value::Float(x), FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double)
                if x.is_finite() =>
            {
                // with a point, which makes it a float for InfluxQL
                format!("{x:?}").replace("e", "E")
            }
            // of another type, which nothing equals
            _ => return Ok(InfluxCondition::Never),
        };
        if value.contains('E') {
            return Err(refused("a number that is written with an exponent"));
        }
        let text = format!("{} {} {value}", identifier(self.layout.name(column)), operator_of(operator));
        Ok(InfluxCondition::Test { text, has_fields: true, has_time: false })
    }
}

fn time(operator: StoreComparison, value: &Value<'static>) -> Result<InfluxCondition> {
    let Value::Int(ms) = value else {
        return Err(refused("a comparison of `time` with anything but milliseconds"));
    };
    if operator == StoreComparison::Ne {
        return Err(refused("`!=` with `time`"));
    }
    if ms.abs() > TIME_MS_MAX {
        return Err(refused(&format!("the time {ms}, which is outside of what it has")));
    }
    let text = format!("time {} {ms}ms", operator_of(operator));
    Ok(InfluxCondition::Test { text, has_fields: false, has_time: true })
}

fn refused(what: &str) -> Error {
    Error::invalid(format!("InfluxDB does not evaluate {what}"))
}

fn operator_of(operator: StoreComparison) -> &'static str {
    match operator {
        StoreComparison::Eq => "=",
        StoreComparison::Ne => "!=",
        StoreComparison::Lt => "<",
        StoreComparison::Le => "<=",
        StoreComparison::Gt => ">",
        StoreComparison::Ge => ">=",
    }
}

fn negated(operator: StoreComparison) -> StoreComparison {
    match operator {
        StoreComparison::Eq => StoreComparison::Ne,
        StoreComparison::Ne => StoreComparison::Eq,
        StoreComparison::Lt => StoreComparison::Ge,
        StoreComparison::Le => StoreComparison::Gt,
        StoreComparison::Gt => StoreComparison::Le,
        StoreComparison::Ge => StoreComparison::Lt,
    }
}
