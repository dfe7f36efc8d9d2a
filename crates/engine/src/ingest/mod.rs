//! Decoding of request bodies, and rows split by partition: rows are parsed once into Arrow; bad rows are
//! reported, good rows are not affected.

pub mod sending;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take_record_batch;
use serde_json::value::RawValue;
use tidemill_types::{
    DecodedRows, Error, InterleavedBatches, PartitionId, Result, RowDecoder, RowOrigin, StreamSchema,
    Timestamp, header_targets, row_value, without_bom,
};

use tidemill_files::{CsvLayout, CsvRecords};

use crate::api::BodyFormat;
use crate::queries::BatchPartitioner;

/// Decodes a request body of one stream.
///
/// Errors: `Invalid` when the body as a whole cannot be decoded (not JSON, no header line). Bad rows are no
/// error; they are in the result.
pub fn decode_body(
    stream: &Arc<StreamSchema>,
    body: &[u8],
    format: BodyFormat,
    now: Timestamp,
) -> Result<DecodedRows> {
    let mut decoder = RowDecoder::new(std::slice::from_ref(stream), None);
    let body = without_bom(body);
    match format {
        BodyFormat::Json => decode_json_body(&mut decoder, body, now)?,
        BodyFormat::Ndjson => {
            for (place, line) in body.split(|b| *b == b'\n').enumerate() {
                let line = line.trim_ascii();
                if !line.is_empty() {
                    decoder.push_json(RowOrigin::of_row(place as u64), line, now);
                }
            }
        }
        BodyFormat::Csv => {
            decode_csv_body(&mut decoder, stream, body, now)
                .map_err(|e| Error::invalid(format!("{e}; nothing of the body was kept")))?;
        }
    }
    Ok(decoder.finish())
}

fn decode_json_body(decoder: &mut RowDecoder, body: &[u8], now: Timestamp) -> Result<()> {
    let body = body.trim_ascii();
    if body.first() != Some(&b'[') {
        if body.is_empty() {
            return Err(Error::invalid(
                "the body is empty: expected a JSON object, an array of objects, or one object a line",
            ));
        }
        decoder.push_json(RowOrigin::of_row(0), body, now);
        return Ok(());
    }
    let rows: Vec<&RawValue> = serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("the body is not a JSON array: {e}; nothing of it was kept")))?;
    for (place, row) in rows.iter().enumerate() {
        decoder.push_json(RowOrigin::of_row(place as u64), row.get().as_bytes(), now);
    }
    Ok(())
}

fn decode_csv_body(
    decoder: &mut RowDecoder,
    stream: &StreamSchema,
    body: &[u8],
    now: Timestamp,
) -> Result<()> {
    let mut records = CsvRecords::new(body, true, CsvLayout::default(), body.len().clamp(64, 64 << 10));
    let columns = header_targets(stream, records.header()?.iter())?;
    let mut record = csv::ByteRecord::new();
    let mut row = 0;
    while records.read(&mut record)? {
        row += 1;
        let origin = RowOrigin::of_row(row);
        match csv::StringRecord::from_byte_record(std::mem::take(&mut record)) {
            Ok(text) => decoder.push_text(origin, &columns, text.len(), text.iter(), now),
            Err(e) => {
                let column = e.utf8_error().field() + 1;
                decoder.reject(origin, format!("column {column} is not UTF-8"), b"");
            }
        }
    }
    Ok(())
}

/// Returns the partition of `row`.
pub fn partition_of_row(
    stream: &StreamSchema,
    batch: &RecordBatch,
    row: usize,
    homes: BatchPartitioner<'_>,
) -> PartitionId {
    match stream.key {
        None => homes.for_stream(&stream.name),
        Some(column) => homes.for_key(key_text(&row_value(batch, column, row)).as_bytes()),
    }
}

/// Returns the text of a key value that is hashed: strings unchanged, numbers in decimal, times as RFC 3339.
pub fn key_text<'a>(value: &'a tidemill_types::Value<'a>) -> std::borrow::Cow<'a, str> {
    use tidemill_types::Value;
    match value {
        Value::Missing | Value::Null => "".into(),
        Value::Str(s) => s.as_ref().into(),
        other => other.to_string().into(),
    }
}

/// Rows that are split by partition.
pub trait PartitionedRows: Sized {
    /// Returns the partition of each row, in order of arrival.
    fn row_partitions(&self, to: BatchPartitioner<'_>) -> Vec<PartitionId>;

    /// Splits the rows by partition, preserving their order. The result is indexed by partition; partitions
    /// without rows are `None`.
    fn split(&self, to: BatchPartitioner<'_>) -> Result<Vec<Option<Self>>>;

    /// Splits the rows as [`Self::split`] does, without the rows that a partition has already: those whose
    /// number in `row_numbers` (by arrival) is below that in `positions` (by partition).
    fn split_from(
        &self,
        row_numbers: &[u64],
        positions: &[u64],
        to: BatchPartitioner<'_>,
    ) -> Result<Vec<Option<Self>>>;
}

impl PartitionedRows for InterleavedBatches {
    fn row_partitions(&self, to: BatchPartitioner<'_>) -> Vec<PartitionId> {
        let of: Vec<Vec<Option<PartitionId>>> =
            self.parts.iter().map(|(stream, batch)| batch_partitions(stream, batch, to)).collect();
        let mut all = Vec::with_capacity(self.len());
        self.for_each_arrival(|_, part, row| all.extend(of[part][row]));
        all
    }

    fn split(&self, to: BatchPartitioner<'_>) -> Result<Vec<Option<InterleavedBatches>>> {
        split_where(self, to, |_, _| true)
    }

    fn split_from(
        &self,
        row_numbers: &[u64],
        positions: &[u64],
        to: BatchPartitioner<'_>,
    ) -> Result<Vec<Option<InterleavedBatches>>> {
        split_where(self, to, |arrival, p| row_numbers[arrival] >= positions[p.0 as usize])
    }
}

fn split_where(
    all: &InterleavedBatches,
    to: BatchPartitioner<'_>,
    keep: impl Fn(usize, PartitionId) -> bool,
) -> Result<Vec<Option<InterleavedBatches>>> {
    let mut homes: Vec<Vec<Option<PartitionId>>> =
        all.parts.iter().map(|(stream, batch)| batch_partitions(stream, batch, to)).collect();
    all.for_each_arrival(|arrival, part, row| {
        let home = &mut homes[part][row];
        *home = home.filter(|p| keep(arrival, *p));
    });
    let first = homes.iter().flatten().next().copied().flatten();
    let mut split: Vec<Option<InterleavedBatches>> = vec![None; to.partitions() as usize];
    if let Some(first) = first
        && homes.iter().flatten().all(|home| *home == Some(first))
    {
        split[first.0 as usize] = Some(all.clone());
        return Ok(split);
    }
    for p in 0..to.partitions() {
        let here = Some(PartitionId(p));
        let picked: Vec<Vec<u32>> = homes
            .iter()
            .map(|rows| (0..rows.len() as u32).filter(|r| rows[*r as usize] == here).collect())
            .collect();
        if picked.iter().any(|rows: &Vec<u32>| !rows.is_empty()) {
            split[p as usize] = Some(take_partition(all, &homes, here, picked)?);
        }
    }
    Ok(split)
}

fn take_partition(
    all: &InterleavedBatches,
    homes: &[Vec<Option<PartitionId>>],
    here: Option<PartitionId>,
    picked: Vec<Vec<u32>>,
) -> Result<InterleavedBatches> {
    let mut renumber = vec![0_u16; all.parts.len()];
    let mut rows = InterleavedBatches::default();
    for (i, indices) in picked.into_iter().enumerate() {
        if !indices.is_empty() {
            renumber[i] = rows.parts.len() as u16;
            let (stream, batch) = &all.parts[i];
            let batch = take_record_batch(batch, &UInt32Array::from(indices)).map_err(take_failed)?;
            rows.parts.push((stream.clone(), batch));
        }
    }
    if let Some(order) = all.order.as_ref().filter(|_| rows.parts.len() > 1) {
        let mut kept = Vec::with_capacity(rows.len());
        debug_assert_eq!(order.len(), all.len());
        all.for_each_arrival(|_, part, row| {
            if homes[part][row] == here {
                kept.push(renumber[part]);
            }
        });
        rows.order = Some(kept);
    }
    Ok(rows)
}

fn take_failed(e: ArrowError) -> Error {
    Error::internal("rows could not be split by part").with_source(e)
}

/// Returns the partition of every row. The common case of a string key does not go through
/// [`tidemill_types::Value`].
fn batch_partitions(
    stream: &StreamSchema,
    batch: &RecordBatch,
    to: BatchPartitioner<'_>,
) -> Vec<Option<PartitionId>> {
    let rows = 0..batch.num_rows();
    if stream.key.is_none() {
        return vec![Some(to.for_stream(&stream.name)); batch.num_rows()];
    }
    if let Some(column) = stream.key.map(|i| batch.column(i)).filter(|c| *c.data_type() == DataType::Utf8) {
        let text = column.as_string::<i32>();
        return rows
            .map(|r| Some(to.for_key(if text.is_null(r) { b"" } else { text.value(r).as_bytes() })))
            .collect();
    }
    rows.map(|r| Some(partition_of_row(stream, batch, r, to))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queries::Partitioner;
    use tidemill_types::{Field, FieldType};

    fn stream(name: &str) -> Arc<StreamSchema> {
        let field = |name: &str, ty| Field::new(name, ty);
        Arc::new(StreamSchema {
            name: name.into(),
            fields: vec![field("k", FieldType::String), field("n", FieldType::Int)],
            key: Some(0),
            id: vec![],
            time: None,
        })
    }

    #[test]
    fn rows_keep_their_order_through_a_split() {
        let mut decoder = RowDecoder::new(&[stream("A"), stream("B")], Some("stream"));
        for i in 0..200 {
            let name = if i % 3 == 0 { "B" } else { "A" };
            let row = format!(r#"{{"stream":"{name}","k":"key{}","n":{i}}}"#, i % 7);
            decoder.push_json(RowOrigin::of_row(i), row.as_bytes(), Timestamp(1));
        }
        decoder.push_json(RowOrigin::of_row(200), br#"{"stream":"C"}"#, Timestamp(1));
        let decoded = decoder.finish();
        assert_eq!(decoded.rejected[0].message, "no stream `C`. Known: A, B");
        let split = decoded.rows.split(Partitioner::new(4).of_batch(0)).unwrap();
        let mut total = 0;
        for (p, rows) in split.iter().enumerate() {
            let Some(rows) = rows else { continue };
            let order = rows.order.clone().unwrap_or_else(|| vec![0; rows.len()]);
            let mut next = vec![0; rows.parts.len()];
            let mut last = -1;
            for part in order {
                let (stream, batch) = &rows.parts[usize::from(part)];
                let row = next[usize::from(part)];
                next[usize::from(part)] += 1;
                assert_eq!(
                    partition_of_row(stream, batch, row, Partitioner::new(4).of_batch(0)),
                    PartitionId(p as u32)
                );
                let tidemill_types::Value::Int(n) = row_value(batch, 1, row) else { panic!() };
                assert!(n > last, "order kept");
                last = n;
                total += 1;
            }
        }
        assert_eq!(total, 200);
    }

    #[test]
    fn bodies() {
        let s = stream("A");
        let read = |text: &str, format| decode_body(&s, text.as_bytes(), format, Timestamp(1));
        let d = read("[{\"n\":1},{\"n\":\"x\"},3]", BodyFormat::Json).unwrap();
        assert_eq!(
            (d.rows.len(), d.rejected.iter().map(|b| b.origin.number).collect::<Vec<_>>()),
            (1, vec![1, 2])
        );
        let d = read("{\"n\":1}\n\nnot json\n{\"n\":2}", BodyFormat::Ndjson).unwrap();
        assert_eq!((d.rows.len(), d.row_numbers, d.rejected[0].origin.number), (2, vec![0, 3], 2));
        let d = read("k,n,more\na,1,x\nb,no,\nc,2\n", BodyFormat::Csv).unwrap();
        assert_eq!((d.rows.len(), d.rejected.len()), (1, 2));
        assert!(
            read("x,y\n1,2\n", BodyFormat::Csv).err().unwrap().to_string().contains("expected some of k, n")
        );
        let refused = |text| read(text, BodyFormat::Csv).err().unwrap().to_string();
        assert_eq!(
            refused("k,n,n\na,1,2\n"),
            "CSV header: the column `n` occurs twice, as columns 2 and 3: expected different names; nothing of the body was kept"
        );
        assert_eq!(
            refused("k,n\na,1\n\"b,2\nc,3\n"),
            "line 3: the quote that begins a text here has no end, so the rows from here on cannot be told apart; \
             nothing of the body was kept"
        );
        let d = read("K,N\na,1\n", BodyFormat::Csv).unwrap();
        assert_eq!((d.rows.len(), d.rejected.len()), (1, 0));
        let d = read("{\"k\":\"a\",\"more\":{\"b\":1,\"b\":2}}", BodyFormat::Json).unwrap();
        assert_eq!(d.rejected[0].message, "field `more.b` occurs twice");
        assert!(read("[1,", BodyFormat::Json).is_err());
        assert!(read(" ", BodyFormat::Json).is_err());
    }
}
