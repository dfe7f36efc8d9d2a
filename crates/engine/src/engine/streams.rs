//! Streams, their tables, and what waits to be applied.

use std::sync::Arc;

use tidemill_types::{Error, Result, StreamSchema};
use tidemill_zones::{Table, TableSnapshot, Zones};

use super::Engine;
use crate::api::StreamInfo;
use crate::partition::Partition;

impl Engine {
    /// All streams with their counts.
    pub fn streams(&self) -> Vec<StreamInfo> {
        let tables = self.node.app.tables.streams().iter();
        tables.map(|(schema, table)| self.stream_info(schema, table, true)).collect()
    }

    /// Streams with stored events that the app does not declare: they can be asked, and take no more events.
    pub fn former_streams(&self) -> Vec<StreamInfo> {
        let tables = self.node.app.tables.former().iter();
        tables.map(|(schema, table)| self.stream_info(schema, table, false)).collect()
    }

    fn stream_info(&self, schema: &Arc<StreamSchema>, table: &Table, declared: bool) -> StreamInfo {
        StreamInfo {
            schema: schema.clone(),
            ledger: self.node.ledger(&schema.name),
            rows_in_table: table.tablet_rows() + table.pending_rows(),
            removed: table.removed_rows(),
            tail_rows: table.pending_rows(),
            tablets: table.snapshot().tablets.len() as u64,
            declared,
        }
    }

    /// One stream with its counts.
    ///
    /// Errors: `NotFound` with the names there are.
    pub fn stream(&self, name: &str) -> Result<StreamInfo> {
        self.stream_schema(name)?;
        self.streams()
            .into_iter()
            .find(|s| s.schema.name == name)
            .ok_or_else(|| Error::internal(format!("stream `{name}` has no table")))
    }

    /// Names of all streams that have a table: those of the app in order of declaration, then those that only earlier
    /// apps declared.
    pub fn stream_names(&self) -> Vec<String> {
        let former = self.node.app.tables.former().iter().map(|(s, _)| s);
        self.node.app.deployment.program.streams().iter().chain(former).map(|s| s.name.clone()).collect()
    }

    /// The table of a stream at this instant; `None` for an unknown stream.
    pub fn table_snapshot(&self, stream: &str) -> Option<TableSnapshot> {
        self.node.app.tables.by_name(stream).map(|table| table.snapshot())
    }

    /// The table of a stream, for reads of its older versions.
    pub fn table(&self, stream: &str) -> Option<Arc<Table>> {
        self.node.app.tables.by_name(stream).cloned()
    }

    /// The table of refused rows at this instant.
    pub fn rejected_snapshot(&self) -> TableSnapshot {
        self.node.app.tables.rejected().snapshot()
    }

    /// All tables' place and store.
    pub fn zones(&self) -> &Zones {
        &self.node.host.zones
    }

    /// Waits until everything that is in the log now is applied, so that what is read next holds every acknowledged row.
    ///
    /// Errors: `Unavailable` when a partition has failed, when the engine stops, and when applying is blocked by a store for as
    /// long as senders wait.
    pub fn catch_up(&self) -> Result<()> {
        let node = &self.node;
        let ends: Vec<_> = node.owned.all().iter().map(|p| node.host.log.end(p.id)).collect();
        for (partition, end) in node.owned.all().iter().zip(ends) {
            partition.wait_applied(end)?;
        }
        Ok(())
    }
    /// Waits as [`Self::catch_up`] does, but not for partitions that wait for a store.
    ///
    /// Errors: `Unavailable` when a partition has failed or the engine stops.
    pub(super) fn catch_up_others(&self) -> Result<()> {
        let owned = self.node.owned.all();
        let unless_waiting = |partition: &Partition| match partition.catch_up() {
            Err(e) if partition.waits_for_store().is_none() => Err(e),
            _ => Ok(()),
        };
        owned.iter().try_for_each(|partition| unless_waiting(partition))
    }
}
