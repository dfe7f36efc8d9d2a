//! Streams, their tables, and what waits to be applied.

use std::sync::Arc;

use tidemill_types::{Error, PartitionId, Result, StreamSchema};
use tidemill_zones::{Table, Zones};

use super::Engine;
use crate::api::StreamInfo;
use crate::partition::PartitionProgress;

/// Times that owners of partitions are asked for their counts while they move rows from tails to files.
const PROGRESS_ATTEMPTS: usize = 5;

impl Engine {
    /// All streams with their counts.
    ///
    /// Errors: `Unavailable` while an owner of a partition cannot be asked.
    pub fn streams(&self) -> Result<Vec<StreamInfo>> {
        Ok(self.stream_infos(self.node.app.tables.streams(), true, &self.progress_elsewhere()?))
    }

    /// Streams with stored events that the app does not declare: they can be asked, and take no more events.
    ///
    /// Errors: as [`Self::streams`].
    pub fn former_streams(&self) -> Result<Vec<StreamInfo>> {
        Ok(self.stream_infos(self.node.app.tables.former(), false, &self.progress_elsewhere()?))
    }

    /// Returns counts of the partitions that this process does not have, at a time at which their owners moved no rows from tails to files, so
    /// that each row is counted once.
    fn progress_elsewhere(&self) -> Result<Vec<(PartitionId, PartitionProgress)>> {
        let node = &self.node;
        let missing: Vec<_> = node.host.partition_ids().filter(|id| !node.has_replica(*id)).collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let ask = |id: &PartitionId| Ok((*id, node.client(*id)?.progress()?));
        let mut in_files = self.rows_in_files()?;
        let mut attempts = 1..PROGRESS_ATTEMPTS;
        loop {
            let progress = missing.iter().map(ask).collect::<Result<Vec<_>>>()?;
            let now = self.rows_in_files()?;
            if now == in_files || attempts.next().is_none() {
                return Ok(progress);
            }
            in_files = now;
        }
    }

    /// Returns the number of rows in the files of each table, with those that other nodes have written.
    fn rows_in_files(&self) -> Result<Vec<u64>> {
        let tables: Vec<_> = self.node.app.tables.writable().map(|(_, table)| table.clone()).collect();
        self.node.host.runtime.run(async move {
            let mut rows = Vec::with_capacity(tables.len());
            for table in tables {
                table.refresh().await?;
                rows.push(table.tablet_rows());
            }
            Ok(rows)
        })
    }

    /// Returns streams as far as own partitions and those `elsewhere` have them.
    pub(super) fn stream_infos(
        &self,
        tables: &[(Arc<StreamSchema>, Arc<Table>)],
        declared: bool,
        elsewhere: &[(PartitionId, PartitionProgress)],
    ) -> Vec<StreamInfo> {
        // a replica that is behind is here, too
        let is_here = |id: PartitionId| elsewhere.iter().all(|(other, _)| *other != id);
        let info = |(schema, table): &(Arc<StreamSchema>, Arc<Table>)| {
            let mut ledger = self.node.ledger(&schema.name, is_here);
            let counts = elsewhere.iter().filter_map(|(_, one)| one.ledger.get(&schema.name));
            counts.for_each(|one| ledger.add(one));
            let here = self.node.host.partition_ids().filter(|id| is_here(*id));
            let here: u64 = here.map(|id| table.pending_rows_of(id)).sum();
            let tails = elsewhere.iter().filter_map(|(_, one)| one.tail_rows.get(&schema.name));
            let tail_rows = here + tails.sum::<u64>();
            StreamInfo {
                schema: schema.clone(),
                ledger,
                rows_in_table: table.tablet_rows() + tail_rows,
                removed: table.removed_rows(),
                tail_rows,
                tablets: table.snapshot().tablets.len() as u64,
                declared,
            }
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

    /// The table of a stream, for reads of its older versions.
    pub fn table(&self, stream: &str) -> Option<Arc<Table>> {
        self.node.app.tables.by_name(stream).cloned()
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
        let latest = node.catch_up_replicas()?;
        let latest = |p: PartitionId| latest.get(p.0 as usize).copied().unwrap_or_default();
        let ends = node.host.partition_ids().map(|p| (p, node.host.log.end(p).max(latest(p))));
        let ends: Vec<_> = ends.collect();
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
