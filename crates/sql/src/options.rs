//! The limits of a SQL session.

use std::path::PathBuf;
use std::time::Duration;

/// Limits of a SQL session. All queries of the session share memory, spill space and threads.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Memory for sorts, joins and aggregations of all running queries together, in bytes. What does not fit is
    /// spilled to disk; what cannot spill fails with `LimitReached`.
    pub memory_bytes: usize,
    /// The most bytes that one call of a function may make for a batch of rows: of `repeat`, `lpad`, `replace` and all
    /// others whose result can be larger than their arguments. What a query holds of them while it runs is a small
    /// multiple.
    pub function_bytes: usize,
    /// Directory for spilled data. Without one nothing is spilled.
    pub spill_dir: Option<PathBuf>,
    /// Spilled data of all running queries together, in bytes.
    pub spill_bytes: u64,
    /// Threads that run queries, and partitions a plan is cut into.
    pub target_partitions: usize,
    /// The longest a query may take from its arrival to its last row, slow readers included.
    pub query_timeout: Duration,
    /// The most rows a query may return, or no limit.
    pub rows_max: Option<usize>,
    /// The most bytes [`crate::QueryResult::collect`] may gather in memory.
    pub collect_bytes_max: usize,
    /// Queries running at the same time; more wait for their turn, within their timeout.
    pub queries_max: usize,
    /// The longest text of a query, in bytes.
    pub text_bytes_max: usize,
}

impl Default for SqlOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 512 << 20,
            function_bytes: 64 << 20,
            spill_dir: None,
            spill_bytes: 10 << 30,
            target_partitions: std::thread::available_parallelism().map_or(4, |n| n.get()),
            query_timeout: Duration::from_secs(60),
            rows_max: None,
            collect_bytes_max: 256 << 20,
            queries_max: 16,
            text_bytes_max: 1 << 20,
        }
    }
}

/// What a query finds where it names a field that no document of a collection has, or a collection that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingFields {
    /// An error: for people, who mistype.
    #[default]
    Refused,
    /// Nulls, and no rows: for programs whose queries are older than the first such document.
    Null,
}
