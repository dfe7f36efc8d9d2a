//! Limits on the state of an app.

/// Maximum sizes of the state of an app. An operation that would exceed one fails with a message that names
/// the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one table; at most 2^30.
    pub table_rows: usize,
    /// Rows that one window buffers: a query's, a join side's or a named one.
    pub window_rows: usize,
    /// Rows of one aggregation, in buckets of all durations. Events of one batch may exceed it.
    pub aggregation_rows: usize,
    /// Closed buckets of one granularity of an aggregation that stay in memory although a store has them; at least one.
    pub aggregation_buckets: usize,
    /// Rows that one output rate limiter buffers until a tick or shows at each. One that counts `n` events
    /// buffers at most `n`.
    pub rate_rows: usize,
    /// Events and emitted rows of one app that late events may still change; the output of one call may
    /// exceed it.
    pub corrected_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            table_rows: 50_000_000,
            window_rows: 50_000_000,
            aggregation_rows: 50_000_000,
            aggregation_buckets: 128,
            rate_rows: 50_000_000,
            corrected_rows: 10_000_000,
        }
    }
}

/// Memory limits of one pattern. An event that would exceed them fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternLimits {
    /// Maximum number of partial matches.
    pub partial_matches_max: usize,
    /// Maximum number of events that a counted step of one match collects.
    pub collected_max: usize,
}

impl Default for PatternLimits {
    fn default() -> Self {
        Self { partial_matches_max: 1_000_000, collected_max: 100_000 }
    }
}
