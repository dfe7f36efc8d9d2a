//! `#markov:markovChain(…)`: how likely a change of state is, by the changes so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::float_bits::Float;
use super::parameters::Parameters;
use crate::columns::batch::EventKind;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

const FORM: &str = "markov:markovChain(id, state, duration.to.keep, alert.threshold, notifications.hold.limit or 'matrix.csv' [, train])";
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

/// Binds the processor, which finds its matrix among these files.
pub(super) fn build(
    args: &[ArgumentType],
    files: &BTreeMap<String, String>,
) -> Result<BoundStreamProcessor, String> {
    let mut read = Parameters::new(FORM, args);
    for what in ["id", "state"] {
        let (_, ty) = read.attribute(what)?;
        if ty != FieldType::String {
            return Err(read.wrong(&format!("`{what}` must be a string; it is {ty}")));
        }
    }
    let keep = read.integer("duration.to.keep", 1, i64::MAX)?;
    let threshold = read.threshold("alert.threshold")?;
    let (held, matrix) = match read.next_constant() {
        Some(FieldType::String) => {
            let path = read.name()?;
            let text = files.get(&path).ok_or_else(|| {
                read.wrong(&format!(
                    "there is no file `{path}`; paths count from the directory of the app, and are written as they are"
                ))
            })?;
            (0, parse_matrix(text).map_err(|why| read.wrong(&format!("{path}: {why}")))?)
        }
        _ => (read.integer("notifications.hold.limit", 0, i64::from(i32::MAX))? as u64, BTreeMap::new()),
    };
    let train = match args.len() - read.place() {
        0 => Train::Always(true),
        1 if read.next_constant().is_some() => Train::Always(read.flag("train")?),
        1 => match read.attribute("train")? {
            (place, FieldType::Bool) => Train::Argument(place),
            (_, ty) => return Err(read.wrong(&format!("`train` must be a bool; it is {ty}"))),
        },
        count => return Err(read.wrong(&format!("{count} arguments behind the fifth; expected `train`"))),
    };
    let added = [
        ("lastState", FieldType::String),
        ("transitionProbability", FieldType::Double),
        ("notify", FieldType::Bool),
    ];
    let settings = Settings { keep, threshold, held, train };
    let count = matrix.values().map(|row| row.counts.len()).sum();
    let made =
        move || MarkovChain { settings, now: State { changes: matrix.clone(), count, ..State::default() } };
    Ok((Arc::new(move || Box::new(made())), added.map(|(name, ty)| (name.to_owned(), ty)).to_vec()))
}

/// Parses a matrix: a line with the states, then for each of them a line with the probabilities or counts of the changes from
/// it to each of them.
///
/// Errors: with the line.
fn parse_matrix(text: &str) -> Result<BTreeMap<String, Row>, String> {
    let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let (header, _) = lines.next().ok_or("the file has no line with states")?;
    let states: Vec<&str> = header.split(',').map(str::trim).collect();
    if states.len().saturating_mul(states.len()) > CHANGES_MAX {
        return Err(format!("{} states; a chain has {CHANGES_MAX} changes at most", states.len()));
    }
    let mut matrix = BTreeMap::new();
    for state in &states {
        let (line, number) =
            lines.next().ok_or_else(|| format!("there is no line for the state `{state}`"))?;
        let cell = |text: &str| match text.trim().parse::<f64>() {
            Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
            _ => Err(format!("line {number}: `{}` is neither a probability nor a count", text.trim())),
        };
        let cells = line.split(',').map(cell).collect::<Result<Vec<_>, _>>()?;
        if cells.len() != states.len() {
            return Err(format!("line {number}: {} values for {} states", cells.len(), states.len()));
        }
        let named = states.iter().map(|to| (*to).to_owned());
        let row = Row { total: cells.iter().sum(), counts: named.zip(cells).collect() };
        if row.counts.len() != states.len() || matrix.insert((*state).to_owned(), row).is_some() {
            return Err(format!("the state `{state}` is there twice"));
        }
    }
    match lines.next() {
        None => Ok(matrix),
        Some((_, number)) => Err(format!("line {number}: a line more than there are states")),
    }
}

struct MarkovChain {
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

#[derive(Debug, Clone, Default)]
struct Row {
    total: f64,
    counts: BTreeMap<String, f64>,
}

/// A state, the sum of its row, which depends on the order of the columns of a file, and the row.
type SavedRow = (String, Float, Vec<(String, Float)>);

#[derive(Serialize, Deserialize)]
struct SavedChain {
    events: u64,
    last: Vec<(String, String, i64)>,
    changes: Vec<SavedRow>,
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
        // a row of zeros has no changes
        row.counts.get(to).filter(|count| **count > 0.0).map_or(0.0, |count| count / row.total)
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

impl StreamProcessor for MarkovChain {
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
        json!(SavedChain {
            events: self.now.events,
            last: last.collect(),
            changes: self
                .now
                .changes
                .iter()
                .map(|(from, row)| (from.clone(), Float(row.total), counts(row)))
                .collect(),
        })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |_| EvalError::state("the saved state does not match this Markov chain");
        let SavedChain { events, last, changes } = SavedChain::deserialize(state).map_err(wrong)?;
        let mut now = State { events, ..State::default() };
        for (id, state, time) in last {
            now.by_time.insert((time, id.clone()));
            now.last.insert(id, (state, time));
        }
        for (from, total, counts) in changes {
            let counts: BTreeMap<_, _> = counts.into_iter().map(|(to, count)| (to, count.0)).collect();
            now.count += counts.len();
            now.changes.insert(from, Row { total: total.0, counts });
        }
        self.now = now;
        Ok(())
    }
}
