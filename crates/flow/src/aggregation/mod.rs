//! Incremental aggregations: accumulators by group in time buckets, from seconds to years.
//!
//! An event updates only the bucket of its time in the finest granularity. When an event of a later bucket
//! arrives, this *open* bucket is closed and merged into the open bucket of the next granularity, and so on:
//! an event updates one bucket, and a minute merges its 60 seconds. A search merges the open buckets of finer
//! granularities with the stored ones.
//!
//! ```text
//! sec    … 10:05:58  10:05:59 | 10:06:00 open
//! min    … 10:04 | 10:05 open: all closed seconds of it
//! hour   … 09 | 10 open: all closed minutes of it
//! ```
//!
//! A late event updates its closed bucket, and that of each coarser granularity up to one that is still open.
//!
//! With a [store](stored_buckets), closed buckets are rows of tables there, and memory keeps only the latest of them.

mod accumulators;
mod bucket;
mod bucket_store;
mod calendar;
mod compile;
mod granularity;
mod groups;
mod purge;
mod search;
mod snapshot;
mod store_layout;
mod stored_accumulators;
mod stored_buckets;
mod within;

use std::borrow::Cow;
use std::sync::Arc;

use crate::catalog::AggregationPlan;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data};
use crate::eval_error::EvalError;
use crate::expr::{Frame, NoContext, Node};
use crate::limits::Limits;
use bucket::BucketEvents;
use bucket_store::BucketStore;
use granularity::{BucketInput, GranularityBuckets};
use groups::GroupTable;
use stored_buckets::CurrentRecord;

pub(crate) use compile::compile_definition;
pub(crate) use within::{compile_bucket_query, missing_within};

/// State of a running aggregation.
pub struct Aggregation {
    plan: Arc<AggregationPlan>,
    groups: GroupTable,
    /// From the finest to the coarsest granularity.
    levels: Vec<GranularityBuckets>,
    next_purge: Option<i64>,
    rows_max: usize,
    /// Open stores of the granularities; empty if all buckets are in memory.
    stores: Vec<BucketStore>,
    /// Number of closed buckets of a granularity that stay in memory beside the store.
    closed_buckets_max: usize,
    /// Rows that memory has forgotten since groups were.
    offloaded_rows: usize,
    /// The record that is being processed.
    record: Option<CurrentRecord>,
    /// True if a state that is written later shares groups and buckets.
    is_shared: bool,
}

impl Aggregation {
    /// Creates an aggregation without events.
    pub fn new(plan: Arc<AggregationPlan>) -> Self {
        let stored = plan.store.is_some();
        let levels = plan.units.iter().map(|unit| GranularityBuckets::new(*unit, stored)).collect();
        let limits = Limits::default();
        Self {
            plan,
            groups: GroupTable::default(),
            levels,
            next_purge: None,
            rows_max: limits.aggregation_rows,
            stores: vec![],
            closed_buckets_max: limits.aggregation_buckets,
            offloaded_rows: 0,
            record: None,
            is_shared: false,
        }
    }

    /// Sets the number of closed buckets of a granularity that stay in memory beside a store, at least one.
    pub fn with_closed_buckets_max(self, closed_buckets_max: usize) -> Self {
        Self { closed_buckets_max, ..self }
    }

    /// Sets the maximum number of rows.
    pub fn with_rows_max(self, rows_max: usize) -> Self {
        Self { rows_max, ..self }
    }

    /// Returns the compiled definition.
    pub fn plan(&self) -> &Arc<AggregationPlan> {
        &self.plan
    }

    /// Returns the number of rows in all buckets.
    pub fn len(&self) -> usize {
        self.levels.iter().map(GranularityBuckets::rows).sum()
    }

    /// Returns whether no bucket has rows.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.rows() == 0)
    }

    /// Schedules the first purge; called when the app starts.
    pub fn start(&mut self, now: i64) {
        self.next_purge = self.plan.purge.as_ref().map(|purge| now.saturating_add(purge.interval_ms));
    }

    /// Returns the time of the next purge, in milliseconds since 1970; `None` without `@purge`.
    pub fn next_purge(&self) -> Option<i64> {
        self.next_purge
    }

    /// Skips scheduled purges before `until` that would evict nothing.
    pub fn skip_purges(&mut self, until: i64) {
        let (Some(next), Some(purge)) = (self.next_purge, &self.plan.purge) else { return };
        let in_store =
            |level: &GranularityBuckets| level.stored.as_ref().filter(|_| !self.stores.is_empty())?.first();
        let first = |(level, retention): (&GranularityBuckets, &Option<i64>)| {
            let first = level.first().into_iter().chain(in_store(level)).min();
            first?.checked_add((*retention)?)
        };
        let until = self.levels.iter().zip(&purge.retention_ms).filter_map(first).fold(until, i64::min);
        let left_out = until.saturating_sub(next).max(0) / purge.interval_ms;
        self.next_purge = Some(next.saturating_add(left_out * purge.interval_ms));
    }

    /// Aggregates the current events of a batch that has passed the handlers. On failure, none of them.
    ///
    /// Errors: a time is null or not readable, an expression fails, or the limit on rows is reached.
    pub fn push(&mut self, events: &Batch) -> Result<(), EvalError> {
        let plan = self.plan.clone();
        let events = current_events(events);
        if events.is_empty() {
            return Ok(());
        }
        let times = event_times(&plan, &events)?;
        check_groups(&plan, &events)?;
        let computed = compute_args(&plan, &events)?;
        let args: Vec<&Column> = computed.iter().map(Cow::as_ref).collect();
        let full = self.len() >= self.rows_max;
        let groups =
            self.group_ids(&plan, &events, full).filter(|groups| !full || self.has_rows(&times, groups));
        let groups = groups
            .ok_or_else(|| EvalError::limit(format!("aggregation `{}`", plan.name), self.rows_max, "rows"))?;
        let mut from = 0;
        while from < times.len() {
            let bucket = match self.levels[0].open_range().filter(|open| open.contains(&times[from])) {
                Some(open) => open,
                None => {
                    calendar::bucket_range(self.levels[0].unit, times[from]).map_err(EvalError::argument)?
                }
            };
            let together = times[from..].iter().take_while(|time| bucket.contains(time)).count();
            let run = from..from + together;
            let input = BucketEvents {
                groups: &groups[run.clone()],
                times: &times[run.clone()],
                args: &args,
                first_arg_row: from,
            };
            granularity::merge_into(&plan, &mut self.levels, bucket.start, &BucketInput::Events(&input))
                .map_err(EvalError::argument)?;
            from = run.end;
        }
        if let (Some(_), Some(open)) = (&plan.store, self.levels[0].open_range()) {
            // readers of the store see a coarser bucket when it is over, not when the next finer one is
            granularity::close_until(&plan, &mut self.levels[1..], open.start);
        }
        Ok(())
    }

    /// Returns the group of each event; `None` if one needs a new group while the aggregation is `full`.
    fn group_ids(&mut self, plan: &AggregationPlan, events: &Batch, full: bool) -> Option<Vec<u32>> {
        let mut key = Vec::new();
        let columns = || plan.group_by.iter().map(|(column, _)| &events.columns[*column]);
        let number = |row: usize| {
            key.clear();
            columns().for_each(|column| groups::write_key(&mut key, column, row));
            match full {
                true => self.groups.find(&key),
                false => {
                    Some(self.groups.id_or_insert(&key, || columns().map(|column| column.get(row)).collect()))
                }
            }
        };
        (0..events.len()).map(number).collect()
    }

    /// Returns whether the finest buckets already have rows for all events.
    fn has_rows(&self, times: &[i64], groups: &[u32]) -> bool {
        let level = &self.levels[0];
        let has = |(time, group): (&i64, &u32)| {
            let bucket =
                calendar::bucket_range(level.unit, *time).ok().and_then(|range| level.find(range.start));
            bucket.is_some_and(|bucket| bucket.row(*group).is_some())
        };
        times.iter().zip(groups).all(has)
    }

    /// Runs a due purge: evicts rows older than their retention. Returns what went wrong with the store.
    pub fn purge(&mut self, now: i64) -> Vec<EvalError> {
        let Some(purge) = self.plan.purge.clone() else { return vec![] };
        self.next_purge = Some(now.saturating_add(purge.interval_ms));
        if self.plan.time_column.is_none() {
            // processing time closes a bucket even without an event
            granularity::close_until(&self.plan, &mut self.levels, now);
        }
        let mut failures = self.write_changes();
        let mut forgotten = false;
        for (level, retention) in self.levels.iter_mut().zip(&purge.retention_ms) {
            if let Some(retention) = retention {
                forgotten |= level.evict_before(now.saturating_sub(*retention));
            }
        }
        if forgotten {
            let used = self.used_groups();
            self.groups.retain_used(&used);
        }
        if self.plan.store.is_some() {
            failures.extend(self.purge_stores(now));
        }
        failures
    }
}

/// Checks that groups can be stored. Errors: one has a null, which primary keys do not have.
fn check_groups(plan: &AggregationPlan, events: &Batch) -> Result<(), EvalError> {
    let Some(store) = &plan.store else { return Ok(()) };
    for (group, (column, _)) in plan.group_by.iter().enumerate() {
        if let Some(true) = events.columns[*column].nulls().iter().find(|null| **null) {
            let name = &store.tables[0].attributes[group + 1].0;
            return Err(EvalError::argument(format!(
                "`{name}` is null: it is part of the primary key in the store of aggregation `{}`",
                plan.name
            )));
        }
    }
    Ok(())
}

/// Returns the current events of a batch, dropping expired ones.
fn current_events(events: &Batch) -> Cow<'_, Batch> {
    if events.kinds.iter().all(|kind| *kind == EventKind::Current) {
        return Cow::Borrowed(events);
    }
    let mut current = Batch::new(events.columns.iter().map(Column::ty));
    for (rows, clock) in events.chunks() {
        for row in rows.filter(|row| events.kinds[*row] == EventKind::Current) {
            current.push_row(events, row, EventKind::Current, events.times[row]);
        }
        current.end_chunk(clock);
    }
    Cow::Owned(current)
}

/// Returns the times of the events. Errors: a time is null, not readable or beyond the calendar.
fn event_times<'e>(plan: &AggregationPlan, events: &'e Batch) -> Result<Cow<'e, [i64]>, EvalError> {
    let times = match plan.time_column.map(|column| &events.columns[column]) {
        None => Cow::Borrowed(events.times.as_slice()),
        Some(column) => match column.data() {
            Data::Long(times) if column.nulls().is_empty() => Cow::Owned(times.clone()),
            _ => {
                let times = (0..column.len()).map(|row| event_time(plan, column, row));
                Cow::Owned(times.collect::<Result<_, _>>()?)
            }
        },
    };
    for time in times.iter() {
        calendar::check_time(*time).map_err(EvalError::argument)?;
    }
    Ok(times)
}

fn event_time(plan: &AggregationPlan, column: &Column, row: usize) -> Result<i64, EvalError> {
    match column.data() {
        _ if column.is_null(row) => {
            Err(EvalError::null(format!("the time attribute of aggregation `{}`", plan.name)))
        }
        Data::Long(times) => Ok(times[row]),
        Data::Str(texts) => calendar::parse_instant(texts.get(row)).ok_or_else(|| {
            let text = texts.get(row);
            EvalError::argument(format!("`{text}` is not a time: expected {}", calendar::INSTANT_FORMAT))
        }),
        _ => Err(EvalError::argument(format!(
            "internal error: the time attribute of aggregation `{}` is neither a long nor a string",
            plan.name
        ))),
    }
}

/// Evaluates the accumulator arguments on all events.
fn compute_args<'e>(plan: &AggregationPlan, events: &'e Batch) -> Result<Vec<Cow<'e, Column>>, EvalError> {
    let column = |arg: &crate::expr::Expr| -> Result<Cow<'e, Column>, EvalError> {
        if let Node::Column { column, .. } = arg.node {
            return Ok(Cow::Borrowed(&events.columns[column]));
        }
        let mut values = Column::new(arg.ty);
        for (rows, clock) in events.chunks() {
            for row in rows {
                let source = [Some((events.columns.as_slice(), row))];
                let frame = Frame { rows: &source, time: events.times[row], now: clock, host: &NoContext };
                values.push(arg.eval(&frame)?);
            }
        }
        Ok(Cow::Owned(values))
    };
    plan.args.iter().map(column).collect()
}

#[cfg(test)]
mod tests;
