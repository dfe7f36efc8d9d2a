//! Tables and collections at one moment, for one statement.

use std::sync::Arc;

use tidemill_docs::DocBytes;
use tidemill_types::{Error, Offset, Result};
use tidemill_zones::{PartialSnapshot, Table, TableSnapshot};

use super::Engine;
use crate::documents::snapshot::DocumentSnapshot;
use crate::partition::TableName;

/// Maximum number of attempts to take a moment that no flush of a table has passed. One attempt takes
/// microseconds and a flush milliseconds, so the second is hardly ever needed.
const ATTEMPTS_MAX: usize = 100;

/// Tables and collections after one record of each partition's log: what a record has led to is in all of them or in none.
#[derive(Debug)]
pub struct Moment {
    /// The tables of the streams that were asked for; `None` for an unknown one.
    pub streams: Vec<Option<TableSnapshot>>,
    /// The documents of the collections that were asked for; `None` for an unknown one.
    pub collections: Vec<Option<Vec<DocBytes>>>,
}

impl Engine {
    /// Returns tables and collections at one moment: with every write that this process has answered before. In a cluster,
    /// [`Self::catch_up`] before it brings those that others have answered.
    ///
    /// Waits for no owner of a partition: tables are flushed up to records that the owners show. A standby is waited for that has not
    /// applied what its owner has flushed.
    ///
    /// Errors: `Unavailable` if tables are flushed faster than they can be looked at, and in a process that does not own all partitions.
    pub fn moment(&self, streams: &[&str], collections: &[&str]) -> Result<Moment> {
        // one table is at one moment by itself
        if let ([stream], []) = (streams, collections) {
            return Ok(Moment { streams: vec![self.table_snapshot(stream)?], collections: vec![] });
        }
        for _ in 0..ATTEMPTS_MAX {
            let documents = DocumentSnapshot::applied(&self.node)?;
            let next: Vec<Offset> = (0..self.node.host.partitions()).map(|p| documents.next(p)).collect();
            if let Some(streams) = self.tables_before(streams, &next)? {
                let collections = collections.iter().map(|name| documents.documents(name));
                return Ok(Moment { streams, collections: collections.collect::<Result<_>>()? });
            }
            // an owner has shown later records since, and a table was flushed up to them
            self.apply_what_is_flushed(streams)?;
        }
        Err(Error::unavailable("the tables change too fast to be seen at one moment: send the query again"))
    }

    /// Returns the table of a stream at this instant; `None` for an unknown stream.
    ///
    /// Errors: `Unavailable` while an owner of a partition cannot be asked.
    pub fn table_snapshot(&self, stream: &str) -> Result<Option<TableSnapshot>> {
        let Some(table) = self.node.app.tables.by_name(stream) else { return Ok(None) };
        self.present_snapshot(table, &TableName::Stream(stream.to_owned())).map(Some)
    }

    /// Returns the table of refused rows at this instant.
    ///
    /// Errors: as [`Self::table_snapshot`].
    pub fn rejected_snapshot(&self) -> Result<TableSnapshot> {
        self.present_snapshot(self.node.app.tables.rejected(), &TableName::Rejected)
    }

    fn present_snapshot(&self, table: &Arc<Table>, name: &TableName) -> Result<TableSnapshot> {
        if self.node.has_all() {
            return Ok(table.snapshot());
        }
        for _ in 0..ATTEMPTS_MAX {
            if let Some(snapshot) = self.whole_snapshot(table, name, None)? {
                return Ok(snapshot);
            }
        }
        Err(Error::unavailable(format!(
            "the table `{}` is flushed faster than it can be read: send the query again",
            table.name()
        )))
    }

    /// Returns a table with the rows of the records before `next`, or with all; `None` if its files change meanwhile. Rows of partitions of
    /// other processes come from these.
    fn whole_snapshot(
        &self,
        table: &Arc<Table>,
        name: &TableName,
        next: Option<&[Offset]>,
    ) -> Result<Option<TableSnapshot>> {
        let partial = table.partial_snapshot(next, |id| self.node.has_replica(id));
        let Some(PartialSnapshot { mut snapshot, missing }) = partial else { return Ok(None) };
        for missing in missing {
            match self.node.client(missing.partition)?.tail_rows(name, missing)? {
                Some(rows) => snapshot.tail.extend(rows),
                None => {
                    // the owner has written files that this process does not know yet
                    let table = table.clone();
                    self.node.host.runtime.run(async move { table.refresh().await })?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(snapshot))
    }

    /// Waits until the standbys of this process have applied the records whose rows are in the files of these tables.
    fn apply_what_is_flushed(&self, streams: &[&str]) -> Result<()> {
        for standby in self.node.owned.following() {
            let tables = streams.iter().filter_map(|name| self.node.app.tables.by_name(name));
            if let Some(flushed) = tables.filter_map(|table| table.committed(standby.id)).max() {
                standby.wait_applied(flushed.next())?;
            }
        }
        Ok(())
    }

    /// Returns the tables with the rows of the records before `next`, or `None` if files of one have later ones.
    fn tables_before(&self, streams: &[&str], next: &[Offset]) -> Result<Option<Vec<Option<TableSnapshot>>>> {
        let has_all = self.node.has_all();
        let mut snapshots = Vec::with_capacity(streams.len());
        for name in streams {
            let Some(table) = self.node.app.tables.by_name(name) else {
                snapshots.push(None);
                continue;
            };
            let snapshot = match has_all {
                true => table.snapshot_before(next),
                false => self.whole_snapshot(table, &TableName::Stream((*name).to_owned()), Some(next))?,
            };
            match snapshot {
                Some(snapshot) => snapshots.push(Some(snapshot)),
                None => return Ok(None),
            }
        }
        Ok(Some(snapshots))
    }
}
