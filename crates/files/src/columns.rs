//! Arrow batches of callers as events of a stream.

use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{DataType, Field as ArrowField, FieldRef};
use tidemill_types::{
    DecodedRows, Error, InterleavedBatches, Result, StreamSchema, Timestamp, columns_of_fields, did_you_mean,
};

use crate::conversion::Conversion;

/// Returns the rows of `batch` with the columns of [`StreamSchema::batch_schema`]: the fields of the stream by name, converted to
/// their types, then the event time and undeclared fields. A field without a column is null. A batch that has these columns
/// already is returned as it is. Rows with a value that does not fit are rejected.
///
/// Time: `now` is the event time of rows without one.
///
/// Errors: `Invalid` for a column that is not a field of the stream, a repeated one, and one whose type does
/// not fit its field.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Float32Array, RecordBatch};
/// use tidemill_types::{Field, FieldType, StreamSchema, Timestamp};
///
/// let fields = vec![Field::new("symbol", FieldType::String), Field::new("price", FieldType::Double)];
/// let trades = Arc::new(StreamSchema { name: "Trades".into(), fields, key: None, id: vec![], time: None });
/// let prices = Arc::new(Float32Array::from(vec![1.5, 2.5]));
/// let batch = RecordBatch::try_from_iter([("price", prices as _)]).unwrap();
/// let events = tidemill_files::events_from_columns(&batch, &trades, Timestamp(0))?;
/// assert_eq!(events.rows.parts[0].1.schema(), trades.batch_schema());
/// # Ok::<(), tidemill_types::Error>(())
/// ```
pub fn events_from_columns(
    batch: &RecordBatch,
    schema: &Arc<StreamSchema>,
    now: Timestamp,
) -> Result<DecodedRows> {
    let rows = batch.num_rows();
    let mut row_numbers: Vec<u64> = (0..rows as u64).collect();
    let events = |batch| InterleavedBatches { parts: vec![(schema.clone(), batch)], order: None };
    if batch.schema_ref().fields() == schema.batch_schema().fields() {
        return Ok(DecodedRows { rows: events(batch.clone()), row_numbers, rejected: Vec::new() });
    }
    let context = |e: Error| e.context(format!("batch for stream `{}`", schema.name));
    let sources = column_of_each_field(batch, schema).map_err(context)?;
    let null: FieldRef = Arc::new(ArrowField::new("", DataType::Null, true));
    let found: Vec<FieldRef> = sources
        .iter()
        .map(|source| source.map_or_else(|| null.clone(), |i| batch.schema_ref().fields()[i].clone()))
        .collect();
    let conversion = Conversion::new(&found, schema).map_err(context)?;
    let columns: Vec<_> = sources
        .iter()
        .map(|source| {
            source.map_or_else(|| new_null_array(&DataType::Null, rows), |i| batch.column(i).clone())
        })
        .collect();
    let converted = conversion.convert(&columns, rows, now).map_err(context)?;
    let rejected = converted.rejected(schema, &mut row_numbers);
    Ok(DecodedRows { rows: events(converted.batch), row_numbers, rejected })
}

/// Returns for each field of the stream the index of its column.
fn column_of_each_field(batch: &RecordBatch, schema: &StreamSchema) -> Result<Vec<Option<usize>>> {
    let names: Vec<&str> = batch.schema_ref().fields().iter().map(|column| column.name().as_str()).collect();
    let sources = columns_of_fields(schema, &names)?;
    match (0..names.len()).find(|column| !sources.contains(&Some(*column))) {
        None => Ok(sources),
        Some(column) => {
            let (name, known) = (names[column], schema.fields.iter().map(|f| f.name.as_str()));
            let hint = did_you_mean(name, known);
            Err(Error::invalid(format!("the stream has no field for the column `{name}`{hint}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::TimestampMicrosecondType;
    use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray, StringViewArray};
    use tidemill_types::{EpochUnit, Field, FieldType};

    use super::*;

    fn stream() -> StreamSchema {
        let at = Field { unit: Some(EpochUnit::Seconds), ..Field::new("at", FieldType::Time) };
        let fields = vec![Field::new("name", FieldType::String), Field::new("load", FieldType::Long), at];
        StreamSchema { name: "Trucks".into(), fields, key: Some(0), id: vec![], time: Some(2) }
    }

    fn events(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let events = events_from_columns(&batch, &Arc::new(stream()), Timestamp(7))?;
        assert!(events.rejected.is_empty());
        Ok(events.rows.parts[0].1.clone())
    }

    #[test]
    fn columns_are_found_by_name_and_converted() {
        let batch = events(vec![
            ("at", Arc::new(Int64Array::from(vec![Some(2), None]))),
            ("name", Arc::new(StringViewArray::from(vec!["a", "b"]))),
        ])
        .unwrap();
        assert_eq!(batch.schema(), stream().batch_schema());
        assert_eq!(batch.column(0).as_string::<i32>(), &StringArray::from(vec!["a", "b"]));
        assert_eq!(batch.column(1).null_count(), 2);
        let times = batch.column(3).as_primitive::<TimestampMicrosecondType>();
        assert_eq!(times.values(), &[2_000_000, 7]);
        let again = events_from_columns(&batch, &Arc::new(stream()), Timestamp(8)).unwrap();
        assert_eq!(again.rows.parts[0].1, batch);
    }

    #[test]
    fn columns_that_do_not_fit_are_refused_with_their_names() {
        let numbers = || Arc::new(Int32Array::from(vec![1])) as ArrayRef;
        let unknown = events(vec![("lod", numbers())]).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "batch for stream `Trucks`: the stream has no field for the column `lod`. Did you mean `load`?"
        );
        let twice = events(vec![("load", numbers()), ("load", numbers())]).unwrap_err().to_string();
        assert_eq!(
            twice,
            "batch for stream `Trucks`: the column `load` occurs twice, as columns 1 and 2: expected different names"
        );
        let typed = events(vec![("name", numbers())]).unwrap_err().to_string();
        assert_eq!(
            typed,
            "batch for stream `Trucks`: field `name`: `string` cannot be read from Int32: declare it `int` or `object`, which takes every value"
        );
    }
}
