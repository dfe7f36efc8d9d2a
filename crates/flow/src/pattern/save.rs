//! State of a pattern in checkpoints. Matches and events that several lists share are written once, and are
//! shared again when restored.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::nfa::NfaMatcher;
use super::partial_match::{MatchedEvent, PartialMatch, SharedMatch};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::window::TimerQueue;

/// State of a step apart from its matches.
#[derive(Serialize, Deserialize)]
struct SavedStep {
    armed: bool,
    returned: bool,
    begin_anew: bool,
    over: bool,
    asked: i64,
    spoiled: i64,
}

/// Ids of the events and matches written so far. A repeated one is written as its id.
#[derive(Default)]
struct SavedIds {
    rows: HashMap<*const MatchedEvent, u64>,
    records: HashMap<*const Mutex<PartialMatch>, u64>,
}

impl SavedIds {
    fn list(&mut self, list: &VecDeque<SharedMatch>, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.number(list.len() as u64)?;
        list.iter().try_for_each(|record| self.record(record, out))
    }

    /// Writes 0 and the match, or the id of a match already written, counted from 1.
    fn record(&mut self, record: &SharedMatch, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if let Some(known) = self.records.get(&Arc::as_ptr(record)) {
            return out.number(known + 1);
        }
        self.records.insert(Arc::as_ptr(record), self.records.len() as u64);
        let record = record.lock();
        out.number(0)?;
        out.signed(record.time)?;
        out.flag(record.expired)?;
        for chain in &record.slots {
            out.number(chain.len() as u64)?;
            chain.iter().try_for_each(|row| self.row(row, out))?;
        }
        Ok(())
    }

    /// Writes 0 and the event, or the id of an event already written, counted from 1.
    fn row(&mut self, row: &Arc<MatchedEvent>, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if let Some(known) = self.rows.get(&Arc::as_ptr(row)) {
            return out.number(known + 1);
        }
        self.rows.insert(Arc::as_ptr(row), self.rows.len() as u64);
        out.number(0)?;
        out.signed(row.time)?;
        out.number(row.values.len() as u64)?;
        row.values.iter().try_for_each(|value| out.value(value))
    }
}

/// Events and matches read so far, by id.
#[derive(Default)]
struct RestoredMatches {
    rows: Vec<Arc<MatchedEvent>>,
    records: Vec<SharedMatch>,
}

impl RestoredMatches {
    fn list(&mut self, steps: usize, from: &mut Reader<'_>) -> Result<VecDeque<SharedMatch>, Error> {
        (0..from.number()?).map(|_| self.record(steps, from)).collect()
    }

    fn record(&mut self, steps: usize, from: &mut Reader<'_>) -> Result<SharedMatch, Error> {
        if let Some(number) = from.number()?.checked_sub(1) {
            return restored(&self.records, number, from);
        }
        let (time, expired) = (from.signed()?, from.flag()?);
        let mut slots = Vec::with_capacity(steps);
        for _ in 0..steps {
            slots.push((0..from.number()?).map(|_| self.row(from)).collect::<Result<_, _>>()?);
        }
        let record = Arc::new(Mutex::new(PartialMatch { slots: slots.into(), time, expired }));
        self.records.push(record.clone());
        Ok(record)
    }

    fn row(&mut self, from: &mut Reader<'_>) -> Result<Arc<MatchedEvent>, Error> {
        if let Some(number) = from.number()?.checked_sub(1) {
            return restored(&self.rows, number, from);
        }
        let time = from.signed()?;
        let values = (0..from.number()?).map(|_| from.value()).collect::<Result<_, _>>()?;
        let row = Arc::new(MatchedEvent { time, values });
        self.rows.push(row.clone());
        Ok(row)
    }
}

fn restored<T: Clone>(all: &[T], number: u64, from: &Reader<'_>) -> Result<T, Error> {
    let found = usize::try_from(number).ok().and_then(|number| all.get(number));
    found.cloned().ok_or_else(|| from.damaged(format!("reference to item {number}, which does not exist")))
}

impl NfaMatcher {
    /// Writes the state.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let mut written = SavedIds::default();
        for step in &self.steps {
            written.list(&step.new_matches, out)?;
            written.list(&step.waiting, out)?;
            step.timers.save(out)?;
            out.state(&SavedStep {
                armed: step.armed,
                returned: step.completes_when_offered,
                begin_anew: step.restart_pending,
                over: step.finished,
                asked: step.last_check,
                spoiled: step.violated_at,
            })?;
        }
        Ok(())
    }

    /// Restores a state written by [`Self::save`].
    ///
    /// Errors: the state belongs to another pattern; the matcher must not be used after that.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        let mut known = RestoredMatches::default();
        let steps = self.steps.len();
        for step in &mut self.steps {
            step.new_matches = known.list(steps, from)?;
            step.waiting = known.list(steps, from)?;
            step.timers = TimerQueue::restored(from)?;
            let saved: SavedStep = from.state()?;
            step.armed = saved.armed;
            step.completes_when_offered = saved.returned;
            step.restart_pending = saved.begin_anew;
            step.finished = saved.over;
            step.last_check = saved.asked;
            step.violated_at = saved.spoiled;
        }
        Ok(())
    }
}
