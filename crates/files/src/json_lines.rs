//! Reader of JSON lines.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Result, StreamSchema, Timestamp};

use crate::fields::only_declared;
use crate::reader::{BadRow, EventReader, READ_BYTES, ReadOptions, unreadable};

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Key of the object around each event in the default form of SiddhiQL's JSON.
const ENVELOPE_KEY: &str = "event";

/// An event in the default form of SiddhiQL's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEnvelope<'e> {
    #[serde(borrow)]
    event: &'e RawValue,
}

pub(crate) struct JsonReader {
    input: BufReader<Box<dyn Read + Send>>,
    rows: RowBuffer,
    line: Vec<u8>,
    /// Number of the next line, from 1, and its position in `offset`.
    number: u64,
    offset: u64,
}

/// Rows of the batch under construction.
struct RowBuffer {
    builder: BatchBuilder,
    /// Whether events may be in an envelope; false if the stream has a field of that name, which would be
    /// ambiguous.
    has_envelope: bool,
    fields: usize,
    bytes: usize,
    options: ReadOptions,
    rejected: Vec<BadRow>,
}

impl JsonReader {
    pub(crate) fn new(input: Box<dyn Read + Send>, schema: &Arc<StreamSchema>, reading: ReadOptions) -> Self {
        let builder = BatchBuilder::new(schema.clone());
        let builder = if reading.complete { builder.require_all_fields() } else { builder };
        let rows = RowBuffer {
            builder,
            has_envelope: schema.field_index(ENVELOPE_KEY).is_none(),
            fields: schema.fields.len(),
            bytes: 0,
            options: reading,
            rejected: vec![],
        };
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { input, rows, line: vec![], number: 1, offset: 0 }
    }

    /// Reads a line including its end. Returns false at the end of the input. Lines that are too long are
    /// rejected and skipped.
    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX as u64);
        let mut length = limited.read_until(b'\n', &mut self.line).map_err(unreadable)?;
        if length == LINE_BYTES_MAX && self.line.last() != Some(&b'\n') {
            let message = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            self.rows.rejected.push(BadRow::of_line(self.number, self.offset, message, &self.line));
            self.line.clear();
            length += self.input.skip_until(b'\n').map_err(unreadable)?;
        }
        self.rows.bytes += self.line.len();
        self.offset += length as u64;
        Ok(length > 0)
    }
}

impl EventReader for JsonReader {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let begins = self.offset;
            let more = self.read_line()?;
            if more {
                self.rows.push_line(&self.line, self.number, begins);
                self.number += 1;
            }
            let rows = self.rows.builder.len();
            if rows > 0 && (!more || self.rows.is_full()) {
                self.rows.bytes = 0;
                return only_declared(&self.rows.builder.finish(), self.rows.fields).map(Some);
            }
            if !more {
                return Ok(None);
            }
        }
    }

    fn take_rejected(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.rows.rejected)
    }
}

impl RowBuffer {
    fn is_full(&self) -> bool {
        self.builder.len() >= self.options.batch_rows || self.bytes >= self.options.batch_bytes
    }

    fn push_line(&mut self, line: &[u8], number: u64, offset: u64) {
        let line = line.trim_ascii();
        let outcome = match line.first() {
            None => Ok(()),
            Some(b'[') => match serde_json::from_slice::<Vec<&RawValue>>(line) {
                // A bad event does not affect the others.
                Ok(events) => {
                    for event in events {
                        if let Err(e) = self.push(event.get().as_bytes()) {
                            self.rejected.push(BadRow::of_line(number, offset, e, event.get().as_bytes()));
                        }
                    }
                    Ok(())
                }
                Err(e) => Err(tidemill_types::Error::invalid(e.to_string())),
            },
            Some(_) => self.push(line),
        };
        if let Err(e) = outcome {
            self.rejected.push(BadRow::of_line(number, offset, e, line));
        }
    }

    fn push(&mut self, event: &[u8]) -> Result<()> {
        let inner = if self.has_envelope && starts_with_envelope(event) {
            serde_json::from_slice::<EventEnvelope<'_>>(event).ok()
        } else {
            None
        };
        let event = inner.map_or(event, |e| e.event.get().as_bytes());
        // The time column is dropped from the output.
        self.builder.push_json(event, Timestamp(0))
    }
}

/// Returns whether the first key of an object is [`ENVELOPE_KEY`]; a cheap check that spares most events a
/// parse.
fn starts_with_envelope(event: &[u8]) -> bool {
    let inside = event.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let key =
        inside.and_then(|i| i.strip_prefix(b"\"")).and_then(|i| i.strip_prefix(ENVELOPE_KEY.as_bytes()));
    key.is_some_and(|behind| behind.starts_with(b"\""))
}
