//! Files as sinks: what is written after a position can be discarded and written again.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{Sink, SinkPosition};
use tidemill_files::{Codec, FileSink, Format, ReadOptions, WriteOptions};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{FieldType, StreamSchema, Timestamp, Value, row_value};

use crate::stream;

const FORMATS: [Format; 6] = [
    Format::Avro(Codec::Null),
    Format::Avro(Codec::Snappy),
    Format::Json,
    Format::Csv { header: true, delimiter: b';' },
    Format::Csv { header: false, delimiter: b',' },
    Format::Parquet,
];

fn trades() -> Arc<StreamSchema> {
    stream(&[("symbol", FieldType::String), ("volume", FieldType::Long)])
}

fn batch(numbers: std::ops::Range<i64>) -> RecordBatch {
    let mut builder = BatchBuilder::new(trades());
    for n in numbers {
        let row = format!("{{\"symbol\":\"symbol {n}\",\"volume\":{n}}}");
        builder.push_json(row.as_bytes(), Timestamp(0)).unwrap();
    }
    builder.finish()
}

fn open(path: &Path, format: &Format, position: Option<&SinkPosition>) -> tidemill_types::Result<FileSink> {
    let writing = WriteOptions { append: true, envelope: Some("event".into()), ..WriteOptions::default() };
    FileSink::open("s", path, format, &trades(), &writing, position)
}

fn numbers(path: &Path, format: &Format) -> Vec<i64> {
    let mut reader = tidemill_files::open(path, format, &trades(), ReadOptions::default()).unwrap();
    let mut numbers = Vec::new();
    for batch in reader.by_ref() {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let Value::Int(n) = row_value(&batch, 1, row) else { panic!() };
            assert_eq!(row_value(&batch, 0, row).to_string().trim_matches('"'), format!("symbol {n}"));
            numbers.push(n);
        }
    }
    assert_eq!(reader.take_rejected(), []);
    numbers
}

#[test]
fn a_file_continues_at_its_position_and_forgets_what_came_later() {
    for format in &FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut sink = open(&path, format, None).unwrap();
        let empty = sink.sync().unwrap();
        sink.write(&batch(0..10)).unwrap();
        sink.flush().unwrap();
        sink.write(&batch(10..15)).unwrap();
        let middle = sink.sync().unwrap();
        assert_eq!(numbers(&path, format), (0..15).collect::<Vec<_>>(), "{format:?}");
        // A crash after more was written, in part synced.
        sink.write(&batch(100..2000)).unwrap();
        sink.sync().unwrap();
        sink.write(&batch(2000..2100)).unwrap();
        sink.flush().unwrap();
        drop(sink);
        let mut sink = open(&path, format, Some(&middle)).unwrap();
        assert_eq!(numbers(&path, format), (0..15).collect::<Vec<_>>(), "{format:?}");
        sink.write(&batch(15..20)).unwrap();
        assert!(sink.buffered_bytes() > 0);
        let end = Box::new(sink).close().unwrap();
        assert_eq!(numbers(&path, format), (0..20).collect::<Vec<_>>(), "{format:?}");
        // The last position is still good, and so is the first.
        drop(open(&path, format, Some(&end)).unwrap());
        assert_eq!(numbers(&path, format), (0..20).collect::<Vec<_>>(), "{format:?}");
        let mut sink = open(&path, format, Some(&empty)).unwrap();
        sink.write(&batch(7..8)).unwrap();
        sink.sync().unwrap();
        assert_eq!(numbers(&path, format), [7], "{format:?}");
    }
}

#[test]
fn text_is_appended_and_containers_begin_anew() {
    for format in &FORMATS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        for n in 0..2 {
            let mut sink = open(&path, format, None).unwrap();
            sink.write(&batch(n..n + 1)).unwrap();
            sink.sync().unwrap();
        }
        let expected: &[i64] = if format.is_text() { &[0, 1] } else { &[1] };
        assert_eq!(numbers(&path, format), expected, "{format:?}");
    }
}

#[test]
fn a_file_that_changed_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let mut sink = open(&path, &Format::Json, None).unwrap();
    sink.write(&batch(0..3)).unwrap();
    let position = sink.sync().unwrap();
    drop(sink);
    std::fs::write(&path, "short").unwrap();
    let error = open(&path, &Format::Json, Some(&position)).err().unwrap();
    assert!(error.to_string().contains("the file has 5 bytes, but"), "{error}");
    std::fs::remove_file(&path).unwrap();
    let error = open(&path, &Format::Json, Some(&position)).err().unwrap();
    assert_eq!(error.kind(), tidemill_types::ErrorKind::NotFound);
}
