//! Row store: buffered rows of a query, with ids in order of arrival, evicted when no longer needed.

mod cursor;
mod snapshot;

use std::collections::VecDeque;

use tidemill_types::FieldType;

use cursor::ColumnCursor;

pub(crate) use cursor::I64Cursor;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::row::Row;
use crate::columns::shareable::Shareable;
use crate::columns::value::Value;

/// Id of a row. It never changes, and later rows have greater ids.
pub type RowId = u64;

/// Number of rows per segment.
pub const SEGMENT_ROWS: u64 = 4096;

/// Minimum number of rows in use for which a spare segment is kept.
const SPARE_ROWS_MIN: u64 = SEGMENT_ROWS / 8;

/// Rows in segments of typed columns.
///
/// A row costs its values and eight bytes for its timestamp. Random access costs a shift and a mask. Few old
/// rows that are still needed among many that are not can be [copied out](Self::retain_only) of their
/// segments; they keep their ids, and access to them costs a binary search.
#[derive(Debug, Clone)]
pub struct RowStore {
    types: Vec<FieldType>,
    segments: VecDeque<StoreSegment>,
    /// Id of the first row of the first segment.
    base: RowId,
    next: RowId,
    /// Ids of the rows in `retained_rows`, ascending, all below `base`.
    retained: Vec<RowId>,
    retained_rows: StoreSegment,
    /// An empty segment, kept to reuse its memory.
    spare: Option<StoreSegment>,
    /// Number of rows that the last append added.
    appended: u64,
}

#[derive(Debug, Clone)]
struct StoreSegment {
    columns: Vec<Column>,
    times: Shareable<Vec<i64>>,
}

impl StoreSegment {
    fn new(types: &[FieldType]) -> Self {
        Self { columns: types.iter().map(|ty| Column::new(*ty)).collect(), times: Shareable::default() }
    }

    fn clear(&mut self) {
        for column in &mut self.columns {
            match column.is_unshared() {
                true => column.truncate(0),
                // values that a checkpoint has need not be copied
                false => *column = Column::new(column.ty()),
            }
        }
        match self.times.is_shared() {
            true => self.times = Shareable::default(),
            false => self.times.get_mut().clear(),
        }
    }

    fn share(&mut self) {
        self.columns.iter_mut().for_each(Column::share);
        self.times.share();
    }

    #[inline]
    fn times(&self) -> &[i64] {
        self.times.get()
    }

    fn push(&mut self, batch: &Batch, row: usize) {
        for (column, from) in self.columns.iter_mut().zip(&batch.columns) {
            column.push_from(from, row);
        }
        self.times.get_mut().push(batch.times[row]);
    }

    fn push_from(&mut self, other: &Self, row: usize) {
        for (column, from) in self.columns.iter_mut().zip(&other.columns) {
            column.push_from(from, row);
        }
        self.times.get_mut().push(other.times()[row]);
    }
}

impl RowStore {
    /// Creates an empty store.
    pub fn new(types: Vec<FieldType>) -> Self {
        let picked_rows = StoreSegment::new(&types);
        Self {
            types,
            segments: VecDeque::new(),
            base: 0,
            next: 0,
            retained: vec![],
            retained_rows: picked_rows,
            spare: None,
            appended: 0,
        }
    }

    /// Creates a store with the rows of a batch under their former ids, which ascend. The next row gets the
    /// id `next`, which must be greater. The counterpart is [`Self::rows_at`]; together they make a
    /// checkpoint.
    pub fn from_rows(types: Vec<FieldType>, numbers: Vec<RowId>, batch: &Batch, next: RowId) -> Self {
        let mut store = Self { base: next, next, retained: numbers, ..Self::new(types) };
        for row in 0..batch.len() {
            store.retained_rows.push(batch, row);
        }
        store
    }

    /// Returns the column types.
    pub fn types(&self) -> &[FieldType] {
        &self.types
    }

    /// Returns the id that the next row will get.
    pub fn next_id(&self) -> RowId {
        self.next
    }

    /// Returns the number of stored rows, including evicted ones in segments that are still needed.
    pub fn rows(&self) -> u64 {
        self.next - self.base + self.retained.len() as u64
    }

    /// Appends rows `rows` of a batch with the store's columns. Returns the id of the first.
    pub fn append(&mut self, batch: &Batch, rows: std::ops::Range<usize>) -> RowId {
        self.append_with(batch, None, rows)
    }

    /// Appends rows as [`Self::append`] does; if `ids` is given, it is the last column, which `batch` then
    /// lacks.
    pub(crate) fn append_with(
        &mut self,
        batch: &Batch,
        ids: Option<&[u32]>,
        mut rows: std::ops::Range<usize>,
    ) -> RowId {
        let first = self.next;
        self.appended = rows.len() as u64;
        while !rows.is_empty() {
            let used = (self.next - self.base) % SEGMENT_ROWS;
            if used == 0 {
                let segment = self.spare.take().unwrap_or_else(|| StoreSegment::new(&self.types));
                self.segments.push_back(segment);
            }
            let Some(segment) = self.segments.back_mut() else { break };
            let here = rows.start..rows.end.min(rows.start + (SEGMENT_ROWS - used) as usize);
            for (column, from) in segment.columns.iter_mut().zip(&batch.columns) {
                column.extend_range(from, here.clone());
            }
            if let (Some(ids), Some(column)) = (ids, segment.columns.last_mut()) {
                column.extend_ints(ids[here.clone()].iter().map(|id| id.cast_signed()));
            }
            segment.times.get_mut().extend_from_slice(&batch.times[here.clone()]);
            self.next += here.len() as u64;
            rows.start = here.end;
        }
        first
    }

    /// Appends a row; `id` is the value of the last column if the row lacks it. Returns the row's id.
    #[inline]
    pub(crate) fn append_row(&mut self, row: Row<'_>, id: Option<u32>) -> RowId {
        self.appended = 1;
        if (self.next - self.base).is_multiple_of(SEGMENT_ROWS) {
            let segment = self.spare.take().unwrap_or_else(|| StoreSegment::new(&self.types));
            self.segments.push_back(segment);
        }
        if let Some(segment) = self.segments.back_mut() {
            for (column, value) in segment.columns.iter_mut().zip(row.values) {
                column.push_ref(value);
            }
            if let (Some(id), Some(column)) = (id, segment.columns.last_mut()) {
                column.extend_ints(std::iter::once(id.cast_signed()));
            }
            segment.times.get_mut().push(row.time);
        }
        self.next += 1;
        self.next - 1
    }

    /// Returns the values of a column at these rows; the value for `None` is null, or arbitrary if the column
    /// has no nulls.
    pub fn gather(&self, column: usize, numbers: impl Iterator<Item = Option<RowId>>) -> Column {
        let plain = |segment: &StoreSegment| segment.columns[column].nulls().is_empty();
        if plain(&self.retained_rows) && self.segments.iter().all(plain) {
            macro_rules! near {
                ($variant:ident) => {
                    ColumnCursor::new(self, column, |data| match data {
                        Data::$variant(values) => Some(values),
                        _ => None,
                    })
                };
            }
            macro_rules! typed {
                ($variant:ident, $none:expr) => {{
                    let mut near = near!($variant);
                    let value = |seq: Option<RowId>| {
                        seq.and_then(|seq| near.at(seq)).map_or($none, |(values, row)| values[row])
                    };
                    return Column::of(Data::$variant(numbers.map(value).collect()));
                }};
            }
            // `None` stands for a reset, whose values are meaningless
            match self.types[column] {
                FieldType::Double => typed!(Double, 0.0),
                FieldType::Long | FieldType::Time => typed!(Long, 0),
                FieldType::Int => typed!(Int, 0),
                FieldType::String => {
                    let mut near = near!(Str);
                    let short = |segment: &StoreSegment| match segment.columns[column].data() {
                        Data::Str(texts) => texts.are_inline(),
                        _ => false,
                    };
                    if short(&self.retained_rows) && self.segments.iter().all(short) {
                        let texts = numbers.map(|seq| seq.and_then(|seq| near.at(seq)));
                        return Column::of(Data::Str(StringColumn::from_inline(texts)));
                    }
                    let mut texts = StringColumn::default();
                    texts.reserve(numbers.size_hint().0);
                    for seq in numbers {
                        match seq.and_then(|seq| near.at(seq)) {
                            Some((values, row)) => texts.push_from(values, row),
                            None => texts.push(""),
                        }
                    }
                    return Column::of(Data::Str(texts));
                }
                _ => {}
            }
        }
        let mut out = Column::new(self.types[column]);
        for seq in numbers {
            match seq {
                None => out.push_null(),
                Some(seq) => {
                    let (columns, row) = self.row(seq);
                    out.push_from(&columns[column], row);
                }
            }
        }
        out
    }

    /// Evicts rows below `seq` in whole segments. If no row is needed and the segments contain at least
    /// `SPARE_ROWS_MIN` rows, evicts all.
    pub fn evict_below(&mut self, seq: RowId) {
        self.drop_segments(seq);
        if seq >= self.next && self.next - self.base >= SPARE_ROWS_MIN {
            // the next rows reuse this memory, which is still in the CPU cache
            self.spare = self.segments.pop_back();
            self.spare.iter_mut().for_each(StoreSegment::clear);
            self.base = self.next;
        }
        if self.retained.last().is_some_and(|last| *last < seq) {
            self.copy_retained(&[]);
        }
    }

    fn drop_segments(&mut self, seq: RowId) {
        while self.base + SEGMENT_ROWS <= seq.min(self.next) && !self.segments.is_empty() {
            let mut spare = self.segments.pop_front();
            spare.iter_mut().for_each(StoreSegment::clear);
            // not for few rows in use: there may be many small windows, and each would keep a spare
            let much = self.next.saturating_sub(seq) + self.appended;
            self.spare = spare.filter(|_| much >= SPARE_ROWS_MIN);
            self.base += SEGMENT_ROWS;
        }
    }

    /// Evicts rows that are not in `kept`, which ascends. Rows of the last segment may stay.
    pub fn retain_only(&mut self, kept: &[RowId]) {
        let full = (self.next - self.base) / SEGMENT_ROWS * SEGMENT_ROWS;
        let base = self.base + full;
        self.copy_retained(&kept[..kept.partition_point(|seq| *seq < base)]);
        self.drop_segments(base);
    }

    /// Returns the ids of the rows from `oldest` on.
    pub fn ids_from(&self, oldest: RowId) -> Vec<RowId> {
        let picked = &self.retained[self.retained.partition_point(|seq| *seq < oldest)..];
        picked.iter().copied().chain(self.base.max(oldest)..self.next).collect()
    }

    /// Returns a copy of these rows, as current events.
    pub fn rows_at(&self, numbers: &[RowId]) -> Batch {
        let mut batch = Batch::new(self.types.iter().copied());
        for seq in numbers {
            let (columns, row) = self.row(*seq);
            for (column, from) in batch.columns.iter_mut().zip(columns) {
                column.push_from(from, row);
            }
            batch.times.push(self.time(*seq));
            batch.kinds.push(EventKind::Current);
        }
        batch
    }

    /// Copies these rows out of their segments, and drops the rows copied before.
    fn copy_retained(&mut self, kept: &[RowId]) {
        let mut rows = StoreSegment::new(&self.types);
        for seq in kept {
            let (from, row) = self.at(*seq);
            rows.push_from(from, row);
        }
        self.retained = kept.to_vec();
        self.retained_rows = rows;
    }

    #[inline]
    fn at(&self, seq: RowId) -> (&StoreSegment, usize) {
        if seq < self.base {
            return (&self.retained_rows, self.retained.partition_point(|picked| *picked < seq));
        }
        let place = seq - self.base;
        (&self.segments[(place / SEGMENT_ROWS) as usize], (place % SEGMENT_ROWS) as usize)
    }

    /// Returns the columns that contain a row, and its index in them.
    pub fn row(&self, seq: RowId) -> (&[Column], usize) {
        let (segment, row) = self.at(seq);
        (&segment.columns, row)
    }

    /// Returns a row's timestamp, in milliseconds.
    #[inline]
    pub fn time(&self, seq: RowId) -> i64 {
        let (segment, row) = self.at(seq);
        segment.times()[row]
    }

    /// Returns a cursor over the timestamps, for mostly ascending access.
    pub(crate) fn time_cursor(&self) -> I64Cursor<'_> {
        I64Cursor::new(self, None)
    }

    /// Returns a cursor over a column of longs, for mostly ascending access; `None` if a value may be null.
    pub(crate) fn i64_cursor(&self, column: usize) -> Option<I64Cursor<'_>> {
        let plain = |segment: &StoreSegment| {
            let column = &segment.columns[column];
            column.nulls().is_empty() && matches!(column.data(), Data::Long(_))
        };
        let all = plain(&self.retained_rows) && self.segments.iter().all(plain);
        all.then_some(I64Cursor::new(self, Some(column)))
    }

    /// Returns a column's values at consecutive rows.
    pub(crate) fn range(&self, column: usize, rows: std::ops::Range<RowId>) -> Column {
        let mut out = Column::new(self.types[column]);
        let mut seq = rows.start;
        while seq < rows.end {
            let (segment, row) = self.at(seq);
            let end = match seq < self.base {
                true => row + 1,
                false => segment.times().len().min(row + (rows.end - seq) as usize),
            };
            out.extend_range(&segment.columns[column], row..end);
            seq += (end - row) as RowId;
        }
        out
    }

    /// Returns the timestamps of consecutive rows.
    pub(crate) fn times_of(&self, rows: std::ops::Range<RowId>) -> Vec<i64> {
        let mut times = self.time_cursor();
        rows.map(|seq| times.get(seq)).collect()
    }

    /// Returns a value.
    pub fn value(&self, seq: RowId, column: usize) -> Value {
        let (columns, row) = self.row(seq);
        columns[column].get(row)
    }

    /// Returns a long; `None` for null and for columns of other types.
    #[inline]
    pub fn long(&self, seq: RowId, column: usize) -> Option<i64> {
        let (columns, row) = self.row(seq);
        match columns[column].data() {
            Data::Long(values) if !columns[column].is_null(row) => Some(values[row]),
            _ => None,
        }
    }

    /// Returns a string without a copy; `None` for null and for columns of other types.
    pub fn text(&self, seq: RowId, column: usize) -> Option<&str> {
        let (columns, row) = self.row(seq);
        match columns[column].data() {
            Data::Str(values) if !columns[column].is_null(row) => Some(values.get(row)),
            _ => None,
        }
    }

    /// Replaces a long of a row that has just arrived.
    pub fn set_long(&mut self, seq: RowId, column: usize, value: i64) {
        let Some(place) = seq.checked_sub(self.base) else { return };
        if let Some(segment) = self.segments.get_mut((place / SEGMENT_ROWS) as usize) {
            segment.columns[column].set_long((place % SEGMENT_ROWS) as usize, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(rows: i64) -> RowStore {
        let mut batch = Batch::new([FieldType::Long]);
        for i in 0..rows {
            batch.columns[0].push(if i % 7 == 0 { Value::Null } else { Value::Long(i) });
            batch.times.push(i);
            batch.kinds.push(EventKind::Current);
        }
        let mut store = RowStore::new(vec![FieldType::Long]);
        store.append(&batch, 0..rows as usize);
        store
    }

    #[test]
    fn rows_that_are_picked_out_keep_their_numbers() {
        let mut store = filled(20_000);
        store.retain_only(&[3, 4_097, 12_000, 19_999]);
        // three retained rows, and the last segment
        assert_eq!(store.rows(), 3 + 20_000 - 16_384);
        let values = [3, 4_097, 12_000, 19_999].map(|seq| store.long(seq, 0));
        assert_eq!(values, [Some(3), Some(4_097), Some(12_000), None]);
        assert_eq!(store.time(12_000), 12_000);
        store.retain_only(&[4_097]);
        assert_eq!((store.long(4_097, 0), store.time(4_097)), (Some(4_097), 4_097));
        let numbers = store.ids_from(4_097);
        assert_eq!((numbers[0], numbers[1], numbers.len() as u64), (4_097, 16_384, store.rows()));
        let other =
            RowStore::from_rows(vec![FieldType::Long], numbers.clone(), &store.rows_at(&numbers), 20_000);
        assert_eq!(
            (other.long(4_097, 0), other.time(19_999), other.next_id()),
            (Some(4_097), 19_999, 20_000)
        );
        store.evict_below(19_000);
        assert_eq!(store.rows(), 20_000 - 16_384);
    }
}

/// The rows that a window still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetainedRows {
    /// None of the rows that arrived so far.
    Nothing,
    /// This row and all later ones.
    From(RowId),
    /// Number of rows, not contiguous; [`Window::sparse_rows`] lists them.
    Sparse(usize),
}

impl RetainedRows {
    pub(crate) fn from_oldest(oldest: Option<RowId>) -> Self {
        oldest.map_or(Self::Nothing, Self::From)
    }

    pub(crate) fn sparse(rows: usize) -> Self {
        if rows == 0 { Self::Nothing } else { Self::Sparse(rows) }
    }
}
