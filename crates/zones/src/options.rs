//! What can be set, with its unit and its bound.

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

/// How the pages of a tablet are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Zstandard, level 1: a tenth to a fifth fewer bytes than Snappy on event data, as quick to write.
    Zstd,
    /// Snappy: the cheapest to write, the widest support among readers.
    Snappy,
}

/// Settings of the event store. They hold for each table unless they say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZonesOptions {
    /// Rows of one tablet at most; a flush of more rows writes several tablets of equal size.
    pub tablet_rows_max: usize,
    /// Bytes that the tail of one table may hold in memory. A push beyond it is refused with `LimitReached`;
    /// one batch may exceed it, so that a batch larger than the limit still gets through an empty tail.
    ///
    /// Not read from files: whoever pushes has a limit of its own and sets this one above it.
    #[serde(skip)]
    pub tail_bytes_max: u64,
    /// Rows of one Parquet row group at most: the unit that statistics and Bloom filters let a reader skip.
    pub row_group_rows: usize,
    /// Rows of one Parquet page at most: the unit that the page index lets a reader skip.
    pub page_rows: usize,
    /// Compression of tablets.
    pub compression: Compression,
    /// Commits between two Delta checkpoints.
    pub delta_checkpoint_commits: u64,
    /// How long the Delta log keeps entries that a Delta checkpoint has made superfluous, in seconds.
    pub delta_log_retention_s: u64,
    /// Age in seconds at which a Parquet file that no Delta commit names is taken for the remains of a crash
    /// and removed at open. Must exceed the longest time between the upload of a tablet and its commit.
    pub orphan_age_s: u64,
    /// Attempts per operation on a store that does not answer, before the operation fails with `Unavailable`.
    pub retry_attempts: u32,
    /// Pause after the first failed attempt in milliseconds; it doubles each time, up to 2,000.
    pub retry_backoff_ms: u64,
    /// Open a table even when files that its Delta log names are missing or cut short. Their rows are left
    /// out of every query; `Table::missing` lists them.
    pub open_degraded: bool,
}

impl Default for ZonesOptions {
    fn default() -> Self {
        Self {
            tablet_rows_max: 1_000_000,
            tail_bytes_max: 256 * 1024 * 1024,
            row_group_rows: 65_536,
            page_rows: 8_192,
            compression: Compression::Zstd,
            delta_checkpoint_commits: 100,
            delta_log_retention_s: 24 * 3600,
            orphan_age_s: 24 * 3600,
            retry_attempts: 5,
            retry_backoff_ms: 50,
            open_degraded: false,
        }
    }
}

impl ZonesOptions {
    /// Refuses settings that cannot work.
    ///
    /// Errors: `Invalid` with the setting, its value and what was expected.
    pub fn validate(&self) -> Result<()> {
        let at_least_one: [(&str, u64); 7] = [
            ("tablet_rows_max", self.tablet_rows_max as u64),
            ("tail_bytes_max", self.tail_bytes_max),
            ("row_group_rows", self.row_group_rows as u64),
            ("page_rows", self.page_rows as u64),
            ("delta_checkpoint_commits", self.delta_checkpoint_commits),
            ("orphan_age_s", self.orphan_age_s),
            ("retry_attempts", self.retry_attempts.into()),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(Error::invalid(format!("zones.{name} is 0: expected at least 1")));
            }
        }
        if self.tablet_rows_max > u32::MAX as usize {
            return Err(Error::invalid(format!(
                "zones.tablet_rows_max is {}: expected at most {}",
                self.tablet_rows_max,
                u32::MAX
            )));
        }
        Ok(())
    }
}
