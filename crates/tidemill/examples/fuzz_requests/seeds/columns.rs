//! Columns of events, and of parameters.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::{FlightData, FlightDescriptor};
use arrow_ipc::writer::StreamWriter;
use futures::{TryStreamExt, stream};
use parquet::arrow::ArrowWriter;

const BASE_US: i64 = 1_767_603_600_000_000;

/// Returns events of the stream `Flight`.
pub fn batch() -> RecordBatch {
    let origins: DictionaryArray<arrow_array::types::Int32Type> =
        vec![Some("a"), None, Some("b")].into_iter().collect();
    let times = TimestampMicrosecondArray::from(vec![Some(BASE_US), None, Some(0)]).with_timezone("UTC");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(StringArray::from(vec!["c1", "c2", "c3"]))),
        ("origin", Arc::new(origins)),
        ("seats", Arc::new(Int64Array::from(vec![Some(1), None, Some(i64::MAX)]))),
        ("delay", Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NAN), None]))),
        ("late", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("at", Arc::new(times)),
    ];
    named(columns)
}

/// Returns values for `$1` and `$2`.
pub fn parameters() -> RecordBatch {
    named(vec![
        ("$1", Arc::new(Int64Array::from(vec![1, 2]))),
        ("$2", Arc::new(Float64Array::from(vec![Some(0.5), None]))),
    ])
}

fn named(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

/// Returns an Arrow IPC stream.
pub fn stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(vec![], &batch.schema()).expect("a writer in memory");
    writer.write(batch).expect("bytes in memory");
    writer.into_inner().expect("bytes in memory")
}

/// Returns a Parquet file.
pub fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(vec![], batch.schema(), None).expect("a writer in memory");
    writer.write(batch).expect("bytes in memory");
    writer.into_inner().expect("bytes in memory")
}

/// Returns the messages of a `DoPut`.
pub fn flight_data(batch: &RecordBatch, descriptor: FlightDescriptor) -> Vec<FlightData> {
    let encoder = FlightDataEncoderBuilder::new().with_flight_descriptor(Some(descriptor));
    let messages = encoder.build(stream::iter([Ok(batch.clone())]));
    futures::executor::block_on(messages.try_collect()).expect("messages in memory")
}
