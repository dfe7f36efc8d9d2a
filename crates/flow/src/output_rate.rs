//! Output rate limiters: when the output of a query is emitted.

mod pending;
mod snapshot;
mod why;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::columns::batch::{Batch, EventKind};
use crate::eval_error::EvalError;
use crate::limits::Limits;
use crate::window::TimerQueue;
use pending::PendingOutput;

/// Events of a round that are emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateSelection {
    /// All events.
    All,
    /// The first event.
    First,
    /// The last event.
    Last,
}

/// A compiled `output` clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRatePlan {
    /// Rounds of a number of events.
    Events(RateSelection, u64),
    /// Rounds of a number of milliseconds, counted from the start of the app.
    Time(RateSelection, i64),
    /// Rounds of a number of milliseconds, with a snapshot of the query's output at the end of each.
    Snapshot(i64, Arc<SnapshotPlan>),
}

impl OutputRatePlan {
    /// Returns whether the limiter can emit at the end of a round without an event.
    pub fn has_ticks(&self) -> bool {
        matches!(self, Self::Time(RateSelection::All | RateSelection::Last, _) | Self::Snapshot(..))
    }
}

/// Content of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// True if the query has a window.
    pub window: bool,
    /// True for an output column that is an aggregate.
    pub aggregates: Vec<bool>,
    /// True if the query has groups.
    pub grouped: bool,
}

impl SnapshotPlan {
    /// Returns whether the snapshot shows the last event of each group instead of the rows of a window.
    fn shows_last_per_group(&self) -> bool {
        !self.window || self.aggregates.iter().all(|a| *a)
    }

    /// Returns whether the snapshot shows the last event of each group for as long as a window contains
    /// events of it.
    fn counts_groups(&self) -> bool {
        self.window && self.grouped && self.shows_last_per_group()
    }

    /// Returns whether the snapshot shows one event of each group, out of the rows of a window.
    fn shows_one_per_group(&self) -> bool {
        self.grouped && self.aggregates.iter().any(|a| *a) && !self.shows_last_per_group()
    }
}

/// Runtime state of an output rate limiter.
pub struct OutputRateLimiter {
    plan: OutputRatePlan,
    /// Events of the round, in order, if all of them are emitted at its end.
    buffered: Batch,
    /// Pending events, if later events replace or remove them; also the content of a snapshot.
    pending: PendingOutput,
    /// Number per group (without `group by`, the whole query is one group): the events of its round, the
    /// clock at which its last event was emitted, or the events of it that a window contains.
    groups: HashMap<String, i64>,
    /// Number of events in the round, of all groups.
    count: u64,
    timers: TimerQueue,
    rows_max: usize,
}

impl OutputRateLimiter {
    /// Creates a limiter in its initial state; `types` are the types of the output columns.
    pub fn new(plan: OutputRatePlan, types: Vec<tidemill_types::FieldType>) -> Self {
        let held = Batch::new(types.iter().copied());
        let aggregates = match &plan {
            OutputRatePlan::Snapshot(_, snapshot) if !snapshot.shows_last_per_group() => {
                snapshot.aggregates.clone()
            }
            _ => vec![],
        };
        let waiting = PendingOutput::new(types, aggregates);
        let (groups, timers) = (HashMap::new(), TimerQueue::default());
        Self {
            plan,
            buffered: held,
            pending: waiting,
            groups,
            count: 0,
            timers,
            rows_max: Limits::default().rate_rows,
        }
    }

    /// Sets the maximum number of buffered rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Checks that these rows of an emission can be buffered until a tick. Errors: they exceed the limit.
    pub(crate) fn check_capacity(
        &self,
        input: &Batch,
        rows: std::ops::Range<usize>,
    ) -> Result<(), EvalError> {
        let kept = self.buffered.len() + self.pending.len() as usize;
        if kept + rows.len() <= self.rows_max {
            return Ok(());
        }
        let more = match &self.plan {
            OutputRatePlan::Time(RateSelection::All, _) => rows.len(),
            OutputRatePlan::Time(RateSelection::Last, _) => {
                rows.filter(|row| !self.pending.has_group(input.group(*row))).count()
            }
            OutputRatePlan::Snapshot(_, snapshot) if snapshot.counts_groups() => {
                rows.filter(|row| !self.pending.has_group(input.group(*row))).count()
            }
            OutputRatePlan::Snapshot(_, snapshot) if snapshot.shows_last_per_group() => {
                let current = rows.filter(|row| input.kinds[*row] == EventKind::Current);
                current.filter(|row| !self.pending.has_group(input.group(*row))).count()
            }
            OutputRatePlan::Snapshot(..) => {
                let current =
                    input.kinds[rows.clone()].iter().filter(|kind| **kind == EventKind::Current).count();
                // each event that leaves makes room for one
                current.saturating_sub(rows.len() - current)
            }
            OutputRatePlan::Time(RateSelection::First, _) | OutputRatePlan::Events(..) => 0,
        };
        match more > 0 && kept + more > self.rows_max {
            true => Err(EvalError::limit("output rate limiter", self.rows_max, "rows")),
            false => Ok(()),
        }
    }

    /// Starts the rounds when the app starts.
    pub fn start(&mut self, now: i64) {
        match self.plan {
            OutputRatePlan::Time(RateSelection::All | RateSelection::Last, period)
            | OutputRatePlan::Snapshot(period, _) => {
                self.timers.schedule(now.saturating_add(period));
            }
            OutputRatePlan::Time(RateSelection::First, _) | OutputRatePlan::Events(..) => {}
        }
    }

    /// Accepts an emission of the query and returns the events to emit now.
    pub fn push(&mut self, input: &Batch) -> Batch {
        let mut out = self.empty();
        for (rows, clock) in input.chunks() {
            if let OutputRatePlan::Snapshot(..) = self.plan {
                // an event at or after the tick is processed after the snapshot
                while let Some(due) = self.timers.pop_due(clock) {
                    self.tick(due, clock, &mut out);
                }
            }
            for row in rows {
                self.process_event(input, row, clock, &mut out);
            }
            out.end_chunk(clock);
        }
        out
    }

    /// Returns when the next tick is due.
    pub fn next_timer(&self) -> Option<i64> {
        self.timers.next_due()
    }

    /// Returns the output of the next tick if it is due at `now`; `None` if none is due.
    pub fn fire_timer(&mut self, now: i64) -> Option<Batch> {
        let due = self.timers.pop_due(now)?;
        let mut out = self.empty();
        self.tick(due, now, &mut out);
        Some(out)
    }

    fn empty(&self) -> Batch {
        Batch::new(self.buffered.columns.iter().map(crate::Column::ty))
    }

    fn process_event(&mut self, input: &Batch, row: usize, clock: i64, out: &mut Batch) {
        let (kind, time) = (input.kinds[row], input.times[row]);
        match &self.plan {
            OutputRatePlan::Events(RateSelection::All, n) => {
                let n = *n;
                self.buffered.push_row(input, row, kind, time);
                if self.buffered.len() as u64 >= n {
                    self.flush(out);
                }
            }
            OutputRatePlan::Events(RateSelection::First, n) => {
                let group = input.group(row);
                if !self.groups.contains_key(group) {
                    self.groups.insert(group.to_owned(), 0);
                }
                let seen = self.groups.get_mut(group).expect("inserted above");
                if *seen == 0 {
                    out.push_row(input, row, kind, time);
                }
                *seen = (*seen + 1) % i64::try_from(*n).unwrap_or(i64::MAX).max(1);
            }
            OutputRatePlan::Events(RateSelection::Last, n) => {
                self.pending.replace(input, row);
                self.count += 1;
                if self.count >= *n {
                    self.count = 0;
                    self.pending.drain_into(out);
                }
            }
            OutputRatePlan::Time(RateSelection::All, _) => self.buffered.push_row(input, row, kind, time),
            OutputRatePlan::Time(RateSelection::First, period) => {
                let group = input.group(row);
                let open = self.groups.get(group).is_none_or(|passed| clock - passed >= *period);
                if open {
                    self.groups.insert(group.to_owned(), clock);
                    out.push_row(input, row, kind, time);
                }
            }
            OutputRatePlan::Time(RateSelection::Last, _) => self.pending.replace(input, row),
            OutputRatePlan::Snapshot(_, snapshot) if snapshot.counts_groups() => {
                // an expired event updates the aggregates of its group, too
                self.pending.replace(input, row);
                let held = self.groups.entry_ref(input.group(row)).or_insert(0);
                *held += if kind == EventKind::Current { 1 } else { -1 };
            }
            OutputRatePlan::Snapshot(_, snapshot) => match (kind, snapshot.shows_last_per_group()) {
                (EventKind::Current, true) => self.pending.replace(input, row),
                // after the last event of a window has left, the group shows no event
                (_, true) if snapshot.window => self.pending.remove_group(input.group(row)),
                (_, true) => {}
                (EventKind::Current, false) => self.pending.add(input, row),
                (_, false) => self.pending.remove(input, row),
            },
        }
    }

    fn tick(&mut self, due: i64, clock: i64, out: &mut Batch) {
        match &self.plan {
            OutputRatePlan::Time(which, period) => {
                self.timers.schedule(due.saturating_add(*period));
                match which {
                    RateSelection::Last => self.pending.drain_into(out),
                    RateSelection::All | RateSelection::First => self.flush(out),
                }
            }
            OutputRatePlan::Snapshot(period, snapshot) => {
                self.timers.schedule(due.saturating_add(*period));
                if snapshot.counts_groups() {
                    let left = self.groups.extract_if(|_, held| *held <= 0);
                    left.for_each(|(group, _)| self.pending.remove_group(&group));
                }
                self.pending.copy_into(snapshot.shows_one_per_group(), out);
            }
            OutputRatePlan::Events(..) => {}
        }
        out.end_chunk(clock);
    }

    /// Emits all buffered events.
    fn flush(&mut self, out: &mut Batch) {
        let empty = self.empty();
        let held = std::mem::replace(&mut self.buffered, empty);
        for i in 0..held.len() {
            out.push_row(&held, i, held.kinds[i], held.times[i]);
        }
    }
}
