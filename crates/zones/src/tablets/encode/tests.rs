use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_types::{Field, FieldType, Value};

use super::*;

fn stream(key: Option<usize>) -> StreamSchema {
    let field = |name: &str, ty| Field::new(name, ty);
    let fields = vec![
        field("text", FieldType::String),
        field("json", FieldType::Object),
        field("x", FieldType::Double),
        field("y", FieldType::Float),
    ];
    StreamSchema { name: "S".to_owned(), fields, key, id: vec![], time: None }
}

/// Columns text, x, y, time.
type Row<'a> = (Option<&'a str>, Option<f64>, Option<f32>, i64);

fn batch(offset: i64, rows: &[Row<'_>]) -> RecordBatch {
    let utc = |v: Vec<i64>| Arc::new(TimestampMicrosecondArray::from(v).with_timezone("UTC"));
    let n = rows.len();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.0))),
        Arc::new(StringArray::from(vec!["{}"; n])),
        Arc::new(Float64Array::from_iter(rows.iter().map(|r| r.1))),
        Arc::new(Float32Array::from_iter(rows.iter().map(|r| r.2))),
        utc(rows.iter().map(|r| r.3).collect()),
        Arc::new(StringArray::new_null(n)),
        utc(vec![0; n]),
        Arc::new(Int32Array::from(vec![0; n])),
        Arc::new(Int64Array::from(vec![offset; n])),
        Arc::new(Int32Array::from_iter_values(0..n as i32)),
    ];
    RecordBatch::try_new(stream(None).table_schema(), columns).unwrap()
}

fn encode(key: Option<usize>, options: &ZonesOptions, batches: &[RecordBatch]) -> Vec<EncodedFile> {
    TabletEncoder::new(&stream(key), options).unwrap().encode(batches).unwrap()
}

fn read(encoded: &EncodedFile) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(encoded.bytes.clone()).unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = reader.map(|b| b.unwrap()).collect();
    arrow_select::concat::concat_batches(&batches[0].schema(), &batches).unwrap()
}

#[test]
fn rows_are_ordered_by_key_and_time_and_equal_ones_keep_their_order() {
    let long = "a key that is longer than sixteen bytes, b";
    let batches = [
        batch(0, &[(Some(long), None, None, 5), (None, None, None, 9), (Some("b"), None, None, 2)]),
        batch(1, &[]),
        batch(
            2,
            &[
                (Some("b"), None, None, 2),
                (Some(&long[..long.len() - 1]), None, None, 7),
                (Some("b"), None, None, 1),
            ],
        ),
    ];
    let identity = |key: Option<usize>| -> Vec<(i64, i32)> {
        let tablets = encode(key, &ZonesOptions::default(), &batches);
        let rows = read(&tablets[0]);
        let offsets = rows.column(8).as_primitive::<arrow_array::types::Int64Type>().values().to_vec();
        let numbers = rows.column(9).as_primitive::<arrow_array::types::Int32Type>().values().to_vec();
        offsets.into_iter().zip(numbers).collect()
    };
    assert_eq!(identity(Some(0)), [(0, 1), (2, 1), (0, 0), (2, 2), (0, 2), (2, 0)]);
    assert_eq!(identity(None), [(2, 2), (0, 2), (2, 0), (0, 0), (2, 1), (0, 1)]);
}

#[test]
fn tablets_are_of_equal_size() {
    let rows: Vec<_> = (0..10).map(|i| (Some("k"), None, None, i)).collect();
    let options = ZonesOptions { tablet_rows_max: 4, row_group_rows: 3, ..ZonesOptions::default() };
    let tablets = encode(Some(0), &options, &[batch(0, &rows)]);
    assert_eq!(tablets.iter().map(|t| t.rows).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(read(&tablets[2]).num_rows(), 2);
}

#[test]
fn bounds_hold_for_every_value_or_are_unknown() {
    let long = "x".repeat(100);
    let rows =
        [(Some(long.as_str()), Some(f64::NAN), Some(-0.0), 1_001), (Some("é"), Some(1.0), Some(2.5), -1)];
    let tablets = encode(None, &ZonesOptions::default(), &[batch(0, &rows)]);
    let columns = &tablets[0].columns;
    let bound = |v: &Option<Value<'static>>| v.as_ref().map(ToString::to_string);
    // Truncated; the maximum is incremented above everything with this prefix.
    assert_eq!(bound(&columns[0].min), Some(format!("{:?}", "x".repeat(64))));
    assert_eq!(bound(&columns[0].max).as_deref(), Some("\"é\""));
    assert_eq!(
        (bound(&columns[1].min), bound(&columns[1].max), columns[1].null_count),
        (None, None, Some(0))
    );
    assert_eq!((bound(&columns[2].min), bound(&columns[2].max)), (None, None), "NaN compares with nothing");
    assert_eq!(
        (bound(&columns[3].min).as_deref(), bound(&columns[3].max).as_deref()),
        (Some("-0"), Some("2.5"))
    );
    let time = |v: &Option<Value<'static>>| match v {
        Some(Value::Time(t)) => t.micros(),
        other => panic!("expected a time, found {other:?}"),
    };
    assert_eq!((time(&columns[4].min), time(&columns[4].max)), (-1_000, 2_000));
    assert_eq!((bound(&columns[5].min), columns[5].null_count), (None, Some(2)));
}

#[test]
fn bounds_span_row_groups_and_pass_over_those_without_values() {
    let rows = [(None, Some(3.0), None, 1), (Some("m"), None, None, 2), (Some("c"), Some(-1.0), None, 3)];
    let options = ZonesOptions { row_group_rows: 1, ..ZonesOptions::default() };
    let tablets = encode(None, &options, &[batch(0, &rows)]);
    let shown: Vec<String> = [0, 2, 3]
        .map(|i| {
            let c = &tablets[0].columns[i];
            let text = |v: &Option<Value<'static>>| v.as_ref().map_or("-".to_owned(), ToString::to_string);
            format!("{} {} {}", text(&c.min), text(&c.max), c.null_count.unwrap())
        })
        .to_vec();
    assert_eq!(shown, ["\"c\" \"m\" 1", "-1 3 1", "- - 3"]);
}

#[test]
fn rows_are_found_in_batches_of_any_size() {
    let sizes = [0, 3, 0, 0, 700, 1, 255, 256, 257, 0, 1, 0];
    let batches: Vec<RecordBatch> = (0..)
        .zip(sizes)
        .map(|(offset, rows)| batch(offset, &vec![(None, None, None, offset); rows]))
        .collect();
    let locator = RowLocator::new(&batches);
    let all: Vec<(usize, usize)> =
        sizes.iter().enumerate().flat_map(|(batch, rows)| (0..*rows).map(move |row| (batch, row))).collect();
    for (number, expected) in all.iter().enumerate() {
        assert_eq!(locator.locate(number as u32), *expected, "row {number}");
    }
    for range in [0..all.len() as u32, 2..4, 702..1300, 5..5] {
        let rows: Vec<u32> = range.collect();
        let slices = locator.rows(&batches, &rows).unwrap();
        let found: Vec<(usize, usize)> = slices.iter().flat_map(identities).collect();
        assert_eq!(found, rows.iter().map(|row| all[*row as usize]).collect::<Vec<_>>());
    }
    let gathered = locator.rows(&batches, &[1300, 0, 703]).unwrap();
    assert_eq!(gathered.iter().flat_map(identities).collect::<Vec<_>>(), [all[1300], all[0], all[703]]);
}

/// Batch and row of each row, from the columns `_offset` and `_row`.
fn identities(batch: &RecordBatch) -> Vec<(usize, usize)> {
    let offsets = batch.column(8).as_primitive::<arrow_array::types::Int64Type>().values();
    let rows = batch.column(9).as_primitive::<arrow_array::types::Int32Type>().values();
    offsets.iter().zip(rows.iter()).map(|(offset, row)| (*offset as usize, *row as usize)).collect()
}
