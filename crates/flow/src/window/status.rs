//! Status of a window for reports: the rows that it buffers and what it waits for.

use serde::{Deserialize, Serialize};

use crate::columns::value::format_time;
use crate::store::{RowId, RowStore};

/// Access to rows and column names for building a [`WindowStatus`].
pub struct StatusContext<'a> {
    /// Row store of the window.
    pub rows: &'a RowStore,
    /// Names of the columns; empty if they are unknown.
    pub names: &'a [String],
}

impl StatusContext<'_> {
    /// Returns the name of a column for messages.
    pub(crate) fn name(&self, column: usize) -> String {
        self.names.get(column).map_or_else(|| format!("attribute {}", column + 1), |name| format!("`{name}`"))
    }

    /// Returns the oldest and the newest timestamp of these rows.
    pub(crate) fn time_range(&self, rows: impl Iterator<Item = RowId>) -> Option<(i64, i64)> {
        let times = rows.map(|seq| self.rows.time(seq));
        times.fold(None, |found, time| match found {
            None => Some((time, time)),
            Some((oldest, newest)) => Some((time.min(oldest), time.max(newest))),
        })
    }

    /// Returns the oldest and the newest timestamp of rows in order of arrival, taken from the first and the
    /// last row.
    pub(crate) fn time_range_of_ends(&self, first: Option<RowId>, last: Option<RowId>) -> Option<(i64, i64)> {
        Some((self.rows.time(first?), self.rows.time(last?)))
    }
}

/// Number of rows that a window buffers, and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Number of buffered rows; for a batch window, those of the batch being filled.
    pub held: u64,
    /// Number of rows that make the window full or complete the batch; `None` if the number does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// Timestamps of the oldest and of the newest of these rows, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<(i64, i64)>,
    /// Time at which rows expire or are emitted if no event arrives, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// Description of what has to happen.
    pub waits_for: String,
}

impl WindowStatus {
    /// Creates a status without a target count and due time.
    pub(crate) fn new(held: u64, between: Option<(i64, i64)>, waits_for: impl Into<String>) -> Self {
        Self { held, of: None, between, due: None, waits_for: waits_for.into() }
    }

    /// Sets the number of rows that make the window full.
    pub(crate) fn of(self, of: u64) -> Self {
        Self { of: Some(of), ..self }
    }

    /// Sets the time of the next change.
    pub(crate) fn due(self, due: Option<i64>) -> Self {
        Self { due, ..self }
    }

    /// Creates the status of a batch that is complete with `of` `things`.
    pub(crate) fn filling(held: u64, of: u64, things: &str, between: Option<(i64, i64)>) -> Self {
        let more = more(of.saturating_sub(held), things);
        Self::new(held, between, format!("{more} before the batch is emitted")).of(of)
    }

    /// Creates the status of a window of up to `of` `things`, whose oldest is evicted when another arrives.
    pub(crate) fn sliding(held: u64, of: u64, things: &str, between: Option<(i64, i64)>) -> Self {
        let waits_for = match of.saturating_sub(held) {
            0 => format!("more {things}: it is full, and with the next the oldest leaves"),
            n => format!("{} until it is full; nothing leaves before", more(n, things)),
        };
        Self::new(held, between, waits_for).of(of)
    }

    /// Creates the status of rows that leave at an age; `due` is the time for the oldest.
    pub(crate) fn time_eviction(
        held: u64,
        between: Option<(i64, i64)>,
        due: Option<i64>,
        does: &str,
    ) -> Self {
        let waits_for = match due {
            Some(due) => format!("the clock: the oldest event {does} at {}", format_time(due)),
            None => "an event".into(),
        };
        Self::new(held, between, waits_for).due(due)
    }

    /// Creates the status of a batch that is emitted when the clock reaches `end`; `None` if the next event
    /// begins it.
    pub(crate) fn spanning(held: u64, between: Option<(i64, i64)>, end: Option<i64>) -> Self {
        let waits_for = match end {
            Some(end) => format!("the clock: the batch ends at {}", format_time(end)),
            None => "an event, with which the first batch begins".into(),
        };
        Self::new(held, between, waits_for).due(end)
    }
}

/// Formats a count as `1 more event` or `3 more events`.
pub(crate) fn more(n: u64, things: &str) -> String {
    match n {
        1 => format!("1 more {}", things.trim_end_matches('s')),
        n => format!("{n} more {things}"),
    }
}
