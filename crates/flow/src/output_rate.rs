//! Output rates: when what a query puts out goes on.

mod pending;
mod snapshot;
mod why;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::batch::{Batch, EventKind};
use crate::expr::EvalError;
use crate::limits::Limits;
use crate::window::TimerQueue;
use pending::PendingOutput;

/// Which events of a round go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateSelection {
    /// All of them.
    All,
    /// The first.
    First,
    /// The last.
    Last,
}

/// A compiled `output` clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRatePlan {
    /// Rounds of so many events.
    Events(RateSelection, u64),
    /// Rounds of so many milliseconds; they count from the start of the app.
    Time(RateSelection, i64),
    /// At the end of each round what is held then.
    Snapshot(i64, Arc<SnapshotPlan>),
}

impl OutputRatePlan {
    /// Whether something happens at the end of a round without an event.
    pub fn has_ticks(&self) -> bool {
        matches!(self, Self::Time(RateSelection::All | RateSelection::Last, _) | Self::Snapshot(..))
    }
}

/// What a snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// Whether the query has a window.
    pub window: bool,
    /// For each column whether it is an aggregate.
    pub aggregates: Vec<bool>,
    /// Whether the query has groups.
    pub grouped: bool,
}

impl SnapshotPlan {
    /// Whether it shows the last event of each group, not what a window holds.
    fn shows_last_per_group(&self) -> bool {
        !self.window || self.aggregates.iter().all(|a| *a)
    }

    /// Whether it shows the last event of each group for as long as a window holds events of it.
    fn counts_groups(&self) -> bool {
        self.window && self.grouped && self.shows_last_per_group()
    }

    /// Whether it shows one event of each group, of those that a window holds.
    fn shows_one_per_group(&self) -> bool {
        self.grouped && self.aggregates.iter().any(|a| *a) && !self.shows_last_per_group()
    }
}

/// A rate limit at work.
pub struct OutputRateLimiter {
    plan: OutputRatePlan,
    /// What waits, in order, where all of it goes on.
    buffered: Batch,
    /// What waits where events take the place of others, and what a snapshot shows.
    pending: PendingOutput,
    /// For each group (the whole query is one without `group by`): events of its round, when its last one passed, or
    /// how many of its events a window holds.
    groups: HashMap<String, i64>,
    /// Events of the round of all groups.
    count: u64,
    timers: TimerQueue,
    rows_max: usize,
}

impl OutputRateLimiter {
    /// A limit that has seen nothing; `types` are those of the output columns.
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

    /// Another greatest number of rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Whether these rows of an emission find room until a beat. Errors: that they do not.
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
                // as many as leave make room
                current.saturating_sub(rows.len() - current)
            }
            OutputRatePlan::Time(RateSelection::First, _) | OutputRatePlan::Events(..) => 0,
        };
        match more > 0 && kept + more > self.rows_max {
            true => Err(EvalError(format!("an output rate keeps {kept} rows, the most it may"))),
            false => Ok(()),
        }
    }

    /// The app starts: rounds of time begin.
    pub fn start(&mut self, now: i64) {
        match self.plan {
            OutputRatePlan::Time(RateSelection::All | RateSelection::Last, period)
            | OutputRatePlan::Snapshot(period, _) => {
                self.timers.schedule(now.saturating_add(period));
            }
            OutputRatePlan::Time(RateSelection::First, _) | OutputRatePlan::Events(..) => {}
        }
    }

    /// What goes on of an emission, now.
    pub fn push(&mut self, input: &Batch) -> Batch {
        let mut out = self.empty();
        for (rows, clock) in input.chunks() {
            if let OutputRatePlan::Snapshot(..) = self.plan {
                // an event at or after the beat first lets the snapshot out
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

    /// When its next beat is due.
    pub fn next_timer(&self) -> Option<i64> {
        self.timers.next_due()
    }

    /// What goes on at the next beat that is due at `now`, if there is one.
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
                // what leaves renews the totals of its group, too
                self.pending.replace(input, row);
                let held = self.groups.entry_ref(input.group(row)).or_insert(0);
                *held += if kind == EventKind::Current { 1 } else { -1 };
            }
            OutputRatePlan::Snapshot(_, snapshot) => match (kind, snapshot.shows_last_per_group()) {
                (EventKind::Current, true) => self.pending.replace(input, row),
                // nothing is shown after one that left as the last
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

    /// Everything that waits goes on.
    fn flush(&mut self, out: &mut Batch) {
        let empty = self.empty();
        let held = std::mem::replace(&mut self.buffered, empty);
        for i in 0..held.len() {
            out.push_row(&held, i, held.kinds[i], held.times[i]);
        }
    }
}
