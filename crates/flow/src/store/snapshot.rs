//! Checkpointing of row stores, in chunks of rows.

use tidemill_types::FieldType;

use super::{RetainedRows, RowId, RowStore, StoreSegment};
use crate::columns::shareable::Shareable;
use crate::snapshot::{CHUNK_ROWS, Error, Reader, RowLocation, SnapshotWriter};

impl RowStore {
    /// Lets the next [`Self::save`] share the rows, if there are at least `rows_min`. Objects are changed in place by any of their holders, so a
    /// store with objects does not share.
    pub(crate) fn share(&mut self, rows_min: usize) {
        if self.rows() >= rows_min as u64 && !self.types.contains(&FieldType::Object) {
            self.segments.iter_mut().for_each(StoreSegment::share);
            self.retained_rows.share();
        }
    }

    fn is_shared(&self) -> bool {
        self.retained_rows.times.is_shared() && self.segments.iter().all(|segment| segment.times.is_shared())
    }

    /// Saves the rows that a window needs; `sparse` lists them if they are [`RetainedRows::Sparse`].
    pub(crate) fn save(
        &self,
        needed: RetainedRows,
        sparse: impl FnOnce() -> Vec<RowId>,
        out: &mut SnapshotWriter<'_>,
    ) -> Result<(), Error> {
        let (mut picked, mut from) = (Vec::new(), self.next);
        match needed {
            RetainedRows::Nothing => {}
            RetainedRows::From(oldest) => {
                let old = self.retained.partition_point(|seq| *seq < oldest);
                picked.extend_from_slice(&self.retained[old..]);
                from = self.base.max(oldest).min(self.next);
            }
            RetainedRows::Sparse(_) => picked = sparse(),
        }
        if out.is_freezing() && self.is_shared() {
            let rows = self.clone();
            return out.defer(move |out| rows.write(picked, from, out));
        }
        self.write(picked, from, out)
    }

    /// Writes the rows `picked` and those from `from` on.
    fn write(
        &self,
        mut picked: Vec<RowId>,
        mut from: RowId,
        out: &mut SnapshotWriter<'_>,
    ) -> Result<(), Error> {
        picked.sort_unstable();
        out.number(self.next)?;
        out.number(from)?;
        for chunk in picked.chunks(CHUNK_ROWS) {
            out.numbers(chunk.iter().copied())?;
            self.save_rows(chunk.iter().copied(), out)?;
        }
        out.numbers([].into_iter())?;
        while from < self.next {
            let end = self.next.min(from + CHUNK_ROWS as u64);
            self.save_rows(from..end, out)?;
            from = end;
        }
        Ok(())
    }

    fn save_rows(
        &self,
        rows: impl Iterator<Item = RowId> + Clone,
        out: &mut SnapshotWriter<'_>,
    ) -> Result<(), Error> {
        for seq in rows.clone() {
            out.bytes(&self.time(seq).to_le_bytes())?;
        }
        let rows: Vec<RowLocation<'_>> = rows.map(|seq| self.row(seq)).collect();
        out.rows(&self.types, &rows)
    }

    /// Replaces the store by a saved one; the rows have their former ids.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let (next, base) = (from.number()?, from.number()?);
        if base > next {
            return Err(from.damaged(format!("the first row {base} is after the next row {next}")));
        }
        let mut store = Self { base, next, ..Self::new(std::mem::take(&mut self.types)) };
        loop {
            let numbers = from.numbers()?;
            let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { break };
            let ascending = numbers.is_sorted_by(|a, b| a < b);
            let behind = store.retained.last().is_none_or(|before| before < first);
            if !ascending || !behind || *last >= next || numbers.len() > CHUNK_ROWS {
                return Err(from.damaged("the row numbers are not ascending"));
            }
            let segment = StoreSegment::read(&store.types, numbers.len(), from)?;
            (0..numbers.len()).for_each(|row| store.retained_rows.push_from(&segment, row));
            store.retained.extend(numbers);
        }
        let mut left = next - base;
        while left > 0 {
            let rows = left.min(CHUNK_ROWS as u64);
            store.segments.push_back(StoreSegment::read(&store.types, rows as usize, from)?);
            left -= rows;
        }
        *self = store;
        Ok(())
    }

    /// Returns whether the store contains a row.
    pub(crate) fn has(&self, seq: RowId) -> bool {
        match seq < self.base {
            true => self.retained.binary_search(&seq).is_ok(),
            false => seq < self.next,
        }
    }
}

impl StoreSegment {
    fn read(types: &[FieldType], rows: usize, from: &mut Reader<'_>) -> Result<Self, Error> {
        let mut times = Vec::with_capacity(rows);
        for _ in 0..rows {
            let mut bytes = [0; 8];
            from.bytes(&mut bytes)?;
            times.push(i64::from_le_bytes(bytes));
        }
        Ok(Self { columns: from.rows(types, rows)?, times: Shareable::new(times) })
    }
}
