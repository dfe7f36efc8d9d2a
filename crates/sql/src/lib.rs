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
//!      tail('X')  rows as they are applied, without a plan of DataFusion
//!      in a cluster, other nodes execute parts of plans that read many bytes
//! ```

mod asof;
mod catalog;
mod change;
mod describe;
mod dialect;
mod distributed;
mod docs;
mod error;
mod events;
mod execution;
mod functions;
mod gap_fill;
mod held_moment;
mod hot;
mod insert;
mod interrupt;
mod live;
mod names;
mod optimizer;
mod options;
pub mod output;
mod parse;
mod pg_catalog;
mod plans;
mod query;
mod schema_name;
mod session;
mod session_state;
mod session_tables;
mod subqueries;
mod tables;
mod tail;
mod time_cast;
mod times;
mod tree;
mod visible_tables;
mod writing;

pub use arrow::datatypes::SchemaRef;
pub use execution::limits::StatementLimits;
pub use live::{LiveBatches, LiveRows};
pub use options::SqlOptions;
pub use plans::prepared::Prepared;
pub use query::{EncodedQuery, PagedQuery, QueryResult, QueryRows};
pub use session::Sql;
pub use tables::{Moment, Nodes, SystemTable, Tables};
pub use tidemill_database::{MissingFields, StatementInfo, StatementPhase};
