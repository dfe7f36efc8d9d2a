//! Events on their way: rows of columns, each with a time and a kind, in chunks.

use tidemill_types::FieldType;

use crate::column::Column;
use crate::select::EventRow;

/// What an event is inside a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It arrived.
    Current,
    /// It left a window.
    Expired,
    /// A batch ended: totals begin anew. Its columns mean nothing.
    Reset,
}

/// Events that travel together, in chunks: what was sent in one call, what a window emits at once.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The values, one column per attribute.
    pub columns: Vec<Column>,
    /// Milliseconds since 1970, UTC, one per row.
    pub times: Vec<i64>,
    /// One per row.
    pub kinds: Vec<EventKind>,
    /// The group of each row, where a query has groups and what comes behind it asks for them; else empty.
    pub groups: Vec<String>,
    /// Where each chunk ends.
    pub chunk_ends: Vec<u32>,
    /// What the clock showed when a chunk came into being, one per chunk.
    pub chunk_clocks: Vec<i64>,
    /// The chunk of its input that a query made each chunk of, none where a timer did; empty where nobody asks.
    pub input_chunks: Vec<Option<u32>>,
}

impl Batch {
    /// A batch without rows.
    pub fn new(types: impl IntoIterator<Item = FieldType>) -> Self {
        Self { columns: types.into_iter().map(Column::new).collect(), ..Self::default() }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Ends a chunk after what was added, if something was.
    pub fn end_chunk(&mut self, clock: i64) {
        let end = self.times.len() as u32;
        if self.chunk_ends.last().copied().unwrap_or(0) < end {
            self.chunk_ends.push(end);
            self.chunk_clocks.push(clock);
        }
    }

    /// The rows of each chunk, and its clock.
    pub fn chunks(&self) -> impl Iterator<Item = (std::ops::Range<usize>, i64)> + '_ {
        let starts = std::iter::once(0).chain(self.chunk_ends.iter().map(|e| *e as usize));
        starts
            .zip(&self.chunk_ends)
            .zip(&self.chunk_clocks)
            .map(|((start, end), clock)| (start..*end as usize, *clock))
    }

    /// Adds row `i` of another batch with the same columns.
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

    /// These rows as a selection takes them.
    pub(crate) fn rows(&self, rows: std::ops::Range<usize>) -> impl Iterator<Item = EventRow<'_>> + Clone {
        rows.map(|row| EventRow { kind: self.kinds[row], time: self.times[row], columns: &self.columns, row })
    }

    /// Nothing is in it any more; it keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.truncate(0);
        self.chunk_ends.clear();
        self.chunk_clocks.clear();
        self.input_chunks.clear();
    }

    /// Keeps the first `rows` rows, of which the last one ends a chunk or is in one that has not ended.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        self.times.truncate(rows);
        self.kinds.truncate(rows);
        self.groups.truncate(rows);
    }

    /// The group of row `i`; all rows are one group where there are none.
    pub fn group(&self, i: usize) -> &str {
        self.groups.get(i).map_or("", String::as_str)
    }
}
