//! Read cursors over a row store, for mostly ascending access.

use super::{RowId, RowStore};
use crate::columns::column::Data;

/// Read cursor over one column of a [`RowStore`]; caches the last segment, so that ascending access does not
/// search for it again.
pub(super) struct ColumnCursor<'a, V> {
    store: &'a RowStore,
    column: usize,
    of: fn(&'a Data) -> Option<&'a V>,
    /// First row of the cached segment, and its number of rows.
    start: RowId,
    rows: RowId,
    values: Option<&'a V>,
}

impl<'a, V> ColumnCursor<'a, V> {
    pub(super) fn new(store: &'a RowStore, column: usize, of: fn(&'a Data) -> Option<&'a V>) -> Self {
        Self { store, column, of, start: 0, rows: 0, values: None }
    }

    /// Returns the values of the segment that contains the row, and the row's index in them.
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
            (self.start, self.rows) = (seq - row as RowId, segment.times().len() as RowId);
            self.values = values;
        }
        Some((values?, row))
    }
}

/// Read cursor over a column of longs or the timestamps; caches the last segment, like [`ColumnCursor`].
pub(crate) struct I64Cursor<'a> {
    store: &'a RowStore,
    /// `None` for the timestamps.
    column: Option<usize>,
    /// First row of the cached segment, and its values.
    start: RowId,
    values: &'a [i64],
}

impl<'a> I64Cursor<'a> {
    /// Creates a cursor over a column of longs without nulls, or over the timestamps if `column` is `None`.
    pub(super) fn new(store: &'a RowStore, column: Option<usize>) -> Self {
        Self { store, column, start: 0, values: &[] }
    }

    /// Returns the value of a row.
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
            _ => segment.times(),
        };
        if seq >= self.store.base {
            (self.start, self.values) = (seq - row as RowId, values);
        }
        values[row]
    }
}
