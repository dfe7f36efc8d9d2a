//! Versions of a table that can still be read.

use futures::{StreamExt, TryStreamExt};
use tidemill_types::{Error, Result, Timestamp};

use super::replay::{DeltaReader, FETCHES, Listing, TableState, log_of};
use crate::stores::location::Location;
use crate::stores::retry::Retry;

/// A version of a table's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionAt {
    /// This version of the Delta log.
    Version(u64),
    /// The last version that was committed at this time or before, by the clock of the node that committed it.
    Time(Timestamp),
}

/// A version of a table, as its log entry describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// Number of the version.
    pub version: u64,
    /// Time of the commit, in whole milliseconds.
    pub committed: Timestamp,
    /// Operation that made the version, such as `WRITE`, `OPTIMIZE` or `DELETE`.
    pub operation: String,
    /// Number of files that the commit added.
    pub files_added: usize,
    /// Number of files that the commit removed.
    pub files_removed: usize,
}

/// Replays the log of the table at `place` up to the version `at`.
///
/// Errors: `NotFound` for a version that does not exist yet or cannot be replayed any more; those of
/// [`super::replay::replay`].
pub(crate) async fn replay_at(
    place: &Location,
    table: &str,
    retry: Retry,
    at: VersionAt,
) -> Result<TableState> {
    let reader = DeltaReader { location: place, log: log_of(place), table, retry };
    let listing = reader.list(None).await?;
    let (oldest, newest) = reader.range(&listing)?;
    let version = match at {
        VersionAt::Version(version) if (oldest..=newest).contains(&version) => version,
        VersionAt::Version(version) if version > newest => {
            return Err(Error::not_found(format!(
                "table `{table}` has no version {version} yet: its newest is {newest}"
            )));
        }
        VersionAt::Version(version) => {
            return Err(Error::not_found(format!(
                "version {version} of table `{table}` cannot be read any more: the oldest that can is {oldest}"
            )));
        }
        VersionAt::Time(time) => reader.version_at(time, oldest, newest).await?,
    };
    reader.replay_until(&listing, version).await
}

/// Returns the versions of the table at `place` that can be replayed, the oldest first.
///
/// Errors: those of [`super::replay::replay`].
pub(crate) async fn versions(place: &Location, table: &str, retry: Retry) -> Result<Vec<VersionInfo>> {
    let reader = DeltaReader { location: place, log: log_of(place), table, retry };
    let listing = reader.list(None).await?;
    let entries = listing.entries.range(reader.range(&listing)?.0..).copied();
    let reader = &reader;
    let infos = futures::stream::iter(entries).map(|version| async move {
        let entry = reader.entry(version).await?;
        Ok(VersionInfo {
            version,
            committed: Timestamp(entry.timestamp.saturating_mul(1_000)),
            operation: entry.operation,
            files_added: entry.adds.len(),
            files_removed: entry.removes.len(),
        })
    });
    infos.buffered(FETCHES).try_collect().await
}

impl DeltaReader<'_> {
    /// Returns the oldest and the newest version that can be replayed.
    fn range(&self, listing: &Listing) -> Result<(u64, u64)> {
        let range = listing.oldest().zip(listing.newest());
        range.ok_or_else(|| {
            let log = self.location.display(&self.log);
            Error::corrupt(format!("table `{}`: {log} has no version that can be read", self.table))
        })
    }

    /// Returns the last version that was committed at `time` or before. Times of commits increase with their versions,
    /// except for clocks that were set back meanwhile.
    async fn version_at(&self, time: Timestamp, oldest: u64, newest: u64) -> Result<u64> {
        // a checkpoint may outlive its entry, which says when it was committed
        let mut first = oldest;
        let mut first_committed = self.committed(first).await?;
        if first_committed.is_none() && first < newest {
            first += 1;
            first_committed = self.committed(first).await?;
        }
        if first_committed.is_none_or(|committed| committed > time.0) {
            return Err(Error::not_found(format!(
                "table `{}` cannot be read as of {time}: its oldest version that can be read, {first}, is {}",
                self.table,
                first_committed.map_or("of unknown age".to_owned(), |at| format!("of {}", Timestamp(at)))
            )));
        }
        // `low` was committed before, `high` after or never
        let (mut low, mut high) = (first, newest + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match self.committed(middle).await? {
                Some(committed) if committed > time.0 => high = middle,
                _ => low = middle,
            }
        }
        Ok(low)
    }

    /// Returns when a version was committed, in microseconds since 1970; `None` if its entry is gone.
    async fn committed(&self, version: u64) -> Result<Option<i64>> {
        let entry = super::replay::read_entry(self.location, self.table, version, self.retry).await?;
        Ok(entry.map(|entry| entry.timestamp.saturating_mul(1_000)))
    }
}
