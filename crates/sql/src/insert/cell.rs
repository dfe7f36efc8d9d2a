//! Cells of `VALUES`.

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    CastKind, DataType, Expr, TimezoneInfo, UnaryOperator, Value as Literal, visit_expressions,
};
use tidemill_database::Parameter;
use tidemill_types::decode::CellValue;
use tidemill_types::{Error, FieldType, Result, Value};

/// A cell of `VALUES`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ValuesCell {
    /// `DEFAULT`, or null: the event has no such field.
    Missing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// `$1` is 1.
    Parameter(usize),
    /// A cast to the type of a field, which adds nothing if the cell is for a field of this type.
    Cast(Box<ValuesCell>, FieldType, Vec<usize>),
    /// Another expression, with the parameters in it.
    Expression(Vec<usize>),
}

impl ValuesCell {
    /// Returns what an expression is.
    pub fn of(expr: &Expr) -> Self {
        Self::plain(expr).unwrap_or_else(|| Self::Expression(parameters(expr)))
    }

    fn plain(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Identifier(name)
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("DEFAULT") =>
            {
                Some(Self::Missing)
            }
            Expr::Nested(inner) => Self::plain(inner),
            Expr::Value(value) => match &value.value {
                Literal::Null => Some(Self::Missing),
                Literal::Boolean(value) => Some(Self::Bool(*value)),
                Literal::Number(digits, _) => number(digits),
                Literal::SingleQuotedString(text)
                | Literal::EscapedStringLiteral(text)
                | Literal::UnicodeStringLiteral(text)
                | Literal::NationalStringLiteral(text) => Some(Self::Text(text.clone())),
                Literal::DollarQuotedString(text) => Some(Self::Text(text.value.clone())),
                Literal::Placeholder(name) => parameter(name).map(Self::Parameter),
                _ => None,
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
                Expr::Value(value) => match &value.value {
                    Literal::Number(digits, _) => number(&format!("-{digits}")),
                    _ => None,
                },
                _ => None,
            },
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type,
                array: false,
                ..
            } => {
                let ty = field_type(data_type)?;
                match Self::plain(inner)? {
                    Self::Missing => Some(Self::Missing),
                    // a cast of a number may round it
                    inner @ (Self::Text(_) | Self::Parameter(_)) => {
                        Some(Self::Cast(Box::new(inner), ty, parameters(expr)))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns the cell without a cast to the type of its field; `None` for an expression, which a cast to another type is.
    pub fn for_field(&self, ty: FieldType) -> Option<&Self> {
        match self {
            Self::Cast(inner, cast, _) => (*cast == ty).then_some(inner.as_ref()),
            Self::Expression(_) => None,
            other => Some(other),
        }
    }

    /// Returns the numbers of the parameters in the cell.
    pub fn parameters(&self) -> &[usize] {
        match self {
            Self::Parameter(number) => std::slice::from_ref(number),
            Self::Cast(_, _, numbers) | Self::Expression(numbers) => numbers,
            _ => &[],
        }
    }
}

/// Returns the numbers of the parameters in an expression, each once.
fn parameters(expr: &Expr) -> Vec<usize> {
    let mut found = Vec::new();
    let _ = visit_expressions(expr, |expr| {
        if let Expr::Value(value) = expr
            && let Literal::Placeholder(name) = &value.value
            && let Some(number) = parameter(name)
            && !found.contains(&number)
        {
            found.push(number);
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

fn parameter(name: &str) -> Option<usize> {
    name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)
}

fn number(digits: &str) -> Option<ValuesCell> {
    match digits.parse() {
        Ok(whole) => Some(ValuesCell::Int(whole)),
        Err(_) => digits.parse().ok().filter(|number: &f64| number.is_finite()).map(ValuesCell::Float),
    }
}

/// Returns the type of fields that have exactly the values of a type of SQL.
fn field_type(ty: &DataType) -> Option<FieldType> {
    Some(match ty {
        DataType::Bool | DataType::Boolean => FieldType::Bool,
        DataType::Int(None) | DataType::Integer(None) | DataType::Int4(None) => FieldType::Int,
        DataType::BigInt(None) | DataType::Int8(None) => FieldType::Long,
        DataType::Real | DataType::Float4 => FieldType::Float,
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float8 => FieldType::Double,
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) => FieldType::String,
        DataType::Timestamp(None, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => FieldType::Time,
        DataType::JSON | DataType::JSONB => FieldType::Object,
        _ => return None,
    })
}

/// Returns a text as a value of a field: a literal has no type of its own.
pub(super) fn text_cell(text: &str, ty: FieldType) -> CellValue<'_> {
    match ty {
        FieldType::String | FieldType::Time => CellValue::Text(text),
        FieldType::Object => CellValue::Json(text),
        _ => CellValue::Untyped(text.trim()),
    }
}

/// Returns the value of a parameter as a value of a field; `None` for null.
///
/// Errors: `Invalid` for a document or a list.
pub(super) fn value_cell<'v>(
    number: usize,
    value: &'v Parameter,
    ty: FieldType,
) -> Result<Option<CellValue<'v>>> {
    let value = match value {
        Parameter::Value(value) => value,
        Parameter::List(_) => {
            return Err(Error::invalid(format!(
                "parameter ${number}: fields of streams have no lists: expected a value, found {value}"
            )));
        }
    };
    Ok(Some(match value {
        Value::Missing | Value::Null => return Ok(None),
        Value::Bool(value) => CellValue::Bool(*value),
        Value::Int(value) => CellValue::Int(*value),
        Value::Float(value) => CellValue::Float(*value),
        Value::Str(text) => text_cell(text, ty),
        Value::Time(time) => CellValue::Time(*time),
        Value::Bson(_) => {
            return Err(Error::invalid(format!(
                "parameter ${number}: expected a text, a number, true, false, a time or null, found a document or an array"
            )));
        }
    }))
}
