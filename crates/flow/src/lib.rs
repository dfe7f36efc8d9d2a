//! Continuous queries: SiddhiQL apps compiled to operators over batches of events.
//!
//! Everything here is a function of state, events and clock: no disk, no threads, no clock of its own. RFC 2 says how it
//! hangs together.

pub mod aggregators;
mod annotations;
pub mod app;
pub mod batch;
pub mod catalog;
pub mod column;
pub mod cron;
pub mod expr;
pub mod functions;
pub mod io;
pub mod plan;
pub mod query;
pub mod rate;
pub mod registry;
pub mod replay;
pub mod scope;
pub mod select;
pub mod state;
pub mod store;
mod stream_functions;
pub mod value;
pub mod window;

pub use batch::{Batch, Kind};
pub use column::Column;
pub use registry::Registry;
pub use value::{Object, Value};
