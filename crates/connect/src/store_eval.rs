//! Values of expressions for one row, for stores whose other side does not evaluate them.

use std::cmp::Ordering;

use arrow_array::RecordBatch;
use arrow_schema::DataType;
use tidemill_types::{FieldType, Value};

use crate::store::{StoreArithmetic, StoreComparison, StoreExpr};
use crate::store_row::values;

/// Value with its type, which decides about arithmetic.
pub type TypedValue = (FieldType, Value<'static>);

/// The row and the parameters of an expression.
pub struct RowScope<'s> {
    /// Types of the columns.
    pub types: &'s [FieldType],
    /// Values of the columns; empty for an expression that reads none.
    pub row: &'s [Value<'static>],
    /// Values of the parameters.
    pub parameters: &'s [TypedValue],
}

impl RowScope<'_> {
    /// Returns whether a condition holds.
    pub fn holds(&self, condition: &StoreExpr) -> bool {
        matches!(self.value(condition).1, Value::Bool(true))
    }

    /// Returns the value of an expression. What cannot be computed, such as a division by zero, has none.
    pub fn value(&self, x: &StoreExpr) -> TypedValue {
        let is = |condition: bool| (FieldType::Bool, Value::Bool(condition));
        match x {
            StoreExpr::Column(column) => {
                let ty = self.types.get(*column).copied().unwrap_or(FieldType::String);
                (ty, self.row.get(*column).cloned().unwrap_or(Value::Missing))
            }
            StoreExpr::Parameter(parameter) => {
                self.parameters.get(*parameter).cloned().unwrap_or((FieldType::String, Value::Missing))
            }
            StoreExpr::Compare(operator, left, right) => {
                is(compare(*operator, &self.value(left).1, &self.value(right).1))
            }
            StoreExpr::Arithmetic(operator, left, right) => {
                arithmetic(*operator, &self.value(left), &self.value(right))
            }
            StoreExpr::And(left, right) => is(self.holds(left) && self.holds(right)),
            StoreExpr::Or(left, right) => is(self.holds(left) || self.holds(right)),
            StoreExpr::Not(inner) => is(!self.holds(inner)),
            StoreExpr::IsNull(inner) => is(is_missing(&self.value(inner).1)),
        }
    }
}

/// Returns true if the value is missing or null.
pub fn is_missing(value: &Value<'_>) -> bool {
    matches!(value, Value::Missing | Value::Null)
}

/// Returns whether a comparison holds; not if a value is missing or the types differ.
fn compare(operator: StoreComparison, left: &Value<'_>, right: &Value<'_>) -> bool {
    let order = match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Float(b)) => (*a as f64).partial_cmp(b),
        (Value::Float(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
        _ => return false,
    };
    match operator {
        StoreComparison::Eq => order == Some(Ordering::Equal),
        StoreComparison::Ne => order != Some(Ordering::Equal),
        StoreComparison::Lt => order == Some(Ordering::Less),
        StoreComparison::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        StoreComparison::Gt => order == Some(Ordering::Greater),
        StoreComparison::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn arithmetic(operator: StoreArithmetic, left: &TypedValue, right: &TypedValue) -> TypedValue {
    let has = |ty: FieldType| left.0 == ty || right.0 == ty;
    let ty = [FieldType::Double, FieldType::Float, FieldType::Long].into_iter().find(|ty| has(*ty));
    let ty = ty.unwrap_or(FieldType::Int);
    let value = match (&left.1, &right.1) {
        (Value::Int(a), Value::Int(b)) if matches!(ty, FieldType::Int | FieldType::Long) => {
            let result = integers(operator, *a, *b);
            result.map(|n| Value::Int(if ty == FieldType::Int { i64::from(n as i32) } else { n }))
        }
        (a, b) => float(a).zip(float(b)).map(|(a, b)| {
            let result = match ty {
                FieldType::Float => f64::from(floats(operator, a, b) as f32),
                _ => floats(operator, a, b),
            };
            Value::Float(result)
        }),
    };
    (ty, value.unwrap_or(Value::Missing))
}

/// Computes as Java does: without overflow errors. A division by zero has no result.
fn integers(operator: StoreArithmetic, a: i64, b: i64) -> Option<i64> {
    match operator {
        StoreArithmetic::Add => Some(a.wrapping_add(b)),
        StoreArithmetic::Sub => Some(a.wrapping_sub(b)),
        StoreArithmetic::Mul => Some(a.wrapping_mul(b)),
        StoreArithmetic::Div => (b != 0).then(|| a.wrapping_div(b)),
        StoreArithmetic::Rem => (b != 0).then(|| a.wrapping_rem(b)),
    }
}

fn floats(operator: StoreArithmetic, a: f64, b: f64) -> f64 {
    match operator {
        StoreArithmetic::Add => a + b,
        StoreArithmetic::Sub => a - b,
        StoreArithmetic::Mul => a * b,
        StoreArithmetic::Div => a / b,
        StoreArithmetic::Rem => a % b,
    }
}

fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    }
}

/// Returns the values of parameters with their types, for each row.
pub fn typed_values(batch: &RecordBatch) -> Vec<Vec<TypedValue>> {
    let types: Vec<FieldType> =
        batch.schema().fields().iter().map(|field| field_type(field.data_type())).collect();
    let rows = 0..batch.num_rows();
    rows.map(|row| types.iter().copied().zip(values(batch, row)).collect()).collect()
}

fn field_type(ty: &DataType) -> FieldType {
    match ty {
        DataType::Boolean => FieldType::Bool,
        DataType::Int32 => FieldType::Int,
        DataType::Int64 => FieldType::Long,
        DataType::Float32 => FieldType::Float,
        DataType::Float64 => FieldType::Double,
        DataType::Timestamp(..) => FieldType::Time,
        _ => FieldType::String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(x: &StoreExpr) -> String {
        let types = [FieldType::Int, FieldType::Double, FieldType::String];
        let row = [Value::Int(7), Value::Missing, Value::Str("a".into())];
        let parameters = [
            (FieldType::Int, Value::Int(2)),
            (FieldType::Float, Value::Float(0.5)),
            (FieldType::Long, Value::Int(0)),
        ];
        RowScope { types: &types, row: &row, parameters: &parameters }.value(x).1.to_string()
    }

    #[test]
    fn expressions_have_the_values_of_siddhi() {
        use StoreArithmetic::{Add, Div, Mul};
        let column = |n| Box::new(StoreExpr::Column(n));
        let parameter = |n| Box::new(StoreExpr::Parameter(n));
        let compare = |op, a, b| StoreExpr::Compare(op, a, b);
        assert_eq!(of(&StoreExpr::Arithmetic(Div, column(0), parameter(0))), "3");
        assert_eq!(of(&StoreExpr::Arithmetic(Mul, column(0), parameter(1))), "3.5");
        assert_eq!(of(&StoreExpr::Arithmetic(Div, column(0), parameter(2))), "missing");
        assert_eq!(of(&StoreExpr::Arithmetic(Add, column(0), column(1))), "missing");
        assert_eq!(of(&compare(StoreComparison::Gt, column(0), parameter(1))), "true");
        // comparisons with null are false, so their negation is true
        assert_eq!(of(&compare(StoreComparison::Ne, column(1), parameter(1))), "false");
        let equal = compare(StoreComparison::Eq, column(1), parameter(1));
        assert_eq!(of(&StoreExpr::Not(Box::new(equal))), "true");
        assert_eq!(of(&StoreExpr::IsNull(column(1))), "true");
        assert_eq!(of(&compare(StoreComparison::Eq, column(2), parameter(0))), "false");
        let max =
            StoreExpr::Arithmetic(Mul, Box::new(StoreExpr::Arithmetic(Mul, column(0), column(0))), column(0));
        assert_eq!(of(&max), "343");
    }
}
