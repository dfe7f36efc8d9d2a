//! Settings of the event store with their units and bounds.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result, Timestamp};

use crate::tablets::encryption::TabletKeys;

/// Smallest memory of a cache of tablets: several blocks.
const CACHE_MEMORY_BYTES_MIN: u64 = 8 << 20;
/// Smallest disk space of a cache of tablets: several of its files.
const CACHE_DISK_BYTES_MIN: u64 = 32 << 20;

/// Source of the time of commits, also used to compute the age of files.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Compression of the pages of a tablet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Zstandard, level 1: 10 to 20 % smaller than Snappy on event data, equally fast to write.
    Zstd,
    /// Snappy: the cheapest to write, with the widest support among readers.
    Snappy,
}

/// Settings of the event store. They apply per table unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZonesOptions {
    /// Maximum number of rows of a tablet; a flush of more rows writes several tablets of equal size.
    pub tablet_rows_max: usize,
    /// Maximum size of the tail of one table in bytes. A push is rejected with `LimitReached` while the tail
    /// is that large; the last batch before that may exceed it, so that a batch larger than the limit passes
    /// through an empty tail.
    ///
    /// Not read from files: the pushing component has its own limit and sets this one above it.
    #[serde(skip)]
    pub tail_bytes_max: u64,
    /// Maximum number of rows of a Parquet row group, the unit that readers skip by statistics and Bloom
    /// filters.
    pub row_group_rows: usize,
    /// Maximum number of rows of a row group of a merged tablet, where larger dictionaries save space.
    pub merged_row_group_rows: usize,
    /// Size in bytes up to which small tablets are merged into one. A tablet of half this size is large and not
    /// merged again.
    pub tablet_bytes: u64,
    /// Number of small tablets of one level that are merged into one of the next level.
    pub merge_tablets: usize,
    /// Maximum number of rows of a Parquet page, the unit that readers skip by the page index.
    pub page_rows: usize,
    /// Compression of tablets.
    pub compression: Compression,
    /// Number of commits between two Delta checkpoints.
    pub delta_checkpoint_commits: u64,
    /// Retention in seconds of Delta log entries that a Delta checkpoint has made obsolete.
    pub delta_log_retention_s: u64,
    /// Age in seconds at which a Parquet file that no Delta commit names is considered an orphan of a crash
    /// and removed at open. Must exceed the longest time between the upload of a tablet and its commit.
    pub orphan_age_s: u64,
    /// Retention in seconds of files that were replaced, for readers of older versions of the table. Must
    /// exceed the longest query.
    pub removed_retention_s: u64,
    /// Attempts per operation on an unavailable store before the operation fails with `Unavailable`.
    pub retry_attempts: u32,
    /// Delay after the first failed attempt in milliseconds; it doubles each time, up to 2,000.
    pub retry_backoff_ms: u64,
    /// Maximum memory of the cache of tablets of an object store, in bytes; 0 turns the cache off. Tables in a local
    /// directory have no cache.
    pub cache_memory_bytes: u64,
    /// Maximum disk space of this cache in bytes; 0 for a cache in memory only.
    pub cache_disk_bytes: u64,
    /// Directory of this cache; without one it is in memory only.
    ///
    /// Not read from files: the owner of the tables knows where its data is.
    #[serde(skip)]
    pub cache_dir: Option<PathBuf>,
    /// Keys of tablets: new ones are encrypted, and those that are encrypted can be read. None by default.
    ///
    /// Not read from files: keys come from the key ring.
    #[serde(skip)]
    pub keys: Option<TabletKeys>,
    /// Open a table even when files that its Delta log names are missing or truncated. Their rows are missing
    /// from every query; `Table::missing` lists the files.
    pub open_degraded: bool,
}

impl Default for ZonesOptions {
    fn default() -> Self {
        Self {
            tablet_rows_max: 1_000_000,
            tail_bytes_max: 256 * 1024 * 1024,
            row_group_rows: 65_536,
            merged_row_group_rows: 262_144,
            tablet_bytes: 128 << 20,
            merge_tablets: 8,
            page_rows: 8_192,
            compression: Compression::Zstd,
            delta_checkpoint_commits: 100,
            delta_log_retention_s: 24 * 3600,
            orphan_age_s: 24 * 3600,
            removed_retention_s: 24 * 3600,
            retry_attempts: 5,
            retry_backoff_ms: 50,
            cache_memory_bytes: 128 << 20,
            cache_disk_bytes: 2 << 30,
            cache_dir: None,
            keys: None,
            open_degraded: false,
        }
    }
}

impl ZonesOptions {
    /// Checks the settings.
    ///
    /// Errors: `Invalid` with the setting, its value and the expected range.
    pub fn validate(&self) -> Result<()> {
        let at_least_one: [(&str, u64); 9] = [
            ("tablet_rows_max", self.tablet_rows_max as u64),
            ("tail_bytes_max", self.tail_bytes_max),
            ("row_group_rows", self.row_group_rows as u64),
            ("merged_row_group_rows", self.merged_row_group_rows as u64),
            ("tablet_bytes", self.tablet_bytes),
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
        if self.merge_tablets < 2 {
            return Err(Error::invalid(format!(
                "zones.merge_tablets is {}: expected at least 2",
                self.merge_tablets
            )));
        }
        for (name, value, least) in [
            ("cache_memory_bytes", self.cache_memory_bytes, CACHE_MEMORY_BYTES_MIN),
            ("cache_disk_bytes", self.cache_disk_bytes, CACHE_DISK_BYTES_MIN),
        ] {
            if value > 0 && value < least {
                return Err(Error::invalid(format!(
                    "zones.{name} is {value}: expected at least {least}, or 0 for none"
                )));
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
