//! Replay of recorded inputs in virtual time: the output depends on the inputs only, not on the machine's
//! clock.

mod check;
mod losses;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidemill_lang::{FileId, SourceFile, Sources, siddhi};
use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::functions::json_text::tagged_json;
use crate::late::{AppRunner, LateEvent, RetractionHandler};
use crate::plan::{self, AppPlan};
use crate::registry::Registry;
use crate::runtime::{AppRuntime, OutputHandler};
use crate::snapshot::{FrozenState, RestoreMode};

pub use check::{check, check_interrupted, check_with};
pub use losses::{LossCounter, QueryLoss};

/// An input of an app.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Input {
    /// Several events, sent in one call.
    Events {
        /// Stream name.
        stream: String,
        /// The events in order.
        events: Vec<Event>,
    },
    /// One event.
    Event {
        /// Stream name.
        stream: String,
        /// Milliseconds since 1970.
        timestamp: i64,
        /// Attributes in order.
        data: Vec<Json>,
    },
    /// An on-demand query.
    OnDemand {
        /// Text of the query.
        on_demand: String,
    },
    /// Saves the state and restores it into a new app.
    Restart {
        /// Always true.
        restart: bool,
    },
    /// Advances the clock.
    Clock {
        /// New time, milliseconds since 1970.
        timestamp: i64,
    },
}

/// An event of a chunk.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Attributes in order.
    pub data: Vec<Json>,
}

/// A recorded run: an app, its inputs, and the expected output.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// Case name.
    #[serde(default)]
    pub name: String,
    /// SiddhiQL text.
    pub app: String,
    /// Clock at the start, milliseconds.
    #[serde(default)]
    pub start: i64,
    /// Inputs in order.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Names of the streams to watch.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Names of the queries to watch.
    #[serde(default)]
    pub queries: Vec<String>,
    /// Name and type of each attribute of watched streams.
    #[serde(default)]
    pub schemas: BTreeMap<String, Vec<(String, String)>>,
    /// The expected output.
    #[serde(default)]
    pub expected: Vec<OutputItem>,
    /// If set, the app must be rejected.
    #[serde(default)]
    pub error: Option<Json>,
    /// True if the output of one input may come in any order.
    #[serde(default)]
    pub unordered: bool,
}

/// One item of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputItem {
    /// Index of the input that caused the output; -1 for the start.
    pub input: i64,
    /// Kind and contents of the output.
    #[serde(flatten)]
    pub what: OutputKind,
}

/// Kind of an [`OutputItem`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OutputKind {
    /// The retraction of an event that was emitted earlier and that a late event has made wrong.
    Retracted {
        /// Stream name.
        retracted: String,
        /// Time of the event.
        timestamp: i64,
        /// Attributes of the event.
        data: Vec<Json>,
    },
    /// An event of a stream.
    Stream {
        /// Stream name.
        stream: String,
        /// Event time, milliseconds.
        timestamp: i64,
        /// Attributes in order.
        data: Vec<Json>,
    },
    /// An emission of a query.
    Query {
        /// Query name.
        query: String,
        /// Time of the first event, milliseconds.
        timestamp: i64,
        /// Current events.
        #[serde(default)]
        current: Vec<Vec<Json>>,
        /// Expired events.
        #[serde(default)]
        expired: Vec<Vec<Json>>,
    },
    /// The result of an on-demand query.
    Rows {
        /// Result rows.
        rows: Vec<Vec<Json>>,
    },
    /// The failure of an input.
    Failure {
        /// Reason of the failure.
        failure: String,
    },
}

/// Parses and compiles an app. `variable` returns the values of `${NAME}`.
///
/// Errors: the diagnostics, rendered for a terminal.
pub fn compile(
    name: &str,
    text: &str,
    registry: &Registry,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<AppPlan, String> {
    let written = SourceFile::new(FileId(0), name, text);
    let replaced = siddhi::substitute(&written, variable).map_err(|d| {
        let mut sources = Sources::default();
        sources.add(name, text);
        tidemill_lang::render_all(&d, &sources)
    })?;
    // diagnostics refer to the text after substitution
    let mut sources = Sources::default();
    sources.add(name, replaced.text());
    let rendered = |d: &[tidemill_lang::Diagnostic]| tidemill_lang::render_all(d, &sources);
    let parsed = siddhi::parse(&replaced);
    if parsed.has_errors() {
        return Err(rendered(&parsed.diagnostics));
    }
    plan::compile(&parsed.app, registry).map_err(|d| rendered(&d))
}

/// Runs inputs through an app, and records the output of watched streams and queries in order.
pub struct Replay<'s> {
    app: AppRunner,
    recorder: Recorder<'s>,
}

struct Recorder<'s> {
    watches: &'s dyn Fn(&str) -> bool,
    watches_query: &'s dyn Fn(&str) -> bool,
    input: i64,
    out: Vec<OutputItem>,
    lost: LossCounter,
}

impl<'s> Replay<'s> {
    /// Starts the app at clock `start`. `watches` and `watches_query` select streams and queries by name.
    pub fn new(
        plan: AppPlan,
        start: i64,
        watches: &'s dyn Fn(&str) -> bool,
        watches_query: &'s dyn Fn(&str) -> bool,
    ) -> Self {
        let mut app = AppRunner::new(plan.into());
        let mut recorder =
            Recorder { watches, watches_query, input: -1, out: vec![], lost: LossCounter::default() };
        app.start(start, &mut recorder);
        Self { app, recorder }
    }

    /// Applies one input.
    pub fn input(&mut self, input: &Input) {
        self.try_input(input);
    }

    /// Applies one input. Returns whether it succeeded; a failure is also recorded as output.
    pub fn try_input(&mut self, input: &Input) -> bool {
        self.recorder.input += 1;
        let done = self.apply(input).and_then(|()| self.app.apply_corrections(&mut self.recorder));
        self.recorder.lost.end_call();
        let Err(failure) = done else { return true };
        let what = OutputKind::Failure { failure: failure.to_string() };
        self.recorder.out.push(OutputItem { input: self.recorder.input, what });
        false
    }

    fn apply(&mut self, input: &Input) -> Result<(), EvalError> {
        match input {
            Input::Clock { timestamp } => {
                self.app.advance((*timestamp).max(self.app.now()), &mut self.recorder);
                Ok(())
            }
            Input::Event { stream, timestamp, data } => {
                let event = Event { timestamp: *timestamp, data: data.clone() };
                self.send(stream, std::slice::from_ref(&event))
            }
            Input::Events { stream, events } => self.send(stream, events),
            Input::OnDemand { on_demand } => {
                let found = self.app.on_demand(on_demand)?;
                let row = |i| found.columns.iter().map(|c| tagged_json(&c.get(i))).collect();
                let what = OutputKind::Rows { rows: (0..found.len()).map(row).collect() };
                self.recorder.out.push(OutputItem { input: self.recorder.input, what });
                Ok(())
            }
            Input::Restart { .. } => {
                let mut state = Vec::new();
                self.app.save(&mut state)?;
                let mut app = AppRunner::new(self.app.app().shared_plan());
                // the clock of a correcting app is that of its events, so it is not started
                if let AppRunner::Plain(app) = &mut app {
                    app.start(self.app.now(), &mut self.recorder);
                }
                app.restore(&mut state.as_slice(), RestoreMode::Restarted)?;
                self.app = app;
                Ok(())
            }
        }
    }

    fn send(&mut self, stream: &str, events: &[Event]) -> Result<(), EvalError> {
        let catalog = &self.app.app().plan().catalog;
        let number = catalog
            .find(stream)
            .ok_or_else(|| EvalError::request(format!("there is no stream `{stream}`")))?;
        let attributes = &catalog.streams()[number].attributes;
        let mut columns: Vec<Column> = attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
        for event in events {
            if event.data.len() != columns.len() {
                return Err(EvalError::request(format!(
                    "`{stream}` has {} attributes, the event has {}",
                    columns.len(),
                    event.data.len()
                )));
            }
            for (column, value) in columns.iter_mut().zip(&event.data) {
                column.push(value_of(value, column.ty()));
            }
        }
        let times = events.iter().map(|e| e.timestamp).collect();
        let late = self.app.send(number, columns, times, &mut self.recorder)?;
        for LateEvent { row, behind, .. } in late {
            let failure = format!("event {row} was dropped: it came {behind} ms behind the clock");
            let what = OutputKind::Failure { failure };
            self.recorder.out.push(OutputItem { input: self.recorder.input, what });
        }
        Ok(())
    }

    /// Replaces the app by a new one of `plan` with the state of the current one, as after the crash of a
    /// process.
    ///
    /// Errors: the state could not be saved or restored.
    pub fn reload(&mut self, plan: AppPlan) -> Result<(), EvalError> {
        let state = self.state()?;
        let mut app = AppRunner::new(plan.into());
        app.restore(&mut state.as_slice(), RestoreMode::Exactly)?;
        self.app = app;
        Ok(())
    }

    /// Returns the state of the app at this moment, to be written later, with elements of at least `rows_min` rows shared.
    ///
    /// Errors: the state could not be saved.
    pub fn freeze(&mut self, rows_min: usize) -> Result<FrozenState, EvalError> {
        Ok(self.app.freeze_sharing(rows_min)?)
    }

    /// Saves keys of partitions for the state that was frozen last: see [`AppRuntime::save_keys`].
    pub fn save_keys(&mut self, count: usize) -> bool {
        self.app.save_keys(count)
    }

    /// Returns the state of the app as it is written.
    ///
    /// Errors: the state could not be saved.
    pub fn state(&self) -> Result<Vec<u8>, EvalError> {
        let mut state = Vec::new();
        self.app.save(&mut state)?;
        Ok(state)
    }

    /// Takes the output recorded since the last call.
    pub fn take_outputs(&mut self) -> Vec<OutputItem> {
        std::mem::take(&mut self.recorder.out)
    }

    /// Returns the losses so far by query: events of failed queries that no fault stream received.
    pub fn losses(&self) -> &[QueryLoss] {
        self.recorder.lost.by_query()
    }

    /// Returns the app runtime.
    pub fn app(&self) -> &AppRuntime {
        self.app.app()
    }
}

impl OutputHandler for Recorder<'_> {
    fn events(&mut self, stream: &str, events: &Batch) {
        if !(self.watches)(stream) {
            return;
        }
        for row in 0..events.len() {
            let data = events.columns.iter().map(|c| tagged_json(&c.get(row))).collect();
            let what = OutputKind::Stream { stream: stream.to_owned(), timestamp: events.times[row], data };
            self.out.push(OutputItem { input: self.input, what });
        }
    }

    fn emission(&mut self, query: &str, emission: &Batch) {
        if !(self.watches_query)(query) {
            return;
        }
        for (rows, _) in emission.chunks() {
            let timestamp = emission.times[rows.start];
            let of = |kind: EventKind| -> Vec<Vec<Json>> {
                let rows = rows.clone().filter(|r| emission.kinds[*r] == kind);
                rows.map(|r| emission.columns.iter().map(|c| tagged_json(&c.get(r))).collect()).collect()
            };
            let (current, expired) = (of(EventKind::Current), of(EventKind::Expired));
            let what = OutputKind::Query { query: query.to_owned(), timestamp, current, expired };
            self.out.push(OutputItem { input: self.input, what });
        }
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        self.lost.failure(query, failure);
    }

    fn failed_events(&mut self, stream: &str, events: &Batch, kept: bool) {
        self.lost.failed_events(stream, events, kept);
    }
}

impl RetractionHandler for Recorder<'_> {
    fn retracted(&mut self, stream: &str, events: &Batch) {
        if !(self.watches)(stream) {
            return;
        }
        for row in 0..events.len() {
            let data = events.columns.iter().map(|c| tagged_json(&c.get(row))).collect();
            let what =
                OutputKind::Retracted { retracted: stream.to_owned(), timestamp: events.times[row], data };
            self.out.push(OutputItem { input: self.input, what });
        }
    }
}

/// Converts a JSON value to an attribute of type `ty`; a value that does not fit becomes null.
pub fn value_of(json: &Json, ty: FieldType) -> Value {
    match (ty, json) {
        (FieldType::Bool, Json::Bool(b)) => Value::Bool(*b),
        (FieldType::Int, Json::Number(n)) => {
            n.as_i64().and_then(|n| i32::try_from(n).ok()).map_or(Value::Null, Value::Int)
        }
        (FieldType::Long | FieldType::Time, Json::Number(n)) => n.as_i64().map_or(Value::Null, Value::Long),
        (FieldType::Float, Json::Number(n)) => n.as_f64().map_or(Value::Null, |n| Value::Float(n as f32)),
        (FieldType::Double, Json::Number(n)) => n.as_f64().map_or(Value::Null, Value::Double),
        (FieldType::Float, Json::String(s)) => s.parse().map_or(Value::Null, Value::Float),
        (FieldType::Double, Json::String(s)) => s.parse().map_or(Value::Null, Value::Double),
        (FieldType::String | FieldType::Object, Json::String(s)) => Value::text(s),
        (FieldType::Object, Json::Bool(b)) => Value::Bool(*b),
        (FieldType::Object, Json::Number(n)) => match n.as_i64() {
            Some(n) => Value::Long(n),
            None => n.as_f64().map_or(Value::Null, Value::Double),
        },
        _ => Value::Null,
    }
}
