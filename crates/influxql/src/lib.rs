//! InfluxQL over the tables of streams: the language of InfluxDB 1, as Grafana and its clients send it.
//!
//! ```text
//! SELECT mean(usage) FROM cpu WHERE time >= now() - 1h GROUP BY time(1m), host fill(previous)
//!
//! text ── parse ── Statement ── Frame, Columns (plan.rs, execute/) ── SQL (sql.rs) ── Database
//!                                     │ rows or aggregates by group
//!                                     └─ functions, transform ── Series ── reply: JSON, CSV
//! ```
//!
//! A stream is a measurement: texts of its key and its id are tags, the others fields ([`Measurement`]). The parser is our own,
//! bounded in size and depth. What SQL says the same way runs there: filters, groups, order, the usual aggregates. The rest is
//! calculated from the rows, within a [`MemoryPool`]. What is not supported is refused by its name.

mod catalog;
mod error;
mod execute;
mod functions;
mod keywords;
mod lexer;
mod parse;
mod pattern;
mod plan;
mod print;
mod reply;
mod rows;
mod run;
mod series;
mod show;
mod source;
mod sql;
mod syntax;
#[cfg(test)]
mod tests;
mod time;
mod transform;
mod value;

pub use catalog::{Column, Measurement};
pub use error::{ParseError, StatementError};
pub use parse::{BoundValue, BoundValues, parameters, parse};
pub use reply::{Epoch, ReplyFormat, ReplyWriter};
pub use rows::MemoryPool;
pub use run::Session;
pub use series::{ResultSeries, SeriesRow, StatementResult};
pub use show::DATABASE;
pub use syntax::{Expr, Fill, InfluxStatement, Select, SelectSource, Show};
pub use value::{InfluxValue, Kind};
