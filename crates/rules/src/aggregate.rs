//! Aggregate rules: SQL over all partitions whose result rows become documents.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::types::{TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType};
use arrow_array::types::{TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};
use tidemill_lang::Span;
use tidemill_types::{Duration, Error, Result, Timestamp};

use crate::expr::eval::append;
use crate::expr::{ExprType, RuleValue};

/// A rule that queries whole streams or entities and writes the results as documents.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Name, unique among the rules and aggregates of the app.
    pub name: String,
    /// Interval between runs; `None` if the rule runs only on demand.
    pub every: Option<Duration>,
    /// Length of the stream's history to read, in event time; `None` for all of it.
    pub over: Option<Duration>,
    /// Stream or entity of the first condition.
    pub source: String,
    /// All streams that the rule reads.
    pub streams: Vec<String>,
    /// All entities that the rule reads.
    pub collections: Vec<String>,
    /// Kinds of documents that the rule writes, at least one.
    pub inserts: Vec<AggregateInsert>,
    /// Span of the whole rule in its source.
    pub span: Span,
}

/// Documents of one entity that an aggregate rule writes, one for each row of a query.
#[derive(Debug, Clone)]
pub struct AggregateInsert {
    /// Name of the target entity.
    pub entity: String,
    /// Field whose value is the document's `_id`.
    pub key: String,
    /// Query text without the lower bound on event time.
    pub(crate) sql: String,
    /// Byte offset in `sql` at which the earliest event time is inserted, and how long before now that time
    /// is.
    pub(crate) since: Option<(usize, Duration)>,
    pub(crate) fields: Vec<(Arc<str>, FieldLayout)>,
}

/// Mapping of the columns of a result row to a field of a document.
#[derive(Debug, Clone)]
pub(crate) enum FieldLayout {
    /// The value of one column, read as the given type.
    Column(usize, ExprType),
    /// A nested document.
    Object(Vec<(Arc<str>, FieldLayout)>),
    /// An array.
    Array(Vec<FieldLayout>),
}

impl AggregateInsert {
    /// Returns the query to run at `now`. It has one column for each value, of the types that
    /// [`Self::document`] reads.
    pub fn sql_at(&self, now: Timestamp) -> String {
        let mut sql = self.sql.clone();
        if let Some((at, over)) = self.since {
            sql.insert_str(at, &now.0.saturating_sub(over.0).to_string());
        }
        sql
    }

    /// Builds the document for a row of the result, including its `_id`. Returns `None` if the key is
    /// missing.
    ///
    /// Times become dates, spans become milliseconds, and nulls are left out. Errors: `Internal` for a column
    /// whose type is not the one that the query declares.
    pub fn document(&self, batch: &RecordBatch, row: usize) -> Result<Option<RawDocumentBuf>> {
        let mut doc = RawDocumentBuf::new();
        let Some((_, key)) = self.fields.iter().find(|(name, _)| name.as_ref() == self.key) else {
            return Ok(None);
        };
        match value(key, batch, row)? {
            Some(RawBson::Null) | None => return Ok(None),
            Some(id) => append(&mut doc, "_id", id),
        }
        for (name, shape) in self.fields.iter().filter(|(name, _)| name.as_ref() != "_id") {
            if let Some(value) = value(shape, batch, row)? {
                append(&mut doc, name, value);
            }
        }
        Ok(Some(doc))
    }
}

fn value(shape: &FieldLayout, batch: &RecordBatch, row: usize) -> Result<Option<RawBson>> {
    Ok(match shape {
        FieldLayout::Column(column, ty) => {
            if *column >= batch.num_columns() {
                return Err(Error::internal(format!(
                    "internal error: the result has {} columns, the rule refers to column {column}",
                    batch.num_columns()
                )));
            }
            scalar(batch.column(*column).as_ref(), row, *ty)?.to_raw_bson()
        }
        FieldLayout::Object(fields) => {
            let mut doc = RawDocumentBuf::new();
            for (name, shape) in fields {
                if let Some(value) = value(shape, batch, row)? {
                    append(&mut doc, name, value);
                }
            }
            Some(RawBson::Document(doc))
        }
        FieldLayout::Array(items) => {
            let mut array = RawArrayBuf::new();
            for item in items {
                if let Some(value) = value(item, batch, row)? {
                    array.push(value);
                }
            }
            Some(RawBson::Array(array))
        }
    })
}

/// Reads the value in `row` as `ty`.
fn scalar(array: &dyn Array, row: usize, ty: ExprType) -> Result<RuleValue<'_>> {
    if array.is_null(row) {
        return Ok(RuleValue::Missing);
    }
    let wrong = || {
        Error::internal(format!(
            "internal error: expected {ty}, found a column of type {}",
            array.data_type()
        ))
    };
    let whole = integer(array, row);
    Ok(match (ty, array.data_type()) {
        (ExprType::Time, _) => RuleValue::Time(whole.ok_or_else(wrong)?),
        (ExprType::Span, _) => RuleValue::Span(whole.ok_or_else(wrong)?),
        (_, DataType::Boolean) => RuleValue::Bool(array.as_boolean().value(row)),
        (_, DataType::Utf8) => RuleValue::str(array.as_string::<i32>().value(row)),
        (_, DataType::LargeUtf8) => RuleValue::str(array.as_string::<i64>().value(row)),
        (_, DataType::Utf8View) => RuleValue::str(array.as_string_view().value(row)),
        (_, DataType::Float32) => RuleValue::Float(array.as_primitive::<Float32Type>().value(row).into()),
        (_, DataType::Float64) => RuleValue::Float(array.as_primitive::<Float64Type>().value(row)),
        (_, DataType::Timestamp(..)) => RuleValue::Time(micros(array, row).ok_or_else(wrong)?),
        _ => RuleValue::Int(whole.ok_or_else(wrong)?),
    })
}

fn integer(array: &dyn Array, row: usize) -> Option<i64> {
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => i64::try_from(array.as_primitive::<UInt64Type>().value(row)).ok()?,
        DataType::Timestamp(..) => micros(array, row)?,
        _ => return None,
    })
}

fn micros(array: &dyn Array, row: usize) -> Option<i64> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => {
            array.as_primitive::<TimestampSecondType>().value(row).checked_mul(1_000_000)
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().value(row).checked_mul(1000)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Some(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Some(array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1000))
        }
        _ => None,
    }
}
