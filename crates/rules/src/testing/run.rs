//! Running a test.

use std::collections::{BTreeSet, HashSet};

use arrow_buffer::BooleanBuffer;
use bson::raw::{RawBson, RawDocument, RawDocumentBuf};
use serde_json::{Map, Value as Json};
use tidemill_docs::{DocBytes, Limits, Store};
use tidemill_types::decode::{BatchBuilder, Cell};
use tidemill_types::{Offset, PartitionId, Timestamp, event_json};

use super::compare::{is_like, nearest, pair};
use super::parse::{Given, Objects, Quantity, Test, Wanted};
use super::{Problem, TestResult};
use crate::exec::{Executor, Host, Part, Route};
use crate::expr::Columns;
use crate::expr::eval::append;
use crate::expr::value::document_json;
use crate::program::Program;
use crate::why::{Selector, Trace, TraceLimits};

/// The time of events that carry none: 2000-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp(946_684_800_000_000);

/// Runs one test against an empty store.
pub fn run(program: &Program, test: &Test) -> TestResult {
    let mut world = World::new(program, test);
    for given in &test.given {
        match given {
            Given::Documents(entity, objects) => world.documents(*entity, objects),
            Given::Events(stream, objects) => world.events(*stream, objects),
        }
    }
    for then in &test.then {
        match &then.wanted {
            Wanted::Events(stream, quantity, objects) => {
                let actual = world.emitted[*stream].clone();
                let what = format!("{} event", program.streams()[*stream].name);
                world.expect(then.line, &what, *quantity, objects, &actual);
            }
            Wanted::Documents(entity, quantity, objects) => {
                let actual = world.stored(*entity);
                let what = format!("{} document", program.entities()[*entity].name);
                world.expect(then.line, &what, *quantity, objects, &actual);
            }
            Wanted::Fired(rule, times) => world.expect_fired(then.line, rule, *times),
        }
    }
    TestResult { file: test.file.clone(), line: test.line, name: test.name.clone(), failures: world.failures }
}

/// One partition in memory.
struct World<'t> {
    program: &'t Program,
    test: &'t Test,
    store: Store,
    seen: Vec<HashSet<String>>,
    executor: Executor,
    trace: Trace,
    /// Emitted events by stream.
    emitted: Vec<Vec<Map<String, Json>>>,
    records: u64,
    failures: Vec<Problem>,
}

impl Host for World<'_> {
    fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    fn store_ref(&self) -> &Store {
        &self.store
    }

    fn route(&self, _stream: usize, _key: Option<&str>) -> Route {
        Route::Here
    }

    fn admit(&mut self, stream: usize, id: &[Cell]) -> bool {
        self.seen[stream].insert(format!("{id:?}"))
    }
}

impl<'t> World<'t> {
    fn new(program: &'t Program, test: &'t Test) -> Self {
        let streams = program.streams().len();
        let mut world = Self {
            program,
            test,
            store: Store::new(Limits::default()),
            seen: vec![HashSet::new(); streams],
            executor: Executor::new(program),
            trace: Trace::new(TraceLimits::default()),
            emitted: vec![Vec::new(); streams],
            records: 0,
            failures: Vec::new(),
        };
        for spec in program.collections() {
            if let Err(error) = world.store.create_collection(spec) {
                world.fail(test.line, error.to_string());
            }
        }
        world
    }

    fn fail(&mut self, line: usize, message: impl Into<String>) {
        self.failures.push(Problem { file: self.test.file.clone(), line, message: message.into() });
    }

    fn documents(&mut self, entity: usize, objects: &Objects) {
        let entity = &self.program.entities()[entity];
        for (line, object) in objects {
            let inserted = document(object, &entity.key).and_then(|doc| {
                let collection = self.store.require(&entity.name).map_err(|e| e.to_string())?;
                collection.insert(doc).map(drop).map_err(|e| e.to_string())
            });
            if let Err(message) = inserted {
                self.fail(*line, message);
            }
        }
    }

    fn events(&mut self, stream: usize, objects: &Objects) {
        let schema = &self.program.streams()[stream];
        let mut builder = BatchBuilder::new(schema.clone());
        for (line, object) in objects {
            let mut object = object.clone();
            let time = match object.remove("_time") {
                None => Ok(NOW),
                Some(Json::String(text)) => Timestamp::parse(&text).map_err(|e| e.to_string()),
                Some(other) => Err(format!("`_time` is a time, found {other}")),
            };
            let pushed = time.and_then(|time| {
                builder
                    .push_json(Json::Object(object).to_string().as_bytes(), time)
                    .map_err(|e| e.to_string())
            });
            if let Err(message) = pushed {
                self.fail(*line, message);
            }
        }
        let batch = builder.finish();
        let keep = match Columns::new(schema, &batch) {
            Ok(columns) => self.first_of_each(stream, &columns),
            Err(error) => return self.fail(self.test.line, error.to_string()),
        };
        let part = Part { stream, batch: &batch, keep: Some(&keep) };
        // what runs and what it runs on are fields of the same world
        let mut executor = std::mem::replace(&mut self.executor, Executor::new(self.program));
        let mut trace = std::mem::replace(&mut self.trace, Trace::off());
        let at = (PartitionId(0), Offset(self.records));
        let done = executor.apply(self.program, self, &[part], None, at, &mut trace);
        (self.executor, self.trace) = (executor, trace);
        self.records += 1;
        match done {
            Ok(effects) => {
                for emitted in &effects.emitted {
                    let schema = &self.program.streams()[emitted.stream];
                    let rows =
                        (0..emitted.batch.num_rows()).map(|row| event_json(schema, &emitted.batch, row));
                    self.emitted[emitted.stream].extend(rows);
                }
                for error in &effects.errors {
                    let line = objects.get(error.row as usize).map_or(self.test.line, |(line, _)| *line);
                    self.fail(line, format!("rule {} failed on this event: {}", error.rule, error.message));
                }
            }
            Err(error) => self.fail(self.test.line, error.to_string()),
        }
    }

    /// The rows that are no duplicates by the stream's `id`.
    fn first_of_each(&mut self, stream: usize, columns: &Columns<'_>) -> BooleanBuffer {
        let id = &self.program.streams()[stream].id;
        let seen = &mut self.seen[stream];
        let first = |row: usize| {
            let cells: Vec<Cell> =
                id.iter().map(|c| crate::expr::row::value_cell(&columns.value(*c, row))).collect();
            id.is_empty() || seen.insert(format!("{cells:?}"))
        };
        (0..columns.rows).map(first).collect()
    }

    fn stored(&self, entity: usize) -> Vec<Map<String, Json>> {
        let name = &self.program.entities()[entity].name;
        let docs = self.store.collection(name).into_iter().flat_map(|c| c.iter());
        docs.filter_map(|doc| match document_json(RawDocument::from_bytes(doc.as_ref()).ok()?) {
            Json::Object(object) => Some(object),
            _ => None,
        })
        .collect()
    }

    fn expect(
        &mut self,
        line: usize,
        what: &str,
        quantity: Quantity,
        objects: &Objects,
        actual: &[Map<String, Json>],
    ) {
        if quantity == Quantity::No {
            return self.expect_none(line, what, objects, actual);
        }
        let wanted: Vec<&Map<String, Json>> = objects.iter().map(|(_, o)| o).collect();
        let (unmet, free) = pair(actual, &wanted);
        for i in unmet {
            let (line, object) = &objects[i];
            let candidates: Vec<&Map<String, Json>> = free.iter().map(|a| &actual[*a]).collect();
            let hint = nearest(object, &candidates).unwrap_or_else(|| match actual.len() {
                0 => "there are none".to_owned(),
                n => format!("all {n} there are were expected by other lines"),
            });
            self.fail(*line, format!("expected a {what} like this; {hint}"));
        }
        if quantity == Quantity::Only && actual.len() > objects.len() {
            for extra in free {
                let object = Json::Object(actual[extra].clone());
                self.fail(line, format!("expected no further {what}, found {object}"));
            }
        }
    }

    fn expect_none(&mut self, line: usize, what: &str, objects: &Objects, actual: &[Map<String, Json>]) {
        if objects.is_empty() {
            if let Some(first) = actual.first() {
                let message =
                    format!("expected no {what}, found {}: {}", actual.len(), Json::Object(first.clone()));
                self.fail(line, message);
            }
            return;
        }
        for (line, object) in objects {
            if let Some(found) = actual.iter().find(|a| is_like(a, object)) {
                self.fail(
                    *line,
                    format!("expected no {what} like this, found {}", Json::Object(found.clone())),
                );
            }
        }
    }

    fn expect_fired(&mut self, line: usize, rule: &str, times: u64) {
        let fired = self.executor.counters().rule(rule).map_or(0, |r| r.fired);
        if fired == times {
            return;
        }
        let mut message = format!("expected {rule} to fire {}, it fired {}", count(times), count(fired));
        if let Some(why) = self.why(rule) {
            message.push('\n');
            let lines: Vec<String> = why.lines().map(|l| format!("  {l}")).collect();
            message.push_str(&lines.join("\n"));
        }
        self.fail(line, message);
    }

    /// What the rule did with the last event of its stream.
    fn why(&self, rule: &str) -> Option<String> {
        let stream = self.program.rules().into_iter().find(|r| r.name == rule)?.stream;
        let selector = Selector::Fields { stream: Some(stream), fields: vec![] };
        self.trace.explain(self.program, &selector, Some(rule)).ok().map(|e| e.to_string())
    }
}

fn count(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}

/// A document as the store takes it: its key's value is its `_id`.
fn document(object: &Map<String, Json>, key: &str) -> Result<DocBytes, String> {
    let bson = bson::Bson::try_from(Json::Object(object.clone())).map_err(|e| e.to_string())?;
    let RawBson::Document(fields) = RawBson::try_from(bson).map_err(|e| e.to_string())? else {
        return Err("expected a document".to_owned());
    };
    let id =
        fields.get(key).map_err(|e| e.to_string())?.ok_or_else(|| format!("a key `{key}` is missing"))?;
    let mut doc = RawDocumentBuf::new();
    append(&mut doc, "_id", id.into());
    let mut names = BTreeSet::from(["_id"]);
    for element in &fields {
        let (name, value) = element.map_err(|e| e.to_string())?;
        if names.insert(name.as_str()) {
            append(&mut doc, name.as_str(), value.into());
        }
    }
    Ok(DocBytes::from(doc.into_bytes()))
}
