//! Rules: programs in the rule language, checked, compiled and run over batches of events.
//!
//! Everything here is a function of state, batch and time: no clock, no disk, no threads. The same code runs
//! live, in a backtest, in a test and in a simulation.
//!
//! - [`Program::compile`] compiles the `*.rules` files of an app and reports their errors.
//! - [`Executor::apply`] runs the rules of a stream over a batch, with an [`ExecutionContext`].
//! - [`why`] explains why a rule fired for an event, or why it did not.
//! - [`Aggregate`] is a rule over all partitions, as SQL.

mod aggregate;
pub mod catalog;
mod exec;
pub mod expr;
pub mod index;
pub mod plan;
mod program;
mod resolve;
mod sql;
pub mod why;

pub use aggregate::{Aggregate, AggregateInsert};
pub use exec::{
    Counters, DEPTH_MAX, EMITTED_MAX, ERRORS_MAX, Effects, EmittedBatch, ExecutionContext, Executor,
    MATCHES_MAX, Outbound, RecordPosition, Route, RuleCounters, RuleError, StreamPart, key_text,
};
pub use program::{CompileError, Program, RuleInfo};
pub use why::{Explanation, Trace, TraceImage, TraceLimits};
