//! Columns as warehouses export them: dates, decimal numbers, unsigned numbers, times of day, UUIDs.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Date32Array, Decimal128Array, RecordBatch, StringArray, Time64MicrosecondArray, UInt64Array,
};
use parquet::arrow::ArrowWriter;
use tidemill_files::{Format, ReadOptions, infer_parquet, open};
use tidemill_types::{Field, FieldType, StreamSchema, row_value};

fn write(path: &Path) {
    let decimals = Decimal128Array::from(vec![-150, 7, 12_345]).with_precision_and_scale(18, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("day", Arc::new(Date32Array::from(vec![18787, 0, -1]))),
        ("amount", Arc::new(decimals)),
        ("id", Arc::new(UInt64Array::from(vec![1, u64::MAX, 3]))),
        ("at", Arc::new(Time64MicrosecondArray::from(vec![1, 2, 3]))),
        ("Name", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Reads the file and returns its rows and the reasons of the refused ones.
fn read(path: &Path, fields: &[(&str, FieldType)]) -> Result<(Vec<String>, Vec<String>), String> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    let schema = Arc::new(StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None });
    let options = ReadOptions { batch_rows: 2, ..ReadOptions::default() };
    let mut file = open(path, &Format::Parquet, &schema, options).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for batch in file.by_ref() {
        let batch = batch.map_err(|e| e.to_string())?;
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                (0..batch.num_columns()).map(|column| row_value(&batch, column, row).to_string()).collect();
            rows.push(cells.join(" "));
        }
    }
    Ok((rows, file.take_rejected().iter().map(ToString::to_string).collect()))
}

#[test]
fn columns_of_a_warehouse_fit_the_fields_that_people_declare() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path);
    let fields = [
        ("day", FieldType::Time),
        ("amount", FieldType::Double),
        ("at", FieldType::String),
        ("name", FieldType::String),
    ];
    let (rows, rejected) = read(&path, &fields).unwrap();
    assert_eq!(rejected, [""; 0]);
    assert_eq!(
        rows,
        [
            r#"2021-06-09T00:00:00Z -1.5 "00:00:00.000001" "a""#,
            r#"1970-01-01T00:00:00Z 0.07 "00:00:00.000002" "b""#,
            r#"1969-12-31T00:00:00Z 123.45 "00:00:00.000003" "c""#,
        ]
    );
}

#[test]
fn a_value_that_does_not_fit_leaves_the_other_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path);
    let (rows, rejected) = read(&path, &[("id", FieldType::Long), ("amount", FieldType::String)]).unwrap();
    assert_eq!(rows, [r#"1 "-1.50""#, r#"3 "123.45""#]);
    assert_eq!(
        rejected,
        ["row 2: field `id`: expected long (a whole number of 64 bits), found 18446744073709551615"]
    );
    let error = read(&path, &[("amount", FieldType::Bool)]).unwrap_err();
    assert!(
        error.ends_with(
            "field `amount`: `bool` cannot be read from Decimal128(18, 2): declare it `object`, which takes every value"
        ),
        "{error}"
    );
}

#[test]
fn inferred_types_take_every_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    write(&path);
    let inferred = infer_parquet(File::open(&path).unwrap()).unwrap();
    let types: Vec<String> = inferred.fields.iter().map(|f| format!("{} {}", f.name, f.ty)).collect();
    assert_eq!(types, ["day time", "amount object", "id object", "at string", "Name string"]);
}
