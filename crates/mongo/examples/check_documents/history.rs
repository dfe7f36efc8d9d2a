//! What clients did, and how it ended.

use std::time::Instant;

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server said that it is committed.
    Committed,
    /// It was never asked to commit, or the server said that the transaction is taken back.
    Aborted,
    /// The connection broke, and nobody said.
    Unknown,
}

/// When a transaction began, and when its end was known.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub begun: Instant,
    pub ended: Instant,
}
