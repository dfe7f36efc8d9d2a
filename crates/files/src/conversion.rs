//! Conversion of Arrow columns, as files and callers have them, to the declared fields of a stream.
//!
//! Whether a column can be read as a field depends on the types; whether a value fits, on the value. A column that cannot be
//! read refuses its file or batch, and a value that does not fit refuses its row.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, DataType, FieldRef};
use arrow_select::filter::filter;
use tidemill_types::decode::mismatch;
use tidemill_types::{BadRow, Error, Field, FieldType, Mismatch, Result, RowOrigin, StreamSchema, Timestamp};

use crate::fields::{internal, with_system_columns};
use crate::fit::{Column, fit, is_readable, json_texts, shown, suggested};

/// Conversion of the columns of one input.
pub(crate) struct Conversion {
    schema: Arc<StreamSchema>,
    /// Type of the column of each field, in the order of the fields.
    columns: Vec<Column>,
}

/// Rows that were converted.
pub(crate) struct Converted {
    /// The rows whose values fit, with the columns of [`StreamSchema::batch_schema`].
    pub batch: RecordBatch,
    /// Indexes of the rows that were left out, with the reasons.
    pub refused: Vec<(usize, String)>,
}

impl Conversion {
    /// Creates the conversion of columns of these types, one for each field in order.
    ///
    /// Errors: a field cannot be read from its column.
    pub(crate) fn new(found: &[FieldRef], schema: &Arc<StreamSchema>) -> Result<Self> {
        let column = |(found, field): (&FieldRef, &Field)| {
            let column = Column::of(found);
            match is_readable(&column, field.ty) {
                true => Ok(column),
                false => Err(unreadable_type(&column, field, found.data_type())),
            }
        };
        let columns = found.iter().zip(&schema.fields).map(column).collect::<Result<_>>()?;
        Ok(Self { schema: schema.clone(), columns })
    }

    /// Converts columns. `now` is the event time of rows that have none.
    ///
    /// Errors: a column cannot be decoded.
    pub(crate) fn convert(&self, columns: &[ArrayRef], rows: usize, now: Timestamp) -> Result<Converted> {
        let mut fitted = Vec::with_capacity(columns.len());
        let mut refused: Vec<(usize, String)> = Vec::new();
        let mut kept = KeptValues::default();
        for ((array, column), field) in columns.iter().zip(&self.columns).zip(&self.schema.fields) {
            let undecodable = |e: ArrowError| {
                Error::invalid(format!("field `{}` cannot be read as `{}`", field.name, field.ty))
                    .with_source(e)
            };
            let plain = column.unpacked(array).map_err(undecodable)?;
            let fit = fit(&plain, column, field).map_err(undecodable)?;
            let nulls = plain.logical_nulls();
            let is_value = |row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            // nulls stay nulls, so each misfit is one more
            let given = nulls.as_ref().map_or(0, |nulls| nulls.null_count());
            let tried = if fit.array.null_count() > given { rows } else { 0 };
            let misfits = (0..tried).filter(|row| fit.array.is_null(*row) && is_value(*row));
            match field.mismatch {
                // an object with a repeated key would not be better off among the undeclared fields
                Mismatch::Keep if field.ty != FieldType::Object => {
                    let misfits: Vec<usize> = misfits.collect();
                    if !misfits.is_empty() {
                        kept.add(field, &json_texts(&plain, column).map_err(undecodable)?, &misfits);
                    }
                }
                _ => refused.extend(misfits.map(|row| {
                    let reason = fit.reasons.binary_search_by_key(&row, |(at, _)| *at).ok();
                    let reason = reason.map_or_else(
                        || {
                            let found = shown(&plain, row);
                            mismatch(field, &found, &found)
                        },
                        |at| fit.reasons[at].1.clone(),
                    );
                    (row, reason)
                })),
            }
            fitted.push(fit.array);
        }
        // of a row, the first field counts
        refused.sort_by_key(|(row, _)| *row);
        refused.dedup_by_key(|(row, _)| *row);
        let extra = kept.finish(rows);
        if refused.is_empty() {
            let batch = with_system_columns(fitted, extra, rows, &self.schema, now)?;
            return Ok(Converted { batch, refused });
        }
        let mut good = vec![true; rows];
        refused.iter().for_each(|(row, _)| good[*row] = false);
        let good = BooleanArray::from(good);
        let fitted = fitted
            .iter()
            .map(|array| filter(array, &good))
            .collect::<Result<Vec<_>, _>>()
            .map_err(internal)?;
        let extra = extra.map(|array| filter(&array, &good)).transpose().map_err(internal)?;
        let batch = with_system_columns(fitted, extra, rows - refused.len(), &self.schema, now)?;
        Ok(Converted { batch, refused })
    }

    /// Returns the schema of the events.
    pub(crate) fn schema(&self) -> &Arc<StreamSchema> {
        &self.schema
    }
}

impl Converted {
    /// Takes the numbers of the rows that were left out out of `numbers`, and returns these rows.
    pub(crate) fn rejected(&self, schema: &StreamSchema, numbers: &mut Vec<u64>) -> Vec<BadRow> {
        let bad = |(row, reason): &(usize, String)| {
            BadRow::new(RowOrigin::of_row(numbers[*row]), Some(&schema.name), reason, b"")
        };
        let rejected = self.refused.iter().map(bad).collect();
        let mut row = 0;
        numbers.retain(|_| {
            row += 1;
            self.refused.binary_search_by_key(&(row - 1), |(refused, _)| *refused).is_err()
        });
        rejected
    }
}

/// Values that do not fit their fields and are kept among the undeclared fields.
#[derive(Default)]
struct KeptValues(Vec<(usize, String)>);

impl KeptValues {
    fn add(&mut self, field: &Field, texts: &ArrayRef, rows: &[usize]) {
        use arrow_array::cast::AsArray;
        let texts = texts.as_string::<i32>();
        let name = serde_json::Value::from(field.name.as_str());
        self.0.extend(rows.iter().map(|row| (*row, format!("{name}:{}", texts.value(*row)))));
    }

    /// Returns the column `_extra`; `None` if it has no value.
    fn finish(mut self, rows: usize) -> Option<ArrayRef> {
        if self.0.is_empty() {
            return None;
        }
        // those of a row stay in the order of the fields
        self.0.sort_by_key(|(row, _)| *row);
        let mut extra = StringBuilder::new();
        let mut all = self.0.into_iter().peekable();
        for row in 0..rows {
            let mut object = String::new();
            while let Some((_, member)) = all.next_if(|(at, _)| *at == row) {
                object.push(if object.is_empty() { '{' } else { ',' });
                object.push_str(&member);
            }
            match object.is_empty() {
                true => extra.append_null(),
                false => extra.append_value(object + "}"),
            }
        }
        Some(Arc::new(extra.finish()))
    }
}

fn unreadable_type(column: &Column, field: &Field, found: &DataType) -> Error {
    let mut types: Vec<String> = suggested(column).into_iter().map(|ty| format!("`{ty}`")).collect();
    if is_readable(column, FieldType::Object) {
        types.push("`object`, which takes every value".into());
    }
    let advice = match types.is_empty() {
        true => String::new(),
        false => format!(": declare it {}", types.join(" or ")),
    };
    Error::invalid(format!("field `{}`: `{}` cannot be read from {found}{advice}", field.name, field.ty))
}
