//! SQL over all data of Tidemill: `events.<stream>`, `docs.<collection>` and `system.*`.
//!
//! [DataFusion](https://datafusion.apache.org) plans and runs the queries. This crate adds the catalog, the
//! scans, well-known functions, the limits, and errors that say what to type. It does not depend on the
//! engine: the owner of the data implements [`Tables`].
//!
//! ```text
//! text → parse (only queries pass) → names (one snapshot per table) → plan → run on own threads
//!      events.X   hot data in memory, or
//!                 Parquet scan of the snapshot's tablets ∪ in-memory scan of its tail
//!      docs.X     BSON walked once for the columns, then only the projected ones decoded
//!      system.X   a batch of rows, or a stored table
//! ```

mod asof;
mod batch_size;
mod cancel;
mod catalog;
mod change;
mod constant_last;
mod deadline;
mod describe;
mod dialect;
mod docs;
mod error;
mod events;
mod functions;
mod gap_fill;
mod global_aggregates;
mod hot;
mod insert;
mod interrupt;
mod logical_query;
mod memory;
mod names;
mod options;
pub mod output;
mod parameters;
mod parse;
mod partial_sorts;
mod pg_catalog;
mod plan_cache;
mod planning;
mod prepared;
mod query;
mod rerun;
mod reusable_plan;
mod running;
mod schema_name;
mod session;
mod session_state;
mod session_tables;
mod set_operations;
mod sort_keys;
mod stack;
mod statements;
mod subqueries;
mod tables;
mod template;
mod threads;
mod time_cast;
mod times;
mod tree;
mod unique_names;
mod visible_tables;
mod width;
mod work;
mod writing;

pub use arrow::datatypes::SchemaRef;
pub use options::SqlOptions;
pub use prepared::Prepared;
pub use query::{EncodedQuery, QueryResult, QueryRows};
pub use session::Sql;
pub use tables::{Moment, SystemTable, Tables};
pub use tidemill_database::{MissingFields, StatementInfo, StatementPhase};
