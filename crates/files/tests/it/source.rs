//! Files as sources: positions, and rows that cannot be read.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::Source;
use tidemill_files::{
    Codec, ColumnOptions, Dialect, EventFileWriter, FileInput, FileSource, Format, ReadOptions, WriteOptions,
};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{FieldType, StreamSchema, Timestamp, Value, row_value};

use crate::stream;

const NOW: Timestamp = Timestamp(7);

fn trades() -> Arc<StreamSchema> {
    stream(&[("symbol", FieldType::String), ("volume", FieldType::Long)])
}

/// A row or rejected row as text, with its number.
type Item = (u64, String);

/// Reads a file from `start` to its end: rows and rejected rows, and the final position.
fn read(path: &Path, input: &FileInput, start: u64, batch_rows: usize) -> (Vec<Item>, Vec<Item>, u64) {
    let options = ReadOptions { start, batch_rows, ..input.options };
    let mut source = FileSource::open("f", path, &FileInput { options, ..input.clone() }).unwrap();
    let (mut rows, mut rejected, mut position) = (Vec::new(), Vec::new(), start);
    while let Some(batch) = source.next(NOW).unwrap() {
        assert_eq!(batch.row_numbers.len(), batch.rows.len());
        batch.rows.for_each_arrival(|arrival, part, row| {
            let (stream, batch_of_part) = &batch.rows.parts[part];
            assert_eq!(batch_of_part.schema(), stream.batch_schema());
            let cells: Vec<String> = (0..batch_of_part.num_columns())
                .map(|column| row_value(batch_of_part, column, row).to_string())
                .collect();
            rows.push((batch.row_numbers[arrival], format!("{} {}", stream.name, cells.join("|"))));
        });
        rejected.extend(batch.rejected.iter().map(|bad| (bad.origin.number, bad.to_string())));
        let numbers = batch.row_numbers.iter().chain(batch.rejected.iter().map(|bad| &bad.origin.number));
        assert!(numbers.into_iter().all(|n| *n >= position && *n < batch.position), "{batch:?}");
        position = batch.position;
    }
    (rows, rejected, position)
}

/// Checks that reading may stop and continue at any row, whatever the size of batches.
fn check_positions(path: &Path, input: &FileInput, rows: usize, rejected: usize) {
    let whole = read(path, input, 0, 1000);
    assert_eq!((whole.0.len(), whole.1.len()), (rows, rejected), "{whole:?}");
    for start in 0..=whole.2 {
        for batch_rows in [1, 3, 7] {
            let (rest, bad, end) = read(path, input, start, batch_rows);
            let tail = |items: &[Item]| items.iter().filter(|i| i.0 >= start).cloned().collect::<Vec<_>>();
            assert_eq!(rest, tail(&whole.0), "from {start} in batches of {batch_rows}");
            assert_eq!(bad, tail(&whole.1), "from {start} in batches of {batch_rows}");
            assert_eq!(end, whole.2);
        }
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn text_files_continue_at_every_position() {
    let dir = tempfile::tempdir().unwrap();
    let mut json = String::from("\n");
    let mut csv = String::from("symbol,volume\n");
    for n in 0..20 {
        match n % 5 {
            3 => json += "{\"symbol\":1}\n\n",
            4 => json += &format!("[{{\"symbol\":\"a\"}},{{\"volume\":{n}}},7]\n"),
            _ => json += &format!("{{\"event\":{{\"symbol\":\"s{n}\",\"volume\":{n}}}}}\n"),
        }
        csv += if n % 5 == 3 { "a\n\n" } else { "b,5\n" };
    }
    let json = write(dir.path(), "f.json", json.as_bytes());
    check_positions(&json, &FileInput::of_stream(Format::Json, trades(), ReadOptions::default()), 20, 8);
    let csv = write(dir.path(), "f.csv", csv.as_bytes());
    let format = Format::Csv { header: true, delimiter: b',' };
    check_positions(&csv, &FileInput::of_stream(format, trades(), ReadOptions::default()), 16, 4);
}

#[test]
fn rows_of_several_streams_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for n in 0..20 {
        let stream = ["S", "T", "U"][n % 3];
        text += &format!("{{\"stream\":\"{stream}\",\"symbol\":\"s{n}\"}}\n");
    }
    let path = write(dir.path(), "f.ndjson", text.as_bytes());
    let of = |name: &str| Arc::new(StreamSchema { name: name.into(), ..(*trades()).clone() });
    let input = FileInput {
        format: Format::Json,
        streams: vec![of("S"), of("T")],
        stream_field: Some("stream".into()),
        options: ReadOptions { dialect: Dialect::Plain, ..ReadOptions::default() },
        columns: ColumnOptions::default(),
    };
    check_positions(&path, &input, 14, 6);
    let (rows, rejected, _) = read(&path, &input, 0, 100);
    assert!(rows.is_sorted(), "{rows:?}");
    assert_eq!(rejected[0].1, "line 3, byte 58: no stream `U`. Known: S, T");
}

/// Writes blocks of `rows` rows each and returns the bytes of the file.
fn container(format: &Format, blocks: usize, rows: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut writer = EventFileWriter::create(&path, format, &trades(), &WriteOptions::default()).unwrap();
    for block in 0..blocks {
        let mut builder = BatchBuilder::new(trades());
        for n in block * rows..(block + 1) * rows {
            let row = format!("{{\"symbol\":\"symbol {n}\",\"volume\":{n}}}");
            builder.push_json(row.as_bytes(), Timestamp(0)).unwrap();
        }
        writer.write(&builder.finish()).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn containers_continue_at_every_position() {
    let dir = tempfile::tempdir().unwrap();
    for codec in [Codec::Null, Codec::Deflate, Codec::Snappy] {
        let bytes = container(&Format::Avro(codec), 6, 5);
        let input = FileInput::of_stream(Format::Avro(codec), trades(), ReadOptions::default());
        check_positions(&write(dir.path(), "whole.avro", &bytes), &input, 30, 0);
        let sync = &bytes[bytes.len() - 16..];
        let begins: Vec<usize> = (16..=bytes.len() - 16).filter(|at| &bytes[at - 16..*at] == sync).collect();
        // The second block has a damaged marker, which takes the third with it; the fifth has damaged content.
        let mut damaged = bytes.clone();
        damaged[begins[2] - 3] ^= 1;
        damaged[begins[4] + 3..begins[4] + 15].fill(0xff);
        check_positions(&write(dir.path(), "damaged.avro", &damaged), &input, 15, 2);
    }
    let bytes = container(&Format::Parquet, 3, 5);
    let input = FileInput::of_stream(Format::Parquet, trades(), ReadOptions::default());
    check_positions(&write(dir.path(), "whole.parquet", &bytes), &input, 15, 0);
}

#[test]
fn a_block_whose_values_are_wrong_is_rejected_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = container(&Format::Avro(Codec::Null), 4, 3);
    let at = bytes.windows(8).position(|w| w == b"symbol 4").unwrap();
    let mut damaged = bytes.clone();
    // not UTF-8: found only when the row is decoded
    damaged[at] = 0xff;
    let input = FileInput::of_stream(Format::Avro(Codec::Null), trades(), ReadOptions::default());
    let path = write(dir.path(), "f.avro", &damaged);
    for batch_rows in [1, 2, 100] {
        let (rows, rejected, end) = read(&path, &input, 0, batch_rows);
        assert_eq!((rejected.len(), end), (1, 12));
        // Where batches are smaller than the block, rows before the damage have been returned.
        assert_eq!(rows.len(), 9 + usize::from(batch_rows < 3), "{rows:?}");
    }
    let (rows, rejected, end) = read(&path, &input, 0, 100);
    assert_eq!(rejected[0].0, 3);
    assert!(rejected[0].1.contains("a block of 3 rows"), "{rejected:?}");
    // The numbers of its rows stay unused.
    assert_eq!(rows[3].0, 6);
    assert_eq!(end, 12);
}

#[test]
fn the_time_of_an_event_is_its_time_field_or_a_named_one() {
    let dir = tempfile::tempdir().unwrap();
    let fields = [("at", FieldType::Time), ("ms", FieldType::Long)];
    let schema = Arc::new(StreamSchema { time: Some(0), ..(*stream(&fields)).clone() });
    let mut builder = BatchBuilder::new(schema.clone());
    for row in ["{\"at\":1,\"ms\":5}", "{\"ms\":6}", "{\"at\":3}"] {
        builder.push_json(row.as_bytes(), Timestamp(0)).unwrap();
    }
    let batch = builder.finish();
    for format in [Format::Avro(Codec::Null), Format::Parquet, Format::Json] {
        let path = dir.path().join("f");
        let mut writer = EventFileWriter::create(&path, &format, &schema, &WriteOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        for (event_time, expected) in [(None, [1000, NOW.0, 3000]), (Some(1), [5000, 6000, NOW.0])] {
            let options = ReadOptions { event_time, ..ReadOptions::default() };
            let input = FileInput::of_stream(format.clone(), schema.clone(), options);
            let mut source = FileSource::open("f", &path, &input).unwrap();
            let batch = source.next(NOW).unwrap().unwrap();
            let rows = &batch.rows.parts[0].1;
            let times: Vec<i64> = (0..3)
                .map(|row| match row_value(rows, 2, row) {
                    Value::Time(time) => time.0,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(times, expected, "{format:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn lines_that_are_too_long_and_cut_archives() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{{\"symbol\":\"{}\"}}", "x".repeat(200));
    let text = format!("{{\"symbol\":\"a\"}}\n{long}\n{{\"symbol\":\"b\"}}\n");
    let options = ReadOptions { line_bytes_max: 100, ..ReadOptions::default() };
    let input = FileInput::of_stream(Format::Json, trades(), options);
    let path = write(dir.path(), "f.json", text.as_bytes());
    check_positions(&path, &input, 2, 1);
    assert_eq!(read(&path, &input, 0, 9).1[0].1, "line 2, byte 15: the line is longer than 100 bytes");

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    (0..5000).for_each(|n| writeln!(packed, "{{\"symbol\":\"s{n}\"}}").unwrap());
    let bytes = packed.finish().unwrap();
    let path = write(dir.path(), "f.json.gz", &bytes[..bytes.len() - 300]);
    let mut source = FileSource::open("f", &path, &input).unwrap();
    let mut rows = 0;
    let error = loop {
        match source.next(NOW) {
            Ok(Some(batch)) => rows += batch.rows.len(),
            Ok(None) => panic!("the end of a cut archive"),
            Err(e) => break e,
        }
    };
    // Rows before the damage are returned first.
    assert!((4900..5000).contains(&rows), "{rows}");
    assert!(error.to_string().contains(&format!("line {}", rows + 1)), "{error}");
}

#[test]
fn whole_numbers_are_times_in_the_unit_of_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let written = stream(&[("at", FieldType::Long)]);
    let mut builder = BatchBuilder::new(written.clone());
    ["{\"at\":2000000}", "{}"].iter().for_each(|row| builder.push_json(row.as_bytes(), NOW).unwrap());
    let batch = builder.finish();
    for format in [Format::Avro(Codec::Null), Format::Parquet, Format::Csv { header: true, delimiter: b',' }]
    {
        let path = dir.path().join("f");
        let mut writer = EventFileWriter::create(&path, &format, &written, &WriteOptions::default()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        for (unit, micros) in
            [("s", 2_000_000_000_000), ("ms", 2_000_000_000), ("us", 2_000_000), ("ns", 2000)]
        {
            let unit = tidemill_types::EpochUnit::from_symbol(unit);
            let field = tidemill_types::Field { unit, ..tidemill_types::Field::new("at", FieldType::Time) };
            let schema = StreamSchema { fields: vec![field], time: Some(0), ..(*written).clone() };
            let input = FileInput::of_stream(format.clone(), Arc::new(schema), ReadOptions::default());
            let mut source = FileSource::open("f", &path, &input).unwrap();
            let batch = source.next(NOW).unwrap().unwrap();
            let Value::Time(time) = row_value(&batch.rows.parts[0].1, 1, 0) else { panic!() };
            assert_eq!(time.0, micros, "{format:?} {unit:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
