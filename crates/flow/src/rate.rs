//! Output rates: when what a query puts out goes on.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::batch::{Batch, Kind};
use crate::snapshot::{Error, Reader, Writer};
use crate::window::Timers;

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

/// A rate limit at work.
pub struct Rate {
    plan: RatePlan,
    /// What waits, in order.
    held: Batch,
    /// For each group (the whole query is one without `group by`): events of its round, or when its last one passed.
    groups: HashMap<String, i64>,
    /// Events of the round of all groups.
    count: u64,
    timers: Timers,
}

impl Rate {
    /// A limit that has seen nothing; `types` are those of the output columns.
    pub fn new(plan: RatePlan, types: Vec<tidemill_types::FieldType>) -> Self {
        Self { plan, held: Batch::new(types), groups: HashMap::new(), count: 0, timers: Timers::default() }
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

    /// Writes its state.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.batch(&self.held)?;
        out.number(self.groups.len() as u64)?;
        for (group, n) in &self.groups {
            out.text(group)?;
            out.signed(*n)?;
        }
        out.number(self.count)?;
        self.timers.save(out)
    }

    /// Takes a state back.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let types: Vec<_> = self.held.columns.iter().map(crate::Column::ty).collect();
        self.held = from.batch(&types)?;
        self.groups.clear();
        for _ in 0..from.number()? {
            let group = from.text()?;
            self.groups.insert(group, from.signed()?);
        }
        self.count = from.number()?;
        self.timers = Timers::restored(from)?;
        Ok(())
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
                let seen = self.groups.entry(input.group(row).to_owned()).or_insert(0);
                if *seen == 0 {
                    out.push_row(input, row, kind, time);
                }
                *seen = (*seen + 1) % i64::try_from(*n).unwrap_or(i64::MAX).max(1);
            }
            RatePlan::Events(Which::Last, n) => {
                let n = *n;
                self.replace(input, row);
                self.count += 1;
                if self.count >= n {
                    self.count = 0;
                    self.release(out);
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
            RatePlan::Time(Which::Last, _) => self.replace(input, row),
            RatePlan::Snapshot(_, snapshot) => {
                let snapshot = snapshot.clone();
                self.hold(input, row, &snapshot);
            }
        }
    }

    /// The event takes the place of the one of its group that waits.
    fn replace(&mut self, input: &Batch, row: usize) {
        let place = (0..self.held.len()).find(|i| self.held.group(*i) == input.group(row));
        self.put(place, input, row);
    }

    fn put(&mut self, place: Option<usize>, input: &Batch, row: usize) {
        match place {
            None => self.held.push_row(input, row, input.kinds[row], input.times[row]),
            Some(place) => {
                let mut held = self.empty();
                for i in 0..self.held.len() {
                    match i == place {
                        true => held.push_row(input, row, input.kinds[row], input.times[row]),
                        false => held.push_row(&self.held, i, self.held.kinds[i], self.held.times[i]),
                    }
                }
                self.held = held;
            }
        }
    }

    fn remove(&mut self, place: usize) {
        let mut held = self.empty();
        for i in (0..self.held.len()).filter(|i| *i != place) {
            held.push_row(&self.held, i, self.held.kinds[i], self.held.times[i]);
        }
        self.held = held;
    }

    /// Works an event into what the next snapshot shows.
    fn hold(&mut self, input: &Batch, row: usize, snapshot: &Snapshot) {
        let arrived = input.kinds[row] == Kind::Current;
        let only_aggregates = snapshot.aggregates.iter().all(|a| *a);
        if !snapshot.window || only_aggregates {
            let place = (0..self.held.len()).find(|i| self.held.group(*i) == input.group(row));
            match (arrived, place) {
                (true, place) => self.put(place, input, row),
                // nothing is shown after one that left as the last
                (false, Some(place)) if snapshot.window => self.remove(place),
                (false, _) => {}
            }
            return;
        }
        if arrived {
            self.held.push_row(input, row, Kind::Current, input.times[row]);
        } else {
            let plain = |c: &usize| !snapshot.aggregates[*c];
            let equal = |i: usize| {
                let mut columns = (0..input.columns.len()).filter(plain);
                columns.all(|c| {
                    let (a, b) = (self.held.columns[c].get(i), input.columns[c].get(row));
                    crate::value::Key(a) == crate::value::Key(b)
                }) && self.held.group(i) == input.group(row)
            };
            if let Some(place) = (0..self.held.len()).find(|i| equal(*i)) {
                self.remove(place);
            }
        }
        self.refresh(input, row, snapshot);
    }

    /// What is held of the event's group gets the newest values of the aggregates.
    fn refresh(&mut self, input: &Batch, row: usize, snapshot: &Snapshot) {
        let mut held = self.empty();
        for i in 0..self.held.len() {
            let same_group = self.held.group(i) == input.group(row);
            for (c, column) in held.columns.iter_mut().enumerate() {
                match snapshot.aggregates[c] && same_group {
                    true => column.push_from(&input.columns[c], row),
                    false => column.push_from(&self.held.columns[c], i),
                }
            }
            held.times.push(self.held.times[i]);
            held.kinds.push(self.held.kinds[i]);
            held.groups.extend(self.held.groups.get(i).cloned());
        }
        self.held = held;
    }

    fn beat(&mut self, due: i64, clock: i64, out: &mut Batch) {
        match &self.plan {
            RatePlan::Time(_, period) => {
                self.timers.ask(due.saturating_add(*period));
                self.release(out);
            }
            RatePlan::Snapshot(period, snapshot) => {
                self.timers.ask(due.saturating_add(*period));
                let partly = snapshot.window && snapshot.aggregates.iter().any(|a| *a);
                let one_each = snapshot.grouped && partly && !snapshot.aggregates.iter().all(|a| *a);
                let mut seen: Vec<&str> = Vec::new();
                for i in 0..self.held.len() {
                    if one_each && seen.contains(&self.held.group(i)) {
                        continue;
                    }
                    seen.push(self.held.group(i));
                    out.push_row(&self.held, i, self.held.kinds[i], self.held.times[i]);
                }
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
