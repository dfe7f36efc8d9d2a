//! Destinations of rows: streams of an app, or the one stream of a source.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_connect::{EventBuilder, Message};
use tidemill_types::{DecodedRows, Result, RowDecoder, RowOrigin, StreamSchema, Timestamp};

use super::row::{Row, RowCell};
use super::{DeclaredStream, Reserve};

/// Name of the column with the hash of a row, where a stream has it.
const ID: &str = "id";

/// Destination of rows.
pub(crate) trait RowTarget {
    /// Returns whether the rows of a stream are taken; those of one whose are not are counted by [`Self::skip`].
    fn takes(&mut self, stream: &'static DeclaredStream) -> bool;

    /// Returns the schema of a stream whose rows are taken.
    fn schema(&self, stream: &'static DeclaredStream) -> Option<Arc<StreamSchema>>;

    /// Counts a record of a stream whose rows are not taken.
    fn skip(&mut self, stream: &'static DeclaredStream);

    /// Adds a row. A stream with the column `id` gets the row's hash in it. Returns whether it was taken: a row that does not fit is rejected.
    ///
    /// Errors: there is no memory for it.
    fn push(&mut self, stream: &'static DeclaredStream, row: Row<'_, '_>) -> Result<bool>;

    /// Rejects a record.
    ///
    /// Errors: there is no memory for it.
    fn reject(&mut self, stream: &'static DeclaredStream, reason: String, text: String) -> Result<()>;

    /// Tells of something about a record that is stored all the same.
    fn warn(&mut self, warning: String);
}

/// Records of a stream that were refused because their rows are not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRecords {
    /// Stream.
    pub stream: &'static DeclaredStream,
    /// Their number.
    pub count: u64,
    /// Reason.
    pub reason: String,
}

/// Rows of a message, and what is not among them.
#[derive(Debug, Default)]
pub struct TelemetryRows {
    /// Rows of all streams, and the records that were rejected for themselves.
    pub rows: DecodedRows,
    /// Records of streams whose rows are not taken.
    pub refused: Vec<RefusedRecords>,
    /// Remarks about records that are stored.
    pub warnings: Vec<String>,
}

type Lookup<'l> = dyn FnMut(&'static DeclaredStream) -> Result<Arc<StreamSchema>, String> + 'l;

/// Warnings that are kept of one message.
const WARNINGS_MAX: usize = 10;

/// Rows of several streams of an app.
pub struct StreamRows<'l> {
    rows: RowDecoder,
    streams: HashMap<&'static str, Result<(u16, Arc<StreamSchema>), RefusedRecords>>,
    lookup: Box<Lookup<'l>>,
    reserve: Box<Reserve<'l>>,
    repeats: Repeats,
    now: Timestamp,
    number: u64,
    bytes: usize,
    warnings: Vec<String>,
}

impl<'l> StreamRows<'l> {
    /// Creates a destination. `lookup` finds a stream, or says why its rows are refused; `now` is the time of rows without
    /// one. `reserve` gets the bytes that the decoded message and its rows take so far.
    pub fn new(
        lookup: impl FnMut(&'static DeclaredStream) -> Result<Arc<StreamSchema>, String> + 'l,
        reserve: impl FnMut(usize) -> Result<()> + 'l,
        now: Timestamp,
    ) -> Self {
        Self {
            rows: RowDecoder::new(&[], None),
            streams: HashMap::new(),
            lookup: Box::new(lookup),
            reserve: Box::new(reserve),
            repeats: Repeats::default(),
            now,
            number: 0,
            bytes: 0,
            warnings: vec![],
        }
    }

    /// Reserves memory for what is decoded beside the rows.
    ///
    /// Errors: there is no such memory.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        (self.reserve)(self.bytes)
    }

    /// Returns the rows, and the records that are not among them.
    pub fn finish(mut self) -> TelemetryRows {
        let refused = self.streams.into_values().filter_map(Result::err).filter(|refused| refused.count > 0);
        let mut refused: Vec<_> = refused.collect();
        refused.sort_by_key(|refused| refused.stream.name);
        TelemetryRows { rows: self.rows.finish(), refused, warnings: self.warnings }
    }

    fn next_origin(&mut self) -> RowOrigin {
        self.number += 1;
        RowOrigin::of_row(self.number - 1)
    }
}

impl RowTarget for StreamRows<'_> {
    fn takes(&mut self, stream: &'static DeclaredStream) -> bool {
        let (lookup, rows) = (&mut self.lookup, &mut self.rows);
        let found = self.streams.entry(stream.name).or_insert_with(|| {
            let added = lookup(stream).and_then(|schema| {
                let number = rows.add_stream(&schema, true).ok_or("there are too many streams")?;
                Ok((number, schema))
            });
            added.map_err(|reason| RefusedRecords { stream, count: 0, reason })
        });
        found.is_ok()
    }

    fn schema(&self, stream: &'static DeclaredStream) -> Option<Arc<StreamSchema>> {
        match self.streams.get(stream.name) {
            Some(Ok((_, schema))) => Some(schema.clone()),
            _ => None,
        }
    }

    fn skip(&mut self, stream: &'static DeclaredStream) {
        self.number += 1;
        if let Some(Err(refused)) = self.streams.get_mut(stream.name) {
            refused.count += 1;
        }
    }

    fn push(&mut self, stream: &'static DeclaredStream, mut row: Row<'_, '_>) -> Result<bool> {
        let Some(Ok((number, schema))) = self.streams.get(stream.name) else {
            self.skip(stream);
            return Ok(false);
        };
        let (number, schema) = (*number, schema.clone());
        self.repeats.add_id(&mut row, &schema);
        self.bytes += row.bytes();
        (self.reserve)(self.bytes)?;
        let origin = self.next_origin();
        let cells = row.cells().map(|(name, cell)| (name, cell.value()));
        if let Err(e) = self.rows.try_push_cells(origin, number, cells, self.now) {
            let text = row.to_json();
            self.rows.reject_of(origin, Some(&schema.name), e, text.as_bytes());
            return Ok(false);
        }
        Ok(true)
    }

    fn reject(&mut self, stream: &'static DeclaredStream, reason: String, text: String) -> Result<()> {
        self.bytes += reason.len() + text.len() + 64;
        (self.reserve)(self.bytes)?;
        let origin = self.next_origin();
        self.rows.reject_of(origin, Some(stream.name), reason, text.as_bytes());
        Ok(())
    }

    fn warn(&mut self, warning: String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        }
    }
}

/// Hashes of the rows of a message, so that equal rows get ids of their own.
#[derive(Default)]
struct Repeats(HashMap<u128, u32>);

impl Repeats {
    /// Gives a row its id if the stream has the column: the hash of its identity; without one that of all values, and for the second and later ones
    /// of equal rows of a message also their number among these. The same message gives the same ids again.
    fn add_id(&mut self, row: &mut Row<'_, '_>, schema: &StreamSchema) {
        if schema.field_index(ID).is_none() {
            return;
        }
        if let Some(identity) = row.identity() {
            return row.push_unhashed(ID, RowCell::Text(format!("{identity:032x}").into()));
        }
        let hash = row.hash();
        let earlier = self.0.entry(hash).or_default();
        let id = match *earlier {
            0 => format!("{hash:032x}"),
            n => format!("{hash:032x}-{n}"),
        };
        *earlier += 1;
        row.push_unhashed(ID, RowCell::Text(id.into()));
    }
}

/// Events of the one stream of a source.
pub(crate) struct MessageRows<'o> {
    stream: &'static DeclaredStream,
    skips_others: bool,
    message: &'o Message,
    out: &'o mut EventBuilder,
    repeats: Repeats,
    /// Events and rejections of the messages before.
    before: usize,
    others: u64,
    /// Memory that a message may take once it is decoded.
    bytes_left: usize,
}

impl<'o> MessageRows<'o> {
    /// Creates a destination of the rows of `stream`. Records of others are left out if `skips_others`, and are rejected together otherwise.
    pub(crate) fn new(
        stream: &'static DeclaredStream,
        skips_others: bool,
        message: &'o Message,
        out: &'o mut EventBuilder,
        bytes_max: usize,
    ) -> Self {
        out.set_keep_mismatches(true);
        let (repeats, before) = (Repeats::default(), out.len());
        Self { stream, skips_others, message, out, repeats, before, others: 0, bytes_left: bytes_max }
    }

    /// Takes memory.
    ///
    /// Errors: the message takes too much.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            tidemill_types::Error::limit(
                "the message takes too much memory once it is decoded: send it in parts",
            )
        })?;
        Ok(())
    }

    /// Counts records of other streams.
    pub(crate) fn skip_others(&mut self, count: u64) {
        self.others += count;
    }

    /// Ends the message: `result` is that of its decoder.
    pub(crate) fn finish(self, result: Result<()>) {
        if let Err(e) = result {
            return self.out.reject(self.message, e, &self.message.payload);
        }
        if self.out.len() == self.before && self.others == 0 {
            return self.out.reject(self.message, "the message has no records", &self.message.payload);
        }
        if self.others > 0 && !self.skips_others {
            let reason = format!(
                "records that are not {}: {}; leave them out with skip.others='true'",
                self.stream.rows, self.others
            );
            self.out.reject(self.message, reason, &self.message.payload);
        }
    }
}

impl RowTarget for MessageRows<'_> {
    fn takes(&mut self, stream: &'static DeclaredStream) -> bool {
        stream == self.stream
    }

    fn schema(&self, stream: &'static DeclaredStream) -> Option<Arc<StreamSchema>> {
        (stream == self.stream).then(|| self.out.schema().clone())
    }

    fn skip(&mut self, _: &'static DeclaredStream) {
        self.others += 1;
    }

    fn push(&mut self, stream: &'static DeclaredStream, mut row: Row<'_, '_>) -> Result<bool> {
        if stream != self.stream {
            self.others += 1;
            return Ok(false);
        }
        self.repeats.add_id(&mut row, self.out.schema());
        self.reserve(row.bytes())?;
        let time = self.out.time_of(self.message);
        let cells = row.cells().map(|(name, cell)| (name, cell.value()));
        if let Err(e) = self.out.push_cells(self.message, cells, time) {
            self.out.reject(self.message, e, row.to_json().as_bytes());
            return Ok(false);
        }
        Ok(true)
    }

    fn reject(&mut self, stream: &'static DeclaredStream, reason: String, text: String) -> Result<()> {
        if stream == self.stream {
            self.reserve(reason.len() + text.len())?;
            self.out.reject(self.message, reason, text.as_bytes());
        } else {
            self.others += 1;
        }
        Ok(())
    }

    // a source has no sender to warn; what a warning is about is in `_extra`
    fn warn(&mut self, _: String) {}
}
