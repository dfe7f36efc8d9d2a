//! Output rates: when what a query puts out goes on.

mod snapshot;
mod waiting;
mod why;

use std::sync::Arc;

use hashbrown::HashMap;

use crate::batch::{Batch, Kind};
use crate::expr::Failure;
use crate::limits::Limits;
use crate::window::Timers;
use waiting::Waiting;

/// Which events of a round go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// The first.
    First,
    /// The last.
    Last,
}

/// A compiled `output` clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RatePlan {
    /// Rounds of so many events.
    Events(Which, u64),
    /// Rounds of so many milliseconds; they count from the start of the app.
    Time(Which, i64),
    /// At the end of each round what is held then.
    Snapshot(i64, Arc<Snapshot>),
}

impl RatePlan {
    /// Whether something happens at the end of a round without an event.
    pub fn has_beats(&self) -> bool {
        matches!(self, Self::Time(Which::All | Which::Last, _) | Self::Snapshot(..))
    }
}

/// What a snapshot shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whether the query has a window.
    pub window: bool,
    /// For each column whether it is an aggregate.
    pub aggregates: Vec<bool>,
    /// Whether the query has groups.
    pub grouped: bool,
}

impl Snapshot {
    /// Whether it shows the last event of each group, not what a window holds.
    fn by_group(&self) -> bool {
        !self.window || self.aggregates.iter().all(|a| *a)
    }

    /// Whether it shows the last event of each group for as long as a window holds events of it.
    fn counts_groups(&self) -> bool {
        self.window && self.grouped && self.by_group()
    }

    /// Whether it shows one event of each group, of those that a window holds.
    fn one_each(&self) -> bool {
        self.grouped && self.aggregates.iter().any(|a| *a) && !self.by_group()
    }
}

/// A rate limit at work.
pub struct Rate {
    plan: RatePlan,
    /// What waits, in order, where all of it goes on.
    held: Batch,
    /// What waits where events take the place of others, and what a snapshot shows.
    waiting: Waiting,
    /// For each group (the whole query is one without `group by`): events of its round, when its last one passed, or
    /// how many of its events a window holds.
    groups: HashMap<String, i64>,
    /// Events of the round of all groups.
    count: u64,
    timers: Timers,
    rows_max: usize,
}

impl Rate {
    /// A limit that has seen nothing; `types` are those of the output columns.
    pub fn new(plan: RatePlan, types: Vec<tidemill_types::FieldType>) -> Self {
        let held = Batch::new(types.iter().copied());
        let aggregates = match &plan {
            RatePlan::Snapshot(_, snapshot) if !snapshot.by_group() => snapshot.aggregates.clone(),
            _ => vec![],
        };
        let waiting = Waiting::new(types, aggregates);
        let (groups, timers) = (HashMap::new(), Timers::default());
        Self { plan, held, waiting, groups, count: 0, timers, rows_max: Limits::default().rate_rows }
    }

    /// Another greatest number of rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Whether these rows of an emission find room until a beat. Errors: that they do not.
    pub(crate) fn has_room(&self, input: &Batch, rows: std::ops::Range<usize>) -> Result<(), Failure> {
        let kept = self.held.len() + self.waiting.len() as usize;
        if kept + rows.len() <= self.rows_max {
            return Ok(());
        }
        let more = match &self.plan {
            RatePlan::Time(Which::All, _) => rows.len(),
            RatePlan::Time(Which::Last, _) => {
                rows.filter(|row| !self.waiting.has_group(input.group(*row))).count()
            }
            RatePlan::Snapshot(_, snapshot) if snapshot.counts_groups() => {
                rows.filter(|row| !self.waiting.has_group(input.group(*row))).count()
            }
            RatePlan::Snapshot(_, snapshot) if snapshot.by_group() => {
                let current = rows.filter(|row| input.kinds[*row] == Kind::Current);
                current.filter(|row| !self.waiting.has_group(input.group(*row))).count()
            }
            RatePlan::Snapshot(..) => {
                let current = input.kinds[rows.clone()].iter().filter(|kind| **kind == Kind::Current).count();
                // as many as leave make room
                current.saturating_sub(rows.len() - current)
            }
            RatePlan::Time(Which::First, _) | RatePlan::Events(..) => 0,
        };
        match more > 0 && kept + more > self.rows_max {
            true => Err(Failure(format!("an output rate keeps {kept} rows, the most it may"))),
            false => Ok(()),
        }
    }

    /// The app starts: rounds of time begin.
    pub fn start(&mut self, now: i64) {
        match self.plan {
            RatePlan::Time(Which::All | Which::Last, period) | RatePlan::Snapshot(period, _) => {
                self.timers.ask(now.saturating_add(period));
            }
            RatePlan::Time(Which::First, _) | RatePlan::Events(..) => {}
        }
    }

    /// What goes on of an emission, now.
    pub fn push(&mut self, input: &Batch) -> Batch {
        let mut out = self.empty();
        for (rows, clock) in input.chunks() {
            if let RatePlan::Snapshot(..) = self.plan {
                // an event at or after the beat first lets the snapshot out
                while let Some(due) = self.timers.take_due(clock) {
                    self.beat(due, clock, &mut out);
                }
            }
            for row in rows {
                self.event(input, row, clock, &mut out);
            }
            out.end_chunk(clock);
        }
        out
    }

    /// When its next beat is due.
    pub fn next_timer(&self) -> Option<i64> {
        self.timers.next()
    }

    /// What goes on at the next beat that is due at `now`, if there is one.
    pub fn timer(&mut self, now: i64) -> Option<Batch> {
        let due = self.timers.take_due(now)?;
        let mut out = self.empty();
        self.beat(due, now, &mut out);
        Some(out)
    }

    fn empty(&self) -> Batch {
        Batch::new(self.held.columns.iter().map(crate::Column::ty))
    }

    fn event(&mut self, input: &Batch, row: usize, clock: i64, out: &mut Batch) {
        let (kind, time) = (input.kinds[row], input.times[row]);
        match &self.plan {
            RatePlan::Events(Which::All, n) => {
                let n = *n;
                self.held.push_row(input, row, kind, time);
                if self.held.len() as u64 >= n {
                    self.release(out);
                }
            }
            RatePlan::Events(Which::First, n) => {
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
            RatePlan::Events(Which::Last, n) => {
                self.waiting.replace(input, row);
                self.count += 1;
                if self.count >= *n {
                    self.count = 0;
                    self.waiting.release(out);
                }
            }
            RatePlan::Time(Which::All, _) => self.held.push_row(input, row, kind, time),
            RatePlan::Time(Which::First, period) => {
                let group = input.group(row);
                let open = self.groups.get(group).is_none_or(|passed| clock - passed >= *period);
                if open {
                    self.groups.insert(group.to_owned(), clock);
                    out.push_row(input, row, kind, time);
                }
            }
            RatePlan::Time(Which::Last, _) => self.waiting.replace(input, row),
            RatePlan::Snapshot(_, snapshot) if snapshot.counts_groups() => {
                // what leaves renews the totals of its group, too
                self.waiting.replace(input, row);
                let held = self.groups.entry_ref(input.group(row)).or_insert(0);
                *held += if kind == Kind::Current { 1 } else { -1 };
            }
            RatePlan::Snapshot(_, snapshot) => match (kind, snapshot.by_group()) {
                (Kind::Current, true) => self.waiting.replace(input, row),
                // nothing is shown after one that left as the last
                (_, true) if snapshot.window => self.waiting.remove_group(input.group(row)),
                (_, true) => {}
                (Kind::Current, false) => self.waiting.add(input, row),
                (_, false) => self.waiting.remove(input, row),
            },
        }
    }

    fn beat(&mut self, due: i64, clock: i64, out: &mut Batch) {
        match &self.plan {
            RatePlan::Time(which, period) => {
                self.timers.ask(due.saturating_add(*period));
                match which {
                    Which::Last => self.waiting.release(out),
                    Which::All | Which::First => self.release(out),
                }
            }
            RatePlan::Snapshot(period, snapshot) => {
                self.timers.ask(due.saturating_add(*period));
                if snapshot.counts_groups() {
                    let left = self.groups.extract_if(|_, held| *held <= 0);
                    left.for_each(|(group, _)| self.waiting.remove_group(&group));
                }
                self.waiting.show(snapshot.one_each(), out);
            }
            RatePlan::Events(..) => {}
        }
        out.end_chunk(clock);
    }

    /// Everything that waits goes on.
    fn release(&mut self, out: &mut Batch) {
        let empty = self.empty();
        let held = std::mem::replace(&mut self.held, empty);
        for i in 0..held.len() {
            out.push_row(&held, i, held.kinds[i], held.times[i]);
        }
    }
}
