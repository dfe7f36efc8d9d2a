//! Tests of an app: what is given, how the clock moves, what comes of it.
//!
//! A `*.test` file holds tests, each a list of steps. A test runs against an engine of its own in memory: partitions,
//! rules, queries and tables are those that run live, and a clock that goes by the events and by the test's own lines.
//! Aggregates, which need SQL over everything, do not run.

mod compare;
mod literal;
mod parse;
mod run;
mod test_engine;

use std::fmt;

use crate::queries::compile::CompiledApp;
use crate::{App, AppFile};

pub use parse::{ExpectationMode, NumberedObjects, StepAction, Stored, TestCase, TestStep, Wanted, parse};
pub use run::run;

/// What is wrong with a test file or a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProblem {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What was expected and what was found; further lines are indented.
    pub message: String,
}

impl fmt::Display for TestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// How a test went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// The file.
    pub file: String,
    /// The line on which it begins.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// What was not as expected; empty when it passed.
    pub failures: Vec<TestProblem>,
}

impl TestResult {
    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Which tests run, and for how long at most.
#[derive(Debug, Clone, Copy)]
pub struct TestOptions<'o> {
    /// Only those whose name contains this.
    pub filter: Option<&'o str>,
    /// How often the clock may stop on one way because something is due.
    pub stops_max: usize,
    /// Rounds of records that may follow from one event, document or move of the clock.
    pub rounds_max: usize,
}

impl Default for TestOptions<'_> {
    fn default() -> Self {
        Self { filter: None, stops_max: 100_000, rounds_max: 10_000 }
    }
}

/// Runs the tests of one file. `compiled`: the app's rules and queries, placed for as many partitions as its settings say.
///
/// Errors: what is wrong with the file, by line; no test of it was run then.
pub fn run_file(
    app: &App,
    compiled: &CompiledApp,
    file: &AppFile,
    options: &TestOptions<'_>,
) -> Result<Vec<TestResult>, Vec<TestProblem>> {
    let tests = parse(compiled, &file.name, &file.text)?;
    let wanted = tests.iter().filter(|test| options.filter.is_none_or(|part| test.name.contains(part)));
    Ok(wanted.map(|test| run(app, compiled, test, options)).collect())
}
