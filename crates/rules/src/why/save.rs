//! Serialization of a trace, so that explanations survive a restart.
//!
//! Format: `docs/formats/why.md`.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, Offset, PartitionId, Result};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::trace::{RecordRows, Trace, TraceRecord, TracedPart, TracedRun};
use crate::program::Program;

const MAGIC: &[u8; 8] = b"TMWHY001";

/// Limit on the bytes of a section. A run holds at most what a trace may hold, and its batches.
const SECTION_MAX: usize = 1 << 30;

/// A frozen copy of a [`Trace`], cheap to create: the runs are shared.
#[derive(Debug, Clone)]
pub struct TraceImage(pub(super) Vec<Arc<TracedRun>>);

/// Header of a run's section. Documents and batches follow it.
#[derive(Serialize, Deserialize)]
struct RunHeader {
    partition: PartitionId,
    offset: Offset,
    parts: Vec<PartHeader>,
    records: Vec<TraceRecord>,
    /// For each bound document its index in `blobs`.
    docs: Vec<Option<u32>>,
    /// Lengths of the distinct documents.
    blobs: Vec<u32>,
    messages: Vec<String>,
    events: usize,
    bytes: usize,
    cut: bool,
}

#[derive(Serialize, Deserialize)]
struct PartHeader {
    stream: usize,
    /// Rows that are no duplicates; `None` if all are.
    keep: Option<Vec<bool>>,
    rows: RecordRows,
    /// Lengths of the batch's message and of its buffers.
    batch: (u32, u32),
}

impl TraceImage {
    /// Writes the runs, oldest first.
    ///
    /// Errors: those of `out`; `Internal` for a run that cannot be encoded.
    pub fn write_to(&self, program: &Program, out: &mut impl Write) -> Result<()> {
        let failed = |e| Error::unavailable("cannot write the explanation file").with_source(e);
        let mut encoder = BatchEncoder::default();
        out.write_all(MAGIC).map_err(failed)?;
        out.write_all(&fingerprint(program).to_le_bytes()).map_err(failed)?;
        for turn in &self.0 {
            let section = turn.encode(&mut encoder)?;
            let len = u32::try_from(section.len()).ok().filter(|len| *len as usize <= SECTION_MAX);
            // a run too large for a section is skipped and cannot be explained after a restart
            let Some(len) = len else { continue };
            out.write_all(&len.to_le_bytes()).map_err(failed)?;
            out.write_all(&xxh3_64(&section).to_le_bytes()).map_err(failed)?;
            out.write_all(&section).map_err(failed)?;
        }
        Ok(())
    }
}

impl Trace {
    /// Adds the runs that [`TraceImage::write_to`] wrote; they must be older than any run traced afterwards.
    ///
    /// Returns false and adds nothing if they belong to another program, because the records refer to its
    /// rules. Errors: `Corrupt` with the byte position; the runs before it are kept.
    pub fn read_from(&mut self, program: &Program, input: &mut impl Read) -> Result<bool> {
        let mut head = [0; 16];
        fill(input, &mut head, 0)?;
        let (magic, written) = head.split_at(8);
        if magic != MAGIC {
            return Err(Error::corrupt("byte 0: not an explanation file of this format"));
        }
        if written != fingerprint(program).to_le_bytes() {
            return Ok(false);
        }
        let mut at = 16_u64;
        loop {
            let mut len = [0; 4];
            if input.read(&mut len[..1]).map_err(|e| unreadable(at, e))? == 0 {
                return Ok(true);
            }
            fill(input, &mut len[1..], at)?;
            let mut sum = [0; 8];
            fill(input, &mut sum, at)?;
            let len = u32::from_le_bytes(len) as usize;
            if len > SECTION_MAX {
                return Err(Error::corrupt(format!(
                    "byte {at}: section of {len} bytes, limit of {SECTION_MAX} bytes"
                )));
            }
            let mut section = Vec::new();
            input.take(len as u64).read_to_end(&mut section).map_err(|e| unreadable(at, e))?;
            if section.len() < len || xxh3_64(&section).to_le_bytes() != sum {
                return Err(Error::corrupt(format!("byte {at}: the checksum of the section does not match")));
            }
            let turn = TracedRun::decode(program, &section.into())
                .map_err(|e| e.context(format!("section at byte {at}")))?;
            self.push_run(turn);
            at += 12 + len as u64;
        }
    }
}

impl TracedRun {
    fn encode(&self, encoder: &mut BatchEncoder) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        let mut blobs = Vec::new();
        // a document bound by many rules is one buffer, and is written once
        let mut places = HashMap::new();
        let mut docs = Vec::with_capacity(self.docs.len());
        for doc in &self.docs {
            docs.push(doc.as_ref().map(|doc| {
                *places.entry((doc.as_ptr(), doc.len())).or_insert_with(|| {
                    body.extend_from_slice(doc);
                    blobs.push(doc.len() as u32);
                    blobs.len() as u32 - 1
                })
            }));
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let encoded = encoder.encode(&part.batch)?;
            parts.push(PartHeader {
                stream: part.stream,
                keep: part.keep.as_ref().map(|keep| keep.iter().collect()),
                rows: part.rows.clone(),
                batch: (encoded.message.len() as u32, encoded.data.len() as u32),
            });
            body.extend_from_slice(&encoded.message);
            body.extend_from_slice(&encoded.data);
        }
        let head = RunHeader {
            partition: self.partition,
            offset: self.offset,
            parts,
            records: self.records.clone(),
            docs,
            blobs,
            messages: self.messages.clone(),
            events: self.events,
            bytes: self.bytes,
            cut: self.truncated,
        };
        let head = serde_json::to_vec(&head)
            .map_err(|e| Error::internal("internal error: cannot encode a traced record").with_source(e))?;
        let mut section = Vec::with_capacity(4 + head.len() + body.len());
        section.extend_from_slice(&(head.len() as u32).to_le_bytes());
        section.extend_from_slice(&head);
        section.extend_from_slice(&body);
        Ok(section)
    }

    fn decode(program: &Program, section: &Bytes) -> Result<Self> {
        let mut input = SectionReader { bytes: section, at: 0 };
        let len = input.take(4)?;
        let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]);
        let head: RunHeader = serde_json::from_slice(&input.take(len)?)
            .map_err(|e| Error::corrupt("explanation file: cannot read the section header").with_source(e))?;
        // copied: otherwise one document would keep the whole section in memory
        let blobs = head
            .blobs
            .iter()
            .map(|len| Ok(Bytes::copy_from_slice(&input.take(*len)?)))
            .collect::<Result<Vec<_>>>()?;
        let docs = head.docs.iter().map(|place| match place {
            None => Ok(None),
            Some(place) => blobs.get(*place as usize).map(|doc| Some(doc.clone())).ok_or_else(|| {
                Error::corrupt(format!("reference to document {place}, which does not exist"))
            }),
        });
        let docs = docs.collect::<Result<Vec<_>>>()?;
        let mut parts = Vec::with_capacity(head.parts.len());
        for part in head.parts {
            let schema = program.streams().get(part.stream);
            let schema = schema.ok_or_else(|| {
                Error::corrupt(format!("reference to stream {}, which does not exist", part.stream))
            })?;
            let message = input.take(part.batch.0)?;
            let data = Bytes::copy_from_slice(&input.take(part.batch.1)?);
            let batch = decode_batch(&message, data, schema.batch_schema())?;
            let rows = batch.num_rows();
            let fits = part.keep.as_ref().is_none_or(|k| k.len() == rows)
                && !matches!(&part.rows, RecordRows::Each(each) if each.len() != rows);
            if !fits {
                return Err(Error::corrupt(format!(
                    "a batch has {rows} rows, but the section header counts another number"
                )));
            }
            let keep = part.keep.map(BooleanBuffer::from);
            parts.push(TracedPart { stream: part.stream, batch, keep, rows: part.rows });
        }
        Ok(Self {
            partition: head.partition,
            offset: head.offset,
            parts,
            records: head.records,
            docs,
            messages: head.messages,
            events: head.events,
            bytes: head.bytes,
            truncated: head.cut,
        })
    }
}

struct SectionReader<'b> {
    bytes: &'b Bytes,
    at: usize,
}

impl SectionReader<'_> {
    fn take(&mut self, len: u32) -> Result<Bytes> {
        let end = self.at.saturating_add(len as usize);
        if end > self.bytes.len() {
            return Err(Error::corrupt(format!(
                "the section ends at byte {}, expected at least {end}",
                self.bytes.len()
            )));
        }
        let taken = self.bytes.slice(self.at..end);
        self.at = end;
        Ok(taken)
    }
}

fn fill(input: &mut impl Read, buffer: &mut [u8], at: u64) -> Result<()> {
    input.read_exact(buffer).map_err(|e| unreadable(at, e))
}

fn unreadable(at: u64, e: std::io::Error) -> Error {
    match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corrupt(format!("byte {at}: the file ends within a section"))
        }
        _ => Error::unavailable(format!("byte {at}: cannot read the explanation file")).with_source(e),
    }
}

/// Hashes the rule files. Records refer to rules and conditions by index, so they are valid for equal files
/// only.
fn fingerprint(program: &Program) -> u64 {
    let mut hash = Xxh3::new();
    for file in program.sources().iter() {
        for text in [file.name(), file.text()] {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
    }
    hash.digest()
}
