//! Streams, their tables, and what waits to be applied.

use std::sync::Arc;

use tidemill_types::{Error, Result, StreamSchema};
use tidemill_zones::{Table, TableSnapshot, Zones};

use super::Engine;
use crate::api::StreamInfo;

impl Engine {
    /// All streams with their counts.
    ///
    /// Errors: `Unavailable` in a process that does not own all partitions.
    pub fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.node.check_has_all()?;
        Ok(self.stream_infos(self.node.app.tables.streams(), true))
    }

    /// Streams with stored events that the app does not declare: they can be asked, and take no more events.
    ///
    /// Errors: as [`Self::streams`].
    pub fn former_streams(&self) -> Result<Vec<StreamInfo>> {
        self.node.check_has_all()?;
        Ok(self.stream_infos(self.node.app.tables.former(), false))
    }

    /// Returns streams as far as own partitions have them.
    pub(super) fn stream_infos(
        &self,
        tables: &[(Arc<StreamSchema>, Arc<Table>)],
        declared: bool,
    ) -> Vec<StreamInfo> {
        let info = |(schema, table): &(Arc<StreamSchema>, Arc<Table>)| StreamInfo {
            schema: schema.clone(),
            ledger: self.node.ledger(&schema.name),
            rows_in_table: table.tablet_rows() + table.pending_rows(),
            removed: table.removed_rows(),
            tail_rows: table.pending_rows(),
            tablets: table.snapshot().tablets.len() as u64,
            declared,
        };
        tables.iter().map(info).collect()
    }

    /// One stream with its counts.
    ///
    /// Errors: `NotFound` with the names there are.
    pub fn stream(&self, name: &str) -> Result<StreamInfo> {
        self.stream_schema(name)?;
        self.streams()?
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
        node.catch_up_replicas()?;
        let ends: Vec<_> = node.host.partition_ids().map(|p| (p, node.host.log.end(p))).collect();
        ends.into_iter().try_for_each(|(partition, end)| node.client(partition)?.wait_applied(end))
    }

    /// Waits as [`Self::catch_up`] does, but not for partitions that wait for a store.
    ///
    /// Errors: `Unavailable` when a partition has failed or the engine stops.
    pub(super) fn catch_up_others(&self) -> Result<()> {
        self.node.clients()?.iter().try_for_each(|partition| match partition.catch_up() {
            Err(e) if partition.waits_for_store()?.is_none() => Err(e),
            _ => Ok(()),
        })
    }
}
