//! Growth: the data directory of a single node becomes the beginning of a cluster.
//!
//! ```text
//! directory   checks, then its log is applied to the end and a checkpoint is taken          as by any start and stop
//! store       growing.json   tables/…   p00000/… p00001/…                                   no node starts from here on
//! directory   grown.json: offsets where the partitions end, epoch, app                      it does not start any more
//! log         base offsets: partition 0 begins at 4,711                                     empty until a node joins
//! store       origin.json: the same as grown.json                                           nodes start
//! ```
//!
//! At each moment either the directory starts, or the cluster, or neither. Another run of the same command continues: before `grown.json` by
//! copying again what is not there, behind it with what that file says. Nothing of the directory is removed. `docs/rfcs/0040-growth.md` has the
//! reasons, and what a crash leaves at each step.

mod checks;
mod target;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tidemill_log::Log;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::app::App;
use crate::changes::{CHANGES_DIR, ChangeLog};
use crate::cluster;
use crate::crash_points;
use crate::deploy;
use crate::directory::datadir::{self, DataDir, DataDirMeta, StoppedDir, StreamDeclaration};
use crate::directory::environment::Environment;
use crate::directory::origin::{self, ClusterOrigin, GROWN_FILE, GrownInto};
use crate::directory::tables_location::stopped_tables;
use crate::node::Node;
use crate::process::json_file::write_json;
use target::GrowthTarget;

/// Logs of a cluster that is made.
pub trait ClusterLogs {
    /// Returns the id of the cluster.
    fn cluster(&self) -> &str;

    /// Opens the log, and creates it if it does not exist. `bases` are the offsets at which its partitions begin; without them it is opened as
    /// it is.
    ///
    /// Errors: `Invalid` for a log with another number of partitions, with other bases, or in which records could be lost; `Unavailable`.
    fn open(&self, partitions: u32, bases: Option<&[Offset]>) -> Result<Arc<dyn Log>>;

    /// Opens the log of the control partition, and creates it if it does not exist.
    ///
    /// Errors: as [`Self::open`].
    fn open_control(&self) -> Result<Arc<dyn Log>>;
}

/// Summary of a growth.
#[derive(Debug, Clone, Serialize)]
pub struct GrowthReport {
    /// Id of the cluster.
    pub cluster: String,
    /// Location of its store.
    pub store: String,
    /// The data directory.
    pub path: PathBuf,
    /// By partition, the offset of the first record in the log of the cluster.
    pub base_offsets: Vec<Offset>,
    /// Number of tables, 0 if an earlier run has copied them.
    pub tables: u64,
    /// Rows in their tablets.
    pub rows: u64,
    /// True if the tables were in the store of the cluster before.
    pub tables_stay: bool,
    /// Parts of the directory that a cluster keeps elsewhere.
    pub notes: Vec<String>,
}

/// Makes the data directory `dir` the beginning of a cluster with these logs, whose tables and state are below `store`.
///
/// Errors: `Conflict` while a program has the directory open, if it has become another cluster, and if log or store are in use; `Invalid` with
/// all that the cluster could not keep; `Unavailable`. The next run continues.
pub fn grow(
    dir: &Path,
    environment: &Environment,
    logs: &dyn ClusterLogs,
    store: &str,
) -> Result<GrowthReport> {
    let disk = &*environment.disk;
    let store = store.trim_end_matches('/');
    let stopped = StoppedDir::lock(dir)?;
    let app = datadir::deployed_app(dir)?.ok_or_else(|| {
        let dir = dir.display();
        Error::not_found(format!(
            "{dir}: no app is deployed in it; start it once with `tidemill run APP --data {dir}`"
        ))
    })?;
    let target = GrowthTarget::open(store, &app.settings)?;
    let report = |origin: &ClusterOrigin| GrowthReport {
        cluster: origin.cluster.clone(),
        store: store.to_owned(),
        path: dir.to_owned(),
        base_offsets: origin.base_offsets.clone(),
        tables: 0,
        rows: 0,
        tables_stay: false,
        notes: checks::notes(disk, dir),
    };
    if let Some(grown) = origin::grown_into(disk, dir)? {
        checks::check_same_target(dir, &grown, logs.cluster(), store)?;
        finish(&grown.origin, logs, &target)?;
        return Ok(report(&grown.origin));
    }
    let directory = checks::check_directory(dir, environment, stopped.meta(), &app)?;
    let in_place = tables_stay(stopped.meta(), &app, &target);
    target.check_unused(&directory, in_place)?;
    let meta = stopped.meta().clone();
    // the engine locks it again
    drop(stopped);
    let data = DataDir::open(dir, environment.disk.clone(), meta.partitioning())?;
    let mut origin = ClusterOrigin::new(logs.cluster(), &directory, data.partitioning());
    end_directory(&data, environment, &mut origin)?;
    // topics are made if they are not there, so what is refused is refused before
    checks::check_logs_unused(logs, origin.partitions)?;

    step("note in the store that the directory becomes a cluster");
    target.begin(&directory, dir)?;
    step("copy the tables");
    let copied = match stopped_tables(dir, &meta, Some(&app))? {
        Some(zones) if !in_place => target.copy_tables(&zones)?,
        _ => Vec::new(),
    };
    target.publish_partitions(&data, &origin)?;
    step("note in the directory that it has become a cluster");
    let grown = GrownInto { origin, store: store.to_owned() };
    write_json(disk, &dir.join(GROWN_FILE), &grown)?;
    finish(&grown.origin, logs, &target)?;
    Ok(GrowthReport {
        tables: copied.len() as u64,
        rows: copied.iter().map(|table| table.rows).sum(),
        tables_stay: in_place,
        ..report(&grown.origin)
    })
}

/// Applies the log of the directory to its end, and notes what the cluster takes over.
///
/// Errors: `Invalid` with all that it could not keep; those of a start.
fn end_directory(data: &DataDir, environment: &Environment, origin: &mut ClusterOrigin) -> Result<()> {
    let (node, _) = deploy::open(data, None, environment)?;
    cluster::check_app(&node)?;
    deploy::finish_applying(&node).map_err(|e| e.context("the cluster is not made"))?;
    checks::check_set_aside(&node)?;
    let record = data.deployment()?.unwrap_or_default();
    origin.former = former_streams(&node, &record.former);
    origin.pinned_streams = record.pinned_streams;
    origin.time = node.host.clock.now().to_string();
    origin.epoch = data.epoch();
    origin.app = node.app.deployment.app.content_hash();
    origin.base_offsets = node.host.partition_ids().map(|id| node.host.log.end(id)).collect();
    let settings = node.app.deployment.settings.clone();
    drop(node);
    let changes = ChangeLog::new(data.disk().clone(), data.path(), data.partitions(), &settings);
    changes.open_existing()?;
    let ends = change_ends(&changes, origin, &data.path().join(CHANGES_DIR));
    changes.close();
    origin.change_ends = ends?;
    // one to fall back to, as the log begins behind the others
    deploy::copy_checkpoints(data)
}

/// Returns the streams with stored events that the app does not declare.
fn former_streams(
    node: &Node,
    declared: &BTreeMap<String, StreamDeclaration>,
) -> BTreeMap<String, StreamDeclaration> {
    let names = node.app.tables.former().iter().map(|(stream, _)| stream.name.clone());
    names.map(|name| (name.clone(), declared.get(&name).cloned().unwrap_or_default())).collect()
}

/// Returns where the change logs of the partitions end; nothing if changes are not kept.
///
/// Errors: `Invalid` if changes of records are kept that the log has lost, as other records of the cluster would get their offsets.
fn change_ends(changes: &ChangeLog, origin: &ClusterOrigin, dir: &Path) -> Result<Vec<Offset>> {
    let mut ends = Vec::new();
    for id in (0..origin.partitions).map(PartitionId) {
        let Some(kept) = changes.of(id) else { return Ok(Vec::new()) };
        if let Some(lost) = kept.lost_record(origin.base_offset(id))? {
            return Err(Error::invalid(format!(
                "{}: partition {id} keeps the changes of record {lost}, which a power failure took from the log, so change streams cannot be \
                 kept. Remove that directory, and the next stream begins a new history",
                dir.display()
            )));
        }
        ends.push(kept.end());
    }
    Ok(ends)
}

/// Returns whether the tables of the directory are those of the cluster.
fn tables_stay(meta: &DataDirMeta, app: &App, target: &GrowthTarget) -> bool {
    meta.tables_elsewhere(&app.settings).is_some_and(|tables| target.has_tables_at(&tables))
}

/// Makes the log begin where the partitions of the directory end, and lets nodes start.
///
/// Errors: `Conflict` if another program has written to log or store meanwhile; `Unavailable`.
fn finish(origin: &ClusterOrigin, logs: &dyn ClusterLogs, target: &GrowthTarget) -> Result<()> {
    if target.is_finished(origin)? {
        return Ok(());
    }
    step("create the log");
    let log = logs.open(origin.partitions, Some(&origin.base_offsets))?;
    origin::check_bases(&*log, Some(origin))?;
    if log.latest_ends()? != origin.base_offsets {
        return Err(Error::conflict(format!(
            "the log of the cluster {} has got records of another program, which no node has applied: use another topic, after removing the \
             file {GROWN_FILE} of the directory",
            origin.cluster
        )));
    }
    checks::check_no_member(logs)?;
    step("let nodes start");
    target.finish(origin)
}

fn step(what: &str) {
    crash_points::before(|| what.to_owned());
}
