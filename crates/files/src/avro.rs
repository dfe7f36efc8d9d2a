//! Reader of Avro object containers.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::compression::CompressionCodec;
use arrow_avro::reader::{self, ReaderBuilder, read_header_info};
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value as Json;
use tidemill_types::{Error, ErrorKind, Result, StreamSchema};

use crate::avro_layout::RowLayout;
use crate::blocks::{Block, Blocks, SyncMarker, put_number};
use crate::fields::{check, convert, declared, field_columns};
use crate::reader::{BadRow, EventReader, READ_BYTES, ReadOptions, unreadable};

pub(crate) struct AvroReader {
    schema: Arc<StreamSchema>,
    declared: SchemaRef,
    decoder: BlockDecoder,
    source: Arc<Mutex<BlockSource>>,
    reader: reader::Reader<BlockInput>,
    /// Number of rows returned so far, including decoded rows of bad blocks.
    rows: u64,
    /// Batches of blocks that were decoded separately.
    ready: VecDeque<RecordBatch>,
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
            fields: field_columns(field_names(&json)?.into_iter(), schema)?,
            batch_rows: reading.batch_rows,
        };
        let blocks = Blocks::new(input, codec, shape, info.sync(), info.header_len());
        let source = Arc::new(Mutex::new(BlockSource { blocks, recent: VecDeque::new(), failed: None }));
        let reader =
            decoding.reader(BlockInput::new(&decoding.header, Some(&source))).map_err(unsupported)?;
        check(reader.schema().fields(), schema)?;
        let declared = declared(schema);
        Ok(Self {
            schema: schema.clone(),
            declared,
            decoder: decoding,
            source,
            reader,
            rows: 0,
            ready: VecDeque::new(),
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
                    self.ready.push_back(batch.slice(done, batch.num_rows() - done));
                }
                Ok(None) => {}
                Err(e) => {
                    let message = format!("a block of {} rows: {e}", block.rows);
                    let bad = BadRow { line: None, offset: block.offset, message, text: String::new() };
                    self.source.lock().blocks.rejected.push(bad);
                }
            }
            self.rows = block.first + block.rows;
        }
        let feed = BlockInput::new(&self.decoder.header, Some(&self.source));
        self.reader = self.decoder.reader(feed).map_err(unsupported)?;
        Ok(())
    }
}

impl EventReader for AvroReader {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = loop {
            if let Some(batch) = self.ready.pop_front() {
                break batch;
            }
            match self.reader.next() {
                Some(Ok(batch)) => {
                    self.rows += batch.num_rows() as u64;
                    let mut source = self.source.lock();
                    while source.recent.front().is_some_and(|b| b.first + b.rows <= self.rows) {
                        source.recent.pop_front();
                    }
                    break batch;
                }
                Some(Err(e)) => self.decode_row_by_row(e)?,
                None => return self.source.lock().failed.take().map_or(Ok(None), Err),
            }
        };
        convert(batch.columns(), batch.num_rows(), &self.schema, &self.declared).map(Some)
    }

    fn take_rejected(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.source.lock().blocks.rejected)
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
