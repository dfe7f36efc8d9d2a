//! Data directory: its lock, its number of partitions, and the deployed app.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_log::disk::{Disk, FileReader, FileWriter, OsDisk};
use tidemill_types::{Error, Field, Offset, PartitionId, Result, StreamSchema};

use crate::app::App;
use crate::app::AppSource;
use crate::app::settings::{ResultSettings, Settings};
use crate::directory::origin;
use crate::directory::partitioning::{HomeRule, Partitioning};
use crate::process::json_file::{encode_json, read_json, write_json};
use crate::process::{disk_space, private_files};

/// Format of directories whose files of queries have the first partition. The format of the others is greater by the number of their
/// [`HomeRule`]: a version that does not know a rule refuses the directory.
const FORMAT: u32 = 1;
const FORMATS: RangeInclusive<u32> = FORMAT..=FORMAT + HomeRule::NEWEST.number();
/// Name of the manifest of a backup, which is written last: a directory without it is not a backup, and one
/// with it is not a data directory.
pub const BACKUP_MANIFEST: &str = "backup.json";

/// Data directory locked by this process.
pub struct DataDir {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Holds the lock until it is dropped.
    _lock: Box<dyn Any + Send + Sync>,
    meta: DataDirMeta,
}

/// Content of `meta.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DataDirMeta {
    format: u32,
    partitions: u32,
    /// Incremented at every start, so that a table writer of an earlier start can no longer commit.
    epoch: u64,
    /// Distinguishes the directory from all others. Directories that were created without it stay without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// True if data was written encrypted; reading it needs the key ring.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// The backup that the directory was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restored: Option<RestoredFrom>,
}

/// The backup that a data directory was made from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestoredFrom {
    /// Id of the original directory, or cluster.
    pub id: Option<String>,
    /// When the backup was taken.
    pub time: String,
    /// Location of the tables of the original, if not in its directory. They are not those of the copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<String>,
}

impl DataDirMeta {
    /// Returns the partitioning, fixed when the directory was created.
    pub fn partitioning(&self) -> Partitioning {
        // one with another format is not read
        let home_rule = HomeRule::from_number(self.format.saturating_sub(FORMAT)).unwrap_or_default();
        Partitioning { partitions: self.partitions, home_rule }
    }

    /// Returns the epoch of the last start.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the location that the setting `tables` names; `None` when the tables are in the data directory: without the
    /// setting, and in a directory that was restored while the setting names the tables of the original.
    pub fn tables_elsewhere(&self, settings: &Settings) -> Option<String> {
        let of_original = self.restored.as_ref().and_then(|restored| restored.tables.as_ref());
        settings.tables.as_ref().filter(|tables| Some(*tables) != of_original).cloned()
    }
}

impl DataDir {
    /// Locks the directory, creating it if necessary. `partitioning` applies to a new directory only.
    ///
    /// Errors: `Conflict` while another process has the lock; `Invalid` for a directory of another format,
    /// and for one with foreign files.
    pub fn open(path: &Path, disk: Arc<dyn Disk>, partitioning: Partitioning) -> Result<Self> {
        check_content(&*disk, path)?;
        disk.create_dir(path).map_err(|e| io_error(path, e))?;
        disk_space::free_reserve_for_start(path);
        let lock = lock(&*disk, path)?;
        match private_files::restrict_access(path) {
            Ok(Some(mode)) => tracing::warn!(
                "{}: all users of this machine could read the data directory (mode {mode:04o}); now only its owner can \
                 (0700)",
                path.display()
            ),
            Ok(None) => {}
            // a simulated disk has no access rights
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                %error,
                "{}: all users of this machine can read the data directory, and that cannot be changed",
                path.display()
            ),
        }
        let file = path.join(META_FILE);
        let mut meta = match read_known_meta(&*disk, &file)? {
            Some(meta) => meta,
            None => DataDirMeta {
                format: FORMAT + partitioning.home_rule.number(),
                partitions: partitioning.partitions,
                epoch: 0,
                id: Some(new_id()),
                encrypted: false,
                restored: None,
            },
        };
        meta.epoch += 1;
        write_json(&*disk, &file, &meta)?;
        Ok(Self { path: path.to_owned(), disk, _lock: lock, meta })
    }

    /// Returns whether an app is deployed in `dir`. Writes nothing there.
    pub fn has_app(disk: &dyn Disk, dir: &Path) -> bool {
        disk.open(&app_file(dir)).is_ok()
    }

    /// Returns the disk of the directory.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether data was written encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.meta.encrypted
    }

    /// Notes that data is written encrypted from now on.
    ///
    /// Errors: `Unavailable`.
    pub fn mark_encrypted(&self) -> Result<()> {
        if self.meta.encrypted {
            return Ok(());
        }
        let meta = DataDirMeta { encrypted: true, ..self.meta.clone() };
        write_json(&*self.disk, &self.path.join(META_FILE), &meta)
    }

    /// Returns the number of partitions, fixed when the directory was created.
    pub fn partitions(&self) -> u32 {
        self.meta.partitions
    }

    /// Returns its partitioning, fixed when the directory was created.
    pub fn partitioning(&self) -> Partitioning {
        self.meta.partitioning()
    }

    /// Returns what distinguishes the directory from all others; `None` for directories that were created without it.
    pub fn id(&self) -> Option<&str> {
        self.meta.id.as_deref()
    }

    /// Returns the location that the setting `tables` names, see [`DataDirMeta::tables_elsewhere`].
    pub fn tables_elsewhere(&self, settings: &Settings) -> Option<String> {
        self.meta.tables_elsewhere(settings)
    }

    /// Returns the epoch of this start.
    pub fn epoch(&self) -> u64 {
        self.meta.epoch
    }

    /// Returns the deployment, if there is one.
    pub fn deployment(&self) -> Result<Option<DeploymentRecord>> {
        deployment(&*self.disk, &self.path)
    }

    /// Makes `deployment` the one that the next start opens. After a crash, it is either the previous one or
    /// this one.
    pub fn deploy(&self, deployment: &DeploymentRecord) -> Result<()> {
        let DeploymentRecord { app, first_offsets: since, former, pinned_streams: homes, .. } =
            deployment.clone();
        let results = Some(app.settings.result_settings());
        write_json(
            &*self.disk,
            &app_file(&self.path),
            &StoredDeployment { app: app.source().clone(), since, former, homes, results },
        )
    }
}

/// File with identity, partitions and epoch.
pub const META_FILE: &str = "meta.json";

/// A data directory that no program has open, and that this process keeps others from opening.
pub struct StoppedDir {
    _lock: Box<dyn Any + Send + Sync>,
    meta: DataDirMeta,
}

impl StoppedDir {
    /// Locks the directory and changes nothing in it.
    ///
    /// Errors: `NotFound` when it is not a data directory; `Conflict` while a program has it open; `Corrupt`
    /// and `Invalid` as in [`DataDir::open`].
    pub fn lock(path: &Path) -> Result<Self> {
        if OsDisk.open(&path.join(META_FILE)).is_err() {
            return Err(Error::not_found(format!(
                "{}: is no data directory: it has no meta.json",
                path.display()
            )));
        }
        let lock = lock(&OsDisk, path)?;
        Ok(Self { _lock: lock, meta: read_meta(&OsDisk, path)? })
    }

    /// Returns what `meta.json` says.
    pub fn meta(&self) -> &DataDirMeta {
        &self.meta
    }
}

/// Reads `meta.json` of a data directory.
///
/// Errors: `NotFound` when it is missing; `Corrupt` when it is damaged; `Invalid` for another format.
pub fn read_meta(disk: &dyn Disk, dir: &Path) -> Result<DataDirMeta> {
    let file = dir.join(META_FILE);
    read_known_meta(disk, &file)?.ok_or_else(|| Error::not_found(format!("{}: is missing", file.display())))
}

fn read_known_meta(disk: &dyn Disk, file: &Path) -> Result<Option<DataDirMeta>> {
    match read_json::<DataDirMeta>(disk, file)? {
        Some(meta) if !FORMATS.contains(&meta.format) => Err(Error::invalid(format!(
            "{}: format {}; this version reads the formats {} to {}",
            file.display(),
            meta.format,
            FORMATS.start(),
            FORMATS.end()
        ))),
        meta => Ok(meta),
    }
}

/// Makes the next start of a data directory have a later epoch than `epoch`.
///
/// Errors: those of [`read_meta`]; `Unavailable`.
pub fn raise_epoch(disk: &dyn Disk, dir: &Path, epoch: u64) -> Result<()> {
    let meta = read_meta(disk, dir)?;
    match meta.epoch < epoch {
        true => write_json(disk, &dir.join(META_FILE), &DataDirMeta { epoch, ..meta }),
        false => Ok(()),
    }
}

/// Returns `meta.json` of a directory with what the cluster of a node has, whose owners had epochs up to `epoch`. It has no identity yet.
///
/// Errors: `Internal`.
pub fn meta_of_cluster(node: &DataDirMeta, epoch: u64) -> Result<Vec<u8>> {
    encode_json(&DataDirMeta { epoch, id: None, restored: None, ..node.clone() })
}

/// Makes a copy of a data directory another directory than the original.
///
/// Errors: those of [`read_meta`]; `Unavailable`.
pub fn give_new_identity(disk: &dyn Disk, dir: &Path, restored: RestoredFrom) -> Result<()> {
    let meta = DataDirMeta { id: Some(new_id()), restored: Some(restored), ..read_meta(disk, dir)? };
    write_json(disk, &dir.join(META_FILE), &meta)
}

/// App that a data directory has accepted, and what earlier apps left, as `app.json` records it.
#[derive(Debug, Clone, Default)]
pub struct DeploymentRecord {
    /// The deployed app.
    pub app: App,
    /// By partition, the offset of the first record that this app may apply; records before it belong to the
    /// previous app. Empty if this is the first app.
    pub first_offsets: Vec<Offset>,
    /// Streams with stored events that earlier apps declared and this one does not.
    pub former: BTreeMap<String, StreamDeclaration>,
    /// Streams without a key whose events stay in a partition other than the one that the queries would use.
    pub pinned_streams: BTreeMap<String, PartitionId>,
    /// Settings with which its records have been applied; `None` in directories of versions that did not record them. Those of
    /// [`Self::app`] may have changed since, as they also come from the environment.
    pub applied_settings: Option<ResultSettings>,
}

/// Declaration of a stream by an app.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDeclaration {
    /// Fields, in order.
    pub fields: Vec<Field>,
    /// Key field, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Fields that make an event unique.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub id: Vec<String>,
    /// Event time field; `None` if the event time is the time of reception.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Partition of the events if the stream has no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<PartitionId>,
}

impl StreamDeclaration {
    /// Extracts the declaration from `schema`. `home` is the partition of events without a key.
    pub fn from_schema(schema: &StreamSchema, home: PartitionId) -> Self {
        let name = |at: &usize| schema.fields[*at].name.clone();
        Self {
            fields: schema.fields.clone(),
            key: schema.key.as_ref().map(name),
            id: schema.id.iter().map(name).collect(),
            time: schema.time.as_ref().map(name),
            home: schema.key.is_none().then_some(home),
        }
    }
}

/// Contents of `app.json`. Older files lack the fields after `app`: their app was the first.
#[derive(Serialize, Deserialize)]
struct StoredDeployment {
    #[serde(flatten)]
    app: AppSource,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    since: Vec<Offset>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    former: BTreeMap<String, StreamDeclaration>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    homes: BTreeMap<String, PartitionId>,
    #[serde(default)]
    results: Option<ResultSettings>,
}

fn app_file(dir: &Path) -> PathBuf {
    dir.join("app.json")
}

fn deployment(disk: &dyn Disk, dir: &Path) -> Result<Option<DeploymentRecord>> {
    let Some(stored) = read_json::<StoredDeployment>(disk, &app_file(dir))? else { return Ok(None) };
    let StoredDeployment { app, since, former, homes, results } = stored;
    let app = App::from_source(app).map_err(|e| e.context(app_file(dir).display()))?;
    Ok(Some(DeploymentRecord {
        app,
        first_offsets: since,
        former,
        pinned_streams: homes,
        applied_settings: results,
    }))
}

/// Returns the app deployed in a data directory, if there is one. Does not lock the directory.
pub fn deployed_app(dir: &Path) -> Result<Option<App>> {
    deployed_app_on(&OsDisk, dir)
}

/// Returns the app deployed in a data directory on `disk`, as [`deployed_app`] does.
pub fn deployed_app_on(disk: &dyn Disk, dir: &Path) -> Result<Option<App>> {
    Ok(deployment(disk, dir)?.map(|deployment| deployment.app))
}

/// Returns 12 random hexadecimal digits: few, because they are part of names that other systems limit.
fn new_id() -> String {
    let mut id = uuid::Uuid::new_v4().simple().to_string();
    id.truncate(12);
    id
}

/// Entries that a data directory without `meta.json` may have: its creation was interrupted, or the file was
/// lost.
const KNOWN_ENTRIES: [&str; 21] = [
    "app.json",
    "app.tmp",
    "cache",
    "changes",
    "checkpoints",
    "deliveries",
    "grown.json",
    "ids",
    "keys.json",
    "keys.tmp",
    "lock",
    "log",
    "meta.tmp",
    "reserve",
    "server.json",
    "set_aside",
    "sinks",
    "spill",
    "sql_history",
    "tables",
    "token",
];

/// Rejects a directory that is used for something else, before anything is written to it.
fn check_content(disk: &dyn Disk, path: &Path) -> Result<()> {
    if disk.open(&path.join(BACKUP_MANIFEST)).is_ok() {
        let backup = path.display();
        return Err(Error::invalid(format!(
            "{backup}: is a backup. Make a data directory of it: `tidemill restore --from {backup} --data NEW`"
        )));
    }
    origin::check_not_grown(disk, path)?;
    if disk.open(&path.join(META_FILE)).is_ok() {
        return Ok(());
    }
    let names = match disk.list(path) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error(path, e)),
    };
    for name in names {
        // the root of an ext file system has `lost+found`
        if !KNOWN_ENTRIES.contains(&name.as_str()) && name != "lost+found" {
            return Err(Error::invalid(format!(
                "{}: is not a data directory, and it is not empty: it contains `{}`. Name a new or an empty directory",
                path.display(),
                name
            )));
        }
    }
    Ok(())
}

/// Locks the directory. The lock file names the process that has the lock.
fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    let file = path.join("lock");
    match disk.lock(&file) {
        Ok(lock) => {
            // informational only, and a start must succeed on a full disk
            let _ = write_process_id(disk, &file);
            Ok(lock)
        }
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
            let mut text = String::new();
            let read = disk.open(&file).and_then(|file| FileReader::new(file).read_to_string(&mut text));
            let holder = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
            let holder = holder.map_or("another process".to_owned(), |pid| format!("process {pid}"));
            Err(Error::conflict(format!(
                "{}: {holder} has this data directory open. Wait until it ends, or end it; when it serves HTTP \
                 (`tidemill run`, `tidemill serve`), `tidemill sql`, `why` and `query` ask it by themselves",
                path.display()
            )))
        }
        Err(e) => Err(io_error(path, e)),
    }
}

fn write_process_id(disk: &dyn Disk, file: &Path) -> std::io::Result<()> {
    let file = disk.open(file)?;
    file.set_len(0)?;
    writeln!(FileWriter::new(file), "{}", std::process::id())
}

fn io_error(path: &Path, e: std::io::Error) -> Error {
    Error::unavailable(format!("{}: cannot be opened", path.display())).with_source(e)
}
