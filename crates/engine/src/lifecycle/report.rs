//! What a start found and did.

/// Report of a start.
#[derive(Debug, Clone, Default)]
pub struct StartupReport {
    /// Number of records replayed over all partitions.
    pub records: u64,
    /// Wall time, in milliseconds.
    pub millis: u64,
    /// Problems that did not stop the start: a torn tail that was cut, a damaged checkpoint that was passed
    /// over, a ledger that does not balance.
    pub warnings: Vec<String>,
    /// Differences from the app that was replaced, if one was, and what became of stored data.
    pub changes: Vec<String>,
}
