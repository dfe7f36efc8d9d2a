use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, NullArray, StringArray, TimestampMicrosecondArray,
};
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use bytes::Bytes;
use proptest::prelude::*;
use tidemill_types::{ErrorKind, Field, FieldType, event_json};

use super::*;

type Decoder = fn(Bytes, &Arc<StreamSchema>, Timestamp, usize) -> Result<DecodedRows>;

fn stream() -> Arc<StreamSchema> {
    let fields = vec![
        Field::new("name", FieldType::String),
        Field::new("load", FieldType::Int),
        Field::new("at", FieldType::Time),
        Field::new("more", FieldType::Object),
    ];
    Arc::new(StreamSchema { name: "Trucks".into(), fields, key: None, id: vec![], time: Some(2) })
}

fn trucks(first: i64, rows: i64) -> RecordBatch {
    let names = StringArray::from_iter_values((first..first + rows).map(|n| format!("truck {n}")));
    let loads = Int64Array::from_iter((first..first + rows).map(|n| (n % 5 != 0).then_some(n)));
    let times = TimestampMicrosecondArray::from_iter_values((first..first + rows).map(|n| n * 1_000_000));
    let columns: [(&str, ArrayRef); 3] =
        [("load", Arc::new(loads)), ("name", Arc::new(names)), ("at", Arc::new(times.with_timezone("UTC")))];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn arrow(batches: &[RecordBatch]) -> Bytes {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
    writer.into_inner().unwrap().into()
}

#[cfg(feature = "parquet")]
fn parquet_with(batches: &[RecordBatch], compression: parquet::basic::Compression) -> Bytes {
    let properties =
        parquet::file::properties::WriterProperties::builder().set_compression(compression).build();
    let writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batches[0].schema(), Some(properties));
    let mut writer = writer.unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap().into()
}

/// Forms of a body with these batches, and their decoders.
fn bodies(batches: &[RecordBatch]) -> Vec<(&'static str, Bytes, Decoder)> {
    vec![
        ("arrow", arrow(batches), events_from_arrow_stream as Decoder),
        #[cfg(feature = "parquet")]
        (
            "parquet",
            parquet_with(batches, parquet::basic::Compression::ZSTD(Default::default())),
            events_from_parquet as Decoder,
        ),
    ]
}

fn events(rows: &DecodedRows) -> Vec<String> {
    let part = |(stream, batch): &(Arc<StreamSchema>, RecordBatch)| {
        (0..batch.num_rows())
            .map(|row| event_json(stream, batch, row))
            .map(|e| serde_json::Value::from(e).to_string())
            .collect::<Vec<_>>()
    };
    rows.rows.parts.iter().flat_map(part).collect()
}

#[test]
fn rows_of_all_batches_are_events_and_bad_ones_have_their_numbers() {
    let large: ArrayRef = Arc::new(Int64Array::from(vec![1, i64::MAX, 3]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["x", "y", "z"]));
    let times = TimestampMicrosecondArray::from(vec![1, 2, 3]).with_timezone("UTC");
    let bad =
        RecordBatch::try_from_iter([("load", large), ("name", names), ("at", Arc::new(times))]).unwrap();
    for (format, body, decode) in bodies(&[trucks(0, 1500), bad]) {
        let rows = decode(body, &stream(), Timestamp(7), 1 << 20).unwrap();
        let found = events(&rows);
        assert_eq!(found.len(), 1502, "{format}");
        assert_eq!(found[3], r#"{"at":"1970-01-01T00:00:03Z","load":3,"name":"truck 3"}"#, "{format}");
        assert!(found[1501].contains(r#""name":"z""#), "{format}: {}", found[1501]);
        let rejected: Vec<_> = rows.rejected.iter().map(|b| (b.origin.number, b.message.as_str())).collect();
        let reason = "field `load`: expected int (a whole number of 32 bits), found 9223372036854775807";
        assert_eq!(rejected, [(1501, reason)], "{format}");
        assert_eq!(rows.row_numbers.last(), Some(&1502), "{format}");
    }
}

#[test]
fn columns_that_do_not_fit_are_refused_by_name() {
    let other =
        RecordBatch::try_from_iter([("laod", Arc::new(Float64Array::from(vec![1.0])) as ArrayRef)]).unwrap();
    for (format, body, decode) in bodies(&[other]) {
        let error = decode(body, &stream(), Timestamp(0), 1 << 20).unwrap_err();
        assert!(
            error.to_string().contains("no field for the column `laod`. Did you mean `load`?"),
            "{format}: {error}"
        );
    }
}

#[test]
fn what_expands_beyond_the_limit_is_refused_before_it_does() {
    // 50,000 rows that are one text of 100,000 bytes: 5 GB as plain texts
    let keys = arrow_array::Int32Array::from(vec![0; 50_000]);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100_000)]));
    let repeated = DictionaryArray::<Int32Type>::new(keys, text);
    let texts = RecordBatch::try_from_iter([("name", Arc::new(repeated) as ArrayRef)]).unwrap();
    let nulls =
        RecordBatch::try_from_iter([("name", Arc::new(NullArray::new(1 << 40)) as ArrayRef)]).unwrap();
    for (format, body, decode) in
        bodies(&[texts]).into_iter().chain([("nulls", arrow(&[nulls]), events_from_arrow_stream as Decoder)])
    {
        assert!(body.len() < 1 << 20, "{format}: {}", body.len());
        let error = decode(body, &stream(), Timestamp(0), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitReached, "{format}: {error}");
        assert!(error.to_string().contains("server.body_bytes_max"), "{format}: {error}");
    }
}

#[test]
fn compressions_without_a_bound_are_refused_with_the_others() {
    let options = IpcWriteOptions::default();
    let options = options.try_with_compression(Some(arrow_ipc::CompressionType::LZ4_FRAME)).unwrap();
    let batch = trucks(0, 100);
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    let body: Bytes = writer.into_inner().unwrap().into();
    let error = events_from_arrow_stream(body, &stream(), Timestamp(0), 1 << 20).unwrap_err().to_string();
    assert!(
        error.contains("message 1 has compressed buffers") && error.contains("Content-Encoding: zstd"),
        "{error}"
    );
    #[cfg(feature = "parquet")]
    {
        let body = parquet_with(&[batch], parquet::basic::Compression::GZIP(Default::default()));
        let error = events_from_parquet(body, &stream(), Timestamp(0), 1 << 20).unwrap_err().to_string();
        assert!(error.contains("column `load`: the compression GZIP(GzipLevel(6)) is not read"), "{error}");
    }
}

#[test]
fn bodies_that_are_cut_are_refused() {
    for (format, body, decode) in bodies(&[trucks(0, 20), trucks(20, 20)]) {
        let mut refused = 0;
        for end in 0..body.len() {
            match decode(body.slice(..end), &stream(), Timestamp(0), 1 << 20) {
                // a stream without its end marker is whole at the end of a batch
                Ok(rows) => assert!(format == "arrow" && rows.rows.len() % 20 == 0, "{format}: {end}"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Invalid, "{format}, {end}: {e}");
                    refused += 1;
                }
            }
        }
        assert!(refused > body.len() - 10, "{format}");
    }
}

#[test]
#[cfg(feature = "parquet")]
fn deeply_nested_columns_are_refused() {
    use arrow_array::{Int64Array, StructArray};
    let mut nested: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    for _ in 0..40 {
        let field = Arc::new(arrow_schema::Field::new("in", nested.data_type().clone(), true));
        nested = Arc::new(StructArray::from(vec![(field, nested)]));
    }
    let batch = RecordBatch::try_from_iter([("more", nested)]).unwrap();
    let body = parquet_with(&[batch], parquet::basic::Compression::SNAPPY);
    let error = events_from_parquet(body, &stream(), Timestamp(0), 1 << 20).unwrap_err().to_string();
    assert_eq!(error, "the body is not a Parquet file: its columns are nested more than 32 deep");
}

#[test]
fn nested_columns_are_objects() {
    use arrow_array::StructArray;
    let field = Arc::new(arrow_schema::Field::new("colour", arrow_schema::DataType::Utf8, true));
    let colours: ArrayRef = Arc::new(StringArray::from(vec![Some("red"), None]));
    let batch = RecordBatch::try_from_iter([(
        "more",
        Arc::new(StructArray::from(vec![(field, colours)])) as ArrayRef,
    )]);
    for (format, body, decode) in bodies(&[batch.unwrap()]) {
        let rows = decode(body, &stream(), Timestamp(0), 1 << 20).unwrap();
        assert!(events(&rows)[0].contains(r#""more":{"colour":"red"}"#), "{format}: {:?}", events(&rows));
    }
}

proptest! {
    /// Bytes that were changed are read or refused; the decoders do not end the process.
    #[test]
    fn damaged_bodies_are_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for (_, body, decode) in bodies(&[trucks(0, 30), trucks(30, 10)]) {
            let mut bytes = body.to_vec();
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let _ = decode(bytes.into(), &stream(), Timestamp(0), 1 << 20);
        }
    }
}
