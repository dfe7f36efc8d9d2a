//! Limits of a SQL session.

use std::path::PathBuf;
use std::time::Duration;

/// Limits of a SQL session. All queries of the session share memory, spill space and threads.
#[derive(Debug, Clone)]
pub struct SqlOptions {
    /// Memory for sorts, joins and aggregations of all running queries, in bytes. Operators spill to disk
    /// beyond it; those that cannot spill fail with `LimitReached`.
    pub memory_bytes: usize,
    /// Maximum bytes that one function call may produce for a batch of rows: `repeat`, `lpad`, `replace` and
    /// all others whose result can be larger than their arguments. The memory that a running query uses for
    /// such results is a small multiple of this.
    pub function_bytes: usize,
    /// Directory for spilled data. Without one, spilling is disabled.
    pub spill_dir: Option<PathBuf>,
    /// Maximum spilled data of all running queries, in bytes.
    pub spill_bytes: u64,
    /// Partitions of the plan of a long query, each with a task.
    pub target_partitions: usize,
    /// Maximum time from the arrival of a query to its last row, including slow readers.
    pub query_timeout: Duration,
    /// Maximum rows of a result; `None` is unlimited.
    pub rows_max: Option<usize>,
    /// Maximum rows that filling the gaps of one aggregate may add.
    pub gap_rows_max: usize,
    /// Maximum bytes that [`crate::QueryResult::collect`] may buffer.
    pub collect_bytes_max: usize,
    /// Maximum statements that run for long at the same time: that have taken 50 ms of a processor, or that start tasks. More wait
    /// for a place, within their timeout.
    pub queries_max: usize,
    /// Maximum length of a query, in bytes.
    pub text_bytes_max: usize,
    /// Memory for decoded columns, synopses and latest rows of event tables, in bytes. 0 reads every query's rows
    /// from tablets and tails.
    pub hot_bytes: usize,
    /// Length of the files of a scan, in bytes, from which on other nodes of a cluster execute a part of its statement. 0 executes every
    /// statement at the node that got it.
    pub distributed_bytes: u64,
    /// Maximum number of physical plans that are kept for repeated queries. 0 plans every query anew.
    pub cached_plans: usize,
    /// Maximum number of moments that transactions hold.
    pub moments_max: usize,
    /// Maximum bytes of rows in memory and of handles of documents in all of these moments.
    pub moment_bytes_max: usize,
    /// Maximum time for which a transaction may read its moment.
    pub moment_timeout: Duration,
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
            gap_rows_max: 10_000_000,
            collect_bytes_max: 256 << 20,
            queries_max: 16,
            text_bytes_max: 1 << 20,
            hot_bytes: 1 << 30,
            distributed_bytes: 64 << 20,
            cached_plans: 256,
            moments_max: 64,
            moment_bytes_max: 512 << 20,
            moment_timeout: Duration::from_secs(600),
        }
    }
}
