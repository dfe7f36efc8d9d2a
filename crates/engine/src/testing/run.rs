//! Execution of a test.

use serde_json::{Map, Value as Json};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Error, Result, Timestamp};

use super::compare::{describe_nearest, match_objects, matches_expected};
use super::parse::{ExpectationMode, ExpectedResult, NumberedObjects, StepAction, TestCase};
use super::test_engine::{DerivedEvent, TestEngine, time_of};
use super::{TestOptions, TestProblem, TestResult, literal};
use crate::app::App;
use crate::queries::compile::CompiledApp;

/// Runs one test on a new engine.
pub fn run(app: &App, compiled: &CompiledApp, test: &TestCase, options: &TestOptions<'_>) -> TestResult {
    let (file, line, name) = (test.file.clone(), test.line, test.name.clone());
    let failures = match TestEngine::new(app, compiled, options) {
        Ok(world) => {
            let mut running = TestRun { compiled, test, engine: world, failures: Vec::new() };
            test.steps.iter().for_each(|step| running.step(step.line, &step.action));
            running.failures
        }
        Err(error) => vec![TestProblem { file: file.clone(), line, message: error.to_string() }],
    };
    TestResult { file, line, name, failures }
}

struct TestRun<'t> {
    compiled: &'t CompiledApp,
    test: &'t TestCase,
    engine: TestEngine,
    failures: Vec<TestProblem>,
}

impl TestRun<'_> {
    fn step(&mut self, line: usize, action: &StepAction) {
        match action {
            StepAction::Documents(entity, objects) => {
                objects.iter().for_each(|(line, object)| {
                    let done = self.engine.insert_document(*entity, object);
                    self.record_errors(*line, done);
                });
            }
            StepAction::Rows(store, objects) => {
                objects.iter().for_each(|(line, object)| {
                    let done = literal::insert(store, object).map_err(Error::invalid);
                    let done = done.and_then(|query| self.engine.change_table(store, query));
                    self.record_errors(*line, done);
                });
            }
            StepAction::Events(stream, objects) => {
                objects.iter().for_each(|(line, object)| {
                    let done = self.event(*stream, object.clone());
                    self.record_errors(*line, done);
                });
            }
            StepAction::After(span) => {
                let done = self.engine.advance_by(*span);
                self.record_errors(line, done);
            }
            StepAction::At(time) => {
                let done = self.engine.advance_to(*time);
                self.record_errors(line, done);
            }
            StepAction::Expect(wanted) => self.check_expectation(line, wanted),
        }
    }

    fn fail(&mut self, line: usize, message: impl Into<String>) {
        self.failures.push(TestProblem { file: self.test.file.clone(), line, message: message.into() });
    }

    /// Records the error of an input, and the errors of all processing that followed.
    fn record_errors(&mut self, line: usize, done: Result<()>) {
        if let Err(error) = done {
            self.fail(line, error.to_string());
        }
        for error in self.engine.errors() {
            self.fail(line, error);
        }
    }

    /// Sends an event at its `_time`; without one, at its event time if that is in the future, else now.
    fn event(&mut self, stream: usize, mut object: Map<String, Json>) -> Result<()> {
        let schema = &self.compiled.program.streams()[stream];
        let said = match object.remove("_time") {
            None => None,
            Some(Json::String(text)) => Some(Timestamp::parse(&text)?),
            Some(other) => return Err(Error::invalid(format!("`_time` is a time, found {other}"))),
        };
        let mut builder = BatchBuilder::new(schema.clone());
        builder.push_json(Json::Object(object).to_string().as_bytes(), said.unwrap_or(self.engine.now()))?;
        let batch = builder.finish();
        let own = time_of(&batch, 0);
        let at = said.unwrap_or(if self.engine.has_started() { own.max(self.engine.now()) } else { own });
        self.engine.send_event(stream, batch, at)
    }

    fn check_expectation(&mut self, line: usize, wanted: &ExpectedResult) {
        let program = &self.compiled.program;
        match wanted {
            ExpectedResult::Events(stream, quantity, objects) => {
                // times are shown only if the test expects some
                let timed = objects.iter().any(|(_, object)| object.contains_key("_time"));
                let event = |made: &DerivedEvent| {
                    let mut event = made.event.clone();
                    if timed {
                        event.insert("_time".to_owned(), made.time.to_string().into());
                    }
                    event
                };
                let actual: Vec<_> = self.engine.derived(*stream).iter().map(event).collect();
                let what = format!("{} event", program.streams()[*stream].name);
                self.expect_objects(line, &what, *quantity, objects, &actual);
            }
            ExpectedResult::Documents(entity, quantity, objects) => {
                let actual = self.engine.documents(*entity);
                let what = format!("{} document", program.entities()[*entity].name);
                self.expect_objects(line, &what, *quantity, objects, &actual);
            }
            ExpectedResult::Rows(store, quantity, objects) => match self.engine.rows(store) {
                Ok(actual) => {
                    self.expect_objects(line, &format!("{} row", store.name), *quantity, objects, &actual)
                }
                Err(error) => self.fail(line, error.to_string()),
            },
            ExpectedResult::Fired(rule, times) => self.expect_fired(line, rule, *times),
        }
    }

    fn expect_objects(
        &mut self,
        line: usize,
        what: &str,
        quantity: ExpectationMode,
        objects: &NumberedObjects,
        actual: &[Map<String, Json>],
    ) {
        if quantity == ExpectationMode::Absent {
            return self.expect_none(line, what, objects, actual);
        }
        let wanted: Vec<&Map<String, Json>> = objects.iter().map(|(_, o)| o).collect();
        let (unmet, free) = match_objects(actual, &wanted);
        for i in unmet {
            let (line, object) = &objects[i];
            let candidates: Vec<&Map<String, Json>> = free.iter().map(|a| &actual[*a]).collect();
            let hint = describe_nearest(object, &candidates).unwrap_or_else(|| match actual.len() {
                0 => "there are none".to_owned(),
                n => format!("all {n} there are were expected by other lines"),
            });
            self.fail(*line, format!("expected a {what} like this; {hint}"));
        }
        if quantity == ExpectationMode::Exactly && actual.len() > objects.len() {
            for extra in free {
                let object = Json::Object(actual[extra].clone());
                self.fail(line, format!("expected no further {what}, found {object}"));
            }
        }
    }

    fn expect_none(
        &mut self,
        line: usize,
        what: &str,
        objects: &NumberedObjects,
        actual: &[Map<String, Json>],
    ) {
        if objects.is_empty() {
            if let Some(first) = actual.first() {
                let message =
                    format!("expected no {what}, found {}: {}", actual.len(), Json::Object(first.clone()));
                self.fail(line, message);
            }
            return;
        }
        for (line, object) in objects {
            if let Some(found) = actual.iter().find(|a| matches_expected(a, object)) {
                self.fail(
                    *line,
                    format!("expected no {what} like this, found {}", Json::Object(found.clone())),
                );
            }
        }
    }

    fn expect_fired(&mut self, line: usize, rule: &str, times: u64) {
        let fired = self.engine.fired(rule);
        if fired == times {
            return;
        }
        let mut message =
            format!("expected {rule} to fire {}, it fired {}", times_text(times), times_text(fired));
        for why in self.engine.why(rule) {
            message.push('\n');
            let lines: Vec<String> = why.lines().map(|l| format!("  {l}")).collect();
            message.push_str(&lines.join("\n"));
        }
        self.fail(line, message);
    }
}

fn times_text(times: u64) -> String {
    if times == 1 { "once".to_owned() } else { format!("{times} times") }
}
