//! Reader of Avro object containers.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::compression::CompressionCodec;
use arrow_avro::reader::{self, ReaderBuilder, read_header_info};
use arrow_schema::ArrowError;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value as Json;
use tidemill_connect::SourceBatch;
use tidemill_types::{BadRow, Error, ErrorKind, Result, StreamSchema, Timestamp};

use crate::conversion::Conversion;
use crate::error::unreadable;
use crate::event_reader::{EventReader, of_converted};
use crate::fields::field_columns;
use crate::formats::avro_layout::RowLayout;
use crate::formats::blocks::{Block, Blocks, SyncMarker, bad_block, put_number};
use crate::options::{ColumnOptions, READ_BYTES, ReadOptions};

/// Positions are numbers of rows, where a damaged block counts as one row.
pub(crate) struct AvroReader {
    conversion: Conversion,
    decoder: BlockDecoder,
    source: Arc<Mutex<BlockSource>>,
    reader: reader::Reader<BlockInput>,
    /// Number of rows decoded so far, including those of blocks that could not be decoded.
    rows: u64,
    /// Batches of blocks that were decoded separately, with the numbers of their rows.
    ready: VecDeque<(RecordBatch, Vec<u64>)>,
    /// Damaged blocks after the rows returned so far.
    rejected: Vec<BadRow>,
    options: ReadOptions,
    /// Position after the rows returned so far.
    returned: u64,
}

/// Settings for decoding blocks to batches.
struct BlockDecoder {
    /// Header of an equivalent uncompressed container.
    header: Bytes,
    /// Fields to read, as indexes into the file's schema.
    fields: Vec<usize>,
    batch_rows: usize,
}

/// Source of blocks, shared with the decoder's input.
struct BlockSource {
    blocks: Blocks,
    /// Blocks whose rows have not all been returned.
    recent: VecDeque<Block>,
    failed: Option<Error>,
}

impl AvroReader {
    /// Reads the header. Errors: the input is not a container, has an unsupported codec, lacks a field, or
    /// has a field of an incompatible type.
    pub(crate) fn new(
        input: Box<dyn Read + Send>,
        schema: &Arc<StreamSchema>,
        reading: ReadOptions,
        columns: &ColumnOptions,
    ) -> Result<Self> {
        let mut input = BufReader::with_capacity(READ_BYTES, input);
        let info = read_header_info(&mut input).map_err(|e| not_avro(e.to_string()))?;
        let codec = info.compression().map_err(|e| not_avro(e.to_string()))?;
        if let Some(CompressionCodec::ZStandard | CompressionCodec::Bzip2 | CompressionCodec::Xz) = codec {
            return Err(Error::invalid(format!("blocks compressed with {codec:?} are not read")));
        }
        let written = info.writer_schema().map_err(|e| not_avro(e.to_string()))?.json_string;
        let json: Json = serde_json::from_str(&written).map_err(|e| not_avro(e.to_string()))?;
        let shape = RowLayout::parse(&json)?;
        let decoding = BlockDecoder {
            header: header(&written, &info.sync()),
            fields: field_columns(field_names(&json)?.into_iter(), schema, columns)?,
            batch_rows: reading.batch_rows,
        };
        let blocks =
            Blocks::new(input, codec, shape, info.sync(), info.header_len()).starting_at(reading.start);
        let source = Arc::new(Mutex::new(BlockSource { blocks, recent: VecDeque::new(), failed: None }));
        let reader =
            decoding.reader(BlockInput::new(&decoding.header, Some(&source))).map_err(unsupported)?;
        let conversion = Conversion::new(reader.schema().fields(), schema)?;
        Ok(Self {
            conversion,
            decoder: decoding,
            source,
            reader,
            rows: 0,
            ready: VecDeque::new(),
            rejected: vec![],
            options: reading,
            returned: reading.start,
        })
    }

    /// Handles a row that could not be decoded. The decoder's error does not identify the block, so all
    /// blocks whose rows have not all been returned are decoded separately and the bad ones rejected.
    ///
    /// Errors: `error`, if there are no such blocks.
    fn decode_row_by_row(&mut self, error: ArrowError) -> Result<()> {
        let recent = std::mem::take(&mut self.source.lock().recent);
        if recent.is_empty() {
            return Err(Error::new(ErrorKind::Corrupt, "cannot be decoded").with_source(error));
        }
        for block in recent {
            let done = self.rows.saturating_sub(block.first) as usize;
            let of_block = BlockDecoder { batch_rows: block.rows.max(1) as usize, ..self.decoder.clone() };
            let alone = Bytes::from([&self.decoder.header[..], &block.bytes].concat());
            let decoded =
                of_block.reader(BlockInput::new(&alone, None)).and_then(|mut r| r.next().transpose());
            match decoded {
                Ok(Some(batch)) => {
                    let done = done.min(batch.num_rows());
                    let numbers = block.number + done as u64..block.number + batch.num_rows() as u64;
                    self.ready.push_back((batch.slice(done, batch.num_rows() - done), numbers.collect()));
                }
                Ok(None) => {}
                Err(e) => {
                    let message = format!("a block of {} rows: {e}", block.rows);
                    // Rows of the block that were returned before it was found to be damaged stay returned.
                    let number = (block.number + done as u64).max(self.options.start);
                    self.rejected.push(bad_block(number, block.offset, message));
                }
            }
            self.rows = block.first + block.rows;
        }
        let feed = BlockInput::new(&self.decoder.header, Some(&self.source));
        self.reader = self.decoder.reader(feed).map_err(unsupported)?;
        Ok(())
    }
}

impl AvroReader {
    /// Decodes the next rows and their numbers; `None` at the end.
    fn decode(&mut self) -> Result<Option<(RecordBatch, Vec<u64>)>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            match self.reader.next() {
                Some(Ok(batch)) => {
                    let numbers = self.take_numbers(batch.num_rows() as u64);
                    return Ok(Some((batch, numbers)));
                }
                Some(Err(e)) => self.decode_row_by_row(e)?,
                None => return self.source.lock().failed.take().map_or(Ok(None), Err),
            }
        }
    }

    /// Returns the row numbers of the next `count` rows, and forgets blocks whose rows have all been decoded.
    fn take_numbers(&mut self, count: u64) -> Vec<u64> {
        let (begin, end) = (self.rows, self.rows + count);
        let mut numbers = Vec::with_capacity(count as usize);
        let mut source = self.source.lock();
        for block in &source.recent {
            let rows = block.first.max(begin)..(block.first + block.rows).min(end);
            numbers.extend(rows.map(|row| block.number + (row - block.first)));
        }
        while source.recent.front().is_some_and(|b| b.first + b.rows <= end) {
            source.recent.pop_front();
        }
        self.rows = end;
        numbers
    }
}

impl EventReader for AvroReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        loop {
            let decoded = self.decode()?;
            self.rejected.append(&mut self.source.lock().blocks.rejected);
            // Blocks that could not be decoded are reported after those that could not be read.
            self.rejected.sort_by_key(|bad| bad.origin.number);
            let Some((batch, mut numbers)) = decoded else {
                let end = self.source.lock().blocks.rows_read();
                if end <= self.returned {
                    return Ok(None);
                }
                self.returned = end;
                let rejected = std::mem::take(&mut self.rejected);
                return Ok(Some(SourceBatch { rejected, position: end, ..SourceBatch::default() }));
            };
            let skipped = numbers.partition_point(|number| *number < self.options.start);
            numbers.drain(..skipped);
            let Some(last) = numbers.last() else { continue };
            self.returned = last + 1;
            let batch = batch.slice(skipped, batch.num_rows() - skipped);
            let converted = self.conversion.convert(batch.columns(), batch.num_rows(), now)?;
            let schema = self.conversion.schema();
            return Ok(Some(of_converted(converted, schema, numbers, &mut self.rejected, self.returned)));
        }
    }
}

impl Clone for BlockDecoder {
    fn clone(&self) -> Self {
        Self { header: self.header.clone(), fields: self.fields.clone(), batch_rows: self.batch_rows }
    }
}

impl BlockDecoder {
    fn reader(&self, feed: BlockInput) -> Result<reader::Reader<BlockInput>, ArrowError> {
        let builder = ReaderBuilder::new().with_batch_size(self.batch_rows);
        builder.with_projection(self.fields.clone()).build(feed)
    }
}

/// Header and blocks as one input.
struct BlockInput {
    now: Cursor<Bytes>,
    then: Option<Arc<Mutex<BlockSource>>>,
}

impl BlockInput {
    fn new(first: &Bytes, then: Option<&Arc<Mutex<BlockSource>>>) -> Self {
        Self { now: Cursor::new(first.clone()), then: then.cloned() }
    }
}

impl Read for BlockInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for BlockInput {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.now.fill_buf()?.is_empty()
            && let Some(then) = &self.then
        {
            let mut source = then.lock();
            match source.blocks.next() {
                Ok(Some(block)) => {
                    self.now = Cursor::new(block.bytes.clone());
                    source.recent.push_back(block);
                }
                Ok(None) => {}
                // Stored here, because the decoder would replace it by an error of its own.
                Err(e) => source.failed = Some(unreadable(e)),
            }
        }
        self.now.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.now.consume(amount);
    }
}

/// Encodes the header of an uncompressed container.
fn header(schema: &str, sync: &SyncMarker) -> Bytes {
    let mut out = b"Obj\x01".to_vec();
    put_number(&mut out, 2);
    for text in ["avro.schema", schema, "avro.codec", "null"] {
        put_number(&mut out, text.len() as i64);
        out.extend_from_slice(text.as_bytes());
    }
    put_number(&mut out, 0);
    out.extend_from_slice(sync);
    out.into()
}

/// Returns the field names of a record schema.
fn field_names(schema: &Json) -> Result<Vec<&str>> {
    let fields = schema.get("fields").and_then(Json::as_array);
    let fields = fields.ok_or_else(|| Error::invalid("expected records: the Avro schema has no fields"))?;
    Ok(fields.iter().map(|field| field["name"].as_str().unwrap_or_default()).collect())
}

fn not_avro(why: String) -> Error {
    Error::invalid(format!("not an Avro object container: {why}"))
}

fn unsupported(e: ArrowError) -> Error {
    Error::invalid("the file's Avro schema cannot be read").with_source(e)
}
