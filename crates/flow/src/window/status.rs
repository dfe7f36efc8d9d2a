//! What a window holds and what it waits for, for whoever asks.

use serde::{Deserialize, Serialize};

use crate::explain::format_time;
use crate::store::{RowId, RowStore};

/// What a window holds and what it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowStatus {
    /// Rows that it holds; of a window that puts out batches, those of the batch that is being filled.
    pub held: u64,
    /// How many make it full, or fill the batch; `None` where their number does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// The timestamps of the oldest and of the newest of them, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between: Option<(i64, i64)>,
    /// The instant of the clock at which something leaves or goes out if nothing else happens, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// What has to happen, in words.
    pub waits_for: String,
}

/// `1 more event`, `3 more events`.
pub(super) fn more(n: u64, things: &str) -> String {
    match n {
        1 => format!("1 more {}", things.trim_end_matches('s')),
        n => format!("{n} more {things}"),
    }
}

/// What a window may look at to tell.
pub struct StatusContext<'a> {
    /// Its rows.
    pub rows: &'a RowStore,
    /// The names of their columns; empty where they are not known.
    pub names: &'a [String],
}

impl StatusContext<'_> {
    /// The name of a column.
    pub(super) fn name(&self, column: usize) -> String {
        self.names.get(column).map_or_else(|| format!("attribute {}", column + 1), |name| format!("`{name}`"))
    }

    /// The oldest and the newest timestamp of these rows.
    pub(super) fn time_range(&self, rows: impl Iterator<Item = RowId>) -> Option<(i64, i64)> {
        let times = rows.map(|seq| self.rows.time(seq));
        times.fold(None, |found, time| match found {
            None => Some((time, time)),
            Some((oldest, newest)) => Some((time.min(oldest), time.max(newest))),
        })
    }

    /// The same of rows in order of arrival, of which the first and the last tell enough.
    pub(super) fn time_range_of_ends(&self, first: Option<RowId>, last: Option<RowId>) -> Option<(i64, i64)> {
        Some((self.rows.time(first?), self.rows.time(last?)))
    }
}

impl WindowStatus {
    /// So many rows, and what they wait for.
    pub(super) fn new(held: u64, between: Option<(i64, i64)>, waits_for: impl Into<String>) -> Self {
        Self { held, of: None, between, due: None, waits_for: waits_for.into() }
    }

    /// So many make it full.
    pub(super) fn of(self, of: u64) -> Self {
        Self { of: Some(of), ..self }
    }

    /// Something happens at that instant.
    pub(super) fn due(self, due: Option<i64>) -> Self {
        Self { due, ..self }
    }

    /// A batch that is to be filled with so many `things`.
    pub(super) fn filling(held: u64, of: u64, things: &str, between: Option<(i64, i64)>) -> Self {
        let more = more(of.saturating_sub(held), things);
        Self::new(held, between, format!("{more} before the batch goes out")).of(of)
    }

    /// A window of so many `things`, of which the oldest makes room for a new one.
    pub(super) fn sliding(held: u64, of: u64, things: &str, between: Option<(i64, i64)>) -> Self {
        let waits_for = match of.saturating_sub(held) {
            0 => format!("more {things}: it is full, and with the next the oldest leaves"),
            n => format!("{} until it is full; nothing leaves before", more(n, things)),
        };
        Self::new(held, between, waits_for).of(of)
    }

    /// Rows that leave at an age; `due` is when the oldest does.
    pub(super) fn time_eviction(
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

    /// A batch that goes out when the clock reaches `end`; without one the next event begins it.
    pub(super) fn spanning(held: u64, between: Option<(i64, i64)>, end: Option<i64>) -> Self {
        let waits_for = match end {
            Some(end) => format!("the clock: the batch ends at {}", format_time(end)),
            None => "an event, with which the first batch begins".into(),
        };
        Self::new(held, between, waits_for).due(end)
    }
}
