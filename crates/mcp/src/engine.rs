//! The engine behind the tools, as they ask it. The crate knows no other part of it, so it builds without it.

use serde_json::{Map, Value as Json};
use tidemill_types::Result;

/// Engine behind the tools. Its calls wait: they are made on blocking threads, and end with the budget of the thread. They check no
/// rights; the tools do.
pub trait McpEngine: Send + Sync + 'static {
    /// Returns the streams, with their fields, keys and counts.
    fn streams(&self) -> Result<Vec<NamedObject>>;

    /// Returns the rules, with what they look at and how often they fired.
    fn rules(&self) -> Result<Vec<NamedObject>>;

    /// Returns the queries of `*.siddhi` files, with where they run and what they emitted.
    fn queries(&self) -> Result<Vec<NamedObject>>;

    /// Explains what a rule, or all rules, did with an event: an event id, or values of its fields.
    ///
    /// Errors: `Invalid` for a text that names neither an event nor fields; `NotFound` for an unknown rule or event.
    fn why_rule(&self, rule: Option<&str>, event: &str) -> Result<String>;

    /// Explains why a query emits nothing.
    ///
    /// Errors: `NotFound` for an unknown query, file or key; `Invalid` when several files have such a query.
    fn why_query(&self, file: Option<&str>, query: &str, key: Option<&str>) -> Result<String>;

    /// Explains where the queries of the deployed app run, or of one with changed files.
    ///
    /// Errors: those of the files.
    fn explain(&self, files: Vec<ChangedFile>) -> Result<String>;

    /// Prepares the comparison of the deployed queries with those of an app with changed files, over events that were received from
    /// `from` on and before `to`: RFC 3339, or how long ago (`-1h`).
    ///
    /// Errors: those of the files and times; `Invalid` when rules have changed.
    fn backtest(
        &self,
        files: Vec<ChangedFile>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Box<dyn PreparedBacktest>>;
}

/// A stream, rule or query.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedObject {
    /// Name, by which rights are checked.
    pub name: String,
    /// Description that the caller gets, with the name in it.
    pub description: Json,
}

/// A file of an app with another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Path inside of the app.
    pub name: String,
    /// Whole text.
    pub text: String,
}

/// A backtest before it runs.
pub trait PreparedBacktest: Send {
    /// Returns the streams whose events it needs, and the query for those of each.
    fn history(&self) -> Vec<(String, String)>;

    /// Adds a row of the result of such a query.
    ///
    /// Errors: `Invalid` for a row without the times of an event.
    fn add(&mut self, stream: &str, row: Map<String, Json>) -> Result<()>;

    /// Runs the queries, and returns what differs: at most `show` events of each stream, on each side.
    ///
    /// Bounds: `output_max` events come out on each side.
    /// Errors: `LimitReached` for more.
    fn run(self: Box<Self>, show: usize, output_max: usize) -> Result<String>;
}
