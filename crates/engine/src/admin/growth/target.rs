//! The store of the cluster that a directory becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tidemill_types::{Error, PartitionId, Result};
use tidemill_zones::{ObjectDirectory, TableVersion, Zones, store_options};

use super::step;
use crate::app::settings::Settings;
use crate::directory::datadir::DataDir;
use crate::directory::origin::{self, ClusterOrigin, GROWING_FILE, Growing, ORIGIN_FILE};
use crate::directory::partition_store::{PartitionStore, StateFile, StateGroup};
use crate::shared_state::{ObjectPartitionStore, StateOwner, partition_files};

/// Files of the check that writes are conditional.
const PROBE_DIR: &str = "_tidemill/";
/// Directory of the log of single nodes, below the data directory.
const LOG_DIR: &str = "log/";

/// The store of a cluster that is made.
pub struct GrowthTarget {
    runtime: tokio::runtime::Runtime,
    tables_url: String,
    tables: ObjectDirectory,
    state: ObjectDirectory,
}

impl GrowthTarget {
    /// Opens the store below `store`, and checks that it can be written to.
    ///
    /// Errors: `Invalid` for a location or options that no store has; `Unavailable` when it cannot be used.
    pub fn open(store: &str, settings: &Settings) -> Result<Self> {
        // a client keeps connections, and whatever uses them later must find them served by a thread of this runtime
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime
            .map_err(|e| Error::unavailable("cannot start the object store's thread").with_source(e))?;
        let open = |url: &str| {
            let options = store_options(url, &settings.tables_store, std::env::vars())?;
            runtime.block_on(ObjectDirectory::open(url, &options))
        };
        let (tables_url, state_url) = (format!("{store}/tables"), format!("{store}/state"));
        let (tables, state) = (open(&tables_url)?, open(&state_url)?);
        Ok(Self { runtime, tables_url, tables, state })
    }

    /// Returns whether the tables of the cluster are at this location.
    pub fn has_tables_at(&self, location: &str) -> bool {
        location.trim_end_matches('/') == self.tables_url
    }

    /// Checks that no other cluster is in the store.
    ///
    /// Errors: `Conflict` if there is one; `Corrupt`, `Unavailable`.
    pub fn check_unused(&self, directory: &str, tables_stay: bool) -> Result<()> {
        let used = |what: String| {
            Err(Error::conflict(format!("{what}: name another place by --store; nothing was changed")))
        };
        if let Some(origin) = self.runtime.block_on(ClusterOrigin::finished(&self.state))? {
            let place = self.state.display(ORIGIN_FILE);
            return used(format!(
                "{place}: a cluster is there, made from the directory {}",
                origin.directory
            ));
        }
        match self.runtime.block_on(origin::growing(&self.state))? {
            Some(growing) if growing.directory == directory => return Ok(()),
            Some(growing) => {
                let place = self.state.display(GROWING_FILE);
                return used(format!(
                    "{place}: the data directory {} is becoming a cluster there",
                    growing.path
                ));
            }
            None => {}
        }
        if let Some(file) = self.files(&self.state)?.keys().next() {
            return used(format!(
                "{}: the state of a cluster or a directory is there",
                self.state.display(file)
            ));
        }
        match self.files(&self.tables)?.keys().next() {
            Some(file) if !tables_stay => used(format!(
                "{}: tables are there that are not those of the directory",
                self.tables.display(file)
            )),
            _ => Ok(()),
        }
    }

    fn files(&self, place: &ObjectDirectory) -> Result<BTreeMap<String, u64>> {
        let mut files = self.runtime.block_on(place.sizes(""))?;
        files.retain(|name, _| !name.starts_with(PROBE_DIR));
        Ok(files)
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<()> {
        let is_new = self.runtime.block_on(self.state.create(name, content))?;
        // the answer to the first attempt may have been lost
        if is_new || self.runtime.block_on(self.state.read(name))?.is_some_and(|found| found == content) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{}: another data directory becomes a cluster there: name another place by --store",
            self.state.display(name)
        )))
    }

    /// Keeps nodes from starting, and removes the state that an interrupted run has left.
    ///
    /// Errors: `Conflict` if another directory was faster; `Unavailable`.
    pub fn begin(&self, directory: &str, path: &Path) -> Result<()> {
        let growing = Growing { directory: directory.to_owned(), path: path.display().to_string() };
        let is_own = |found: Option<Growing>| found.is_some_and(|found| found.directory == directory);
        if !is_own(self.runtime.block_on(origin::growing(&self.state))?) {
            let content = serde_json::to_vec_pretty(&growing)
                .map_err(|e| Error::internal("a file of the store cannot be encoded").with_source(e))?;
            self.create(GROWING_FILE, &content)?;
        }
        let files = self.files(&self.state)?;
        let left = files.keys().filter(|name| *name != GROWING_FILE);
        left.into_iter().try_for_each(|name| self.runtime.block_on(self.state.remove(name)))
    }

    /// Copies tables as they are now. What an interrupted run has copied stays where it is the same.
    ///
    /// Errors: `Corrupt` for tables that cannot be read; `Unavailable`.
    pub fn copy_tables(&self, zones: &Zones) -> Result<Vec<TableVersion>> {
        self.runtime.block_on(async {
            let mut versions = Vec::new();
            for name in zones.table_names().await? {
                versions.extend(zones.newest_version(&name).await?);
            }
            let mut present = self.tables.sizes("").await?;
            present.retain(|name, _| !name.starts_with(PROBE_DIR));
            let tablets = |version: &TableVersion| {
                let name = version.name.clone();
                let tablets = version.tablets.iter();
                tablets.map(|tablet| (format!("{name}/{}", tablet.name), tablet.size)).collect::<Vec<_>>()
            };
            let wanted: BTreeSet<(String, u64)> = versions.iter().flat_map(tablets).collect();
            for (name, size) in &present {
                if !wanted.contains(&(name.clone(), *size)) {
                    self.tables.remove(name).await?;
                }
            }
            for version in &versions {
                step("copy a table");
                zones.copy_table(version, &self.tables, &present).await?;
            }
            Ok(versions)
        })
    }

    /// Publishes the checkpoints of the partitions, with ids, changes and queues of sinks. Nodes begin with them.
    ///
    /// Errors: `Conflict` if another process publishes there; `Unavailable`.
    pub fn publish_partitions(&self, data: &DataDir, origin: &ClusterOrigin) -> Result<()> {
        let owner = StateOwner::of_cluster(&origin.cluster, "tidemill cluster create", origin.partitions);
        let (disk, dir) = (data.disk().clone(), data.path().to_owned());
        let store = ObjectPartitionStore::new(self.state.clone(), disk.clone(), dir.clone(), owner)?;
        for id in (0..origin.partitions).map(PartitionId) {
            step("publish a partition");
            let group = StateGroup::Partition(id);
            store.claim(group, origin.epoch)?;
            let is_log = |file: &StateFile| file.name.starts_with(LOG_DIR);
            let files = || {
                let mut files = partition_files(&*disk, &dir, id)?;
                files.retain(|file| !is_log(file));
                Ok(files)
            };
            store.publish(group, (origin.base_offset(id), 0), &files)?;
        }
        Ok(())
    }

    /// Returns whether nodes can start.
    ///
    /// Errors: `Conflict` if another cluster is there; `Corrupt`, `Unavailable`.
    pub fn is_finished(&self, origin: &ClusterOrigin) -> Result<bool> {
        match self.runtime.block_on(ClusterOrigin::finished(&self.state))? {
            Some(found) if found == *origin => Ok(true),
            Some(found) => Err(Error::conflict(format!(
                "{}: a cluster is there, made from the directory {} at {}",
                self.state.display(ORIGIN_FILE),
                found.directory,
                found.time
            ))),
            None => Ok(false),
        }
    }

    /// Lets nodes start.
    ///
    /// Errors: `Conflict` if another cluster is there; `Unavailable`.
    pub fn finish(&self, origin: &ClusterOrigin) -> Result<()> {
        self.create(ORIGIN_FILE, &origin.encode()?)
    }
}
