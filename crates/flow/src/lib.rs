//! Continuous queries: SiddhiQL apps compiled to operators over batches of events.
//!
//! Everything here is a function of state, events and clock values, without disk, threads or system clock.
//! The design is described in RFC 2.

// diagnostics are created once per mistake, outside of hot paths
#![allow(clippy::result_large_err)]
// keys are ordered by their content at insertion; functions that change an object do not change keys
#![allow(clippy::mutable_key_type)]

mod aggregation;
mod aggregators;
pub mod app_stores;
pub mod arrow;
mod builtins;
pub mod catalog;
mod columns;
mod compile;
mod eval_error;
pub mod explain;
pub mod expr;
pub mod functions;
pub mod io;
mod join;
pub mod late;
pub mod limits;
pub mod models;
mod named_window;
mod on_demand;
mod output_rate;
mod partition;
pub mod pattern;
pub mod plan;
mod pmml;
mod processor;
pub mod query;
mod query_input;
pub mod registry;
pub mod replay;
pub mod runtime;
mod select;
pub mod snapshot;
mod statement_calls;
pub mod store;
mod stream_functions;
pub mod table;
pub mod window;
mod window_operator;
mod windows;

pub use columns::batch;
pub use columns::batch::{Batch, EventKind};
pub use columns::column;
pub use columns::column::Column;
pub use columns::row::Row;
pub use columns::value;
pub use columns::value::{OpaqueValue, Value};
pub use columns::value_ref::ValueRef;
pub use compile::compiler;
pub use eval_error::{EvalError, LimitReached};
pub use registry::{Connectors, Registry};
pub use stream_functions::model_paths;
pub use tidemill_types::FieldType;
