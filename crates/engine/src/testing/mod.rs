//! Tests of an app: input, advancing time, and expected output.
//!
//! A `*.test` file has tests, each a list of steps. A test runs on its own in-memory engine. Partitions,
//! rules, queries and tables are those of production; the clock advances with events and with lines of the
//! test. Aggregate rules do not run, because they need SQL over stored data.

mod compare;
mod literal;
mod parse;
mod run;
pub(crate) mod test_engine;

use std::fmt;

use crate::app::{App, AppFile};
use crate::queries::compile::CompiledApp;

pub use parse::{
    ExpectationMode, ExpectedResult, NumberedObjects, StepAction, Stored, TestCase, TestStep, parse,
};
pub use run::run;

/// Problem of a test file, or a failure of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProblem {
    /// Name of the file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Expected and actual values; further lines are indented.
    pub message: String,
}

impl fmt::Display for TestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// Name of the file.
    pub file: String,
    /// Line on which the test begins, from 1.
    pub line: usize,
    /// Name of the test.
    pub name: String,
    /// Failures; empty if the test passed.
    pub failures: Vec<TestProblem>,
}

impl TestResult {
    /// Returns whether the test passed.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Selection of tests, and their limits.
#[derive(Debug, Clone, Copy)]
pub struct TestOptions<'o> {
    /// Runs only tests whose name contains this.
    pub filter: Option<&'o str>,
    /// Maximum stops of the clock at due timers within one advance.
    pub stops_max: usize,
    /// Maximum rounds of records that may follow from one event, document or advance of the clock.
    pub rounds_max: usize,
}

impl Default for TestOptions<'_> {
    fn default() -> Self {
        Self { filter: None, stops_max: 100_000, rounds_max: 10_000 }
    }
}

/// Runs the tests of one file. `compiled` is the app's rules and queries, compiled for the partitions in its
/// settings.
///
/// Errors: the problems of the file, by line; in this case no test has run.
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
