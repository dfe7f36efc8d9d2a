//! Tables and collections at one moment, for one statement.

use tidemill_docs::DocBytes;
use tidemill_types::{Error, Offset, Result};
use tidemill_zones::TableSnapshot;

use super::Engine;
use crate::documents::snapshot::DocumentSnapshot;

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
        if !streams.is_empty() {
            self.node.check_has_all()?;
        }
        // one table is at one moment by itself
        if let ([stream], []) = (streams, collections) {
            return Ok(Moment { streams: vec![self.table_snapshot(stream)], collections: vec![] });
        }
        for _ in 0..ATTEMPTS_MAX {
            let documents = DocumentSnapshot::applied(&self.node)?;
            let next: Vec<Offset> = (0..self.node.host.partitions()).map(|p| documents.next(p)).collect();
            if let Some(streams) = self.tables_before(streams, &next) {
                let collections = collections.iter().map(|name| documents.documents(name)).collect();
                return Ok(Moment { streams, collections });
            }
            // an owner has shown later records since, and a table was flushed up to them
            self.apply_what_is_flushed(streams)?;
        }
        Err(Error::unavailable("the tables change too fast to be seen at one moment: send the query again"))
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
    fn tables_before(&self, streams: &[&str], next: &[Offset]) -> Option<Vec<Option<TableSnapshot>>> {
        let tables = streams.iter().map(|name| self.node.app.tables.by_name(name));
        tables.map(|table| table.map_or(Some(None), |table| table.snapshot_before(next).map(Some))).collect()
    }
}
