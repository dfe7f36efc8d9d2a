//! Row storage of a table.

use tidemill_types::FieldType;

use crate::columns::column::{Column, Data};
use crate::columns::u64_map::prefetch;

/// Index of a row: ascending in insertion order, and stable until [`TableRows::compact`].
pub(super) type RowIndex = u32;

const SEGMENT_BITS: u32 = 12;
/// Number of rows per segment.
pub(super) const SEGMENT_ROWS: usize = 1 << SEGMENT_BITS;

/// Minimum number of segments for prefetching; fewer fit into the processor's cache.
const PREFETCH_MIN_SEGMENTS: usize = 8;

/// Rows in segments of typed columns. Besides its values a row takes one bit, once a row has been removed.
#[derive(Clone)]
pub(super) struct TableRows {
    types: Vec<FieldType>,
    segments: Vec<Vec<Column>>,
    /// Number of row indexes in use, including those of removed rows.
    allocated: usize,
    /// Bitmap of removed rows; empty before the first removal.
    removed: Vec<u64>,
    len: usize,
}

impl TableRows {
    pub(super) fn new(types: Vec<FieldType>) -> Self {
        Self { types, segments: vec![], allocated: 0, removed: vec![], len: 0 }
    }

    pub(super) fn types(&self) -> &[FieldType] {
        &self.types
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a row; `fill` pushes a value to each column.
    pub(super) fn push(&mut self, fill: impl FnOnce(&mut [Column])) -> RowIndex {
        if self.allocated.is_multiple_of(SEGMENT_ROWS) {
            self.segments.push(self.types.iter().map(|ty| Column::new(*ty)).collect());
        }
        if let Some(segment) = self.segments.last_mut() {
            fill(segment);
            debug_assert!(segment.iter().all(|c| c.len() == self.allocated % SEGMENT_ROWS + 1));
        }
        self.allocated += 1;
        self.len += 1;
        (self.allocated - 1) as RowIndex
    }

    /// Returns the columns of a row's segment and the row's position in them.
    #[inline]
    pub(super) fn row(&self, place: RowIndex) -> (&[Column], usize) {
        (&self.segments[(place >> SEGMENT_BITS) as usize], place as usize & (SEGMENT_ROWS - 1))
    }

    #[inline]
    pub(super) fn cell(&self, place: RowIndex, column: usize) -> (&Column, usize) {
        let (columns, row) = self.row(place);
        (&columns[column], row)
    }

    #[inline]
    pub(super) fn cell_mut(&mut self, place: RowIndex, column: usize) -> (&mut Column, usize) {
        let segment = &mut self.segments[(place >> SEGMENT_BITS) as usize];
        (&mut segment[column], place as usize & (SEGMENT_ROWS - 1))
    }

    /// Assigns values of `from` to a column of the same type: for each pair, value `.0` to row `.1`.
    pub(super) fn set_from(&mut self, column: usize, found: &[(u32, RowIndex)], from: &Column) {
        self.prefetch(column, found);
        match from.data() {
            Data::Double(values) if from.nulls().is_empty() => {
                for (i, place) in found {
                    let (to, row) = self.cell_mut(*place, column);
                    to.set_double(row, values[*i as usize]);
                }
            }
            Data::Long(values) if from.nulls().is_empty() => {
                for (i, place) in found {
                    let (to, row) = self.cell_mut(*place, column);
                    to.set_long(row, values[*i as usize]);
                }
            }
            _ => {
                for (i, place) in found {
                    let (to, row) = self.cell_mut(*place, column);
                    to.set_from(row, from, *i as usize);
                }
            }
        }
    }

    /// Prefetches these cells if the table is large.
    fn prefetch(&self, column: usize, found: &[(u32, RowIndex)]) {
        if self.segments.len() < PREFETCH_MIN_SEGMENTS {
            return;
        }
        for (_, place) in found {
            let (cells, row) = self.cell(*place, column);
            match cells.data() {
                Data::Double(values) => prefetch(values.get(row)),
                Data::Long(values) => prefetch(values.get(row)),
                _ => {}
            }
        }
    }

    /// Lets clones share the rows, if there are at least `rows_min`. Objects are changed in place by any of their holders, so a table with objects
    /// does not share.
    pub(super) fn share(&mut self, rows_min: usize) {
        if self.allocated >= rows_min && !self.types.contains(&FieldType::Object) {
            self.segments.iter_mut().flatten().for_each(Column::share);
        }
    }

    /// Returns whether clones share the rows.
    pub(super) fn is_shared(&self) -> bool {
        !self.segments.is_empty() && self.segments.iter().flatten().all(|column| !column.is_unshared())
    }

    pub(super) fn remove(&mut self, place: RowIndex) {
        let word = place as usize / 64;
        if self.removed.len() <= word {
            self.removed.resize(word + 1, 0);
        }
        self.removed[word] |= 1 << (place % 64);
        self.len -= 1;
    }

    fn is_removed(&self, place: RowIndex) -> bool {
        self.removed.get(place as usize / 64).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Returns all rows in insertion order.
    pub(super) fn indexes(&self) -> impl Iterator<Item = RowIndex> + '_ {
        (0..self.allocated as RowIndex).filter(|place| !self.is_removed(*place))
    }

    /// Returns whether there are more holes than rows.
    pub(super) fn is_sparse(&self) -> bool {
        self.allocated > 2 * (self.len + SEGMENT_ROWS) || self.len == 0 && self.allocated > 0
    }

    /// Removes the holes; the remaining rows get new indexes.
    pub(super) fn compact(&mut self) {
        let mut all = Self::new(std::mem::take(&mut self.types));
        for place in self.indexes() {
            let (from, row) = self.row(place);
            all.push(|to| to.iter_mut().zip(from).for_each(|(to, from)| to.push_from(from, row)));
        }
        *self = all;
    }
}
