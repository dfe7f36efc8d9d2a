//! Trace of what the rules did with recent events.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use serde::{Deserialize, Serialize};
use tidemill_docs::DocBytes;
use tidemill_types::{EventId, Offset, PartitionId};

use super::save::TraceImage;
use crate::exec::{RecordPosition, StreamPart};

/// Limits of a [`Trace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLimits {
    /// Events, including emitted ones. Runs are dropped whole, oldest first; the last run stays even if it
    /// alone has more.
    pub events_max: usize,
    /// Bytes of batches, documents and records.
    pub bytes_max: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { events_max: 10_000, bytes_max: 64 << 20 }
    }
}

/// Limit on the firings of one rule for one event that are recorded with documents; further ones are counted.
pub(crate) const FIRINGS_MAX: u32 = 8;

/// Records what the rules did with the latest events of a partition.
///
/// Cost: a batch is stored by reference. A rule that looks up documents adds about 50 bytes and references to
/// the documents for each event that got that far. A rule whose conditions on the event alone fail adds
/// nothing.
#[derive(Debug)]
pub struct Trace {
    limits: TraceLimits,
    on: bool,
    runs: VecDeque<Arc<TracedRun>>,
    events: usize,
    bytes: usize,
    current: Option<TracedRun>,
}

/// One run and what the rules did with its events.
#[derive(Debug)]
pub(crate) struct TracedRun {
    pub partition: PartitionId,
    pub offset: Offset,
    /// The record's events, then the emitted ones.
    pub parts: Vec<TracedPart>,
    /// In order of execution; records of one event and rule are adjacent.
    pub records: Vec<TraceRecord>,
    pub(super) docs: Vec<Option<DocBytes>>,
    pub(super) messages: Vec<String>,
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Set when records were left out for lack of room.
    pub truncated: bool,
}

/// Events of one stream in a run.
#[derive(Debug)]
pub(crate) struct TracedPart {
    pub stream: usize,
    pub batch: RecordBatch,
    pub(super) keep: Option<BooleanBuffer>,
    pub(super) rows: RecordRows,
}

/// Maps rows of a batch to rows of the record: consecutive from a first one, or listed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RecordRows {
    From(u32),
    Each(Vec<u32>),
}

impl TracedPart {
    fn own_row(&self, row: usize) -> u32 {
        match &self.rows {
            RecordRows::From(first) => first.saturating_add(row as u32),
            RecordRows::Each(rows) => rows.get(row).copied().unwrap_or(u32::MAX),
        }
    }

    fn find(&self, own_row: u32) -> Option<usize> {
        let row = match &self.rows {
            RecordRows::From(first) => own_row.checked_sub(*first)? as usize,
            RecordRows::Each(rows) => rows.iter().position(|r| *r == own_row)?,
        };
        (row < self.batch.num_rows()).then_some(row)
    }

    /// Returns whether `row` of the batch was not a duplicate.
    pub(crate) fn is_no_duplicate(&self, row: usize) -> bool {
        self.keep.as_ref().is_none_or(|k| k.value(row))
    }
}

/// The outcome of one rule on one event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TraceRecord {
    pub row: u32,
    pub rule: u32,
    pub what: TraceOutcome,
    docs: Range<u32>,
}

/// Outcome of a rule; row and rule are in the [`TraceRecord`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum TraceOutcome {
    /// A firing that emitted the events of these rows.
    Fired(Range<u32>),
    /// Number of firings beyond [`FIRINGS_MAX`].
    FiredMore(u32),
    /// The step that failed, and which of its filters; `None` if no document was found.
    Missed(u32, Option<u32>),
    /// A failed firing, with the index of its message.
    Error(u32),
}

impl Trace {
    /// Creates a trace with the given limits.
    pub fn new(limits: TraceLimits) -> Self {
        Self {
            limits,
            on: limits.events_max > 0 && limits.bytes_max > 0,
            runs: VecDeque::new(),
            events: 0,
            bytes: 0,
            current: None,
        }
    }

    /// Creates a trace that records nothing.
    pub fn off() -> Self {
        Self::new(TraceLimits { events_max: 0, bytes_max: 0 })
    }

    /// Returns whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Returns the number of events that can be explained.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns a frozen copy.
    pub fn image(&self) -> TraceImage {
        TraceImage(self.runs.iter().cloned().collect())
    }

    /// Drops all runs, for example when the rules change.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.current = None;
        (self.events, self.bytes) = (0, 0);
    }

    pub(crate) fn begin_run(
        &mut self,
        at: &RecordPosition,
        parts: &[StreamPart<'_>],
        arrivals: Option<&[Vec<u32>]>,
    ) {
        if !self.on {
            return;
        }
        let mut turn = TracedRun {
            partition: at.partition,
            offset: at.offset,
            parts: Vec::with_capacity(parts.len()),
            records: Vec::new(),
            docs: Vec::new(),
            messages: Vec::new(),
            events: 0,
            bytes: 0,
            truncated: false,
        };
        let mut first = at.first_row;
        for (i, part) in parts.iter().enumerate() {
            turn.events += part.keep.map_or(part.batch.num_rows(), BooleanBuffer::count_set_bits);
            turn.bytes += part.batch.get_array_memory_size();
            let rows = match arrivals {
                Some(arrivals) => RecordRows::Each(arrivals[i].clone()),
                None => RecordRows::From(first),
            };
            first += part.batch.num_rows() as u32;
            let (stream, batch, keep) = (part.stream, part.batch.clone(), part.keep.cloned());
            turn.parts.push(TracedPart { stream, batch, keep, rows });
        }
        self.current = Some(turn);
    }

    pub(crate) fn fired(&mut self, row: u32, rule: usize, docs: &[Option<DocBytes>], numbers: Range<u32>) {
        let Some(turn) = self.current.as_mut() else { return };
        let rule = rule as u32;
        let same = |r: &&mut TraceRecord| r.row == row && r.rule == rule;
        // the firings of one event and rule are adjacent
        let kept = turn
            .records
            .iter()
            .rev()
            .take(FIRINGS_MAX as usize + 1)
            .filter(|r| r.row == row && r.rule == rule);
        if kept.count() >= FIRINGS_MAX as usize {
            if let Some(TraceRecord { what: TraceOutcome::FiredMore(more), .. }) =
                turn.records.last_mut().filter(same)
            {
                *more += 1;
                return;
            }
            turn.push(row, rule, TraceOutcome::FiredMore(1), &[], self.limits.bytes_max);
            return;
        }
        turn.push(row, rule, TraceOutcome::Fired(numbers), docs, self.limits.bytes_max);
    }

    pub(crate) fn missed(
        &mut self,
        row: u32,
        rule: usize,
        step: u32,
        filter: Option<u32>,
        docs: &[Option<DocBytes>],
    ) {
        let Some(turn) = self.current.as_mut() else { return };
        turn.push(row, rule as u32, TraceOutcome::Missed(step, filter), docs, self.limits.bytes_max);
    }

    pub(crate) fn error(&mut self, row: u32, rule: usize, message: &str, docs: &[Option<DocBytes>]) {
        let Some(turn) = self.current.as_mut() else { return };
        let place = turn.messages.len() as u32;
        if turn.push(row, rule as u32, TraceOutcome::Error(place), docs, self.limits.bytes_max) {
            turn.bytes += message.len();
            turn.messages.push(message.to_owned());
        }
    }

    pub(crate) fn emitted(&mut self, stream: usize, batch: &RecordBatch, rows: &[u32]) {
        let Some(turn) = self.current.as_mut() else { return };
        turn.events += batch.num_rows();
        turn.bytes += batch.get_array_memory_size() + std::mem::size_of_val(rows);
        let rows = RecordRows::Each(rows.to_vec());
        turn.parts.push(TracedPart { stream, batch: batch.clone(), keep: None, rows });
    }

    /// Stores the current run and drops old ones that exceed the limits.
    pub(crate) fn end_run(&mut self) {
        if let Some(turn) = self.current.take() {
            self.push_run(turn);
        }
    }

    pub(super) fn push_run(&mut self, turn: TracedRun) {
        if !self.on {
            return;
        }
        self.events += turn.events;
        self.bytes += turn.bytes;
        self.runs.push_back(Arc::new(turn));
        while (self.events > self.limits.events_max || self.bytes > self.limits.bytes_max)
            && self.runs.len() > 1
        {
            self.drop_oldest();
        }
        if self.bytes > self.limits.bytes_max {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(gone) = self.runs.pop_front() {
            self.events -= gone.events;
            self.bytes -= gone.bytes;
        }
    }

    /// Returns the runs, latest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &TracedRun> {
        self.runs.iter().rev().map(Arc::as_ref)
    }
}

impl TracedRun {
    /// Appends a record. Returns false, and marks the run as truncated, if the limit of bytes is reached.
    fn push(
        &mut self,
        row: u32,
        rule: u32,
        what: TraceOutcome,
        docs: &[Option<DocBytes>],
        bytes_max: usize,
    ) -> bool {
        let doc_bytes: usize = docs.iter().flatten().map(|d| d.len()).sum();
        let added = std::mem::size_of::<TraceRecord>() + std::mem::size_of_val(docs) + doc_bytes;
        if self.bytes + added > bytes_max {
            self.truncated = true;
            return false;
        }
        self.bytes += added;
        let start = self.docs.len() as u32;
        self.docs.extend_from_slice(docs);
        self.records.push(TraceRecord { row, rule, what, docs: start..self.docs.len() as u32 });
        true
    }

    /// Returns the documents of a record, by slot.
    pub(crate) fn docs(&self, record: &TraceRecord) -> &[Option<DocBytes>] {
        self.docs.get(record.docs.start as usize..record.docs.end as usize).unwrap_or_default()
    }

    /// Returns the message of an error.
    pub(crate) fn message(&self, place: u32) -> &str {
        self.messages.get(place as usize).map_or("", String::as_str)
    }

    /// Finds an event: its part, and the row in that part.
    pub(crate) fn find(&self, id: &EventId) -> Option<(&TracedPart, usize)> {
        if id.partition != self.partition || id.offset != self.offset {
            return None;
        }
        self.parts.iter().find_map(|part| Some((part, part.find(id.row)?)))
    }

    /// Returns all events of `stream` that were no duplicates: part, row in the part, row in the record.
    pub(crate) fn events_of(&self, stream: usize) -> impl Iterator<Item = (&TracedPart, usize, u32)> {
        let parts = self.parts.iter().filter(move |p| p.stream == stream);
        parts.flat_map(|part| {
            (0..part.batch.num_rows())
                .filter(|r| part.is_no_duplicate(*r))
                .map(move |r| (part, r, part.own_row(r)))
        })
    }
}
