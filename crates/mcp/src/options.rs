//! Limits of the tools.

use std::time::Duration;

/// Limits of the tools.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// Maximum bytes of a message.
    pub message_bytes_max: usize,
    /// Time that a tool may take.
    pub tool_timeout: Duration,
    /// Rows of a statement if the caller does not say how many.
    pub rows: usize,
    /// Maximum rows that a caller may ask for.
    pub rows_max: usize,
    /// Bytes of an answer, from which on it is cut.
    pub answer_bytes: usize,
    /// Maximum events of a backtest, and of its output on each side.
    pub events_max: usize,
    /// Maximum bytes of the events of a backtest, as JSON.
    pub events_bytes_max: usize,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            message_bytes_max: 4 << 20,
            tool_timeout: Duration::from_secs(30),
            rows: 100,
            rows_max: 10_000,
            answer_bytes: 256 << 10,
            events_max: 200_000,
            events_bytes_max: 64 << 20,
        }
    }
}
