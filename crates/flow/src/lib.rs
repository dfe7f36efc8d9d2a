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
mod annotations;
pub mod app_stores;
pub mod arrow;
pub mod batch;
mod builtins;
pub mod catalog;
pub mod column;
pub mod compiler;
mod equality;
mod eval_error;
pub mod explain;
pub mod expr;
mod extensions_elsewhere;
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
mod row;
pub mod runtime;
mod scope;
mod select;
mod shareable;
pub mod snapshot;
mod statement_calls;
pub mod store;
mod stream_functions;
mod string_column;
pub mod table;
mod u64_map;
pub mod value;
mod value_ref;
pub mod window;
mod window_operator;
mod windows;

pub use batch::{Batch, EventKind};
pub use column::Column;
pub use eval_error::{EvalError, LimitReached};
pub use registry::{Connectors, Registry};
pub use row::Row;
pub use stream_functions::model_paths;
pub use tidemill_types::FieldType;
pub use value::{Object, Value};
pub use value_ref::ValueRef;
