//! The data directory that a cluster was made from, as the store of the cluster tells it to its nodes.
//!
//! ```text
//! s3://bucket/shop/state/
//!   growing.json     directory 3fa85f64a1b2 is becoming this cluster        before anything else is written there
//!   p00000/… p00001/…
//!   origin.json      its offsets, epoch, app …                              when everything is there
//! ```
//!
//! A node refuses to start while the first file is there and the second is not. `docs/rfcs/0040-growth.md` has the order of the steps.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidemill_log::Log;
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::ObjectDirectory;

use super::datadir::StreamDeclaration;
use super::partitioning::{HomeRule, Partitioning};
use crate::process::json_file::read_json;

/// File of the state that says what the cluster was made from. It is written last.
pub const ORIGIN_FILE: &str = "origin.json";
/// File of the state that says that a directory is becoming the cluster. It is written first.
pub const GROWING_FILE: &str = "growing.json";
/// File of a data directory that has become a cluster.
pub const GROWN_FILE: &str = "grown.json";
/// Version of the format of these files.
const FORMAT: u32 = 1;

/// Facts that a cluster takes over from the data directory that it was made from, beside the files of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOrigin {
    format: u32,
    /// Id of the cluster.
    pub cluster: String,
    /// Identity of the data directory. Other systems know the events of the cluster by it, too.
    pub directory: String,
    /// When it became the cluster, RFC 3339.
    pub time: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of the rule by which queries get their partitions.
    pub home_rule: u32,
    /// Epoch of the last start of the directory. Owners in the cluster have later ones.
    pub epoch: u64,
    /// Hash of the app with which the records of the directory were applied.
    pub app: String,
    /// By partition, the offset of the first record in the log of the cluster.
    pub base_offsets: Vec<Offset>,
    /// By partition, the end of the change log; empty if changes were not kept.
    pub change_ends: Vec<Offset>,
    /// Streams with stored events that earlier apps declared.
    #[serde(default)]
    pub former: BTreeMap<String, StreamDeclaration>,
    /// Streams without a key whose events stay in a partition other than the one that the queries would use.
    #[serde(default)]
    pub pinned_streams: BTreeMap<String, PartitionId>,
}

/// Content of [`GROWING_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growing {
    /// Identity of the data directory.
    pub directory: String,
    /// Its path, for people.
    pub path: String,
}

/// Content of [`GROWN_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrownInto {
    /// Facts that the cluster takes over.
    pub origin: ClusterOrigin,
    /// Location of the store of the cluster.
    pub store: String,
}

impl ClusterOrigin {
    /// Creates what a cluster takes over from a directory with this partitioning.
    pub fn new(cluster: &str, directory: &str, partitioning: Partitioning) -> Self {
        Self {
            format: FORMAT,
            cluster: cluster.to_owned(),
            directory: directory.to_owned(),
            time: String::new(),
            partitions: partitioning.partitions,
            home_rule: partitioning.home_rule.number(),
            epoch: 0,
            app: String::new(),
            base_offsets: Vec::new(),
            change_ends: Vec::new(),
            former: BTreeMap::new(),
            pinned_streams: BTreeMap::new(),
        }
    }

    /// Reads what the cluster with its state in `objects` was made from; `None` if it began without data.
    ///
    /// Errors: `Conflict` while a directory is becoming the cluster; `Corrupt`, `Invalid` for a file that this version does not know;
    /// `Unavailable`.
    pub async fn of_store(objects: &ObjectDirectory) -> Result<Option<Self>> {
        if let Some(origin) = Self::finished(objects).await? {
            return Ok(Some(origin));
        }
        let Some(growing) = growing(objects).await? else { return Ok(None) };
        Err(Error::conflict(format!(
            "{}: the data directory {} is becoming this cluster, and not all of it is here: run `tidemill cluster create --from {}` with the \
             same --cluster and --store to its end",
            objects.display(GROWING_FILE),
            growing.path,
            growing.path
        )))
    }

    /// Reads the origin of a cluster; `None` as long as it is not written.
    ///
    /// Errors: as [`Self::of_store`].
    pub async fn finished(objects: &ObjectDirectory) -> Result<Option<Self>> {
        let Some(content) = objects.read(ORIGIN_FILE).await? else { return Ok(None) };
        let place = objects.display(ORIGIN_FILE);
        let origin: Self =
            serde_json::from_slice(&content).map_err(|e| Error::corrupt(format!("{place}: {e}")))?;
        if origin.format != FORMAT {
            return Err(Error::invalid(format!(
                "{place}: has format {}, and this program knows {FORMAT}: use the version that wrote it",
                origin.format
            )));
        }
        match origin.base_offsets.len() == origin.partitions as usize {
            true => Ok(Some(origin)),
            false => Err(Error::corrupt(format!(
                "{place}: has {} offsets, and {} partitions",
                origin.base_offsets.len(),
                origin.partitions
            ))),
        }
    }

    /// Encodes the file.
    ///
    /// Errors: `Internal`.
    pub fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
            .map_err(|e| Error::internal("the origin of a cluster cannot be encoded").with_source(e))
    }

    /// Returns the partitioning of the directory.
    ///
    /// Errors: `Invalid` for a rule that this version does not know.
    pub fn partitioning(&self) -> Result<Partitioning> {
        Ok(Partitioning { partitions: self.partitions, home_rule: HomeRule::from_number(self.home_rule)? })
    }

    /// Returns a short text that is equal for equal origins only, which nodes compare when they join.
    ///
    /// Errors: as [`Self::encode`].
    pub fn fingerprint(&self) -> Result<String> {
        Ok(format!("{} ({:08x})", self.directory, crc32c::crc32c(&self.encode()?)))
    }

    /// Returns the offset of the first record of a partition in the log of the cluster.
    pub fn base_offset(&self, id: PartitionId) -> Offset {
        self.base_offsets.get(id.0 as usize).copied().unwrap_or_default()
    }
}

/// Reads which directory is becoming the cluster.
///
/// Errors: `Corrupt`, `Unavailable`.
pub async fn growing(objects: &ObjectDirectory) -> Result<Option<Growing>> {
    let Some(content) = objects.read(GROWING_FILE).await? else { return Ok(None) };
    let growing = serde_json::from_slice(&content);
    growing.map(Some).map_err(|e| Error::corrupt(format!("{}: {e}", objects.display(GROWING_FILE))))
}

/// Reads which cluster a data directory has become; `None` if it is one to work in.
///
/// Errors: `Corrupt`, `Unavailable`.
pub fn grown_into(disk: &dyn Disk, dir: &Path) -> Result<Option<GrownInto>> {
    read_json(disk, &dir.join(GROWN_FILE))
}

/// Refuses to start on a data directory that has become a cluster.
///
/// Errors: `Conflict` if it has; those of [`grown_into`].
pub fn check_not_grown(disk: &dyn Disk, dir: &Path) -> Result<()> {
    let Some(GrownInto { origin, store }) = grown_into(disk, dir)? else { return Ok(()) };
    let dir = dir.display();
    Err(Error::conflict(format!(
        "{dir}: has become the cluster {}, which has continued its log since {}: start nodes with data directories of their own, `tidemill \
         run APP --data NEW --cluster kafka://HOST:PORT/{} --store {store}`. If that cluster was given up, remove the file {GROWN_FILE}: \
         the directory then continues from that moment, and must never run beside the cluster",
        origin.cluster, origin.time, origin.cluster
    )))
}

/// Checks that the partitions of a log that processes share begin where those end that it continues.
///
/// Errors: `Conflict`.
pub fn check_bases(log: &dyn Log, origin: Option<&ClusterOrigin>) -> Result<()> {
    for id in (0..log.partitions()).map(PartitionId) {
        let (found, expected) = (log.base(id), origin.map_or(Offset(0), |origin| origin.base_offset(id)));
        if found == expected {
            continue;
        }
        return Err(Error::conflict(match origin {
            Some(origin) => format!(
                "partition {id}: the log begins at offset {found}, and the state in the store at {expected}, where the data directory {}                  ended: give --cluster and --store that `tidemill cluster create` was given",
                origin.directory
            ),
            None => format!(
                "partition {id}: the log begins at offset {found}, as it continues a data directory, and the store has nothing of that:                  give the --store that `tidemill cluster create` was given"
            ),
        }));
    }
    Ok(())
}
