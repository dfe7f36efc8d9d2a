//! Backups: a copy of a data directory as it was at one moment, taken while the engine serves or while no
//! program has the directory open, and the data directories that are made from it.
//!
//! `docs/backup.md` is the page for users; `docs/rfcs/0017-backup.md` says in which order files are looked at, and why the
//! copy is consistent.

mod cluster;
mod content;
mod manifest;
mod restore;
mod running;
mod stopped;
mod write;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_log::disk::{Disk, OsDisk};
use tidemill_types::{Error, Result, Timestamp};
use tidemill_zones::{Zones, store_options};

use crate::app::App;
use crate::directory::datadir;
use crate::directory::datadir::StoppedDir;
use crate::directory::encryption;
use crate::directory::partition_store::PublishedFile;
pub use crate::directory::tables_location::runtime;
use crate::directory::tables_location::stopped_tables;
use crate::node::Node;
use crate::process::clock::{Clock, SystemClock};
use crate::process::spawn::lower_priority;
pub use manifest::{MANIFEST, Manifest, checksum_text};
pub use restore::{RestoreReport, restore};
use write::{NewDirectory, StoreReader, TakePart};

/// Summary of a backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackupReport {
    /// Its directory.
    pub path: PathBuf,
    /// Name of the deployed app.
    pub app: Option<String>,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Number of tables.
    pub tables: u64,
    /// Rows in the tablets of the tables.
    pub rows: u64,
    /// Records of the log, over all partitions; the first start of a restored copy applies those that no checkpoint has.
    pub log_records: u64,
    /// Location of the tables, if they were not in the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables_location: Option<String>,
    /// Id of the cluster, if the backup is one of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

impl BackupReport {
    fn new(path: PathBuf, manifest: Manifest) -> Self {
        let records = manifest.partitions.iter().map(|p| p.log_end.0.saturating_sub(p.log_start.0));
        Self {
            path,
            files: manifest.files.len() as u64,
            bytes: manifest.files.iter().map(|file| file.bytes).sum(),
            tables: manifest.tables.len() as u64,
            rows: manifest.tables.iter().map(|table| table.rows).sum(),
            log_records: records.sum(),
            app: manifest.app,
            tables_location: manifest.tables_location,
            cluster: manifest.cluster,
        }
    }
}

/// Copies the data directory of a running engine to the new directory `to`, or the cluster that it is a node of.
///
/// Errors: `Invalid` for a directory that has content and for an engine alone whose log is not in files; `Conflict` while another
/// backup is being taken; `Corrupt` naming a damaged file; `Unavailable`. Nothing is left at `to` then.
pub fn take(node: &Node, to: &Path) -> Result<BackupReport> {
    running::check_has_directory(node)?;
    check_outside(&node.host.dir, to)?;
    let _alone = node.host.backups.one.try_lock().ok_or_else(|| {
        Error::conflict(
            "a backup is being taken already: wait until it is done; /api/v1/backup answers it then",
        )
    })?;
    let target = NewDirectory::create(to)?;
    let work = || {
        lower_priority();
        copy(node, (&OsDisk, target.dir()))
    };
    // a thread of its own, because its priority is lowered
    let written = std::thread::scope(|scope| {
        scope.spawn(work).join().unwrap_or_else(|_| Err(Error::internal("the backup panicked")))
    })?;
    Ok(BackupReport::new(target.finish()?, written))
}

/// Copies the data directory of a running engine to a directory of a disk.
///
/// Errors: as [`take`].
pub fn copy(node: &Node, (disk, dir): (&dyn Disk, &Path)) -> Result<Manifest> {
    if let Some(part) = node.cluster.get() {
        return cluster::copy(node, &**part, (disk, dir));
    }
    let meta = datadir::read_meta(&*node.host.disk, &node.host.dir)?;
    let tables_location = meta.tables_elsewhere(&node.app.deployment.settings);
    let app = node.app.deployment.app.name.clone();
    let mut manifest = Manifest::new(node.host.clock.now().to_string(), meta.id, Some(app));
    manifest.tables_location = tables_location;
    // files of replaced tablets and of ids stay until they are copied
    let _no_removals = node.host.backups.removals.lock();
    let content = running::collect(node)?;
    // on the disk of the data, no more may go than lets checkpoints be taken
    write::check_room(
        dir,
        content.bytes(&*node.host.stored_disk)? + node.app.deployment.settings.reserve_bytes,
    )?;
    write::write(&*node.host.stored_disk, &content, manifest, (disk, dir), &StoresOfNode(node), &|| {
        !node.host.is_stopping()
    })
}

/// The object stores of a running engine.
struct StoresOfNode<'n>(&'n Node);

impl StoreReader for StoresOfNode<'_> {
    fn read_tablet(&self, path: &object_store::path::Path, take: TakePart<'_>) -> Result<()> {
        let host = &self.0.host;
        host.runtime.block_on(host.until_stop(host.zones.read_file(path, take)))
    }

    fn read_published(&self, file: &PublishedFile, take: TakePart<'_>) -> Result<()> {
        self.0.host.partition_store.read_published(file, take)
    }
}

/// The object store of the tables of a data directory that no program has open.
struct StoresOfDirectory<'z> {
    zones: Option<&'z Zones>,
    runtime: &'z tokio::runtime::Runtime,
}

impl StoreReader for StoresOfDirectory<'_> {
    fn read_tablet(&self, path: &object_store::path::Path, take: TakePart<'_>) -> Result<()> {
        match self.zones {
            Some(zones) => self.runtime.block_on(zones.read_file(path, take)),
            None => Err(Error::internal("a tablet without tables")),
        }
    }

    fn read_published(&self, file: &PublishedFile, _: TakePart<'_>) -> Result<()> {
        Err(Error::internal(format!("{}: a directory has its state itself", file.name)))
    }
}

/// Copies the data directory `dir`, which no program has open, to the new directory `to`.
///
/// Errors: as [`take`]; `Conflict` while a program has it open.
pub fn take_stopped(dir: &Path, to: &Path) -> Result<BackupReport> {
    let stopped = StoppedDir::lock(dir)?;
    check_outside(dir, to)?;
    let target = NewDirectory::create(to)?;
    let runtime = runtime()?;
    let app = encryption::with_keys(dir, datadir::deployed_app(dir)?)?;
    let meta = stopped.meta();
    let mut manifest =
        Manifest::new(now().to_string(), meta.id.clone(), app.as_ref().map(|app| app.name.clone()));
    manifest.tables_location = app.as_ref().and_then(|app| meta.tables_elsewhere(&app.settings));
    let zones = stopped_tables(dir, meta, app.as_ref())?;
    let decrypted = encryption::stopped_disk(dir, app.as_ref());
    let content = stopped::collect(&OsDisk, &*decrypted, dir, zones.as_ref(), &runtime)?;
    write::check_room(target.dir(), content.bytes(&OsDisk)?)?;
    let stores = StoresOfDirectory { zones: zones.as_ref(), runtime: &runtime };
    let written = write::write(&OsDisk, &content, manifest, (&OsDisk, target.dir()), &stores, &|| true)?;
    Ok(BackupReport::new(target.finish()?, written))
}

/// Refuses a backup inside the data directory, which would be a part of the next one.
fn check_outside(data: &Path, to: &Path) -> Result<()> {
    match lies_inside(data, to)? {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "{}: lies inside the data directory {}: name a directory outside of it, best on another disk",
            to.display(),
            data.display()
        ))),
    }
}

/// Returns whether `to`, which need not exist, lies inside the directory `outer` or is it, also by links.
fn lies_inside(outer: &Path, to: &Path) -> Result<bool> {
    let absolute = |path: &Path| {
        let known = path.ancestors().find_map(|above| {
            let rest = path.strip_prefix(above).ok()?;
            Some(above.canonicalize().ok()?.join(rest))
        });
        known.unwrap_or_else(|| path.to_owned())
    };
    let to = std::path::absolute(to)
        .map_err(|e| Error::invalid(format!("{}: is no path", to.display())).with_source(e))?;
    Ok(absolute(&to).starts_with(absolute(outer)))
}

/// Opens the tables in the directory `tables`; `None` if the directory has none.
///
/// Errors: those of [`Zones::open_read_only`].
pub fn tables_in(tables: &Path, app: Option<&App>) -> Result<Option<Zones>> {
    let location = tables.to_string_lossy();
    let options = store_options(&location, &std::collections::BTreeMap::new(), std::iter::empty())?;
    let keys = app.and_then(|app| app.settings.encryption.of_tablets());
    let zones = tidemill_zones::ZonesOptions { keys, ..Default::default() };
    Zones::open_read_only(&location, zones, &options)
}

fn now() -> Timestamp {
    SystemClock.now()
}
