//! Reader of JSON lines.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_connect::SourceBatch;
use tidemill_types::{Error, Result, RowDecoder, Timestamp};

use crate::event_reader::{EventReader, of_rows};
use crate::formats::lines::{Line, LineReader};
use crate::options::{Dialect, ReadOptions};

/// Key of the object around each event in the default form of SiddhiQL's JSON.
const ENVELOPE_KEY: &str = "event";

/// An event in the default form of SiddhiQL's JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEnvelope<'e> {
    #[serde(borrow)]
    event: &'e RawValue,
}

/// Positions are numbers of lines.
pub(crate) struct JsonReader {
    lines: LineReader,
    rows: RowBuffer,
    options: ReadOptions,
    /// Error that ended reading while rows were decoded that are returned before it.
    failed: Option<Error>,
    /// Position after the rows returned so far.
    returned: u64,
}

/// Rows of the batch under construction.
struct RowBuffer {
    decoder: RowDecoder,
    dialect: Dialect,
    /// True if events may be in an envelope; false if the stream has a field of that name, which would be
    /// ambiguous.
    has_envelope: bool,
    line_bytes_max: usize,
    bytes: usize,
}

impl JsonReader {
    /// Creates a reader of rows that `decoder` decodes. `has_envelope_field`: whether a stream has a field
    /// called `event`.
    pub(crate) fn new(
        lines: LineReader,
        decoder: RowDecoder,
        has_envelope_field: bool,
        options: ReadOptions,
    ) -> Self {
        let decoder = if options.complete { decoder.require_all_fields() } else { decoder };
        let rows = RowBuffer {
            decoder,
            dialect: options.dialect,
            has_envelope: !has_envelope_field,
            line_bytes_max: options.line_bytes_max,
            bytes: 0,
        };
        Self { lines, rows, options, failed: None, returned: options.start }
    }

    /// Returns whether a stream with these fields has one that could be taken for an envelope.
    pub(crate) fn has_envelope_field(schema: &tidemill_types::StreamSchema) -> bool {
        schema.field_index(ENVELOPE_KEY).is_some()
    }

    fn finish(&mut self) -> SourceBatch {
        self.rows.bytes = 0;
        self.returned = self.lines.lines_read();
        of_rows(self.rows.decoder.finish(), self.returned)
    }
}

impl EventReader for JsonReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        loop {
            let more = match self.lines.next_line() {
                Ok(Some(line)) => {
                    if line.origin.number >= self.options.start {
                        self.rows.push_line(&line, now);
                    }
                    true
                }
                Ok(None) => false,
                Err(e) if self.rows.decoder.rows_read() == 0 => return Err(e),
                Err(e) => {
                    self.failed = Some(e);
                    return Ok(Some(self.finish()));
                }
            };
            if !more {
                return Ok((self.lines.lines_read() > self.returned).then(|| self.finish()));
            }
            let rows = self.rows.decoder.rows_read();
            if rows >= self.options.batch_rows || self.rows.bytes >= self.options.batch_bytes {
                return Ok(Some(self.finish()));
            }
        }
    }
}

impl RowBuffer {
    fn push_line(&mut self, line: &Line<'_>, now: Timestamp) {
        self.bytes += line.bytes.len();
        if line.too_long {
            let message = format!("the line is longer than {} bytes", self.line_bytes_max);
            return self.decoder.reject(line.origin, message, line.bytes);
        }
        match (line.bytes.first(), self.dialect) {
            (None, _) => {}
            (Some(_), Dialect::Plain) => self.decoder.push_json(line.origin, line.bytes, now),
            (Some(b'['), Dialect::Siddhi) => match serde_json::from_slice::<Vec<&RawValue>>(line.bytes) {
                // A bad event does not affect the others.
                Ok(events) => {
                    events.iter().for_each(|event| self.push_event(line, event.get().as_bytes(), now));
                }
                Err(e) => self.decoder.reject(line.origin, e, line.bytes),
            },
            (Some(_), Dialect::Siddhi) => self.push_event(line, line.bytes, now),
        }
    }

    fn push_event(&mut self, line: &Line<'_>, event: &[u8], now: Timestamp) {
        let inner = if self.has_envelope && starts_with_envelope(event) {
            serde_json::from_slice::<EventEnvelope<'_>>(event).ok()
        } else {
            None
        };
        let event = inner.map_or(event, |e| e.event.get().as_bytes());
        self.decoder.push_json(line.origin, event, now);
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
