//! How much an app may hold.

/// The most that an app may hold. What would be more fails, with a message that names the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one table; at most 2^30.
    pub table_rows: usize,
    /// Rows that one window keeps, of a query, of a join's side or a named one.
    pub window_rows: usize,
    /// Rows of one aggregation, in buckets of all lengths. What is worked in together may go beyond it.
    pub aggregation_rows: usize,
    /// Rows that one output rate keeps until a beat, or shows at each. One of so many events keeps at most those.
    pub rate_rows: usize,
    /// Events and rows put out that late events may still change, of one app; what one call puts out may go beyond it.
    pub corrected_rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            table_rows: 50_000_000,
            window_rows: 50_000_000,
            aggregation_rows: 50_000_000,
            rate_rows: 50_000_000,
            corrected_rows: 10_000_000,
        }
    }
}
