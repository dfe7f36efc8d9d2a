//! Buckets of one granularity, and merging them into the next.

use std::collections::BTreeMap;
use std::ops::Range;

use tidemill_lang::siddhi::ast::PeriodUnit;

use super::bucket::{Bucket, BucketEvents};
use super::calendar;
use super::stored_buckets::StoredBuckets;
use crate::catalog::AggregationPlan;

/// Buckets of one granularity.
pub(super) struct GranularityBuckets {
    pub(super) unit: PeriodUnit,
    /// The latest bucket, not yet merged into the coarser granularities.
    open: Option<(Range<i64>, Bucket)>,
    /// The other buckets, by start.
    closed: BTreeMap<i64, Bucket>,
    /// Number of rows in `closed`.
    closed_rows: usize,
    /// Stored part of the buckets; `None` if all buckets are in memory.
    pub(super) stored: Option<StoredBuckets>,
}

/// Input to merge into a bucket.
pub(super) enum BucketInput<'a> {
    /// Events of one bucket of the finest granularity.
    Events(&'a BucketEvents<'a>),
    /// Bucket of a finer granularity.
    Bucket(&'a Bucket),
}

impl BucketInput<'_> {
    fn merge_into(&self, bucket: &mut Bucket, plan: &AggregationPlan) {
        match self {
            Self::Events(events) => bucket.accumulate(&plan.accumulators, events),
            Self::Bucket(other) => bucket.merge(other),
        }
    }

    fn groups(&self) -> &[u32] {
        match self {
            Self::Events(events) => events.groups,
            Self::Bucket(other) => other.groups(),
        }
    }
}

impl GranularityBuckets {
    /// Creates a granularity without buckets. `stored`: whether closed ones are in a store too.
    pub(super) fn new(unit: PeriodUnit, stored: bool) -> Self {
        let stored = stored.then(StoredBuckets::default);
        Self { unit, open: None, closed: BTreeMap::new(), closed_rows: 0, stored }
    }

    /// Restores a granularity. Errors: the open bucket does not start after all closed ones, or is beyond the
    /// calendar.
    pub(super) fn restored(
        unit: PeriodUnit,
        open: Option<(i64, Bucket)>,
        closed: BTreeMap<i64, Bucket>,
        stored: Option<StoredBuckets>,
    ) -> Result<Self, String> {
        let closed_rows = closed.values().map(Bucket::len).sum();
        let open = match open {
            None => None,
            Some((start, bucket)) => Some((calendar::bucket_range(unit, start)?, bucket)),
        };
        if let (Some((range, _)), Some((last, _))) = (&open, closed.last_key_value())
            && range.start <= *last
        {
            return Err("the open bucket is not the latest".into());
        }
        Ok(Self { unit, open, closed, closed_rows, stored })
    }

    /// Returns the time range of the open bucket.
    pub(super) fn open_range(&self) -> Option<Range<i64>> {
        self.open.as_ref().map(|(range, _)| range.clone())
    }

    /// Returns the open bucket with its start.
    pub(super) fn open(&self) -> Option<(i64, &Bucket)> {
        self.open.as_ref().map(|(range, bucket)| (range.start, bucket))
    }

    /// Lets clones of the data of all buckets share it.
    pub(super) fn share(&mut self) {
        let open = self.open.iter_mut().map(|(_, bucket)| bucket);
        self.closed.values_mut().chain(open).for_each(Bucket::share);
    }

    /// Returns the closed buckets by start.
    pub(super) fn closed(&self) -> &BTreeMap<i64, Bucket> {
        &self.closed
    }

    /// Returns the start of the first bucket.
    pub(super) fn first(&self) -> Option<i64> {
        self.closed.keys().next().copied().or(self.open.as_ref().map(|(range, _)| range.start))
    }

    /// Returns the bucket that starts at `start`.
    pub(super) fn find(&self, start: i64) -> Option<&Bucket> {
        let open = self.open.as_ref().filter(|(range, _)| range.start == start);
        open.map(|(_, bucket)| bucket).or_else(|| self.closed.get(&start))
    }

    /// Returns all buckets.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.closed.values().chain(self.open.as_ref().map(|(_, bucket)| bucket))
    }

    /// Returns the number of rows in all buckets.
    pub(super) fn rows(&self) -> usize {
        self.closed_rows + self.open.as_ref().map_or(0, |(_, bucket)| bucket.len())
    }

    /// Evicts closed buckets that start before `time`; returns whether there was one.
    pub(super) fn evict_before(&mut self, time: i64) -> bool {
        if self.closed.first_key_value().is_none_or(|(first, _)| *first >= time) {
            return false;
        }
        self.closed = self.closed.split_off(&time);
        self.closed_rows = self.closed.values().map(Bucket::len).sum();
        true
    }

    fn close(&mut self, range: &Range<i64>, bucket: Bucket, plan: &AggregationPlan) {
        if self.closed.contains_key(&range.start) || self.is_offloaded(range.start) {
            return self.merge_closed(range.start, &BucketInput::Bucket(&bucket), plan);
        }
        if let Some(stored) = &mut self.stored {
            stored.changed.entry(range.start).or_default().extend(bucket.groups());
        }
        self.closed_rows += bucket.len();
        self.closed.insert(range.start, bucket);
    }

    /// Merges `input` into the closed bucket that starts at `start`.
    fn merge_closed(&mut self, start: i64, input: &BucketInput<'_>, plan: &AggregationPlan) {
        let new = || Bucket::new(&plan.accumulators);
        if let Some(stored) = &mut self.stored {
            if stored.is_offloaded(start) {
                return input.merge_into(stored.late.entry(start).or_insert_with(new), plan);
            }
            stored.changed.entry(start).or_default().extend(input.groups());
        }
        let bucket = self.closed.entry(start).or_insert_with(new);
        let before = bucket.len();
        input.merge_into(bucket, plan);
        self.closed_rows += bucket.len() - before;
    }

    fn is_offloaded(&self, start: i64) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.is_offloaded(start))
    }

    /// Returns whether the bucket that starts at `start` is closed.
    fn is_closed(&self, start: i64) -> bool {
        match &self.open {
            Some((open, _)) => start < open.start,
            // closed by the clock
            None => {
                self.closed.last_key_value().is_some_and(|(last, _)| *last >= start)
                    || self.is_offloaded(start)
            }
        }
    }

    /// Keeps changes in memory that no store takes.
    pub(super) fn keep_changes(&mut self, plan: &AggregationPlan) {
        let Some(stored) = &mut self.stored else { return };
        stored.changed.clear();
        for (start, late) in std::mem::take(&mut stored.late) {
            let bucket = self.closed.entry(start).or_insert_with(|| Bucket::new(&plan.accumulators));
            let before = bucket.len();
            bucket.merge(&late);
            self.closed_rows += bucket.len() - before;
        }
    }

    /// Forgets the oldest closed buckets, but `most`, if the store has all. Returns the number of their rows.
    pub(super) fn offload(&mut self, most: usize) -> usize {
        let Some(stored) = self.stored.as_mut().filter(|s| s.late.is_empty() && s.changed.is_empty()) else {
            return 0;
        };
        let before = self.closed_rows;
        while self.closed.len() > most.max(1)
            && let Some((_, bucket)) = self.closed.pop_first()
        {
            self.closed_rows -= bucket.len();
            stored.kept_from = self.closed.first_key_value().map(|(start, _)| *start);
        }
        before - self.closed_rows
    }
}

/// Merges `input` into the bucket that contains `time` of the first of `levels` and, as far as needed, of the
/// coarser levels after it. Errors: a time beyond the calendar, before the first level is changed.
pub(super) fn merge_into(
    plan: &AggregationPlan,
    levels: &mut [GranularityBuckets],
    time: i64,
    input: &BucketInput<'_>,
) -> Result<(), String> {
    let Some((level, greater)) = levels.split_first_mut() else { return Ok(()) };
    if let Some((open, bucket)) = &mut level.open
        && open.contains(&time)
    {
        input.merge_into(bucket, plan);
        return Ok(());
    }
    let range = calendar::bucket_range(level.unit, time)?;
    if level.is_closed(range.start) {
        level.merge_closed(range.start, input, plan);
        return merge_into(plan, greater, time, input);
    }
    if let Some((over, bucket)) = level.open.take() {
        merge_into(plan, greater, over.start, &BucketInput::Bucket(&bucket))?;
        level.close(&over, bucket, plan);
    }
    let mut bucket = Bucket::new(&plan.accumulators);
    input.merge_into(&mut bucket, plan);
    if let Some(stored) = &mut level.stored {
        // an earlier run may have stored this one, too
        stored.kept_from.get_or_insert(range.end);
    }
    level.open = Some((range, bucket));
    Ok(())
}

/// Closes open buckets that end at or before `now`, from the finest to the coarsest granularity.
pub(super) fn close_until(plan: &AggregationPlan, levels: &mut [GranularityBuckets], now: i64) {
    for i in 0..levels.len() {
        let Some((level, greater)) = levels[i..].split_first_mut() else { return };
        if let Some((over, bucket)) = level.open.take_if(|(open, _)| open.end <= now) {
            // cannot fail: the start of an open bucket lies within the calendar
            merge_into(plan, greater, over.start, &BucketInput::Bucket(&bucket)).ok();
            level.close(&over, bucket, plan);
        }
    }
}
