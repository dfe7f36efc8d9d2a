//! The record of what rules did lately.

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

/// What a [`Trace`] may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceLimits {
    /// Events, emitted ones too. Whole batches leave, oldest first; the last batch stays even if it alone has more.
    pub events_max: usize,
    /// Bytes of batches, documents and records.
    pub bytes_max: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self { events_max: 10_000, bytes_max: 64 << 20 }
    }
}

/// Firings of one rule for one event whose documents are kept; more are counted.
pub(crate) const FIRINGS_MAX: u32 = 8;

/// What rules did with the last events of a partition.
///
/// Cost: a batch is kept by its handle; a rule that asks for documents adds about 50 bytes and handles of the documents
/// for each event that got that far. A rule whose conditions on the event alone fail adds nothing.
#[derive(Debug)]
pub struct Trace {
    limits: TraceLimits,
    on: bool,
    runs: VecDeque<Arc<TracedRun>>,
    events: usize,
    bytes: usize,
    current: Option<TracedRun>,
}

/// One record and what the rules did with its events.
#[derive(Debug)]
pub(crate) struct TracedRun {
    pub partition: PartitionId,
    pub offset: Offset,
    /// The record's events, then those that were emitted.
    pub parts: Vec<TracedPart>,
    /// In the order in which things happened; what belongs to one event and rule lies together.
    pub records: Vec<TraceRecord>,
    pub(super) docs: Vec<Option<DocBytes>>,
    pub(super) messages: Vec<String>,
    pub(super) events: usize,
    pub(super) bytes: usize,
    /// Whether records were left out because there was no room.
    pub truncated: bool,
}

/// Events of one stream.
#[derive(Debug)]
pub(crate) struct TracedPart {
    pub stream: usize,
    pub batch: RecordBatch,
    pub(super) keep: Option<BooleanBuffer>,
    pub(super) rows: RecordRows,
}

/// The rows in the record that the rows of a batch are.
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

    /// Whether `row` of the batch was not a duplicate.
    pub(crate) fn is_no_duplicate(&self, row: usize) -> bool {
        self.keep.as_ref().is_none_or(|k| k.value(row))
    }
}

/// What happened to one rule on one event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TraceRecord {
    pub row: u32,
    pub rule: u32,
    pub what: TraceOutcome,
    docs: Range<u32>,
}

/// See [`TraceRecord`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum TraceOutcome {
    /// It fired and emitted the events of these rows.
    Fired(Range<u32>),
    /// It fired more often than is kept.
    FiredMore(u32),
    /// The condition on documents that failed, and which of its filters; none: there was no such document.
    Missed(u32, Option<u32>),
    /// A firing went wrong: the place of the message.
    Error(u32),
}

impl Trace {
    /// A trace that keeps what the limits allow.
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

    /// A trace that keeps nothing.
    pub fn off() -> Self {
        Self::new(TraceLimits { events_max: 0, bytes_max: 0 })
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Events that can be asked for.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A frozen copy.
    pub fn image(&self) -> TraceImage {
        TraceImage(self.runs.iter().cloned().collect())
    }

    /// Forgets everything, for example when the rules change.
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
        // the firings of one event and rule come one after another
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

    /// Keeps the turn and makes room.
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

    /// The turns, the latest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &TracedRun> {
        self.runs.iter().rev().map(Arc::as_ref)
    }
}

impl TracedRun {
    /// Whether there was room.
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

    /// The documents of a record, by slot.
    pub(crate) fn docs(&self, record: &TraceRecord) -> &[Option<DocBytes>] {
        self.docs.get(record.docs.start as usize..record.docs.end as usize).unwrap_or_default()
    }

    /// The message of an error.
    pub(crate) fn message(&self, place: u32) -> &str {
        self.messages.get(place as usize).map_or("", String::as_str)
    }

    /// Where an event lies: its part and the row in that.
    pub(crate) fn find(&self, id: &EventId) -> Option<(&TracedPart, usize)> {
        if id.partition != self.partition || id.offset != self.offset {
            return None;
        }
        self.parts.iter().find_map(|part| Some((part, part.find(id.row)?)))
    }

    /// All events of `stream` in it that were no duplicates: part, row in that, row in the record.
    pub(crate) fn events_of(&self, stream: usize) -> impl Iterator<Item = (&TracedPart, usize, u32)> {
        let parts = self.parts.iter().filter(move |p| p.stream == stream);
        parts.flat_map(|part| {
            (0..part.batch.num_rows())
                .filter(|r| part.is_no_duplicate(*r))
                .map(move |r| (part, r, part.own_row(r)))
        })
    }
}
