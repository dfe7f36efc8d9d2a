//! Arguments of the tools.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

/// No arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct NoArguments {}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct SqlArguments {
    /// One statement that reads: SELECT, WITH, VALUES, SHOW, DESCRIBE or EXPLAIN.
    pub query: String,
    /// Maximum rows of the answer, 100 if it is missing.
    #[serde(default)]
    pub max_rows: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanArguments {
    /// A SELECT, which is planned and not run.
    pub query: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct WhyArguments {
    /// Name of a rule. Without it and `query`, all rules are explained.
    #[serde(default)]
    pub rule: Option<String>,
    /// For rules: an event, by its id (`0-1042-7`) or values of its fields (`flight_id=F1,origin=EWR`).
    #[serde(default)]
    pub event: Option<String>,
    /// Name of a query of a *.siddhi file, in place of `rule` and `event`.
    #[serde(default)]
    pub query: Option<String>,
    /// For a query: its file, if several have one of that name.
    #[serde(default)]
    pub file: Option<String>,
    /// For a query inside of `partition with`: the key.
    #[serde(default)]
    pub key: Option<String>,
}

/// A file of an app.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct FileArgument {
    /// Path inside of the app, `*.siddhi` or `*.rules`. A file of that name takes the place of the deployed one.
    pub name: String,
    /// Whole text of the file.
    pub text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainArguments {
    /// Changed files. Without them the deployed app is explained.
    #[serde(default)]
    pub files: Vec<FileArgument>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
#[serde(deny_unknown_fields)]
pub(crate) struct BacktestArguments {
    /// Changed files of the app.
    pub files: Vec<FileArgument>,
    /// Events received from then on: RFC 3339, or how long ago (`-1h`).
    #[serde(default)]
    pub from: Option<String>,
    /// Events received before then; now if it is missing.
    #[serde(default)]
    pub to: Option<String>,
    /// Number of events that differ to show of each stream, on each side; 10 if it is missing.
    #[serde(default)]
    pub show: Option<usize>,
}
