//! Batches of events: rows in columns, each with a timestamp and a kind, grouped into chunks.

use std::borrow::Cow;

use tidemill_types::FieldType;

use crate::columns::column::Column;

/// Kind of an event inside a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An event that arrived.
    Current,
    /// An event that left a window.
    Expired,
    /// End of a batch: aggregates return to their initial state. The columns are meaningless.
    Reset,
}

/// Rows in columns, grouped into chunks: the events of one call, or those that a window emits at once.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Values, one column per attribute.
    pub columns: Vec<Column>,
    /// Timestamps, one per row, in milliseconds since 1970, UTC.
    pub times: Vec<i64>,
    /// Kinds, one per row.
    pub kinds: Vec<EventKind>,
    /// Group of each row, if the query has groups and an operator after the selection needs them; else empty.
    pub groups: Vec<String>,
    /// End index of each chunk in the rows.
    pub chunk_ends: Vec<u32>,
    /// Clock value at which each chunk was created.
    pub chunk_clocks: Vec<i64>,
    /// Input chunk from which a query produced each chunk, `None` if a timer did; empty if not requested.
    pub input_chunks: Vec<Option<u32>>,
}

impl Batch {
    /// Creates an empty batch with columns of these types.
    pub fn new(types: impl IntoIterator<Item = FieldType>) -> Self {
        Self { columns: types.into_iter().map(Column::new).collect(), ..Self::default() }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether the batch has no rows.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Ends a chunk after the last row; does nothing if there are no rows since the last end.
    pub fn end_chunk(&mut self, clock: i64) {
        let end = self.times.len() as u32;
        if self.chunk_ends.last().copied().unwrap_or(0) < end {
            self.chunk_ends.push(end);
            self.chunk_clocks.push(clock);
        }
    }

    /// Returns the rows and the clock value of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = (std::ops::Range<usize>, i64)> + '_ {
        let starts = std::iter::once(0).chain(self.chunk_ends.iter().map(|e| *e as usize));
        starts
            .zip(&self.chunk_ends)
            .zip(&self.chunk_clocks)
            .map(|((start, end), clock)| (start..*end as usize, *clock))
    }

    /// Appends row `i` of another batch with the same columns.
    pub fn push_row(&mut self, other: &Self, i: usize, kind: EventKind, time: i64) {
        for (column, from) in self.columns.iter_mut().zip(&other.columns) {
            column.push_from(from, i);
        }
        self.times.push(time);
        self.kinds.push(kind);
        if let Some(group) = other.groups.get(i) {
            self.groups.push(group.clone());
        }
    }

    /// Returns these rows as input of a selection.
    pub(crate) fn rows(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = EventRow<'_>> + Clone {
        rows.map(|row| EventRow { kind: self.kinds[row], time: self.times[row], columns: &self.columns, row })
    }

    /// Removes all rows and chunks; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.truncate(0);
        self.chunk_ends.clear();
        self.chunk_clocks.clear();
        self.input_chunks.clear();
    }

    /// Keeps the first `rows` rows. The last of them must end a chunk or be in one that has not ended.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        self.times.truncate(rows);
        self.kinds.truncate(rows);
        self.groups.truncate(rows);
    }

    /// Returns the group of row `i`; the empty string if the batch has no groups.
    pub fn group(&self, i: usize) -> &str {
        self.groups.get(i).map_or("", String::as_str)
    }
}

/// An input event of a selection.
#[derive(Clone, Copy)]
pub(crate) struct EventRow<'r> {
    pub(crate) kind: EventKind,
    pub(crate) time: i64,
    /// The columns that contain the event; meaningless for a reset.
    pub(crate) columns: &'r [Column],
    /// Row index in `columns`.
    pub(crate) row: usize,
}

/// Returns the events with a key, in chunks that end wherever the key changes.
pub(crate) fn split_by_key(events: &Batch, column: usize) -> Cow<'_, Batch> {
    let key = &events.columns[column];
    let has_nulls = key.nulls().contains(&true);
    if !has_nulls && events.chunk_ends.len() == events.len() {
        return Cow::Borrowed(events);
    }
    let mut out = Batch::new(events.columns.iter().map(Column::ty));
    for (rows, clock) in events.chunks() {
        let mut before = None;
        for row in rows.filter(|row| !key.is_null(*row)) {
            let same =
                before.is_none_or(|before: usize| key.get(before).to_string() == key.get(row).to_string());
            if !same {
                out.end_chunk(clock);
            }
            out.push_row(events, row, events.kinds[row], events.times[row]);
            before = Some(row);
        }
        out.end_chunk(clock);
    }
    Cow::Owned(out)
}
