//! Statements that run, and the last that have ended.

use tidemill_types::Timestamp;

/// State of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StatementPhase {
    /// Waits until fewer than `sql.queries_max` long statements run.
    Waiting,
    /// Is being planned.
    Planning,
    /// Makes rows, or waits for the reader to take them.
    Running,
    /// Has ended with all of its rows.
    Done,
    /// Has ended with an error, or because its reader took no more rows.
    Failed,
    /// Has been cancelled; without an end as long as one of its threads has not noticed.
    Cancelled,
}

impl StatementPhase {
    /// Phases before the end of a statement.
    pub const BEFORE_END: [Self; 3] = [Self::Waiting, Self::Planning, Self::Running];

    /// Returns the name in `system.statements`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A statement that runs or has ended.
#[derive(Debug, Clone)]
pub struct StatementInfo {
    /// Number since the start of the process, from 1 on.
    pub id: u64,
    /// Text, cut to 1,000 characters.
    pub text: String,
    /// Sender: `http`, `postgres`, `flight`, `mcp`, `program` or `rules`.
    pub origin: &'static str,
    /// Name of the caller; `USER/TOKEN` for a token with limits.
    pub caller: String,
    /// State.
    pub phase: StatementPhase,
    /// Time of arrival.
    pub started: Timestamp,
    /// Time of the end; `None` while any part of it runs.
    pub ended: Option<Timestamp>,
    /// Rows of its result so far.
    pub rows: u64,
    /// Reason of the failure, or who cancelled it.
    pub error: Option<String>,
}
