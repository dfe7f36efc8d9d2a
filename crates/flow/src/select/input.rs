//! Input of a selection, referenced in place.

use std::borrow::Cow;

use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data};
use crate::store::{RowId, RowStore};
use crate::window::RowChanges;

/// Source of the columns of the input rows.
pub(crate) enum InputRows<'a> {
    /// All rows of a batch.
    All(Cow<'a, Batch>),
    /// Some rows of a batch, ascending.
    Some(Cow<'a, Batch>, Vec<u32>),
    /// Rows emitted by a window. `arrived` is its latest input batch and the row id of the first row of that
    /// batch.
    Window { signals: &'a RowChanges, rows: &'a RowStore, arrived: (&'a Batch, RowId) },
}

/// Input of a selection: rows with kinds and timestamps, in chunks with clocks.
pub(crate) struct SelectorInput<'a> {
    pub(crate) rows: InputRows<'a>,
    pub(crate) kinds: Cow<'a, [EventKind]>,
    pub(crate) times: Cow<'a, [i64]>,
    pub(crate) ends: Cow<'a, [u32]>,
    pub(crate) clocks: Cow<'a, [i64]>,
}

impl<'a> SelectorInput<'a> {
    /// Creates the input of all rows of a batch.
    pub(crate) fn batch(batch: &'a Batch) -> Self {
        Self {
            rows: InputRows::All(Cow::Borrowed(batch)),
            kinds: Cow::Borrowed(&batch.kinds),
            times: Cow::Borrowed(&batch.times),
            ends: Cow::Borrowed(&batch.chunk_ends),
            clocks: Cow::Borrowed(&batch.chunk_clocks),
        }
    }

    /// Creates the input of all rows of a batch and takes ownership of it.
    pub(crate) fn owned(mut batch: Batch) -> Self {
        let kinds = Cow::Owned(std::mem::take(&mut batch.kinds));
        let times = Cow::Owned(std::mem::take(&mut batch.times));
        let ends = Cow::Owned(std::mem::take(&mut batch.chunk_ends));
        let clocks = Cow::Owned(std::mem::take(&mut batch.chunk_clocks));
        Self { rows: InputRows::All(Cow::Owned(batch)), kinds, times, ends, clocks }
    }

    /// Selects the rows at `places`, which ascend. `chunks` lists the chunks with a selected row.
    pub(crate) fn take_rows(self, places: Vec<u32>, chunks: &[u32]) -> Self {
        let mut ends = Vec::with_capacity(chunks.len());
        if self.is_row_per_chunk() {
            ends.extend(1..=chunks.len() as u32);
        } else {
            for chunk in chunks {
                let end = self.ends[*chunk as usize];
                let from = ends.last().map_or(0, |end| *end as usize);
                ends.push((from + places[from..].partition_point(|place| *place < end)) as u32);
            }
        }
        let kinds = Cow::Owned(pick(&self.kinds, &places));
        let times = Cow::Owned(pick(&self.times, &places));
        let clocks = Cow::Owned(pick(&self.clocks, chunks));
        let rows = match self.rows {
            InputRows::All(batch) => InputRows::Some(batch, places),
            InputRows::Some(batch, rows) => InputRows::Some(batch, pick(&rows, &places)),
            InputRows::Window { .. } => {
                let all = self.to_batch().into_owned();
                return Self::owned(all).take_rows(places, chunks);
            }
        };
        Self { rows, kinds, times, ends: Cow::Owned(ends), clocks }
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether each row is a chunk of its own.
    pub(crate) fn is_row_per_chunk(&self) -> bool {
        self.ends.len() == self.len()
    }

    /// Returns the input batch if `picked` selects all of its rows in order, so that its columns can be used
    /// without a copy.
    fn as_whole_batch(&self, picked: Option<&[u32]>) -> Option<&Batch> {
        match (&self.rows, picked) {
            (InputRows::All(batch), None) => Some(batch),
            (InputRows::Window { signals, arrived: (batch, first), .. }, Some(picked)) => {
                let arrives = |(i, row): (usize, &u32)| {
                    let signal = &signals.items[*row as usize];
                    signal.kind == EventKind::Current && signal.seq == first + i as u64
                };
                let all = picked.len() == batch.len() && picked.iter().enumerate().all(arrives);
                all.then_some(batch)
            }
            _ => None,
        }
    }

    /// Returns the columns `used` of the rows at `picked`, or of all rows if `None`; the other columns may be
    /// empty.
    pub(crate) fn columns(&self, used: &[usize], picked: Option<&[u32]>) -> Cow<'_, [Column]> {
        if let Some(batch) = self.as_whole_batch(picked) {
            return Cow::Borrowed(&batch.columns);
        }
        let width = used.iter().max().map_or(0, |last| last + 1);
        let mut columns: Vec<Column> = (0..width).map(|_| Column::new(FieldType::Bool)).collect();
        for c in used {
            columns[*c] = self.column(*c, picked);
            // shared, so that a column that is emitted unchanged is not copied
            columns[*c].share();
        }
        Cow::Owned(columns)
    }

    fn column(&self, c: usize, picked: Option<&[u32]>) -> Column {
        match (&self.rows, picked) {
            (InputRows::All(batch), None) => batch.columns[c].clone(),
            (InputRows::All(batch), Some(picked)) => gather(&batch.columns[c], picked),
            (InputRows::Some(batch, rows), None) => gather(&batch.columns[c], rows),
            (InputRows::Some(batch, rows), Some(picked)) => gather(&batch.columns[c], &pick(rows, picked)),
            (InputRows::Window { signals, rows, .. }, None) => {
                rows.gather(c, signals.items.iter().map(|s| (s.kind != EventKind::Reset).then_some(s.seq)))
            }
            (InputRows::Window { signals, rows, .. }, Some(picked)) => {
                rows.gather(c, picked.iter().map(|i| Some(signals.items[*i as usize].seq)))
            }
        }
    }

    /// Returns the chunk of each row at `picked`, which ascends, or of all rows if `None`.
    pub(crate) fn chunks_of(&self, picked: Option<&[u32]>) -> Vec<u32> {
        if self.is_row_per_chunk() {
            return picked.map_or_else(|| (0..self.len() as u32).collect(), <[u32]>::to_vec);
        }
        let mut chunk = 0;
        let mut chunk_of = |row: u32| {
            while self.ends[chunk as usize] <= row {
                chunk += 1;
            }
            chunk
        };
        match picked {
            None => (0..self.len() as u32).map(chunk_of).collect(),
            Some(picked) => picked.iter().map(|row| chunk_of(*row)).collect(),
        }
    }

    /// Returns the input as a batch.
    pub(crate) fn to_batch(&self) -> Cow<'_, Batch> {
        if let InputRows::All(Cow::Borrowed(batch)) = &self.rows {
            return Cow::Borrowed(batch);
        }
        let width = match &self.rows {
            InputRows::All(batch) | InputRows::Some(batch, _) => batch.columns.len(),
            InputRows::Window { rows, .. } => rows.types().len(),
        };
        Cow::Owned(Batch {
            columns: (0..width).map(|c| self.column(c, None)).collect(),
            times: self.times.to_vec(),
            kinds: self.kinds.to_vec(),
            chunk_ends: self.ends.to_vec(),
            chunk_clocks: self.clocks.to_vec(),
            ..Batch::default()
        })
    }
}

/// Returns the group ids stored in a column.
pub(super) fn group_ids_in(ids: &Column) -> Vec<u32> {
    match ids.data() {
        Data::Int(ids) => ids.iter().map(|id| id.cast_unsigned()).collect(),
        _ => vec![],
    }
}

pub(super) fn gather(column: &Column, rows: &[u32]) -> Column {
    let mut out = Column::new(column.ty());
    out.gather(column, rows);
    out
}

/// Returns whether the numbers ascend without duplicates.
pub(super) fn is_strictly_ascending(numbers: &[u32]) -> bool {
    // no early exit, so that the compiler can vectorize the comparisons
    numbers.windows(2).fold(true, |all, pair| all & (pair[0] < pair[1]))
}

pub(super) fn pick<T: Copy>(values: &[T], places: &[u32]) -> Vec<T> {
    places.iter().map(|i| values[*i as usize]).collect()
}
