use std::collections::BTreeSet;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, Float64Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_types::{Field, FieldType};

use super::*;
use crate::tablets::encode::TabletEncoder;

fn stream(fields: &[(&str, FieldType)]) -> StreamSchema {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    StreamSchema { name: "S".to_owned(), fields, key: Some(0), id: vec![], time: None }
}

/// A row: its key, time, offset and value.
type Row = (Option<String>, i64, i64, Option<i64>);

/// Encodes rows as a flush does. `whole` tells whether the table has the column of values already.
fn tablet(rows: &mut [Row], whole: bool) -> MergeInput {
    rows.sort_by_key(|row| row.2);
    let mut fields = vec![("key", FieldType::String)];
    fields.extend(whole.then_some(("value", FieldType::Double)));
    let stream = stream(&fields);
    let utc = |values: Vec<i64>| Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"));
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(rows.iter().map(|r| r.0.clone()).collect::<StringArray>())];
    if whole {
        columns.push(Arc::new(rows.iter().map(|r| r.3.map(|v| v as f64)).collect::<Float64Array>()));
    }
    columns.push(utc(rows.iter().map(|r| r.1).collect()));
    columns.push(Arc::new(StringArray::new_null(rows.len())));
    columns.push(utc(rows.iter().map(|r| r.2).collect()));
    columns.push(Arc::new(Int32Array::from(vec![0; rows.len()])));
    columns.push(Arc::new(rows.iter().map(|r| Some(r.2)).collect::<Int64Array>()));
    columns.push(Arc::new(Int32Array::from(vec![7; rows.len()])));
    let batch = RecordBatch::try_new(stream.table_schema(), columns).unwrap();
    let encoded = TabletEncoder::new(&stream, &ZonesOptions::default()).unwrap().encode(&[batch]).unwrap();
    MergeInput {
        name: format!("a tablet of {} rows", rows.len()),
        bytes: encoded[0].bytes.clone(),
        keys: None,
    }
}

fn read(file: &EncodedFile) -> Vec<Row> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file.bytes.clone()).unwrap().build().unwrap();
    let mut rows = Vec::new();
    for batch in reader.map(|batch| batch.unwrap()) {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let (keys, values) =
            (column("key").as_string::<i32>(), column("value").as_primitive::<Float64Type>());
        let times = column("_time").as_primitive::<TimestampMicrosecondType>();
        let offsets = column("_offset").as_primitive::<Int64Type>();
        assert!(column("_row").as_primitive::<Int32Type>().values().iter().all(|row| *row == 7));
        for row in 0..batch.num_rows() {
            let key = keys.is_valid(row).then(|| keys.value(row).to_owned());
            let value = values.is_valid(row).then(|| values.value(row) as i64);
            rows.push((key, times.value(row), offsets.value(row), value));
        }
    }
    rows
}

#[test]
fn a_merge_has_all_rows_in_order() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..30 {
        let keys = random.random_range(1..30);
        let mut all: Vec<Row> = Vec::new();
        let mut inputs = Vec::new();
        for number in 0..random.random_range(1..7) {
            let whole = number > 0;
            // some tablets are longer than what is decoded at a time
            let count = if round % 10 == 0 { 20_000 } else { random.random_range(1..200) };
            let mut rows: Vec<Row> = (0..count)
                .map(|row| {
                    let key = random.random_range(0..keys);
                    let key = (key > 0).then(|| format!("key {key}"));
                    let offset = i64::from(number) * 1_000_000 + row;
                    // times climb from tablet to tablet in half of the rounds
                    let time = if round % 2 == 0 { offset } else { random.random_range(0..50) };
                    (key, time, offset, (whole && row % 3 > 0).then_some(row))
                })
                .collect();
            inputs.push(tablet(&mut rows, whole));
            all.extend(rows);
        }
        // a tablet with all columns, so that the table has them
        let mut last = vec![(None, -1, -1, Some(5))];
        inputs.push(tablet(&mut last, true));
        all.extend(last);
        let stored = stream(&[("key", FieldType::String), ("value", FieldType::Double)]);
        let schema = stored.table_schema();
        let merged = merge_tablets(&stored, &schema, &ZonesOptions::default(), inputs, None).unwrap().file;
        all.sort();
        assert_eq!(merged.rows, all.len() as u64, "round {round}");
        assert!(read(&merged) == all, "round {round}: rows differ or are in another order");
        let nulls = all.iter().filter(|row| row.3.is_none()).count() as u64;
        assert_eq!(merged.columns[1].null_count, Some(nulls), "round {round}");
    }
}

#[test]
fn a_damaged_tablet_is_named() {
    let sound = tablet(&mut [(None, 1, 1, None)], true);
    let mut bytes = sound.bytes.to_vec();
    bytes.truncate(bytes.len() - 3);
    let damaged = MergeInput { name: "tablets/0/x.parquet".to_owned(), bytes: bytes.into(), keys: None };
    let stored = stream(&[("key", FieldType::String), ("value", FieldType::Double)]);
    let error =
        merge_tablets(&stored, &stored.table_schema(), &ZonesOptions::default(), vec![sound, damaged], None);
    let error = error.err().unwrap();
    assert_eq!(error.kind(), tidemill_types::ErrorKind::Corrupt);
    assert!(error.to_string().contains("tablets/0/x.parquet"), "{error}");
}

#[test]
fn encodings_are_chosen_by_what_the_columns_hold() {
    let mut rows: Vec<Row> = (0..10_000_i64)
        .map(|n| (Some(format!("key {}", n % 7)), n, n, Some(n * 7_919 % 1_000_003)))
        .collect();
    let stored = stream(&[("key", FieldType::String), ("value", FieldType::Double)]);
    let input = tablet(&mut rows, true);
    let merged = merge_tablets(&stored, &stored.table_schema(), &ZonesOptions::default(), vec![input], None)
        .unwrap()
        .file;
    let reader = ParquetRecordBatchReaderBuilder::try_new(merged.bytes).unwrap();
    let encodings = |column: usize| -> BTreeSet<String> {
        reader.metadata().row_group(0).column(column).encodings().map(|e| e.to_string()).collect()
    };
    assert!(encodings(0).contains("RLE_DICTIONARY"), "{:?}", encodings(0));
    assert!(encodings(1).contains("BYTE_STREAM_SPLIT"), "{:?}", encodings(1));
    assert!(encodings(2).contains("DELTA_BINARY_PACKED"), "{:?}", encodings(2));
}
