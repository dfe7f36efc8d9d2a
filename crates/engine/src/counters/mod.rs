//! Counters of a running engine, for metrics and system tables.

pub mod source_rejections;

use std::sync::atomic::AtomicU64;

/// Counters. All but the pause of checkpoints only increase.
#[derive(Default)]
pub struct EngineCounters {
    /// Rows accepted from senders and sources.
    pub accepted: AtomicU64,
    /// Records applied.
    pub records: AtomicU64,
    /// Events applied, emitted ones included.
    pub applied: AtomicU64,
    /// Tablets committed.
    pub tablets: AtomicU64,
    /// Merges of tablets into one.
    pub consolidations: AtomicU64,
    /// Rows of tablets that expired as a whole.
    pub expired: AtomicU64,
    /// Checkpoints published.
    pub checkpoints: AtomicU64,
    /// Longest time that the last checkpoint kept the owner of a partition from its next record, in microseconds.
    pub checkpoint_pause_us: AtomicU64,
    /// Time spent in flushes, in microseconds.
    pub flush_us: AtomicU64,
}

/// Runs of an aggregate rule since the start.
#[derive(Debug, Clone, Default)]
pub struct AggregateCounts {
    /// Number of runs that succeeded.
    pub runs: u64,
    /// Number of runs that failed.
    pub errors: u64,
    /// Latest failure.
    pub last_error: Option<String>,
}
