//! Reads of older versions of a table.

use std::sync::Arc;

use tidemill_types::{Error, Result};

use crate::delta::history::{VersionAt, VersionInfo, replay_at, versions};
use crate::open::{find_missing, list_tablets, tablets};
use crate::stores::retry::Retry;
use crate::table::{Table, TableSnapshot};

impl Table {
    /// Returns what the table's files had at `at`, with today's columns and without a tail: rows that were acknowledged by
    /// then and flushed later are in later versions.
    ///
    /// Errors: `NotFound` for a version that does not exist yet, or whose log entries or files are gone: files that were
    /// replaced stay for `zones.removed_retention_s`; `Corrupt` naming a damaged log entry; `Unavailable`.
    pub async fn snapshot_at(&self, at: VersionAt) -> Result<TableSnapshot> {
        let (place, retry) = (&self.location, Retry::new(&self.options));
        let state = replay_at(place, self.name(), retry, at).await?;
        let live = tablets(&state, place, &self.stored_schema, self.name())?;
        let stored = list_tablets(place, self.name(), retry).await?;
        let missing = find_missing(place, self.name(), &state, &live, &stored, retry).await?;
        if let Some(first) = missing.first() {
            return Err(Error::not_found(format!(
                "version {} of table `{}` cannot be read any more: {} of its {} files are gone, such as {}; files stay for \
                 {} seconds after they were replaced (zones.removed_retention_s)",
                state.version,
                self.name(),
                missing.len(),
                live.len(),
                first.name,
                self.options.removed_retention_s
            )));
        }
        let tablets: Arc<[_]> = live.into_values().collect();
        // Delta versions count commits: they stay far below 2^63.
        Ok(TableSnapshot { version: state.version as i64, tablets, tail: vec![], ..self.snapshot() })
    }

    /// Returns the versions of the table whose log can still be read, the oldest first.
    ///
    /// Errors: `Corrupt` naming a damaged log entry; `Unavailable`.
    pub async fn versions(&self) -> Result<Vec<VersionInfo>> {
        versions(&self.location, self.name(), Retry::new(&self.options)).await
    }
}
