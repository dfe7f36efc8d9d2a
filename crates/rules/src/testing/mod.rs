//! Tests of an app: what is given, what rules make of it.
//!
//! A `*.test` file holds tests, each with documents and events that are given and what must be there afterwards. A
//! test runs against an empty store of one partition; aggregates, which need SQL over everything, do not run.

mod compare;
mod parse;
mod run;

use std::fmt;

pub use parse::{Given, Objects, Test, Then, Wanted, parse};
pub use run::run;

use crate::program::Program;

/// What is wrong with a test file or a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What was expected and what was found; further lines are indented.
    pub message: String,
}

impl fmt::Display for Problem {
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
    pub failures: Vec<Problem>,
}

impl TestResult {
    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Runs the tests of one file.
///
/// Errors: what is wrong with the file, by line; no test of it was run then.
pub fn run_file(program: &Program, file: &str, text: &str) -> Result<Vec<TestResult>, Vec<Problem>> {
    let tests = parse(program, file, text)?;
    Ok(tests.iter().map(|test| run(program, test)).collect())
}
