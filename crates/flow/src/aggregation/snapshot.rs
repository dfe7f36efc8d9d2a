//! Groups and buckets of an aggregation in a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_types::FieldType;

use super::Aggregation;
use super::accumulators::AccumulatorColumn;
use super::bucket::{Bucket, BucketRows};
use super::granularity::GranularityBuckets;
use super::groups::GroupTable;
use super::stored_buckets::StoredBuckets;
use crate::catalog::{AccumulatorKind, AccumulatorSpec};
use crate::columns::shareable::{BlockVec, Shareable};
use crate::columns::value::{Key, Value};
use crate::snapshot::{Error, Reader, SnapshotWriter};

/// Maximum number of groups or buckets in a snapshot; group ids have 32 bits.
const ROWS_MAX: usize = u32::MAX as usize;

/// Added to the first number of a state that says what a store has.
const STORED: u64 = 2;

/// Reads a bucket with its start.
type BucketReader<'b, 'r> = dyn Fn(&mut Reader<'r>) -> Result<(i64, Bucket), Error> + 'b;

impl Aggregation {
    /// Lets the next [`Self::save`] share groups and buckets, if there are at least `rows_min` rows. The groups and accumulators
    /// must have no objects, which are changed in place by any of their holders.
    pub(crate) fn share(&mut self, rows_min: usize, may_have_objects: bool) {
        let has_objects = may_have_objects || self.plan.args.iter().any(|arg| arg.ty == FieldType::Object);
        self.is_shared = !has_objects && self.len() >= rows_min;
        if self.is_shared {
            self.groups.share();
            self.levels.iter_mut().for_each(GranularityBuckets::share);
        }
    }

    /// Writes the time of the next purge, the groups and the buckets; of buckets in a store, those in memory and what
    /// the store has.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let stored = if self.plan.store.is_some() { STORED } else { 0 };
        out.number(stored + u64::from(self.next_purge.is_some()))?;
        self.next_purge.map_or(Ok(()), |at| out.signed(at))?;
        let groups = self.groups.all();
        if out.is_freezing() && self.is_shared {
            let groups = groups.clone();
            let buckets: Vec<_> = self.buckets().map(|bucket| bucket.data().clone()).collect();
            out.defer(move |out| write_groups(&groups, buckets.iter().map(Shareable::get), out))?;
        } else {
            write_groups(groups, self.buckets().map(|bucket| bucket.data().get()), out)?;
        }
        for level in &self.levels {
            out.flag(level.open().is_some())?;
            if let Some((start, bucket)) = level.open() {
                out.signed(start)?;
                self.save_bucket(bucket, out)?;
            }
            out.number(level.closed().len() as u64)?;
            for (start, bucket) in level.closed() {
                out.signed(*start)?;
                self.save_bucket(bucket, out)?;
            }
            level.stored.as_ref().map_or(Ok(()), |stored| stored.save(out))?;
        }
        Ok(())
    }

    fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.levels.iter().flat_map(GranularityBuckets::buckets)
    }

    fn save_bucket(&self, bucket: &Bucket, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if out.is_freezing() && self.is_shared && bucket.len() >= DEFERRED_ROWS_MIN {
            let data = bucket.data().clone();
            return out.defer(move |out| data.get().save(out));
        }
        bucket.data().get().save(out)
    }

    /// Replaces the state by a saved one.
    ///
    /// Errors: the data was not written by an aggregation of this plan; the state is then unchanged.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let head = from.number_up_to(STORED as usize + 1)? as u64;
        let has_stored = head >= STORED;
        let next_purge = match head % STORED {
            0 => None,
            _ => Some(from.signed()?),
        };
        let mut groups = Vec::new();
        for _ in 0..from.number_up_to(ROWS_MAX)? {
            groups.push(match from.flag()? {
                true => Some(self.plan.group_by.iter().map(|_| from.value()).collect::<Result<_, _>>()?),
                false => None,
            });
        }
        let bucket = |from: &mut Reader<'_>| -> Result<(i64, Bucket), Error> {
            Ok((from.signed()?, Bucket::restored(&self.plan.accumulators, &groups, from)?))
        };
        let mut levels = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            let open = match from.flag()? {
                true => Some(bucket(from)?),
                false => None,
            };
            let mut closed = BTreeMap::new();
            for _ in 0..from.number_up_to(ROWS_MAX)? {
                closed.extend([bucket(from)?]);
            }
            let read = match has_stored {
                true => Some(StoredBuckets::restored(&bucket, from)?),
                false => None,
            };
            // a state from before there was a store: all closed buckets are to be written
            let of_memory = || StoredBuckets::of_memory(open.as_ref().map(|(start, _)| *start), &closed);
            let stored = self.plan.store.as_ref().map(|_| read.unwrap_or_else(of_memory));
            let restored = GranularityBuckets::restored(level.unit, open, closed, stored);
            levels.push(restored.map_err(|what| from.damaged(what))?);
        }
        (self.groups, self.levels) = (GroupTable::restored(groups), levels);
        self.next_purge = next_purge;
        Ok(())
    }

    /// Sets the time of the next purge: a restored one belongs to the app that saved the state.
    pub(crate) fn set_next_purge(&mut self, at: Option<i64>) {
        self.next_purge = at;
    }

    /// Returns for each group id whether a bucket has a row of the group.
    pub(super) fn used_groups(&self) -> Vec<bool> {
        used_groups(self.groups.len(), self.buckets().map(|bucket| bucket.data().get()))
    }
}

/// Number of rows from which a bucket is written later; fewer take less time than their own part.
const DEFERRED_ROWS_MIN: usize = 32;

fn used_groups<'b>(groups: usize, buckets: impl Iterator<Item = &'b BucketRows>) -> Vec<bool> {
    let mut used = vec![false; groups];
    for bucket in buckets {
        bucket.groups().iter().for_each(|group| used[*group as usize] = true);
    }
    used
}

/// Writes the groups that buckets have.
fn write_groups<'b>(
    groups: &BlockVec<Box<[Value]>>,
    buckets: impl Iterator<Item = &'b BucketRows>,
    out: &mut SnapshotWriter<'_>,
) -> Result<(), Error> {
    let used = used_groups(groups.len(), buckets);
    out.number(used.len() as u64)?;
    for (values, used) in groups.iter().zip(used) {
        out.flag(used)?;
        if used {
            values.iter().try_for_each(|value| out.value(value))?;
        }
    }
    Ok(())
}

impl StoredBuckets {
    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        for time in [self.kept_from, self.last_written, self.purged_before] {
            out.flag(time.is_some())?;
            time.map_or(Ok(()), |time| out.signed(time))?;
        }
        out.number(self.changed.len() as u64)?;
        for (start, groups) in &self.changed {
            out.signed(*start)?;
            out.numbers(groups.iter().map(|group| u64::from(*group)))?;
        }
        out.number(self.late.len() as u64)?;
        for (start, bucket) in &self.late {
            out.signed(*start)?;
            bucket.data().get().save(out)?;
        }
        Ok(())
    }

    /// Reads what [`Self::save`] wrote.
    fn restored<'r>(bucket: &BucketReader<'_, 'r>, from: &mut Reader<'r>) -> Result<Self, Error> {
        let time = |from: &mut Reader<'r>| match from.flag()? {
            true => from.signed().map(Some),
            false => Ok(None),
        };
        let (kept_from, last_written, purged_before) = (time(from)?, time(from)?, time(from)?);
        let mut stored = Self { kept_from, last_written, purged_before, ..Self::default() };
        for _ in 0..from.number_up_to(ROWS_MAX)? {
            let start = from.signed()?;
            let groups = from.numbers()?.into_iter().filter_map(|group| u32::try_from(group).ok());
            stored.changed.insert(start, groups.collect());
        }
        for _ in 0..from.number_up_to(ROWS_MAX)? {
            stored.late.extend([bucket(from)?]);
        }
        Ok(stored)
    }

    /// Returns that a store has none of the buckets in memory.
    fn of_memory(open: Option<i64>, closed: &BTreeMap<i64, Bucket>) -> Self {
        let kept_from = closed.keys().next().copied().or(open);
        let changed =
            closed.iter().map(|(start, bucket)| (*start, bucket.groups().iter().copied().collect()));
        Self { kept_from, changed: changed.collect(), ..Self::default() }
    }
}

impl BucketRows {
    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.numbers(self.groups().iter().map(|group| u64::from(*group)))?;
        self.columns().iter().try_for_each(|cells| cells.save(out))
    }
}

impl Bucket {
    fn restored(
        plan: &[AccumulatorSpec],
        known: &[Option<Box<[Value]>>],
        from: &mut Reader<'_>,
    ) -> Result<Self, Error> {
        let mut groups = Vec::new();
        for group in from.numbers()? {
            let there =
                usize::try_from(group).ok().and_then(|group| known.get(group)).is_some_and(Option::is_some);
            let number = u32::try_from(group).ok().filter(|_| there);
            groups.push(number.ok_or_else(|| {
                from.damaged(format!("a row refers to group {group}, which does not exist"))
            })?);
        }
        let cells = plan.iter().map(|cell| AccumulatorColumn::restored(cell.kind, groups.len(), from));
        let cells = cells.collect::<Result<_, _>>()?;
        Self::from_parts(groups, cells).ok_or_else(|| from.damaged("two rows have the same group"))
    }
}

impl AccumulatorColumn {
    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        match self {
            Self::Count(counts) => counts.iter().try_for_each(|count| out.number(*count)),
            Self::IntegerSum(sums) => sums.iter().try_for_each(|(sum, count)| {
                out.signed(*sum)?;
                out.number(*count)
            }),
            Self::FloatSum(sums) => sums.iter().try_for_each(|(sum, count)| {
                out.bytes(&sum.to_le_bytes())?;
                out.number(*count)
            }),
            Self::Min(best) | Self::Max(best) => best.iter().try_for_each(|value| out.value(value)),
            Self::DistinctCount(sets) => sets.iter().try_for_each(|set| {
                out.number(set.len() as u64)?;
                set.iter().try_for_each(|key| out.value(&key.0))
            }),
            Self::Last(latest) => latest.iter().try_for_each(|(time, value)| {
                out.signed(*time)?;
                out.value(value)
            }),
        }
    }

    fn restored(keep: AccumulatorKind, rows: usize, from: &mut Reader<'_>) -> Result<Self, Error> {
        let mut cells = Self::new(keep);
        for _ in 0..rows {
            match &mut cells {
                Self::Count(counts) => counts.push(from.number()?),
                Self::IntegerSum(sums) => sums.push((from.signed()?, from.number()?)),
                Self::FloatSum(sums) => {
                    let mut bits = [0; 8];
                    from.bytes(&mut bits)?;
                    sums.push((f64::from_le_bytes(bits), from.number()?));
                }
                Self::Min(best) | Self::Max(best) => best.push(from.value()?),
                Self::DistinctCount(sets) => {
                    let mut set = BTreeSet::new();
                    for _ in 0..from.number()? {
                        set.insert(Key(from.value()?));
                    }
                    sets.push(set);
                }
                Self::Last(latest) => latest.push((from.signed()?, from.value()?)),
            }
        }
        Ok(cells)
    }
}
