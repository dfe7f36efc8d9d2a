//! The tail's batches, conformed to the table's schema and grouped for parallel scans.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;

/// Rows per group: a tail with fewer than twice as many is scanned by one thread.
const ROWS_PER_GROUP: usize = 16_384;

/// Converts the batches to `schema`; columns that an older batch lacks are null.
pub(super) fn conform(batches: Vec<RecordBatch>, schema: &SchemaRef) -> Result<Vec<RecordBatch>, ArrowError> {
    let rows = batches.into_iter().filter(|b| b.num_rows() > 0);
    rows.map(|b| if b.schema_ref() == schema { Ok(b) } else { conform_one(&b, schema) }).collect()
}

/// Converts a batch of a table to `schema`; columns that it lacks are null.
pub(crate) fn conform_one(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().map(|field| -> Result<ArrayRef, ArrowError> {
        match column_index(batch.schema_ref(), field.name()) {
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            Some(index) if batch.column(index).data_type() == field.data_type() => {
                Ok(batch.column(index).clone())
            }
            Some(index) => cast(batch.column(index), field.data_type()),
        }
    });
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_, _>>()?, &options)
}

fn column_index(schema: &Schema, name: &str) -> Option<usize> {
    schema.fields().iter().position(|f| f.name() == name)
}

/// Distributes the batches over at most `groups` groups of about equal row counts, as few as needed for
/// groups of about [`ROWS_PER_GROUP`] rows or more.
pub(super) fn group_batches(batches: &[RecordBatch], groups: usize) -> Vec<Vec<RecordBatch>> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let groups = groups.min(rows / ROWS_PER_GROUP).max(1);
    let share = rows.div_ceil(groups).max(1);
    let mut out: Vec<Vec<RecordBatch>> = vec![Vec::new()];
    let mut filled = 0;
    for batch in batches {
        let mut rest = batch.clone();
        while filled + rest.num_rows() > share && out.len() < groups {
            let cut = share - filled;
            push(&mut out, rest.slice(0, cut));
            rest = rest.slice(cut, rest.num_rows() - cut);
            out.push(Vec::new());
            filled = 0;
        }
        filled += rest.num_rows();
        push(&mut out, rest);
    }
    out
}

fn push(groups: &mut [Vec<RecordBatch>], batch: RecordBatch) {
    if let Some(last) = groups.last_mut().filter(|_| batch.num_rows() > 0) {
        last.push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field};

    fn batch(name: &str, from: i64, rows: i64) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(from..from + rows))]).unwrap()
    }

    #[test]
    fn groups_hold_every_row_once() {
        for (sizes, groups) in
            [(vec![1, 1, 1], 4), (vec![40_000], 2), (vec![9_000; 11], 3), (vec![100_000, 1, 5], 4)]
        {
            let mut from = 0;
            let batches: Vec<RecordBatch> = sizes
                .iter()
                .map(|n| {
                    from += n;
                    batch("a", from - n, *n)
                })
                .collect();
            let cut = group_batches(&batches, groups);
            assert!(cut.len() <= groups && cut.iter().all(|g| !g.is_empty()), "{sizes:?}");
            let seen = cut.iter().flatten().flat_map(|b| {
                let column = b.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
                column.values().to_vec()
            });
            assert!(seen.eq(0..from), "{sizes:?}");
        }
        assert_eq!(group_batches(&[batch("a", 0, 100)], 4).len(), 1);
    }

    #[test]
    fn older_batches_gain_null_columns() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("new", DataType::Utf8, true),
        ]));
        let out = conform(vec![batch("a", 0, 2), batch("a", 0, 0)], &schema).unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].column(1).null_count(), 2);
    }
}
