//! Decoding of request bodies and files into batches: rows are parsed once into Arrow; bad rows are reported,
//! good rows are not affected.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take_record_batch;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Error, PartitionId, Result, StreamSchema, Timestamp, row_value, without_bom};

use crate::BodyFormat;
use crate::queries::Partitioner;

/// Maximum bytes of a bad row that are stored.
const RAW_BYTES_MAX: usize = 64 << 10;

/// Rows of one or several streams in order of arrival, and the rows that could not be decoded.
#[derive(Default)]
pub struct DecodedRows {
    /// Good rows.
    pub rows: InterleavedBatches,
    /// Bad rows.
    pub rejected: Vec<BadRow>,
    /// Position in the input of each good row, in order of arrival.
    pub row_numbers: Vec<u64>,
}

/// Row that could not be decoded.
pub struct BadRow {
    /// Position in the input, from 0.
    pub row_number: u64,
    /// Intended stream, if known.
    pub stream: Option<String>,
    /// Expected and actual value.
    pub reason: String,
    /// Raw row, cut at 64 KiB.
    pub raw: String,
}

/// Batches with the order in which their rows arrived.
#[derive(Default, Clone)]
pub struct InterleavedBatches {
    /// Rows of each stream.
    pub parts: Vec<(Arc<StreamSchema>, RecordBatch)>,
    /// For each row, the index of its part; `None` for a single part.
    pub order: Option<Vec<u16>>,
}

/// Decoder of single rows into batches.
pub struct Decoder {
    builders: Vec<(Arc<StreamSchema>, BatchBuilder)>,
    by_name: HashMap<String, u16>,
    order: Vec<u16>,
    out: DecodedRows,
}

impl Decoder {
    /// Creates a decoder for these streams. `envelope` is the field that names a row's stream, if rows have
    /// one.
    pub fn new(streams: &[Arc<StreamSchema>], envelope: Option<&str>) -> Self {
        let mut by_name = HashMap::new();
        let mut builders = Vec::new();
        for (i, stream) in streams.iter().enumerate() {
            // an app has fewer than 65,536 streams: the compiler rejects more
            by_name.insert(stream.name.clone(), i as u16);
            let builder = BatchBuilder::new(stream.clone());
            let builder = match envelope {
                Some(field) => builder.without_envelope(field),
                None => builder,
            };
            builders.push((stream.clone(), builder));
        }
        Self { builders, by_name, order: Vec::new(), out: DecodedRows::default() }
    }

    /// Decodes one JSON object into `stream` (an index into the streams of the decoder).
    pub fn push_json_row(&mut self, stream: u16, place: u64, row: &[u8], now: Timestamp) {
        let (schema, builder) = &mut self.builders[usize::from(stream)];
        match builder.push_json(row, now) {
            Ok(()) => {
                self.order.push(stream);
                self.out.row_numbers.push(place);
            }
            Err(e) => self.out.rejected.push(BadRow::new(place, Some(&schema.name), e.to_string(), row)),
        }
    }

    /// Decodes one JSON object whose `field` names its stream.
    pub fn push_json_row_with_stream(&mut self, field: &str, place: u64, row: &[u8], now: Timestamp) {
        match self.stream_of(field, row) {
            Ok(stream) => self.push_json_row(stream, place, row, now),
            Err(reason) => self.out.rejected.push(BadRow::new(place, None, reason, row)),
        }
    }

    fn stream_of(&self, field: &str, row: &[u8]) -> Result<u16, String> {
        let name = match leading_field(field, row) {
            Some(name) => std::borrow::Cow::Borrowed(name),
            None => {
                let all: HashMap<String, &RawValue> =
                    serde_json::from_slice(row).map_err(|e| e.to_string())?;
                let raw =
                    all.get(field).ok_or_else(|| format!("no field `{field}`, which names the stream"))?;
                let name = String::deserialize(*raw)
                    .map_err(|_| format!("field `{field}`: expected a stream's name in quotes"))?;
                std::borrow::Cow::Owned(name)
            }
        };
        self.by_name.get(name.as_ref()).copied().ok_or_else(|| {
            format!(
                "no stream `{name}`{}",
                tidemill_types::did_you_mean(&name, self.by_name.keys().map(String::as_str))
            )
        })
    }

    /// Decodes one row of text cells into `stream`.
    pub fn push_text_row(
        &mut self,
        stream: u16,
        place: u64,
        columns: &[Result<usize, String>],
        record: &csv::StringRecord,
        now: Timestamp,
    ) {
        let (schema, builder) = &mut self.builders[usize::from(stream)];
        let result = if record.len() == columns.len() {
            builder.push_text(columns.iter().zip(record.iter()), now)
        } else {
            Err(Error::invalid(format!(
                "expected {} cells as in the header, found {}",
                columns.len(),
                record.len()
            )))
        };
        match result {
            Ok(()) => {
                self.order.push(stream);
                self.out.row_numbers.push(place);
            }
            Err(e) => {
                let raw = record.iter().collect::<Vec<_>>().join(",");
                self.out.rejected.push(BadRow::new(place, Some(&schema.name), e.to_string(), raw.as_bytes()));
            }
        }
    }

    /// Records a row of `stream` that could not be split into cells.
    pub fn reject(&mut self, stream: u16, place: u64, reason: String) {
        let name = self.builders[usize::from(stream)].0.name.clone();
        self.out.rejected.push(BadRow::new(place, Some(&name), reason, b""));
    }

    /// Returns the number of good and bad rows since the last [`Self::finish`].
    pub fn rows_read(&self) -> usize {
        self.order.len() + self.out.rejected.len()
    }

    /// Returns the rows decoded since the last call.
    pub fn finish(&mut self) -> DecodedRows {
        let mut out = std::mem::take(&mut self.out);
        let order = std::mem::take(&mut self.order);
        let mut renumber = vec![0_u16; self.builders.len()];
        for (i, (schema, builder)) in self.builders.iter_mut().enumerate() {
            if !builder.is_empty() {
                renumber[i] = out.rows.parts.len() as u16;
                out.rows.parts.push((schema.clone(), builder.finish()));
            }
        }
        if out.rows.parts.len() > 1 {
            out.rows.order = Some(order.into_iter().map(|i| renumber[usize::from(i)]).collect());
        }
        out
    }
}

impl BadRow {
    /// Creates the bad row for a body that could not be decoded at all.
    pub fn of_body(stream: &str, reason: String, body: &[u8]) -> Self {
        Self::new(0, Some(stream), reason, body)
    }

    fn new(place: u64, stream: Option<&str>, reason: String, raw: &[u8]) -> Self {
        let cut = &raw[..raw.len().min(RAW_BYTES_MAX)];
        Self {
            row_number: place,
            stream: stream.map(str::to_owned),
            reason,
            raw: String::from_utf8_lossy(cut).into_owned(),
        }
    }
}

/// Returns the value of `field` if it is the object's first field and a string without escapes:
/// `{"stream":"TakeOffEvent",…`.
fn leading_field<'r>(field: &str, row: &'r [u8]) -> Option<&'r str> {
    let rest = row.strip_prefix(b"{\"")?.strip_prefix(field.as_bytes())?.strip_prefix(b"\":")?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    let name = std::str::from_utf8(&rest[..end]).ok()?;
    (!name.contains('\\')).then_some(name)
}

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
    let mut decoder = Decoder::new(std::slice::from_ref(stream), None);
    let body = without_bom(body);
    match format {
        BodyFormat::Json => decode_json_body(&mut decoder, body, now)?,
        BodyFormat::Ndjson => {
            for (place, line) in body.split(|b| *b == b'\n').enumerate() {
                let line = line.trim_ascii();
                if !line.is_empty() {
                    decoder.push_json_row(0, place as u64, line, now);
                }
            }
        }
        BodyFormat::Csv => {
            let mut reader = csv_reader(body);
            let columns = csv_columns(stream, &mut reader)?;
            for (place, record) in reader.records().enumerate() {
                match record {
                    Ok(record) => decoder.push_text_row(0, place as u64 + 1, &columns, &record, now),
                    Err(e) => decoder.reject(0, place as u64 + 1, e.to_string()),
                }
            }
        }
    }
    Ok(decoder.finish())
}

fn decode_json_body(decoder: &mut Decoder, body: &[u8], now: Timestamp) -> Result<()> {
    let body = body.trim_ascii();
    if body.first() != Some(&b'[') {
        if body.is_empty() {
            return Err(Error::invalid(
                "the body is empty: expected a JSON object, an array of objects, or one object a line",
            ));
        }
        decoder.push_json_row(0, 0, body, now);
        return Ok(());
    }
    let rows: Vec<&RawValue> = serde_json::from_slice(body)
        .map_err(|e| Error::invalid(format!("the body is not a JSON array: {e}; nothing of it was kept")))?;
    for (place, row) in rows.iter().enumerate() {
        decoder.push_json_row(0, place as u64, row.get().as_bytes(), now);
    }
    Ok(())
}

/// Creates a reader of CSV with a header. Rows with a wrong number of cells do not end the reading; each is
/// rejected.
pub fn csv_reader<R: std::io::Read>(input: R) -> csv::Reader<R> {
    csv::ReaderBuilder::new().flexible(true).from_reader(input)
}

/// Maps each column of the header to its field; other names become extra fields.
pub fn csv_columns<R: std::io::Read>(
    stream: &StreamSchema,
    reader: &mut csv::Reader<R>,
) -> Result<Vec<Result<usize, String>>> {
    let header =
        reader.headers().map_err(|e| Error::invalid(format!("the CSV header cannot be read: {e}")))?;
    let columns: Vec<_> = header
        .iter()
        .map(|name| stream.field_index(name.trim()).ok_or_else(|| name.trim().to_owned()))
        .collect();
    if columns.iter().all(Result::is_err) {
        let known: Vec<&str> = stream.fields.iter().map(|f| f.name.as_str()).collect();
        return Err(Error::invalid(format!(
            "the CSV header names none of the fields of {}: expected some of {}",
            stream.name,
            known.join(", ")
        )));
    }
    Ok(columns)
}

/// Returns the partition of `row`.
pub fn partition_of_row(
    stream: &StreamSchema,
    batch: &RecordBatch,
    row: usize,
    homes: &Partitioner,
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

impl InterleavedBatches {
    /// Returns the number of rows of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|(_, b)| b.num_rows()).sum()
    }

    /// Splits the rows into chunks of at most `max` rows, in order.
    pub fn chunks(&self, max: usize) -> Vec<InterleavedBatches> {
        if self.len() <= max {
            return if self.len() == 0 { Vec::new() } else { vec![self.clone()] };
        }
        let mut next = vec![0_usize; self.parts.len()];
        let single;
        let order: &[u16] = match &self.order {
            Some(order) => order,
            None => {
                single = vec![0_u16; self.len()];
                &single
            }
        };
        let mut chunks = Vec::new();
        for order in order.chunks(max) {
            let mut chunk = InterleavedBatches { parts: Vec::new(), order: Some(order.to_vec()) };
            let mut renumber = vec![0_u16; self.parts.len()];
            for (i, (stream, batch)) in self.parts.iter().enumerate() {
                let n = order.iter().filter(|part| usize::from(**part) == i).count();
                if n > 0 {
                    renumber[i] = chunk.parts.len() as u16;
                    chunk.parts.push((stream.clone(), batch.slice(next[i], n)));
                    next[i] += n;
                }
            }
            chunk.order = (chunk.parts.len() > 1)
                .then(|| order.iter().map(|part| renumber[usize::from(*part)]).collect());
            chunks.push(chunk);
        }
        chunks
    }

    /// Returns the partition of each row, in order of arrival.
    pub fn row_partitions(&self, to: &Partitioner) -> Vec<PartitionId> {
        let of: Vec<Vec<Option<PartitionId>>> =
            self.parts.iter().map(|(stream, batch)| batch_partitions(stream, batch, to)).collect();
        let mut all = Vec::with_capacity(self.len());
        self.for_each_arrival(|_, part, row| all.extend(of[part][row]));
        all
    }

    /// Splits the rows by partition, preserving their order. The result is indexed by partition; partitions
    /// without rows are `None`.
    pub fn split(&self, to: &Partitioner) -> Result<Vec<Option<InterleavedBatches>>> {
        self.split_where(to, |_, _| true)
    }

    /// Splits the rows as [`Self::split`] does, without the rows that a partition has already: those whose
    /// position in `places` (by arrival) is below that in `positions` (by partition).
    pub fn split_from(
        &self,
        places: &[u64],
        positions: &[u64],
        to: &Partitioner,
    ) -> Result<Vec<Option<InterleavedBatches>>> {
        self.split_where(to, |arrival, p| places[arrival] >= positions[p.0 as usize])
    }

    fn split_where(
        &self,
        to: &Partitioner,
        keep: impl Fn(usize, PartitionId) -> bool,
    ) -> Result<Vec<Option<InterleavedBatches>>> {
        let mut homes: Vec<Vec<Option<PartitionId>>> =
            self.parts.iter().map(|(stream, batch)| batch_partitions(stream, batch, to)).collect();
        self.for_each_arrival(|arrival, part, row| {
            let home = &mut homes[part][row];
            *home = home.filter(|p| keep(arrival, *p));
        });
        let first = homes.iter().flatten().next().copied().flatten();
        let mut split: Vec<Option<InterleavedBatches>> = vec![None; to.partitions as usize];
        if let Some(first) = first
            && homes.iter().flatten().all(|home| *home == Some(first))
        {
            split[first.0 as usize] = Some(self.clone());
            return Ok(split);
        }
        for p in 0..to.partitions {
            let here = Some(PartitionId(p));
            let picked: Vec<Vec<u32>> = homes
                .iter()
                .map(|rows| (0..rows.len() as u32).filter(|r| rows[*r as usize] == here).collect())
                .collect();
            if picked.iter().any(|rows: &Vec<u32>| !rows.is_empty()) {
                split[p as usize] = Some(self.take_partition(&homes, here, picked)?);
            }
        }
        Ok(split)
    }

    /// Calls `f` with the arrival index, part and row of each row, in order of arrival.
    fn for_each_arrival(&self, mut f: impl FnMut(usize, usize, usize)) {
        match &self.order {
            Some(order) => {
                let mut next = vec![0; self.parts.len()];
                for (arrival, part) in order.iter().enumerate() {
                    let part = usize::from(*part);
                    f(arrival, part, next[part]);
                    next[part] += 1;
                }
            }
            None => {
                let rows = self
                    .parts
                    .iter()
                    .enumerate()
                    .flat_map(|(i, (_, b))| (0..b.num_rows()).map(move |r| (i, r)));
                for (arrival, (part, row)) in rows.enumerate() {
                    f(arrival, part, row);
                }
            }
        }
    }

    fn take_partition(
        &self,
        homes: &[Vec<Option<PartitionId>>],
        here: Option<PartitionId>,
        picked: Vec<Vec<u32>>,
    ) -> Result<InterleavedBatches> {
        let mut renumber = vec![0_u16; self.parts.len()];
        let mut rows = InterleavedBatches::default();
        for (i, indices) in picked.into_iter().enumerate() {
            if !indices.is_empty() {
                renumber[i] = rows.parts.len() as u16;
                let (stream, batch) = &self.parts[i];
                let batch = take_record_batch(batch, &UInt32Array::from(indices)).map_err(take_failed)?;
                rows.parts.push((stream.clone(), batch));
            }
        }
        if let Some(order) = self.order.as_ref().filter(|_| rows.parts.len() > 1) {
            let mut kept = Vec::with_capacity(rows.len());
            debug_assert_eq!(order.len(), self.len());
            self.for_each_arrival(|_, part, row| {
                if homes[part][row] == here {
                    kept.push(renumber[part]);
                }
            });
            rows.order = Some(kept);
        }
        Ok(rows)
    }
}

fn take_failed(e: ArrowError) -> Error {
    Error::internal("rows could not be split by part").with_source(e)
}

/// Returns the partition of every row. The common case of a string key does not go through
/// [`tidemill_types::Value`].
fn batch_partitions(
    stream: &StreamSchema,
    batch: &RecordBatch,
    to: &Partitioner,
) -> Vec<Option<PartitionId>> {
    let rows = 0..batch.num_rows();
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
        let mut decoder = Decoder::new(&[stream("A"), stream("B")], Some("stream"));
        for i in 0..200 {
            let name = if i % 3 == 0 { "B" } else { "A" };
            let row = format!(r#"{{"stream":"{name}","k":"key{}","n":{i}}}"#, i % 7);
            decoder.push_json_row_with_stream("stream", i, row.as_bytes(), Timestamp(1));
        }
        decoder.push_json_row_with_stream("stream", 200, br#"{"stream":"C"}"#, Timestamp(1));
        let decoded = decoder.finish();
        assert_eq!(decoded.rejected[0].reason, "no stream `C`. Known: A, B");
        let split = decoded.rows.split(&Partitioner::new(4)).unwrap();
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
                assert_eq!(partition_of_row(stream, batch, row, &Partitioner::new(4)), PartitionId(p as u32));
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
            (d.rows.len(), d.rejected.iter().map(|b| b.row_number).collect::<Vec<_>>()),
            (1, vec![1, 2])
        );
        let d = read("{\"n\":1}\n\nnot json\n{\"n\":2}", BodyFormat::Ndjson).unwrap();
        assert_eq!((d.rows.len(), d.row_numbers, d.rejected[0].row_number), (2, vec![0, 3], 2));
        let d = read("k,n,more\na,1,x\nb,no,\nc,2\n", BodyFormat::Csv).unwrap();
        assert_eq!((d.rows.len(), d.rejected.len()), (1, 2));
        assert!(
            read("x,y\n1,2\n", BodyFormat::Csv).err().unwrap().to_string().contains("expected some of k, n")
        );
        assert!(read("[1,", BodyFormat::Json).is_err());
        assert!(read(" ", BodyFormat::Json).is_err());
    }
}
