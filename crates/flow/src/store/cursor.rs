//! Rows that are looked at in their order, nearly.

use super::{RowId, RowStore};
use crate::column::Data;

/// The values of a column, quick where a row is in the segment of the one before.
pub(super) struct ColumnCursor<'a, V> {
    store: &'a RowStore,
    column: usize,
    of: fn(&'a Data) -> Option<&'a V>,
    /// The first row of that segment, and how many it has.
    start: RowId,
    rows: RowId,
    values: Option<&'a V>,
}

impl<'a, V> ColumnCursor<'a, V> {
    pub(super) fn new(store: &'a RowStore, column: usize, of: fn(&'a Data) -> Option<&'a V>) -> Self {
        Self { store, column, of, start: 0, rows: 0, values: None }
    }

    /// The values among which that of a row lies, and its place there.
    #[inline]
    pub(super) fn at(&mut self, seq: RowId) -> Option<(&'a V, usize)> {
        match seq.checked_sub(self.start) {
            Some(row) if row < self.rows => Some((self.values?, row as usize)),
            _ => self.seek(seq),
        }
    }

    fn seek(&mut self, seq: RowId) -> Option<(&'a V, usize)> {
        let (segment, row) = self.store.at(seq);
        let values = (self.of)(segment.columns[self.column].data());
        if seq >= self.store.base {
            (self.start, self.rows) = (seq - row as RowId, segment.times.len() as RowId);
            self.values = values;
        }
        Some((values?, row))
    }
}

/// Numbers of rows, quick where a row is near the one before.
pub(crate) struct I64Cursor<'a> {
    store: &'a RowStore,
    /// None for the timestamps.
    column: Option<usize>,
    /// The first row of the segment that was looked at, and its values.
    start: RowId,
    values: &'a [i64],
}

impl<'a> I64Cursor<'a> {
    /// Those of a column of longs without nulls; the timestamps without a column.
    pub(super) fn new(store: &'a RowStore, column: Option<usize>) -> Self {
        Self { store, column, start: 0, values: &[] }
    }

    /// That of a row.
    #[inline]
    pub(crate) fn get(&mut self, seq: RowId) -> i64 {
        match seq.checked_sub(self.start).and_then(|row| self.values.get(row as usize)) {
            Some(value) => *value,
            None => self.seek(seq),
        }
    }

    fn seek(&mut self, seq: RowId) -> i64 {
        let (segment, row) = self.store.at(seq);
        let values = match self.column.map(|column| segment.columns[column].data()) {
            Some(Data::Long(values)) => values,
            _ => &segment.times,
        };
        if seq >= self.store.base {
            (self.start, self.values) = (seq - row as RowId, values);
        }
        values[row]
    }
}
