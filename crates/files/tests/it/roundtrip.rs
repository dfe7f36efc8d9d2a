//! Written files can be read again.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use proptest::prelude::*;
use tidemill_files::{Codec, EventFileWriter, Format, ReadOptions, WriteOptions};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{FieldType, StreamSchema, Timestamp};

use crate::stream;

const FORMATS: [Format; 7] = [
    Format::Avro(Codec::Null),
    Format::Avro(Codec::Deflate),
    Format::Avro(Codec::Snappy),
    Format::Json,
    Format::Csv { header: true, delimiter: b';' },
    Format::Csv { header: false, delimiter: b',' },
    Format::Parquet,
];

fn all_types() -> Arc<StreamSchema> {
    stream(&[
        ("flag", FieldType::Bool),
        ("number", FieldType::Int),
        ("large", FieldType::Long),
        ("rough", FieldType::Float),
        ("exact", FieldType::Double),
        ("text", FieldType::String),
        ("at", FieldType::Time),
    ])
}

fn cells(n: Option<i32>, text: &str) -> Vec<FieldValue> {
    let Some(n) = n else { return vec![FieldValue::Missing; 7] };
    vec![
        FieldValue::Bool(n % 2 == 0),
        FieldValue::Int(n.into()),
        FieldValue::Int(i64::from(n) << 31),
        FieldValue::Float(f64::from(n as f32 / 8.0)),
        FieldValue::Float(f64::from(n) / 3.0),
        FieldValue::Text(text.to_owned()),
        FieldValue::Time(Timestamp(i64::from(n) * 1_000_001)),
    ]
}

/// Returns the rows in order, independent of the batching.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let row = |b: &RecordBatch, i| {
        let cells: Vec<String> =
            (0..b.num_columns()).map(|c| format!("{:?}", tidemill_types::row_value(b, c, i))).collect();
        cells.join("|")
    };
    batches.iter().flat_map(|b| (0..b.num_rows()).map(|i| row(b, i)).collect::<Vec<_>>()).collect()
}

fn read(path: &Path, format: &Format, schema: &Arc<StreamSchema>, batch_rows: usize) -> Vec<RecordBatch> {
    let reading = ReadOptions { batch_rows, ..ReadOptions::default() };
    let mut reader = tidemill_files::open(path, format, schema, reading).unwrap();
    let batches: Vec<RecordBatch> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reader.take_rejected(), []);
    assert!(batches.iter().all(|b| b.num_rows() <= batch_rows));
    batches
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_format_gives_back_what_it_got(
        given in prop::collection::vec((prop::option::weighted(0.9, any::<i32>()), "[ -~é\n]{1,20}"), 1..60),
        batch_rows in 1..40_usize,
    ) {
        let schema = all_types();
        let mut builder = BatchBuilder::new(schema.clone());
        for (n, text) in &given {
            builder.push_values(&cells(*n, text), Timestamp(0)).unwrap();
        }
        let batch = builder.finish();
        let wanted = rows(&[batch.project(&(0..7).collect::<Vec<_>>()).unwrap()]);
        let dir = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let path = dir.path().join("file");
            let mut writer = EventFileWriter::create(&path, &format, &schema, &WriteOptions::default()).unwrap();
            writer.write(&batch.slice(0, given.len() / 2)).unwrap();
            writer.write(&batch.slice(given.len() / 2, given.len() - given.len() / 2)).unwrap();
            writer.finish().unwrap();
            let found = rows(&read(&path, &format, &schema, batch_rows));
            prop_assert_eq!(&found, &wanted, "{:?}", format);
        }
    }
}

#[test]
fn fields_are_found_by_name_and_widened() {
    let dir = tempfile::tempdir().unwrap();
    let written = stream(&[
        ("a", FieldType::Int),
        ("b", FieldType::String),
        ("c", FieldType::Float),
        ("t", FieldType::Time),
    ]);
    let wanted = stream(&[
        ("t", FieldType::Long),
        ("c", FieldType::Double),
        ("a", FieldType::Long),
        ("b", FieldType::Object),
    ]);
    let mut builder = BatchBuilder::new(written.clone());
    let cells = [
        FieldValue::Int(7),
        FieldValue::Text("{\"x\":1}".into()),
        FieldValue::Float(0.5),
        FieldValue::Time(Timestamp(9_000)),
    ];
    builder.push_values(&cells, Timestamp(0)).unwrap();
    let batch = builder.finish();
    for format in [Format::Avro(Codec::Null), Format::Parquet] {
        let path = dir.path().join("file");
        let mut writer = EventFileWriter::create(&path, &format, &written, &WriteOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let found = read(&path, &format, &wanted, 10);
        assert_eq!(rows(&found), ["Int(9)|Float(0.5)|Int(7)|Str(\"{\\\"x\\\":1}\")"]);
        let refused = |fields: &[(&str, FieldType)]| {
            let e =
                tidemill_files::open(&path, &format, &stream(fields), ReadOptions::default()).unwrap_err();
            e.to_string().replace(&path.display().to_string(), "F")
        };
        assert_eq!(
            refused(&[("a", FieldType::Bool)]),
            "F: field `a`: `bool` cannot be read from Int32: declare it `int` or `object`, which takes every value"
        );
        assert_eq!(refused(&[("x", FieldType::Bool)]), "F: there is no field `x`. Known: a, b, c, t");
    }
}

#[test]
fn lines_go_behind_lines() {
    let dir = tempfile::tempdir().unwrap();
    let schema = stream(&[("symbol", FieldType::String), ("price", FieldType::Double)]);
    let mut builder = BatchBuilder::new(schema.clone());
    builder.push_values(&[FieldValue::Text("A;1".into()), FieldValue::Missing], Timestamp(0)).unwrap();
    let batch = builder.finish();
    let twice = |name: &str, format: Format, writing: WriteOptions| {
        let path = dir.path().join(name);
        for _ in 0..2 {
            let mut writer = EventFileWriter::create(&path, &format, &schema, &writing).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        std::fs::read_to_string(path).unwrap()
    };
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    let csv = Format::Csv { header: true, delimiter: b';' };
    assert_eq!(twice("a.csv", csv.clone(), append.clone()), "symbol;price\n\"A;1\";\n\"A;1\";\n");
    assert_eq!(twice("b.csv", csv, WriteOptions::default()), "symbol;price\n\"A;1\";\n");
    assert_eq!(twice("a.json", Format::Json, append), "{\"symbol\":\"A;1\"}\n{\"symbol\":\"A;1\"}\n");
    let enclosing = WriteOptions { envelope: Some("event".into()), ..WriteOptions::default() };
    assert_eq!(twice("b.json", Format::Json, enclosing), "{\"event\":{\"symbol\":\"A;1\"}}\n");
    assert_eq!(rows(&read(&dir.path().join("b.json"), &Format::Json, &schema, 9)), ["Str(\"A;1\")|Missing"]);
}

#[test]
fn names_tell_formats() {
    let of = |name: &str| Format::from_path(Path::new(name)).map_err(|e| e.to_string());
    assert_eq!(of("a/b.Avro"), Ok(Format::Avro(Codec::Null)));
    assert_eq!(of("a.jsonl.gz"), Ok(Format::Json));
    assert_eq!(of("a.csv"), Ok(Format::Csv { header: true, delimiter: b',' }));
    assert_eq!(of("a.txt"), Err("a.txt: no format ends in `.txt`. Known: avro, csv, json, parquet".into()));
}
