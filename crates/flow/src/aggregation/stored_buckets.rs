//! Buckets that are in a store: when they are written, and when memory forgets them.
//!
//! ```text
//!            purged │ only in the store            │ in memory and in the store      │ open, in memory
//! ───────────────────┼──────────────────────────────┼─────────────────────────────────┼────────────────▶ time
//!                    │ late events: read, merge,    │ late events: merge, write       │
//!                    │ write, forget                │                                 │
//! ```
//!
//! A row is written whole. What late events add to a row that is only in the store is read, merged and written in one go,
//! and kept nowhere else. So when a record is processed again after a crash, the store skips the write by its position, and
//! nothing is added twice.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_connect::WritePosition;
use tidemill_types::{Error, FieldType, Offset, PartitionId};

use super::bucket::Bucket;
use super::bucket_store::BucketStore;
use super::groups::write_value;
use super::{Aggregation, calendar};
use crate::catalog::{AggregationPlan, AggregationStore, CatalogTable, StoreOpener, StoredColumn};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{Frame, NoContext};

/// Stored buckets of one granularity.
#[derive(Default)]
pub(super) struct StoredBuckets {
    /// Closed buckets that start before it are only in the store, which an earlier run may have filled up to the bucket of
    /// the first event; later ones are in memory. `None` before the first event.
    pub(super) kept_from: Option<i64>,
    /// Greatest start of a row that was written; `None` if there was none.
    pub(super) last_written: Option<i64>,
    /// Rows that start before it were deleted; `None` if none were.
    pub(super) purged_before: Option<i64>,
    /// Closed buckets in memory with rows that the store does not have yet, and the groups of these.
    pub(super) changed: BTreeMap<i64, BTreeSet<u32>>,
    /// Contributions of late events to buckets that are only in the store.
    pub(super) late: BTreeMap<i64, Bucket>,
}

/// Record that is being processed, and the number of writes that it has made.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentRecord {
    partition: PartitionId,
    offset: Offset,
    writes: u32,
}

impl StoredBuckets {
    /// Returns whether a closed bucket is only in the store.
    pub(super) fn is_offloaded(&self, start: i64) -> bool {
        self.kept_from.is_some_and(|kept| start < kept)
    }

    /// Returns the start of the first row that may be in the store and can be deleted.
    pub(super) fn first(&self) -> Option<i64> {
        match (self.purged_before, self.last_written) {
            // an earlier run may have left rows
            (None, _) => Some(i64::MIN),
            (Some(purged), Some(last)) => (last >= purged).then_some(purged),
            (Some(_), None) => None,
        }
    }

    fn note_written(&mut self, start: i64) {
        self.last_written = self.last_written.max(Some(start));
        self.purged_before = self.purged_before.map(|purged| purged.min(start));
    }
}

impl Aggregation {
    /// Returns whether the closed buckets are in another system.
    pub fn is_elsewhere(&self) -> bool {
        self.plan.store.as_ref().is_some_and(|store| store.tables.iter().all(CatalogTable::is_elsewhere))
    }

    /// Opens the store of each granularity. Without it all buckets stay in memory.
    ///
    /// Errors: those of `open`.
    pub fn open_stores(&mut self, open: &mut StoreOpener<'_>) -> Result<(), Error> {
        if let Some(store) = &self.plan.store {
            let stores = store.tables.iter().map(|table| open(table).map(BucketStore::new));
            self.stores = stores.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Takes the open stores out of another aggregation with the same definition.
    pub(crate) fn take_stores(&mut self, other: &mut Self) {
        self.stores = std::mem::take(&mut other.stores);
    }

    /// Says which record the next writes belong to. Writes of a record happen once, however often it is processed.
    pub fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        self.record = Some(CurrentRecord { partition, offset, writes: 0 });
    }

    /// Returns the position of the next write. A write that changes nothing has one too, so that each has the same
    /// when its record is processed again.
    fn next_position(&mut self) -> Option<WritePosition> {
        let record = self.record.as_mut()?;
        record.writes += 1;
        Some(WritePosition { partition: record.partition, offset: record.offset, call: record.writes - 1 })
    }

    /// Writes closed buckets that have changed to the store, and forgets old ones. To be called after each
    /// [`Self::push`]. Returns what went wrong: rows that are refused, a store that does not answer.
    pub fn write_changes(&mut self) -> Vec<EvalError> {
        let plan = self.plan.clone();
        let Some(store) = &plan.store else { return vec![] };
        let at = self.next_position();
        if self.stores.is_empty() {
            self.levels.iter_mut().for_each(|level| level.keep_changes(&plan));
            return vec![];
        }
        let mut failures = vec![];
        for level in 0..self.levels.len() {
            let Some(stored) = &mut self.levels[level].stored else { continue };
            if stored.late.is_empty() && stored.changed.is_empty() {
                continue;
            }
            let (late, changed) = (std::mem::take(&mut stored.late), std::mem::take(&mut stored.changed));
            let written = self.write_rows(store, level, (&late, &changed), at, &mut failures);
            let Some(stored) = &mut self.levels[level].stored else { continue };
            match written {
                Ok(()) => late.keys().chain(changed.keys()).for_each(|start| stored.note_written(*start)),
                // the next write has them too
                Err(failure) => {
                    (stored.late, stored.changed) = (late, changed);
                    failures.push(failure);
                }
            }
        }
        self.offload();
        failures
    }

    fn write_rows(
        &mut self,
        store: &AggregationStore,
        level: usize,
        (late, changed): (&BTreeMap<i64, Bucket>, &BTreeMap<i64, BTreeSet<u32>>),
        at: Option<WritePosition>,
        failures: &mut Vec<EvalError>,
    ) -> Result<(), EvalError> {
        let mut rows = StoredRowBuilder::new(store);
        for (start, delta) in late {
            let merged = self.merge_stored(store, level, *start, delta)?;
            let all: Vec<usize> = (0..merged.len()).collect();
            rows.add(self, *start, &merged, &all);
        }
        for (start, groups) in changed {
            if let Some(bucket) = self.levels[level].closed().get(start) {
                let of: Vec<usize> = groups.iter().filter_map(|group| bucket.row(*group)).collect();
                rows.add(self, *start, bucket, &of);
            }
        }
        let StoredRowBuilder { columns, failure, .. } = rows;
        let (name, unit) = (self.plan.name.clone(), self.levels[level].unit.text());
        let failed =
            |what: String| EvalError::argument(format!("aggregation `{name}`, buckets of `{unit}`: {what}"));
        failures.extend(failure.map(|e| failed(format!("a selected column is stored as null: {e}"))));
        if columns[0].is_empty() {
            return Ok(());
        }
        let refused = self.stores[level].write(store, columns, at)?;
        failures.extend(refused.into_iter().map(|row| failed(format!("a row is refused: {}", row.reason))));
        Ok(())
    }

    /// Returns the stored rows of a bucket with what late events add to them.
    fn merge_stored(
        &self,
        store: &AggregationStore,
        level: usize,
        start: i64,
        delta: &Bucket,
    ) -> Result<Bucket, EvalError> {
        let values: Box<[Value]>;
        let group = match delta.groups() {
            [group] if has_exact_keys(&self.plan) => {
                values = (0..self.plan.group_by.len()).map(|i| self.groups.value(*group, i)).collect();
                Some(&*values)
            }
            _ => None,
        };
        let rows = self.stores[level].read(&self.plan, store, start..start.saturating_add(1), group)?;
        let mut bucket = Bucket::new(&self.plan.accumulators);
        let mut key = Vec::new();
        for row in 0..rows.len() {
            key.clear();
            rows.groups[row].iter().for_each(|value| write_value(&mut key, value));
            if let Some(group) = self.groups.find(&key).filter(|group| delta.row(*group).is_some()) {
                bucket.merge_row(group, &rows.columns, row);
            }
        }
        bucket.merge(delta);
        Ok(bucket)
    }

    /// Forgets the oldest closed buckets that the store has.
    fn offload(&mut self) {
        for level in &mut self.levels {
            self.offloaded_rows += level.offload(self.closed_buckets_max);
        }
        // a look at all rows, once for as many that went
        if self.offloaded_rows > self.len() {
            self.offloaded_rows = 0;
            let used = self.used_groups();
            self.groups.retain_used(&used);
        }
    }

    /// Deletes rows that are older than their retention from the store.
    pub(super) fn purge_stores(&mut self, now: i64) -> Vec<EvalError> {
        let plan = self.plan.clone();
        let at = self.next_position();
        let Some(purge) = plan.purge.as_ref().filter(|_| !self.stores.is_empty()) else { return vec![] };
        let mut failures = vec![];
        for (i, retention) in purge.retention_ms.iter().enumerate() {
            let Some(stored) = &mut self.levels[i].stored else { continue };
            let Some(before) = retention.map(|retention| now.saturating_sub(retention)) else { continue };
            // the first bucket that stays
            let until = match calendar::bucket_range(plan.units[i], before) {
                Ok(bucket) if bucket.start < before => bucket.end,
                _ => before,
            };
            if stored.first().is_none_or(|first| first >= until) {
                continue;
            }
            match self.stores[i].delete_before(before, at) {
                Ok(()) => stored.purged_before = Some(until),
                Err(failure) => failures.push(failure),
            }
        }
        failures
    }
}

/// Returns whether the other system finds a group by its values as this program does.
fn has_exact_keys(plan: &AggregationPlan) -> bool {
    plan.group_by.iter().all(|(_, ty)| !matches!(ty, FieldType::Float | FieldType::Double))
}

/// Collects rows as the store has them.
struct StoredRowBuilder<'s> {
    store: &'s AggregationStore,
    columns: Vec<Column>,
    /// Why a selected column of a row cannot be computed.
    failure: Option<EvalError>,
}

impl<'s> StoredRowBuilder<'s> {
    fn new(store: &'s AggregationStore) -> Self {
        let columns = store.tables[0].attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
        Self { store, columns, failure: None }
    }

    /// Adds rows of a bucket.
    fn add(&mut self, of: &Aggregation, start: i64, bucket: &Bucket, rows: &[usize]) {
        let cells = bucket.columns();
        let mut all: Option<Vec<Column>> = None;
        for (column, holds) in self.columns.iter_mut().zip(&self.store.columns) {
            for (place, row) in rows.iter().enumerate() {
                column.push(match *holds {
                    StoredColumn::BucketStart => Value::Long(start),
                    StoredColumn::Group(group) => of.groups.value(bucket.groups()[*row], group),
                    StoredColumn::Accumulator(number) => cells[number].stored_value(*row),
                    StoredColumn::ValueCount(number) => cells[number].stored_count(*row),
                    StoredColumn::LastEventTime(number) => cells[number].stored_time(*row),
                    StoredColumn::Item(item) => {
                        let all = all.get_or_insert_with(|| of.rows_as_columns(&of.groups, bucket, rows));
                        let rows = [Some((all.as_slice(), place))];
                        let frame = Frame { rows: &rows, time: start, now: start, host: &NoContext };
                        match of.plan.items[item].1.eval(&frame) {
                            Ok(value) => value,
                            Err(failure) => {
                                self.failure.get_or_insert(failure);
                                Value::Null
                            }
                        }
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
