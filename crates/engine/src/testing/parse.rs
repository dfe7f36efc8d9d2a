//! Parser of test files.

use serde_json::{Map, Value as Json};
use tidemill_rules::Program;
use tidemill_types::{Duration, FieldType, Timestamp, did_you_mean};

use super::TestProblem;
use crate::queries::Queries;
use crate::queries::compile::CompiledApp;

/// Maximum objects of one test.
const OBJECTS_MAX: usize = 100_000;

/// Parsed test. Streams and entities are indexes into the program.
#[derive(Debug, Clone, PartialEq)]
pub struct TestCase {
    /// Name of the file.
    pub file: String,
    /// Line on which the test begins, from 1.
    pub line: usize,
    /// Name of the test.
    pub name: String,
    /// Actions and expectations, in order.
    pub steps: Vec<TestStep>,
}

/// Objects with their line numbers.
pub type NumberedObjects = Vec<(usize, Map<String, Json>)>;

/// Line of a test, with the objects that follow it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestStep {
    /// Line number, from 1.
    pub line: usize,
    /// Action of the line.
    pub action: StepAction,
}

/// Action or expectation of a [`TestStep`].
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// Inserts documents of an entity.
    Documents(usize, NumberedObjects),
    /// Inserts rows into a table.
    Rows(Stored, NumberedObjects),
    /// Sends events of a stream.
    Events(usize, NumberedObjects),
    /// Advances the clock by a duration.
    After(Duration),
    /// Advances the clock to a time.
    At(Timestamp),
    /// Checks an expectation.
    Expect(ExpectedResult),
}

/// A table or named window of a SiddhiQL file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Index of the query unit that declares it.
    pub unit: usize,
    /// Name of the table or window.
    pub name: String,
    /// Names and types of the columns.
    pub attributes: Vec<(String, FieldType)>,
    /// True for a table, into which tests can insert rows.
    pub table: bool,
}

/// Expectation of a test.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedResult {
    /// Events of the stream that were derived from the sent ones.
    Events(usize, ExpectationMode, NumberedObjects),
    /// Documents of the entity.
    Documents(usize, ExpectationMode, NumberedObjects),
    /// Rows of the table or named window.
    Rows(Stored, ExpectationMode, NumberedObjects),
    /// Number of times that a rule fired.
    Fired(String, u64),
}

/// Quantifier of expected objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectationMode {
    /// These objects; others are allowed.
    Including,
    /// These objects and no others.
    Exactly,
    /// No objects like these; no objects at all if none are given.
    Absent,
}

/// Parses the tests of a file.
///
/// Errors: all problems of the file, by line.
pub fn parse(compiled: &CompiledApp, file: &str, text: &str) -> Result<Vec<TestCase>, Vec<TestProblem>> {
    let (program, queries) = (&*compiled.program, &*compiled.queries);
    let (tests, problems) = (Vec::new(), Vec::new());
    let mut reader = TestParser { program, queries, file, tests, problems, skip: true, open: false };
    for (number, line) in text.lines().enumerate() {
        reader.line(number + 1, line.trim());
    }
    if reader.problems.is_empty() { Ok(reader.tests) } else { Err(reader.problems) }
}

struct TestParser<'p> {
    program: &'p Program,
    queries: &'p Queries,
    file: &'p str,
    tests: Vec<TestCase>,
    problems: Vec<TestProblem>,
    /// Set while the following objects belong to an invalid line; they are not reported as well.
    skip: bool,
    /// Set while the current line takes objects.
    open: bool,
}

impl TestParser<'_> {
    fn problem(&mut self, line: usize, message: impl Into<String>) {
        self.problems.push(TestProblem { file: self.file.to_owned(), line, message: message.into() });
    }

    fn line(&mut self, number: usize, line: &str) {
        if line.is_empty() || line.starts_with('#') || line.starts_with("//") {
            return;
        }
        if line.starts_with('{') {
            return self.object(number, line);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        (self.skip, self.open) = (false, false);
        let done = match words.as_slice() {
            ["test", ..] => self.test(number, line["test".len()..].trim()),
            _ if self.tests.is_empty() => Err("expected `test NAME` first".to_owned()),
            words => self.action(line, words).map(|action| self.step(number, action)),
        };
        if let Err(message) = done {
            self.skip = true;
            self.problem(number, message);
        }
    }

    fn test(&mut self, line: usize, name: &str) -> Result<(), String> {
        if name.is_empty() {
            return Err("expected a name: `test a late flight is marked`".to_owned());
        }
        let (file, name) = (self.file.to_owned(), name.to_owned());
        self.tests.push(TestCase { file, line, name, steps: Vec::new() });
        Ok(())
    }

    fn step(&mut self, line: usize, action: StepAction) {
        self.open = !matches!(
            action,
            StepAction::After(_) | StepAction::At(_) | StepAction::Expect(ExpectedResult::Fired(..))
        );
        if let Some(test) = self.tests.last_mut() {
            test.steps.push(TestStep { line, action });
        }
    }

    fn action(&self, line: &str, words: &[&str]) -> Result<StepAction, String> {
        Ok(match words {
            ["given", "documents", name] => StepAction::Documents(self.entity(name)?, vec![]),
            ["given", "events", name] => StepAction::Events(self.stream(name)?, vec![]),
            ["given", "rows", name] => match self.stored(name)? {
                stored if stored.table => StepAction::Rows(stored, vec![]),
                _ => return Err(format!("`{name}` is a window: events fill it, by its queries")),
            },
            ["after", span @ ..] => StepAction::After(self::parse_duration(span)?),
            ["at", time] => StepAction::At(Timestamp::parse(time).map_err(|e| e.message().to_owned())?),
            ["then", rest @ ..] => StepAction::Expect(self.expectation(rest)?),
            _ => {
                return Err(format!(
                    "expected `test`, `given`, `after`, `at`, `then` or a JSON object, found `{line}`"
                ));
            }
        })
    }

    fn expectation(&self, words: &[&str]) -> Result<ExpectedResult, String> {
        Ok(match words {
            ["fired", rule, times] => {
                let times = times
                    .parse()
                    .map_err(|_| format!("expected how often `{rule}` fires, found `{times}`"))?;
                ExpectedResult::Fired(self.rule(rule)?, times)
            }
            ["not", "fired", rule] => ExpectedResult::Fired(self.rule(rule)?, 0),
            [quantity @ ("only" | "no"), what @ ("events" | "documents" | "rows"), name] => {
                let quantity =
                    if *quantity == "only" { ExpectationMode::Exactly } else { ExpectationMode::Absent };
                self.expected(what, name, quantity)?
            }
            [what @ ("events" | "documents" | "rows"), name] => {
                self.expected(what, name, ExpectationMode::Including)?
            }
            _ => {
                return Err(format!(
                    "expected `then events STREAM`, `then documents ENTITY`, `then rows TABLE` (each perhaps with \
                     `no` or `only`), or `then fired RULE 1`, found `then {}`",
                    words.join(" ")
                ));
            }
        })
    }

    fn expected(&self, what: &str, name: &str, quantity: ExpectationMode) -> Result<ExpectedResult, String> {
        Ok(match what {
            "events" => ExpectedResult::Events(self.stream(name)?, quantity, vec![]),
            "documents" => ExpectedResult::Documents(self.entity(name)?, quantity, vec![]),
            _ => ExpectedResult::Rows(self.stored(name)?, quantity, vec![]),
        })
    }

    fn object(&mut self, number: usize, line: &str) {
        if self.skip {
            return;
        }
        if !self.open {
            let message = "an object must follow `given …` or `then …` with events, documents or rows";
            return self.problem(number, message);
        }
        let object = match serde_json::from_str::<Json>(line) {
            Ok(Json::Object(object)) => object,
            Ok(_) => return self.problem(number, "expected one JSON object on this line"),
            Err(error) => {
                return self.problem(number, format!("expected one JSON object on this line: {error}"));
            }
        };
        if let Err(message) = self.check(&object) {
            return self.problem(number, message);
        }
        let step = self.tests.last_mut().and_then(|test| test.steps.last_mut());
        let objects = match step.map(|step| &mut step.action) {
            Some(
                StepAction::Documents(_, objects)
                | StepAction::Events(_, objects)
                | StepAction::Rows(_, objects),
            ) => objects,
            Some(StepAction::Expect(
                ExpectedResult::Events(.., objects)
                | ExpectedResult::Documents(.., objects)
                | ExpectedResult::Rows(.., objects),
            )) => objects,
            _ => return,
        };
        if objects.len() >= OBJECTS_MAX {
            let message = format!("a test may have at most {OBJECTS_MAX} objects in one place");
            return self.problem(number, message);
        }
        objects.push((number, object));
    }

    /// Checks that the fields of an object can exist.
    fn check(&self, object: &Map<String, Json>) -> Result<(), String> {
        let Some(step) = self.tests.last().and_then(|test| test.steps.last()) else { return Ok(()) };
        match &step.action {
            StepAction::Expect(ExpectedResult::Events(stream, ..)) => {
                let schema = &self.program.streams()[*stream];
                let known = |name: &str| schema.field_index(name).is_some() || name.starts_with('_');
                object
                    .keys()
                    .filter(|k| !known(k))
                    .try_for_each(|k| schema.require_field(k).map(drop).map_err(|e| e.message().to_owned()))
            }
            StepAction::Documents(entity, _) => {
                let entity = &self.program.entities()[*entity];
                match object.get(&entity.key) {
                    None | Some(Json::Null | Json::Array(_)) => {
                        Err(format!("a {} needs its key `{}`", entity.name, entity.key))
                    }
                    Some(_) => Ok(()),
                }
            }
            StepAction::Rows(stored, _) | StepAction::Expect(ExpectedResult::Rows(stored, ..)) => {
                let columns = || stored.attributes.iter().map(|(name, _)| name.as_str());
                match object.keys().find(|key| !columns().any(|name| name == *key)) {
                    Some(key) => {
                        Err(format!("`{}` has no `{key}`{}", stored.name, did_you_mean(key, columns())))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn stream(&self, name: &str) -> Result<usize, String> {
        let catalog = self.program.catalog();
        catalog.stream(name).ok_or_else(|| {
            format!("there is no event `{name}`{}", did_you_mean(name, catalog.stream_names()))
        })
    }

    fn entity(&self, name: &str) -> Result<usize, String> {
        let catalog = self.program.catalog();
        catalog.entity(name).ok_or_else(|| {
            format!("there is no entity `{name}`{}", did_you_mean(name, catalog.entity_names()))
        })
    }

    /// Resolves a table or named window, written `NAME`, or `FILE:NAME` if several files have one of that
    /// name.
    fn stored(&self, written: &str) -> Result<Stored, String> {
        let (file, name) = match written.rsplit_once(':') {
            Some((file, name)) => (Some(file), name),
            None => (None, written),
        };
        let units = self.queries.units.iter().enumerate().filter(|(_, unit)| !unit.partitioned);
        let mut found: Vec<(&str, Stored)> = Vec::new();
        let mut known = Vec::new();
        for (number, unit) in units {
            let of = self.queries.files[unit.file].name.as_str();
            let catalog = &unit.plan.catalog;
            let tables = catalog.tables().iter().map(|t| (&t.name, &t.attributes, true));
            let streams = catalog.streams().iter().enumerate();
            let windows = streams.filter(|(i, _)| catalog.window(*i).is_some());
            let windows = windows.map(|(_, stream)| (&stream.name, &stream.attributes, false));
            for (store, attributes, table) in tables.chain(windows) {
                known.push(store.as_str());
                if store == name && file.is_none_or(|file| file == of) {
                    let (name, attributes) = (store.clone(), attributes.clone());
                    found.push((of, Stored { unit: number, name, attributes, table }));
                }
            }
        }
        match (found.len(), found.pop()) {
            (1, Some((_, one))) => Ok(one),
            (0, _) | (_, None) => {
                Err(format!("there is no table or window `{written}`{}", did_you_mean(name, known)))
            }
            (_, Some((last, _))) => {
                Err(format!("several files have a `{name}`: name one, for example `{last}:{name}`"))
            }
        }
    }

    fn rule(&self, name: &str) -> Result<String, String> {
        if self.program.plans().iter().any(|r| r.name.as_ref() == name) {
            return Ok(name.to_owned());
        }
        if self.program.aggregates().iter().any(|a| a.name == name) {
            return Err(format!("`{name}` is an aggregate: it runs over everything, not in a test"));
        }
        let known: Vec<&str> = self.program.plans().iter().map(|r| r.name.as_ref()).collect();
        Err(format!("there is no rule `{name}`{}", did_you_mean(name, known)))
    }
}

/// Parses a duration as rules write it: `1 min`, `90s`, `1 hour 30 min`.
fn parse_duration(words: &[&str]) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "expected a span of time, for example `after 1 min` or `after 1 hour 30 min`, found `{}`",
            words.join(" ")
        )
    };
    let mut text = words.join("");
    let mut total = 0_i64;
    while !text.is_empty() {
        let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let end = text[unit..].find(|c: char| c.is_ascii_digit()).map_or(text.len(), |n| unit + n);
        let part = Duration::parse(&text[..end]).map_err(|_| wrong())?;
        total = total.checked_add(part.0).ok_or_else(wrong)?;
        text.drain(..end);
    }
    if total == 0 { Err(wrong()) } else { Ok(Duration(total)) }
}
