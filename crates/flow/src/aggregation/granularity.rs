//! The buckets of one length, and how they are worked into those of the next.

use std::collections::BTreeMap;
use std::ops::Range;

use tidemill_lang::siddhi::ast::PeriodUnit;

use super::bucket::{Bucket, BucketEvents};
use super::calendar;
use super::plan::AggregationPlan;

/// The buckets of one length.
pub(super) struct GranularityBuckets {
    pub(super) unit: PeriodUnit,
    /// The latest bucket: what is in it is not yet in the greater ones.
    open: Option<(Range<i64>, Bucket)>,
    /// The others, by start.
    closed: BTreeMap<i64, Bucket>,
    /// How many rows the closed ones have.
    closed_rows: usize,
}

/// What is worked in.
pub(super) enum BucketInput<'a> {
    /// Events.
    Events(&'a BucketEvents<'a>),
    /// A bucket of a smaller length.
    Bucket(&'a Bucket),
}

impl GranularityBuckets {
    pub(super) fn new(unit: PeriodUnit) -> Self {
        Self { unit, open: None, closed: BTreeMap::new(), closed_rows: 0 }
    }

    /// A level with these buckets. Errors: an open one that lies before a closed one or at no time.
    pub(super) fn restored(
        unit: PeriodUnit,
        open: Option<(i64, Bucket)>,
        closed: BTreeMap<i64, Bucket>,
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
        Ok(Self { unit, open, closed, closed_rows })
    }

    /// The stretch of the open bucket.
    pub(super) fn open_range(&self) -> Option<Range<i64>> {
        self.open.as_ref().map(|(range, _)| range.clone())
    }

    /// The start of the open bucket, and the bucket.
    pub(super) fn open(&self) -> Option<(i64, &Bucket)> {
        self.open.as_ref().map(|(range, bucket)| (range.start, bucket))
    }

    /// The closed buckets, by start.
    pub(super) fn closed(&self) -> &BTreeMap<i64, Bucket> {
        &self.closed
    }

    /// Where its first bucket begins.
    pub(super) fn first(&self) -> Option<i64> {
        self.closed.keys().next().copied().or(self.open.as_ref().map(|(range, _)| range.start))
    }

    /// The bucket that begins at `start`.
    pub(super) fn find(&self, start: i64) -> Option<&Bucket> {
        let open = self.open.as_ref().filter(|(range, _)| range.start == start);
        open.map(|(_, bucket)| bucket).or_else(|| self.closed.get(&start))
    }

    /// All its buckets.
    pub(super) fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.closed.values().chain(self.open.as_ref().map(|(_, bucket)| bucket))
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> usize {
        self.closed_rows + self.open.as_ref().map_or(0, |(_, bucket)| bucket.len())
    }

    /// Forgets closed buckets that begin before `time`. Whether there was one.
    pub(super) fn evict_before(&mut self, time: i64) -> bool {
        if self.closed.first_key_value().is_none_or(|(first, _)| *first >= time) {
            return false;
        }
        self.closed = self.closed.split_off(&time);
        self.closed_rows = self.closed.values().map(Bucket::len).sum();
        true
    }

    fn close(&mut self, range: &Range<i64>, bucket: Bucket, plan: &AggregationPlan) {
        let known = self.closed.entry(range.start).or_insert_with(|| Bucket::new(&plan.accumulators));
        let before = known.len();
        if known.len() == 0 {
            *known = bucket;
        } else {
            known.merge(&bucket);
        }
        self.closed_rows += known.len() - before;
    }
}

/// Works in what belongs to the bucket with the instant `time`, in the first of `levels` and, as far as need be, in those
/// behind it. Errors: a time beyond the calendar, before anything is changed in the first level.
pub(super) fn merge_into(
    plan: &AggregationPlan,
    levels: &mut [GranularityBuckets],
    time: i64,
    input: &BucketInput<'_>,
) -> Result<(), String> {
    let Some((level, greater)) = levels.split_first_mut() else { return Ok(()) };
    let into = |bucket: &mut Bucket| match input {
        BucketInput::Events(events) => bucket.accumulate(&plan.accumulators, events),
        BucketInput::Bucket(other) => bucket.merge(other),
    };
    if let Some((open, bucket)) = &mut level.open
        && open.contains(&time)
    {
        into(bucket);
        return Ok(());
    }
    let range = calendar::bucket_range(level.unit, time)?;
    if level.open.as_ref().is_some_and(|(open, _)| range.start < open.start) {
        let bucket = level.closed.entry(range.start).or_insert_with(|| Bucket::new(&plan.accumulators));
        let before = bucket.len();
        into(bucket);
        level.closed_rows += bucket.len() - before;
        return merge_into(plan, greater, time, input);
    }
    if let Some((over, bucket)) = level.open.take() {
        merge_into(plan, greater, over.start, &BucketInput::Bucket(&bucket))?;
        level.close(&over, bucket, plan);
    }
    let mut bucket = Bucket::new(&plan.accumulators);
    into(&mut bucket);
    level.open = Some((range, bucket));
    Ok(())
}

/// Closes open buckets that end at `now` or before, from small to great.
pub(super) fn close_until(plan: &AggregationPlan, levels: &mut [GranularityBuckets], now: i64) {
    for i in 0..levels.len() {
        let Some((level, greater)) = levels[i..].split_first_mut() else { return };
        if let Some((over, bucket)) = level.open.take_if(|(open, _)| open.end <= now) {
            // an open bucket has its place in the calendar
            merge_into(plan, greater, over.start, &BucketInput::Bucket(&bucket)).ok();
            level.close(&over, bucket, plan);
        }
    }
}
