//! The state of a pattern for checkpoints: matches and events that several lists share stay shared.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::automaton::Automaton;
use super::record::{Record, Row, Shared};
use crate::aggregators::state::{decode, encode};
use crate::expr::Failure;
use crate::window::Timers;

#[derive(Default, Serialize, Deserialize)]
struct Saved {
    /// Time and values of each event.
    rows: Vec<(i64, Vec<Json>)>,
    records: Vec<SavedRecord>,
    steps: Vec<SavedStep>,
}

#[derive(Serialize, Deserialize)]
struct SavedRecord {
    /// By step the events' numbers.
    slots: Vec<Vec<usize>>,
    time: i64,
    expired: bool,
}

#[derive(Serialize, Deserialize)]
struct SavedStep {
    /// The numbers of the matches.
    fresh: Vec<usize>,
    waiting: Vec<usize>,
    armed: bool,
    returned: bool,
    begin_anew: bool,
    over: bool,
    asked: i64,
    spoiled: i64,
    timers: Timers,
}

#[derive(Default)]
struct Numbers {
    rows: HashMap<*const Row, usize>,
    records: HashMap<*const Mutex<Record>, usize>,
}

impl Numbers {
    fn row(&mut self, row: &Arc<Row>, saved: &mut Saved) -> usize {
        *self.rows.entry(Arc::as_ptr(row)).or_insert_with(|| {
            saved.rows.push((row.time, row.values.iter().map(encode).collect()));
            saved.rows.len() - 1
        })
    }

    fn record(&mut self, record: &Shared, saved: &mut Saved) -> usize {
        if let Some(known) = self.records.get(&Arc::as_ptr(record)) {
            return *known;
        }
        let inner = record.lock();
        let slots =
            inner.slots.iter().map(|chain| chain.iter().map(|row| self.row(row, saved)).collect()).collect();
        saved.records.push(SavedRecord { slots, time: inner.time, expired: inner.expired });
        self.records.insert(Arc::as_ptr(record), saved.records.len() - 1);
        saved.records.len() - 1
    }
}

impl Automaton {
    /// Its state.
    pub fn save(&self) -> Json {
        let mut saved = Saved::default();
        let mut numbers = Numbers::default();
        for step in &self.steps {
            let mut list =
                |list: &VecDeque<Shared>| list.iter().map(|r| numbers.record(r, &mut saved)).collect();
            let (fresh, waiting) = (list(&step.fresh), list(&step.waiting));
            saved.steps.push(SavedStep {
                fresh,
                waiting,
                armed: step.armed,
                returned: step.returned,
                begin_anew: step.begin_anew,
                over: step.over,
                asked: step.asked,
                spoiled: step.spoiled,
                timers: step.timers.clone(),
            });
        }
        serde_json::to_value(saved).unwrap_or_default()
    }

    /// Takes a saved state back.
    ///
    /// Errors: it is none of this pattern.
    pub fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        let wrong = || Failure("no state of this pattern".into());
        let saved = Saved::deserialize(state).map_err(|_| wrong())?;
        let row = |(time, values): &(i64, Vec<Json>)| {
            let values = values.iter().map(decode).collect::<Option<_>>()?;
            Some(Arc::new(Row { time: *time, values }))
        };
        let rows: Vec<Arc<Row>> = saved.rows.iter().map(row).collect::<Option<_>>().ok_or_else(wrong)?;
        let record = |saved: &SavedRecord| -> Option<Shared> {
            let chain = |chain: &Vec<usize>| chain.iter().map(|row| rows.get(*row).cloned()).collect();
            let slots: Box<[Vec<Arc<Row>>]> = saved.slots.iter().map(chain).collect::<Option<_>>()?;
            let fits = slots.len() == self.steps.len();
            fits.then(|| Arc::new(Mutex::new(Record { slots, time: saved.time, expired: saved.expired })))
        };
        let records: Vec<Shared> =
            saved.records.iter().map(record).collect::<Option<_>>().ok_or_else(wrong)?;
        let list = |numbers: &[usize]| -> Option<VecDeque<Shared>> {
            numbers.iter().map(|number| records.get(*number).cloned()).collect()
        };
        let lists = saved.steps.iter().map(|s| Some((list(&s.fresh)?, list(&s.waiting)?)));
        let lists: Vec<_> = lists.collect::<Option<_>>().ok_or_else(wrong)?;
        if lists.len() != self.steps.len() {
            return Err(wrong());
        }
        for ((step, from), (fresh, waiting)) in self.steps.iter_mut().zip(saved.steps).zip(lists) {
            step.fresh = fresh;
            step.waiting = waiting;
            step.armed = from.armed;
            step.returned = from.returned;
            step.begin_anew = from.begin_anew;
            step.over = from.over;
            step.asked = from.asked;
            step.spoiled = from.spoiled;
            step.timers = from.timers;
        }
        Ok(())
    }
}
