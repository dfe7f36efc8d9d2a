use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, TimestampMicrosecondArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{Field, Schema};

use super::*;

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let fields: Vec<Field> = (0..).zip(&columns).map(|(i, c)| field(i, c)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn field(number: usize, column: &ArrayRef) -> Field {
    Field::new(format!("c{number}"), column.data_type().clone(), true)
}

/// Returns the digest of one record that stores a batch.
fn digest_of(batch: &RecordBatch) -> String {
    let mut digest = EffectDigest::new(Offset(0));
    digest.begin(Offset(0), Timestamp(5), false);
    let numbers: Vec<i32> = (0..batch.num_rows() as i32).collect();
    digest.rows("Order", batch, &numbers).unwrap();
    digest.end();
    digest.digest().to_string()
}

/// Returns three rows of all types of columns, with missing values.
fn rows() -> RecordBatch {
    batch(vec![
        Arc::new(Int64Array::from(vec![Some(7), None, Some(-1)])),
        Arc::new(Float64Array::from(vec![1.5, f64::NAN, -0.0])),
        Arc::new(StringArray::from(vec![Some("a"), Some(""), None])),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]).with_timezone("UTC")),
    ])
}

#[test]
fn the_digest_is_the_same_on_every_machine() {
    assert_eq!(digest_of(&rows()), "62d03b0ed610c273b124c3667fe38973");
}

#[test]
fn equal_values_have_one_digest_however_they_lie_in_memory() {
    let expected = digest_of(&rows());
    // a slice of a longer batch
    let longer = arrow_select::concat::concat_batches(&rows().schema(), [&rows(), &rows(), &rows()]).unwrap();
    assert_eq!(digest_of(&longer.slice(3, 3)), expected);
    // other bytes behind missing values, and bits that no row has
    let valid = |bits: [bool; 3]| Some(NullBuffer::from(BooleanBuffer::from_iter(bits)));
    let mut columns = rows().columns().to_vec();
    columns[0] = Arc::new(Int64Array::new(vec![7, 99, -1].into(), valid([true, false, true])));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 1, 1, 4]));
    columns[2] = Arc::new(StringArray::new(offsets, b"axyz".to_vec().into(), valid([true, true, false])));
    let bits = BooleanBuffer::from_iter([true, true, true, false, true]).slice(1, 3);
    columns[3] = Arc::new(BooleanArray::new(bits, valid([true, false, true])));
    assert_eq!(digest_of(&batch(columns)), expected);
    // a list of valid rows without a missing one
    let with_nulls = Arc::new(Int64Array::new(vec![1, 2].into(), Some(NullBuffer::new_valid(2))));
    let without = Arc::new(Int64Array::from(vec![1, 2]));
    assert_eq!(digest_of(&batch(vec![with_nulls])), digest_of(&batch(vec![without])));
}

#[test]
fn other_values_have_another_digest() {
    let texts = |texts: Vec<Option<&str>>| batch(vec![Arc::new(StringArray::from(texts)) as ArrayRef]);
    let bools = |bits: Vec<Option<bool>>| batch(vec![Arc::new(BooleanArray::from(bits)) as ArrayRef]);
    let numbers = |numbers: Vec<Option<i64>>| batch(vec![Arc::new(Int64Array::from(numbers)) as ArrayRef]);
    let all = [
        texts(vec![Some("a"), Some("bc")]),
        texts(vec![Some("ab"), Some("c")]),
        texts(vec![Some("abc"), None]),
        texts(vec![None, Some("abc")]),
        bools(vec![Some(true), Some(false)]),
        bools(vec![Some(false), Some(true)]),
        bools(vec![Some(false), None]),
        numbers(vec![Some(0), None]),
        numbers(vec![None, Some(0)]),
        numbers(vec![Some(0), Some(0)]),
        numbers(vec![Some(0)]),
    ];
    let digests: std::collections::BTreeSet<String> = all.iter().map(digest_of).collect();
    assert_eq!(digests.len(), all.len());
}

#[test]
fn a_saved_digest_continues() {
    let mut digest = EffectDigest::new(Offset(3));
    digest.begin(Offset(3), Timestamp(1), false);
    digest.end();
    let json = serde_json::to_string(&digest.saved()).unwrap();
    let mut restored = EffectDigest::restore(&serde_json::from_str(&json).unwrap()).unwrap().unwrap();
    for digest in [&mut digest, &mut restored] {
        digest.begin(Offset(4), Timestamp(2), false);
        digest.documents(9);
        digest.end();
    }
    assert_eq!(digest.digest(), restored.digest());

    let later = SavedDigest { version: VERSION + 1, ..digest.saved() };
    assert!(EffectDigest::restore(&later).unwrap().is_none(), "one of another version begins again");
    let damaged = SavedDigest { value: "no digest".into(), ..digest.saved() };
    let error = EffectDigest::restore(&damaged).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no digest"), "{error}");
}
