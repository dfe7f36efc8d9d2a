//! Bucket: the accumulators of one time range, one row per group.

use hashbrown::HashMap;

use super::accumulators::AccumulatorColumn;
use crate::catalog::AccumulatorSpec;
use crate::column::Column;

/// Rows of a bucket, in the order in which their groups first occurred.
pub(super) struct Bucket {
    rows: HashMap<u32, u32>,
    groups: Vec<u32>,
    columns: Vec<AccumulatorColumn>,
}

/// Events of one bucket, ready to be accumulated.
pub(super) struct BucketEvents<'a> {
    /// Group id of each event.
    pub(super) groups: &'a [u32],
    /// Time of each event, in milliseconds since 1970.
    pub(super) times: &'a [i64],
    /// Accumulator arguments of the whole batch.
    pub(super) args: &'a [&'a Column],
    /// Row of the first of these events in the arguments.
    pub(super) first_arg_row: usize,
}

impl Bucket {
    pub(super) fn new(cells: &[AccumulatorSpec]) -> Self {
        let cells = cells.iter().map(|cell| AccumulatorColumn::new(cell.kind)).collect();
        Self { rows: HashMap::new(), groups: vec![], columns: cells }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the group id of each row.
    pub(super) fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Returns the accumulator columns.
    pub(super) fn columns(&self) -> &[AccumulatorColumn] {
        &self.columns
    }

    /// Returns the row of a group.
    pub(super) fn row(&self, group: u32) -> Option<usize> {
        self.rows.get(&group).map(|row| *row as usize)
    }

    fn row_or_insert(&mut self, group: u32) -> u32 {
        *self.rows.entry(group).or_insert_with(|| {
            self.groups.push(group);
            (self.groups.len() - 1) as u32
        })
    }

    /// Accumulates events.
    pub(super) fn accumulate(&mut self, plan: &[AccumulatorSpec], events: &BucketEvents<'_>) {
        let rows: smallvec::SmallVec<[u32; 16]> =
            events.groups.iter().map(|g| self.row_or_insert(*g)).collect();
        let len = self.groups.len();
        for (cells, cell) in self.columns.iter_mut().zip(plan) {
            cells.grow(len);
            cells.accumulate(&rows, cell.arg.map(|arg| events.args[arg]), events.first_arg_row, events.times);
        }
    }

    /// Merges another bucket.
    pub(super) fn merge(&mut self, other: &Self) {
        for (from, group) in other.groups.iter().enumerate() {
            self.merge_row(*group, &other.columns, from);
        }
    }

    /// Merges row `from` of the accumulators of other rows, which is one of `group`.
    pub(super) fn merge_row(&mut self, group: u32, others: &[AccumulatorColumn], from: usize) {
        let row = self.row_or_insert(group) as usize;
        let len = self.groups.len();
        for (cells, others) in self.columns.iter_mut().zip(others) {
            cells.grow(len);
            cells.merge(row, others, from);
        }
    }

    /// Creates a bucket of these rows; `None` if two have one group.
    pub(super) fn from_parts(groups: Vec<u32>, cells: Vec<AccumulatorColumn>) -> Option<Self> {
        let rows: HashMap<u32, u32> = groups.iter().copied().zip(0..).collect();
        (rows.len() == groups.len()).then_some(Self { rows, groups, columns: cells })
    }
}
