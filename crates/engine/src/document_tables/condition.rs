//! Filters that find the documents whose rows may satisfy a condition.
//!
//! A filter only narrows the search, by the `_id` and by indexes: the rows that it finds are compared with the whole
//! condition, so it may find too many, never too few.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use tidemill_connect::{StoreComparison, StoreExpr, TypedValue, is_missing};
use tidemill_types::{FieldType, Value};

use super::layout::{Layout, WHOLE_MAX};

/// Returns the filter of a condition with these parameters; `None` if any document may satisfy it.
pub fn filter_of(condition: &StoreExpr, parameters: &[TypedValue], layout: &Layout) -> Option<Document> {
    if layout.key.len() > 1
        && let Some(id) = whole_key(condition, parameters, layout)
    {
        return Some(doc! { "_id": { "$eq": id } });
    }
    match condition {
        StoreExpr::Compare(operator, left, right) => match (&**left, &**right) {
            (StoreExpr::Column(column), StoreExpr::Parameter(parameter)) => {
                compare(*operator, *column, parameters.get(*parameter)?, layout)
            }
            (StoreExpr::Parameter(parameter), StoreExpr::Column(column)) => {
                compare(operator.mirrored(), *column, parameters.get(*parameter)?, layout)
            }
            _ => None,
        },
        StoreExpr::And(left, right) => {
            match (filter_of(left, parameters, layout), filter_of(right, parameters, layout)) {
                (Some(left), Some(right)) => Some(doc! { "$and": [left, right] }),
                (one, other) => one.or(other),
            }
        }
        StoreExpr::Or(left, right) => {
            let (left, right) = (filter_of(left, parameters, layout)?, filter_of(right, parameters, layout)?);
            Some(doc! { "$or": [left, right] })
        }
        _ => None,
    }
}

/// Returns the `_id` of a key of several columns, if the condition says what each of them equals.
fn whole_key(condition: &StoreExpr, parameters: &[TypedValue], layout: &Layout) -> Option<Document> {
    let mut id = Document::new();
    for column in &layout.key {
        let (ty, value) = equal_to(condition, *column, parameters)?;
        let of_column = layout.types.get(*column)?;
        // a string may stand for an id of another type
        if is_missing(value) || *of_column == FieldType::String && object_id(value).is_some() {
            return None;
        }
        if *ty != *of_column && matches!(value, Value::Float(_)) {
            return None;
        }
        id.insert(layout.name(*column), layout.bson(*column, value).ok()?);
    }
    Some(id)
}

/// Returns what a condition wants a column to equal.
fn equal_to<'p>(
    condition: &StoreExpr,
    column: usize,
    parameters: &'p [TypedValue],
) -> Option<&'p TypedValue> {
    match condition {
        StoreExpr::And(left, right) => {
            equal_to(left, column, parameters).or_else(|| equal_to(right, column, parameters))
        }
        StoreExpr::Compare(StoreComparison::Eq, left, right) => match (&**left, &**right) {
            (StoreExpr::Column(of), StoreExpr::Parameter(parameter))
            | (StoreExpr::Parameter(parameter), StoreExpr::Column(of))
                if *of == column =>
            {
                parameters.get(*parameter)
            }
            _ => None,
        },
        _ => None,
    }
}

fn compare(
    operator: StoreComparison,
    column: usize,
    (_, value): &TypedValue,
    layout: &Layout,
) -> Option<Document> {
    let name = match operator {
        StoreComparison::Eq => "$eq",
        StoreComparison::Lt => "$lt",
        StoreComparison::Le => "$lte",
        StoreComparison::Gt => "$gt",
        StoreComparison::Ge => "$gte",
        StoreComparison::Ne => return None,
    };
    let is_equal = operator == StoreComparison::Eq;
    let values: Vec<Bson> = match (layout.types.get(column)?, value) {
        (FieldType::Bool, Value::Bool(b)) if is_equal => vec![Bson::Boolean(*b)],
        (FieldType::Int, Value::Int(n)) => vec![Bson::Int64(*n)],
        (FieldType::Double, Value::Int(n)) if n.abs() <= WHOLE_MAX => vec![Bson::Int64(*n)],
        // a long may be stored as a date
        (FieldType::Long, Value::Int(n)) => vec![Bson::Int64(*n), Bson::DateTime(DateTime::from_millis(*n))],
        // not of a float, which is rounded when it is read
        (FieldType::Int | FieldType::Double, Value::Float(x)) if x.is_finite() => vec![Bson::Double(*x)],
        (FieldType::String, Value::Str(text)) if is_equal => {
            let id = object_id(value).map(Bson::ObjectId);
            std::iter::once(Bson::String(text.to_string())).chain(id).collect()
        }
        _ => return None,
    };
    let path = layout.path(column);
    let mut branches: Vec<Document> = Vec::with_capacity(values.len());
    if is_equal && values.len() > 1 {
        return Some(doc! { path: { "$in": values } });
    }
    for value in values {
        branches.push(doc! { path.as_str(): { name: value } });
    }
    match branches.len() {
        1 => branches.pop(),
        _ => Some(doc! { "$or": branches }),
    }
}

fn object_id(value: &Value<'_>) -> Option<ObjectId> {
    match value {
        Value::Str(text) if text.len() == 24 => ObjectId::parse_str(&**text).ok(),
        _ => None,
    }
}
