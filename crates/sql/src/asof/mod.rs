//! `ASOF JOIN`: each row of the left table with the nearest row of the right table in time.
//!
//! ```text
//! text ─▶ syntax   both spellings become LEFT/INNER JOIN ON asof_match(a.t >= b.t) AND a.k = b.k
//!      ─▶ rule     the join becomes a node of its own, after types are coerced
//!      ─▶ exec     both sides sorted by key and time (sorts spill), then merged
//! ```
//!
//! Nulls are equal to nothing: a left row without key or time has no match, a right row without one is never a
//! match.
//!
//! Source: Snowflake's `MATCH_CONDITION`, which keeps all left rows, and DuckDB's comparison in `ON`, which keeps
//! those that have a match unless it says `ASOF LEFT JOIN`.

mod exec;
mod merge;
mod node;
mod rule;
mod syntax;

use datafusion::common::DataFusionError;
use tidemill_types::Error;

use crate::error::to_datafusion;

pub(crate) use node::AsofPlanner;
pub(crate) use rule::{PlanAsofJoins, marker_function};
pub(crate) use syntax::{rewrite, tokens};

/// Syntax of the join, for error messages.
const USAGE: &str = "write a ASOF JOIN b MATCH_CONDITION (a.time >= b.time) ON a.key = b.key, or a ASOF [LEFT] JOIN b ON a.key = \
                     b.key AND a.time >= b.time";

fn invalid(what: &str) -> Error {
    Error::invalid(format!("{what}: {USAGE}"))
}

fn refused(what: &str) -> DataFusionError {
    to_datafusion(invalid(what))
}
