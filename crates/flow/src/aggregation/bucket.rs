//! Bucket: the accumulators of one time range, one row per group.

use hashbrown::HashMap;

use super::accumulators::AccumulatorColumn;
use crate::catalog::AccumulatorSpec;
use crate::columns::column::Column;
use crate::columns::shareable::Shareable;

/// Rows of a bucket, in the order in which their groups first occurred.
pub(super) struct Bucket {
    rows: HashMap<u32, u32>,
    data: Shareable<BucketRows>,
}

/// Rows of a bucket, which a checkpoint shares.
#[derive(Clone, Default)]
pub(super) struct BucketRows {
    groups: Shareable<Vec<u32>>,
    columns: Vec<AccumulatorColumn>,
}

impl BucketRows {
    /// Returns the group id of each row.
    pub(super) fn groups(&self) -> &[u32] {
        self.groups.get()
    }

    /// Returns the accumulator columns.
    pub(super) fn columns(&self) -> &[AccumulatorColumn] {
        &self.columns
    }
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
        let data = BucketRows { groups: Shareable::default(), columns: cells };
        Self { rows: HashMap::new(), data: Shareable::new(data) }
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.groups().len()
    }

    /// Returns what a checkpoint shares.
    pub(super) fn data(&self) -> &Shareable<BucketRows> {
        &self.data
    }

    /// Lets clones of the [data](Self::data) share it.
    pub(super) fn share(&mut self) {
        if !self.data.is_shared() {
            let BucketRows { groups, columns } = self.data.get_mut();
            groups.share();
            columns.iter_mut().for_each(AccumulatorColumn::share);
            self.data.share();
        }
    }

    /// Returns the group id of each row.
    pub(super) fn groups(&self) -> &[u32] {
        self.data.get().groups()
    }

    /// Returns the accumulator columns.
    pub(super) fn columns(&self) -> &[AccumulatorColumn] {
        self.data.get().columns()
    }

    /// Returns the row of a group.
    pub(super) fn row(&self, group: u32) -> Option<usize> {
        self.rows.get(&group).map(|row| *row as usize)
    }

    /// Accumulates events.
    pub(super) fn accumulate(&mut self, plan: &[AccumulatorSpec], events: &BucketEvents<'_>) {
        let Self { rows, data } = self;
        let data = data.get_mut();
        let rows: smallvec::SmallVec<[u32; 16]> =
            events.groups.iter().map(|group| row_or_insert(rows, &mut data.groups, *group)).collect();
        let len = data.groups().len();
        for (cells, cell) in data.columns.iter_mut().zip(plan) {
            cells.grow(len);
            cells.accumulate(&rows, cell.arg.map(|arg| events.args[arg]), events.first_arg_row, events.times);
        }
    }

    /// Merges another bucket.
    pub(super) fn merge(&mut self, other: &Self) {
        for (from, group) in other.groups().iter().enumerate() {
            self.merge_row(*group, other.columns(), from);
        }
    }

    /// Merges row `from` of the accumulators of other rows, which is one of `group`.
    pub(super) fn merge_row(&mut self, group: u32, others: &[AccumulatorColumn], from: usize) {
        let data = self.data.get_mut();
        let row = row_or_insert(&mut self.rows, &mut data.groups, group) as usize;
        let len = data.groups().len();
        for (cells, others) in data.columns.iter_mut().zip(others) {
            cells.grow(len);
            cells.merge(row, others, from);
        }
    }

    /// Creates a bucket of these rows; `None` if two have one group.
    pub(super) fn from_parts(groups: Vec<u32>, cells: Vec<AccumulatorColumn>) -> Option<Self> {
        let rows: HashMap<u32, u32> = groups.iter().copied().zip(0..).collect();
        let is_unique = rows.len() == groups.len();
        let data = BucketRows { groups: Shareable::new(groups), columns: cells };
        is_unique.then_some(Self { rows, data: Shareable::new(data) })
    }
}

fn row_or_insert(rows: &mut HashMap<u32, u32>, groups: &mut Shareable<Vec<u32>>, group: u32) -> u32 {
    *rows.entry(group).or_insert_with(|| {
        let groups = groups.get_mut();
        groups.push(group);
        (groups.len() - 1) as u32
    })
}
