//! Reading test files.

use serde_json::{Map, Value as Json};
use tidemill_types::did_you_mean;

use super::Problem;
use crate::program::Program;

/// Most objects of one test.
const OBJECTS_MAX: usize = 100_000;

/// A test as it was read; names are positions in the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// The file.
    pub file: String,
    /// The line on which it begins.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// What is there before and what comes, in order.
    pub given: Vec<Given>,
    /// What must be so afterwards.
    pub then: Vec<Then>,
}

/// Objects with the lines they stand on.
pub type Objects = Vec<(usize, Map<String, Json>)>;

/// What is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// Documents of an entity.
    Documents(usize, Objects),
    /// Events of a stream.
    Events(usize, Objects),
}

/// What must be so.
#[derive(Debug, Clone, PartialEq)]
pub struct Then {
    /// The line.
    pub line: usize,
    /// What.
    pub wanted: Wanted,
}

/// See [`Then`].
#[derive(Debug, Clone, PartialEq)]
pub enum Wanted {
    /// Events of the stream like these were emitted.
    Events(usize, Quantity, Objects),
    /// Documents of the entity like these are there.
    Documents(usize, Quantity, Objects),
    /// The rule fired this often.
    Fired(String, u64),
}

/// How many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// These, and perhaps others.
    These,
    /// These and no others.
    Only,
    /// None like these; none at all when no objects are given.
    No,
}

/// Reads the tests of a file.
///
/// Errors: everything that is wrong with it, by line.
pub fn parse(program: &Program, file: &str, text: &str) -> Result<Vec<Test>, Vec<Problem>> {
    let mut reader =
        Reader { program, file, tests: Vec::new(), problems: Vec::new(), skip: true, open: false };
    for (number, line) in text.lines().enumerate() {
        reader.line(number + 1, line.trim());
    }
    if reader.problems.is_empty() { Ok(reader.tests) } else { Err(reader.problems) }
}

struct Reader<'p> {
    program: &'p Program,
    file: &'p str,
    tests: Vec<Test>,
    problems: Vec<Problem>,
    /// Objects that follow belong to a line that was wrong: not to be reported as well.
    skip: bool,
    /// Whether objects may follow.
    open: bool,
}

impl Reader<'_> {
    fn problem(&mut self, line: usize, message: impl Into<String>) {
        self.problems.push(Problem { file: self.file.to_owned(), line, message: message.into() });
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
            ["given", "documents", name] => {
                self.entity(name).and_then(|e| self.given(Given::Documents(e, vec![])))
            }
            ["given", "events", name] => self.stream(name).and_then(|s| self.given(Given::Events(s, vec![]))),
            ["then", rest @ ..] => self.then(number, rest),
            _ => Err(format!("expected `test`, `given`, `then` or a JSON object, found `{line}`")),
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
        self.tests.push(Test {
            file: self.file.to_owned(),
            line,
            name: name.to_owned(),
            given: Vec::new(),
            then: Vec::new(),
        });
        Ok(())
    }

    fn given(&mut self, given: Given) -> Result<(), String> {
        let Some(test) = self.tests.last_mut() else { return Ok(()) };
        if !test.then.is_empty() {
            return Err("everything given comes before the first `then`; begin another `test`".to_owned());
        }
        test.given.push(given);
        self.open = true;
        Ok(())
    }

    fn then(&mut self, line: usize, words: &[&str]) -> Result<(), String> {
        let wanted = match words {
            ["fired", rule, times] => {
                let times = times
                    .parse()
                    .map_err(|_| format!("expected how often `{rule}` fires, found `{times}`"))?;
                Wanted::Fired(self.rule(rule)?, times)
            }
            ["not", "fired", rule] => Wanted::Fired(self.rule(rule)?, 0),
            [quantity @ ("only" | "no"), what @ ("events" | "documents"), name] => {
                let quantity = if *quantity == "only" { Quantity::Only } else { Quantity::No };
                self.expected(what, name, quantity)?
            }
            [what @ ("events" | "documents"), name] => self.expected(what, name, Quantity::These)?,
            _ => {
                return Err(format!(
                    "expected `then events STREAM`, `then documents ENTITY` (each perhaps with `no` or `only`), \
                     or `then fired RULE 1`, found `then {}`",
                    words.join(" ")
                ));
            }
        };
        self.open = !matches!(wanted, Wanted::Fired(..));
        if let Some(test) = self.tests.last_mut() {
            test.then.push(Then { line, wanted });
        }
        Ok(())
    }

    fn expected(&self, what: &str, name: &str, quantity: Quantity) -> Result<Wanted, String> {
        Ok(if what == "events" {
            Wanted::Events(self.stream(name)?, quantity, vec![])
        } else {
            Wanted::Documents(self.entity(name)?, quantity, vec![])
        })
    }

    fn object(&mut self, number: usize, line: &str) {
        if self.skip {
            return;
        }
        if !self.open {
            return self
                .problem(number, "an object must follow `given …` or `then …` with events or documents");
        }
        let object = match serde_json::from_str::<Json>(line) {
            Ok(Json::Object(object)) => object,
            Ok(_) => return self.problem(number, "expected one JSON object on this line"),
            Err(error) => {
                return self.problem(number, format!("expected one JSON object on this line: {error}"));
            }
        };
        let checked = self.check(&object);
        if let Err(message) = checked {
            return self.problem(number, message);
        }
        let Some(test) = self.tests.last_mut() else { return };
        let objects = match (test.then.last_mut(), test.given.last_mut()) {
            (Some(Then { wanted: Wanted::Events(_, _, o) | Wanted::Documents(_, _, o), .. }), _) => o,
            (None, Some(Given::Documents(_, o) | Given::Events(_, o))) => o,
            _ => return,
        };
        if objects.len() >= OBJECTS_MAX {
            return self
                .problem(number, format!("a test may have at most {OBJECTS_MAX} objects in one place"));
        }
        objects.push((number, object));
    }

    /// Whether the fields of an object can be there at all.
    fn check(&self, object: &Map<String, Json>) -> Result<(), String> {
        let Some(test) = self.tests.last() else { return Ok(()) };
        match (test.then.last(), test.given.last()) {
            (Some(Then { wanted: Wanted::Events(stream, ..), .. }), _) => {
                let schema = &self.program.streams()[*stream];
                let known = |name: &str| schema.field_index(name).is_some() || name.starts_with('_');
                object
                    .keys()
                    .filter(|k| !known(k))
                    .try_for_each(|k| schema.require_field(k).map(drop).map_err(|e| e.message().to_owned()))
            }
            (None, Some(Given::Documents(entity, _))) => {
                let entity = &self.program.entities()[*entity];
                match object.get(&entity.key) {
                    None | Some(Json::Null | Json::Array(_)) => {
                        Err(format!("a {} needs its key `{}`", entity.name, entity.key))
                    }
                    Some(_) => Ok(()),
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
