//! `#markov:markovChain(…)`: how likely a change of state is, by the changes so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::float_bits::Float;
use super::parameters::Parameters;
use crate::batch::EventKind;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};
use crate::value::Value;

const FORM: &str =
    "markov:markovChain(id, state, duration.to.keep, alert.threshold, notifications.hold.limit [, train])";
/// Ids whose last state is known, and changes between two states.
const IDS_MAX: usize = 1_000_000;
const CHANGES_MAX: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
struct Settings {
    /// Milliseconds after which the last state of an id is forgotten.
    keep: i64,
    threshold: f64,
    /// First events, which train only.
    held: u64,
    train: Train,
}

#[derive(Debug, Clone, Copy)]
enum Train {
    Always(bool),
    /// As the argument with this index says.
    Argument(usize),
}

/// Binds the processor.
pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(FORM, args);
    for what in ["id", "state"] {
        let (_, ty) = read.attribute(what)?;
        if ty != FieldType::String {
            return Err(read.wrong(&format!("`{what}` must be a string; it is {ty}")));
        }
    }
    let keep = read.integer("duration.to.keep", 1, i64::MAX)?;
    let threshold = read.threshold("alert.threshold")?;
    if read.next_constant() == Some(FieldType::String) {
        return Err(read.wrong(
            "a matrix in a file is not read here: let the chain learn from events, with the number of events before the \
             first output in place of the file",
        ));
    }
    let held = read.integer("notifications.hold.limit", 0, i64::from(i32::MAX))? as u64;
    let train = match args.len() - read.place() {
        0 => Train::Always(true),
        1 if read.next_constant().is_some() => Train::Always(read.flag("train")?),
        1 => match read.attribute("train")? {
            (place, FieldType::Bool) => Train::Argument(place),
            (_, ty) => return Err(read.wrong(&format!("`train` must be a bool; it is {ty}"))),
        },
        count => return Err(read.wrong(&format!("{count} arguments behind `notifications.hold.limit`"))),
    };
    let added = [
        ("lastState", FieldType::String),
        ("transitionProbability", FieldType::Double),
        ("notify", FieldType::Bool),
    ];
    let settings = Settings { keep, threshold, held, train };
    let made = move || Chain { settings, now: State::default() };
    Ok((Arc::new(move || Box::new(made())), added.map(|(name, ty)| (name.to_owned(), ty)).to_vec()))
}

struct Chain {
    settings: Settings,
    now: State,
}

#[derive(Default)]
struct State {
    events: u64,
    /// The last state of each id, and when it had it.
    last: BTreeMap<String, (String, i64)>,
    /// The ids of `last` by that time.
    by_time: BTreeSet<(i64, String)>,
    /// Counts of changes by the state before and the one after.
    changes: BTreeMap<String, Row>,
    /// Changes in all rows.
    count: usize,
}

#[derive(Default)]
struct Row {
    total: f64,
    counts: BTreeMap<String, f64>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    events: u64,
    last: Vec<(String, String, i64)>,
    changes: Vec<(String, Vec<(String, Float)>)>,
}

impl State {
    /// Forgets the states that ids have had for `keep` milliseconds.
    fn forget(&mut self, keep: i64, now: i64) {
        while let Some((time, _)) = self.by_time.first() {
            if time.saturating_add(keep) > now {
                break;
            }
            if let Some((_, id)) = self.by_time.pop_first() {
                self.last.remove(&id);
            }
        }
    }

    /// Returns the share of a change among those from the same state.
    fn probability(&self, from: &str, to: &str) -> f64 {
        let Some(row) = self.changes.get(from) else { return 0.0 };
        row.counts.get(to).map_or(0.0, |count| count / row.total)
    }

    /// Counts a change. Errors: there are too many different ones.
    fn learn(&mut self, from: &str, to: &str) -> Result<(), EvalError> {
        let known = self.changes.get(from).is_some_and(|row| row.counts.contains_key(to));
        if !known && self.count >= CHANGES_MAX {
            return Err(EvalError::limit("the Markov chain", CHANGES_MAX, "changes between two states"));
        }
        let row = self.changes.entry(from.to_owned()).or_default();
        *row.counts.entry(to.to_owned()).or_default() += 1.0;
        row.total += 1.0;
        self.count += usize::from(!known);
        Ok(())
    }

    fn remember(&mut self, id: &str, state: &str, now: i64) -> Result<(), EvalError> {
        match self.last.insert(id.to_owned(), (state.to_owned(), now)) {
            Some((_, before)) => {
                self.by_time.remove(&(before, id.to_owned()));
            }
            None if self.last.len() > IDS_MAX => {
                self.last.remove(id);
                return Err(EvalError::limit("the Markov chain", IDS_MAX, "ids"));
            }
            None => {}
        }
        self.by_time.insert((now, id.to_owned()));
        Ok(())
    }
}

impl StreamProcessor for Chain {
    fn process(
        &mut self,
        mut event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        if event.kind != EventKind::Current {
            out.push(event);
            return Ok(());
        }
        let text = |at: usize, what: &str| {
            let text = args.get(at).and_then(Value::as_str);
            text.ok_or_else(|| EvalError::null(format!("`{what}` of the Markov chain")))
        };
        let (id, state) = (text(0, "id")?, text(1, "state")?);
        let train = match self.settings.train {
            Train::Always(train) => train,
            Train::Argument(at) => match args.get(at) {
                Some(Value::Bool(train)) => *train,
                _ => return Err(EvalError::null("`train` of the Markov chain")),
            },
        };
        let chain = &mut self.now;
        chain.forget(self.settings.keep, now);
        let last = chain.last.get(id).map(|(state, _)| state.clone());
        let probability = last.as_ref().map(|last| chain.probability(last, state));
        if let Some(last) = last.as_ref().filter(|_| train) {
            chain.learn(last, state)?;
        }
        chain.remember(id, state, now)?;
        chain.events = chain.events.saturating_add(1);
        if chain.events > self.settings.held {
            event.values.extend([
                last.map_or(Value::Null, |last| Value::text(&last)),
                Value::Double(probability.unwrap_or_default()),
                Value::Bool(probability.is_some_and(|share| share <= self.settings.threshold)),
            ]);
            out.push(event);
        }
        Ok(())
    }

    fn save(&self) -> Json {
        let last = self.now.last.iter().map(|(id, (state, time))| (id.clone(), state.clone(), *time));
        let counts = |row: &Row| row.counts.iter().map(|(to, count)| (to.clone(), Float(*count))).collect();
        json!(Saved {
            events: self.now.events,
            last: last.collect(),
            changes: self.now.changes.iter().map(|(from, row)| (from.clone(), counts(row))).collect(),
        })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |_| EvalError::state("the saved state does not match this Markov chain");
        let Saved { events, last, changes } = Saved::deserialize(state).map_err(wrong)?;
        let mut now = State { events, ..State::default() };
        for (id, state, time) in last {
            now.by_time.insert((time, id.clone()));
            now.last.insert(id, (state, time));
        }
        for (from, counts) in changes {
            let counts: BTreeMap<_, _> = counts.into_iter().map(|(to, count)| (to, count.0)).collect();
            now.count += counts.len();
            now.changes.insert(from, Row { total: counts.values().sum(), counts });
        }
        self.now = now;
        Ok(())
    }
}
