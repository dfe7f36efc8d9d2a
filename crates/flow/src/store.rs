//! Rows that a query holds: numbered as they arrive, forgotten when nobody needs them.

mod cursor;
mod snapshot;

use std::collections::VecDeque;

use tidemill_types::FieldType;

use cursor::ColumnCursor;
pub(crate) use cursor::I64Cursor;

use crate::batch::{Batch, EventKind};
use crate::column::{Column, Data, StringColumn};
use crate::value::Value;

/// The number of a row; it never changes, and later rows have greater ones.
pub type RowId = u64;

/// Rows of one segment.
pub const SEGMENT_ROWS: u64 = 4096;

/// With fewer rows that are needed no memory is kept for others.
const SPARE_ROWS_MIN: u64 = SEGMENT_ROWS / 8;

/// Rows in segments of typed columns.
///
/// A row costs its values and eight bytes for its time. Random access costs a shift and a mask. Few old rows that are
/// still needed among many that are not can be [picked out](Self::retain_only); they keep their numbers and cost a
/// search.
#[derive(Debug, Clone)]
pub struct RowStore {
    types: Vec<FieldType>,
    segments: VecDeque<Segment>,
    /// The number of the first row of the first segment.
    base: RowId,
    next: RowId,
    /// The numbers of the rows that were picked out, ascending, all below `base`.
    retained: Vec<RowId>,
    retained_rows: Segment,
    /// A segment without rows, kept for its memory.
    spare: Option<Segment>,
    /// How many rows were added last.
    appended: u64,
}

#[derive(Debug, Clone)]
struct Segment {
    columns: Vec<Column>,
    times: Vec<i64>,
}

impl Segment {
    fn new(types: &[FieldType]) -> Self {
        Self { columns: types.iter().map(|ty| Column::new(*ty)).collect(), times: vec![] }
    }

    fn clear(&mut self) {
        self.columns.iter_mut().for_each(|column| column.truncate(0));
        self.times.clear();
    }

    fn push(&mut self, batch: &Batch, row: usize) {
        for (column, from) in self.columns.iter_mut().zip(&batch.columns) {
            column.push_from(from, row);
        }
        self.times.push(batch.times[row]);
    }

    fn push_from(&mut self, other: &Self, row: usize) {
        for (column, from) in self.columns.iter_mut().zip(&other.columns) {
            column.push_from(from, row);
        }
        self.times.push(other.times[row]);
    }
}

impl RowStore {
    /// A store without rows.
    pub fn new(types: Vec<FieldType>) -> Self {
        let picked_rows = Segment::new(&types);
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

    /// A store with the rows of a batch under numbers that they had before, ascending; the next one gets `next`, which
    /// is greater. With [`Self::rows_at`] it makes a checkpoint.
    pub fn from_rows(types: Vec<FieldType>, numbers: Vec<RowId>, batch: &Batch, next: RowId) -> Self {
        let mut store = Self { base: next, next, retained: numbers, ..Self::new(types) };
        for row in 0..batch.len() {
            store.retained_rows.push(batch, row);
        }
        store
    }

    /// The types of its columns.
    pub fn types(&self) -> &[FieldType] {
        &self.types
    }

    /// The number that the next row will get.
    pub fn next_id(&self) -> RowId {
        self.next
    }

    /// Rows kept, forgotten ones that share a segment with others included.
    pub fn rows(&self) -> u64 {
        self.next - self.base + self.retained.len() as u64
    }

    /// Adds rows `rows` of a batch with these columns; returns the number of the first.
    pub fn append(&mut self, batch: &Batch, rows: std::ops::Range<usize>) -> RowId {
        self.append_with(batch, None, rows)
    }

    /// The same where the last column is not in the batch, but in `ids`.
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
                let segment = self.spare.take().unwrap_or_else(|| Segment::new(&self.types));
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
            segment.times.extend_from_slice(&batch.times[here.clone()]);
            self.next += here.len() as u64;
            rows.start = here.end;
        }
        first
    }

    /// The values of a column at these rows; null where there is none.
    pub fn gather(&self, column: usize, numbers: impl Iterator<Item = Option<RowId>>) -> Column {
        let plain = |segment: &Segment| segment.columns[column].nulls().is_empty();
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
            // what stands for a reset means nothing
            match self.types[column] {
                FieldType::Double => typed!(Double, 0.0),
                FieldType::Long | FieldType::Time => typed!(Long, 0),
                FieldType::Int => typed!(Int, 0),
                FieldType::String => {
                    let mut near = near!(Str);
                    let short = |segment: &Segment| match segment.columns[column].data() {
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

    /// Forgets rows below `seq`, a segment at a time; all of them once none is needed and they are many.
    pub fn evict_below(&mut self, seq: RowId) {
        self.drop_segments(seq);
        if seq >= self.next && self.next - self.base >= SPARE_ROWS_MIN {
            // the next rows come to lie where these were, which the processor has at hand
            self.spare = self.segments.pop_back();
            self.spare.iter_mut().for_each(Segment::clear);
            self.base = self.next;
        }
        if self.retained.last().is_some_and(|last| *last < seq) {
            self.copy_retained(&[]);
        }
    }

    fn drop_segments(&mut self, seq: RowId) {
        while self.base + SEGMENT_ROWS <= seq.min(self.next) && !self.segments.is_empty() {
            let mut spare = self.segments.pop_front();
            spare.iter_mut().for_each(Segment::clear);
            // there may be many small windows, and each would keep one
            let much = self.next.saturating_sub(seq) + self.appended;
            self.spare = spare.filter(|_| much >= SPARE_ROWS_MIN);
            self.base += SEGMENT_ROWS;
        }
    }

    /// Forgets rows that are not in `kept`, which is ascending. Rows of the last segment may stay.
    pub fn retain_only(&mut self, kept: &[RowId]) {
        let full = (self.next - self.base) / SEGMENT_ROWS * SEGMENT_ROWS;
        let base = self.base + full;
        self.copy_retained(&kept[..kept.partition_point(|seq| *seq < base)]);
        self.drop_segments(base);
    }

    /// The numbers of the rows from `oldest` on.
    pub fn ids_from(&self, oldest: RowId) -> Vec<RowId> {
        let picked = &self.retained[self.retained.partition_point(|seq| *seq < oldest)..];
        picked.iter().copied().chain(self.base.max(oldest)..self.next).collect()
    }

    /// A copy of these rows, as current events.
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

    /// Picks out these rows anew, and drops what was picked before.
    fn copy_retained(&mut self, kept: &[RowId]) {
        let mut rows = Segment::new(&self.types);
        for seq in kept {
            let (from, row) = self.at(*seq);
            rows.push_from(from, row);
        }
        self.retained = kept.to_vec();
        self.retained_rows = rows;
    }

    #[inline]
    fn at(&self, seq: RowId) -> (&Segment, usize) {
        if seq < self.base {
            return (&self.retained_rows, self.retained.partition_point(|picked| *picked < seq));
        }
        let place = seq - self.base;
        (&self.segments[(place / SEGMENT_ROWS) as usize], (place % SEGMENT_ROWS) as usize)
    }

    /// The columns in which a row lies, and where in them.
    pub fn row(&self, seq: RowId) -> (&[Column], usize) {
        let (segment, row) = self.at(seq);
        (&segment.columns, row)
    }

    /// A row's timestamp.
    #[inline]
    pub fn time(&self, seq: RowId) -> i64 {
        let (segment, row) = self.at(seq);
        segment.times[row]
    }

    /// The timestamps, for those who look at rows in their order.
    pub(crate) fn time_cursor(&self) -> I64Cursor<'_> {
        I64Cursor::new(self, None)
    }

    /// The values of a column of longs, for those who look at rows in their order; none when one may be null.
    pub(crate) fn i64_cursor(&self, column: usize) -> Option<I64Cursor<'_>> {
        let plain = |segment: &Segment| {
            let column = &segment.columns[column];
            column.nulls().is_empty() && matches!(column.data(), Data::Long(_))
        };
        let all = plain(&self.retained_rows) && self.segments.iter().all(plain);
        all.then_some(I64Cursor::new(self, Some(column)))
    }

    /// The values of a column at rows that follow each other.
    pub(crate) fn range(&self, column: usize, rows: std::ops::Range<RowId>) -> Column {
        let mut out = Column::new(self.types[column]);
        let mut seq = rows.start;
        while seq < rows.end {
            let (segment, row) = self.at(seq);
            let end = match seq < self.base {
                true => row + 1,
                false => segment.times.len().min(row + (rows.end - seq) as usize),
            };
            out.extend_range(&segment.columns[column], row..end);
            seq += (end - row) as RowId;
        }
        out
    }

    /// The timestamps of rows that follow each other.
    pub(crate) fn times_of(&self, rows: std::ops::Range<RowId>) -> Vec<i64> {
        let mut times = self.time_cursor();
        rows.map(|seq| times.get(seq)).collect()
    }

    /// A value.
    pub fn value(&self, seq: RowId, column: usize) -> Value {
        let (columns, row) = self.row(seq);
        columns[column].get(row)
    }

    /// A long; `None` for null.
    #[inline]
    pub fn long(&self, seq: RowId, column: usize) -> Option<i64> {
        let (columns, row) = self.row(seq);
        match columns[column].data() {
            Data::Long(values) if !columns[column].is_null(row) => Some(values[row]),
            _ => None,
        }
    }

    /// A text, where it lies; `None` for null.
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
        // three picked out, and the last segment
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
