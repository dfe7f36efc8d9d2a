//! Tables of a deployment, and the runtime of their object store.

use std::sync::{Arc, OnceLock};

use tidemill_types::{Result, StreamSchema};
use tidemill_zones::{Table, Zones};

use crate::crash_points;
use crate::deployment::{Deployment, TableRef};
use crate::process::store_runtime::StoreRuntime;

/// A stream and the table that stores its events.
pub type StreamTable = (Arc<StreamSchema>, Arc<Table>);

/// Open tables of a deployment.
pub struct TableSet {
    /// Tables of the streams, by their position in the program.
    streams: Vec<StreamTable>,
    rejected: StreamTable,
    former: OnceLock<Vec<StreamTable>>,
}

impl TableSet {
    /// Opens the tables of `deployment` in `zones`.
    ///
    /// Errors: those of [`Zones::table`].
    pub fn open(deployment: &Deployment, zones: &Zones, runtime: &StoreRuntime) -> Result<Self> {
        let open = |stream: &Arc<StreamSchema>| {
            crash_points::before(|| format!("open table {}", stream.name));
            let table = runtime.block_on(zones.table(stream, deployment.partitions()))?;
            Ok((stream.clone(), table))
        };
        let streams = deployment.program.streams().iter().map(open).collect::<Result<Vec<_>>>()?;
        let rejected = open(&deployment.rejected_stream)?;
        Ok(Self { streams, rejected, former: OnceLock::new() })
    }

    /// Returns a table.
    pub fn get(&self, table: TableRef) -> &Arc<Table> {
        match table {
            TableRef::Stream(stream) => &self.streams[stream].1,
            TableRef::Rejected => &self.rejected.1,
        }
    }

    /// Returns the tables of the streams of the program, in their order.
    pub fn streams(&self) -> &[StreamTable] {
        &self.streams
    }

    /// Returns the table of rejected rows.
    pub fn rejected(&self) -> &Arc<Table> {
        &self.rejected.1
    }

    /// Returns all tables that take rows; that of rejected rows is the last.
    pub fn writable(&self) -> impl Iterator<Item = &StreamTable> {
        self.streams.iter().chain(std::iter::once(&self.rejected))
    }

    /// Returns the tables of streams that only earlier apps declared. No rows are added to them.
    pub fn former(&self) -> &[StreamTable] {
        self.former.get().map_or(&[], Vec::as_slice)
    }

    /// Sets the former tables, once.
    pub fn set_former(&self, tables: Vec<StreamTable>) {
        let first_time = self.former.set(tables).is_ok();
        debug_assert!(first_time, "former tables are opened once");
    }

    /// Returns the table of rows of the stream called `name`, former streams included.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Table>> {
        let all = self.streams.iter().chain(self.former());
        all.clone().find(|(stream, _)| stream.name == name).map(|(_, table)| table)
    }

    /// Returns the table with the most bytes of rows that are not in tablets, these bytes, and those of all tables.
    pub fn pending(&self) -> (&str, u64, u64) {
        let pending = self.writable().map(|(stream, table)| (stream.name.as_str(), table.pending_bytes()));
        pending.fold(("", 0, 0), |(most_of, most, all), (name, bytes)| match bytes > most {
            true => (name, bytes, all + bytes),
            false => (most_of, most, all + bytes),
        })
    }
}
