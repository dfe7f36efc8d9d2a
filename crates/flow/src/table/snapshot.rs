//! Rows of a table in a snapshot, chunk by chunk. Keys and indexes are rebuilt on restore.

use super::MemoryTable;
use super::rows::TableRows;
use crate::snapshot::{CHUNK_ROWS, Error, Reader, RowLocation, SnapshotWriter};

impl TableRows {
    /// Writes the rows in insertion order.
    fn write(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.number(self.len() as u64)?;
        let mut rows: Vec<RowLocation<'_>> = Vec::with_capacity(CHUNK_ROWS.min(self.len()));
        for place in self.indexes() {
            rows.push(self.row(place));
            if rows.len() == CHUNK_ROWS {
                out.rows(self.types(), &rows)?;
                rows.clear();
            }
        }
        if rows.is_empty() { Ok(()) } else { out.rows(self.types(), &rows) }
    }
}

impl MemoryTable {
    /// Lets the next [`Self::save`] share the rows, if there are at least `rows_min`.
    pub(crate) fn share(&mut self, rows_min: usize) {
        self.rows.share(rows_min);
    }

    /// Writes the rows in insertion order.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if out.is_freezing() && self.rows.is_shared() {
            let rows = self.rows.clone();
            return out.defer(move |out| rows.write(out));
        }
        self.rows.write(out)
    }

    /// Replaces the rows by saved ones, even if they are more than the limit; unchanged on error.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let mut table = Self::new(self.plan.clone()).with_rows_max(usize::MAX);
        let mut left = from.number()?;
        while left > 0 {
            let count = left.min(CHUNK_ROWS as u64) as usize;
            let columns = from.rows(table.rows.types(), count)?;
            for row in 0..count {
                let added = table.insert_cells(|column| (&columns[column], row));
                if !added.map_err(|e| from.damaged(e.to_string()))? {
                    return Err(from.damaged("two rows have the same key"));
                }
            }
            left -= count as u64;
        }
        *self = table.with_rows_max(self.rows_max);
        Ok(())
    }
}
