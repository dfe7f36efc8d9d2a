//! Refusals of a growth, and what it leaves where it is.

use std::path::Path;

use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, Result};

use super::ClusterLogs;
use crate::app::App;
use crate::directory::datadir::{BACKUP_MANIFEST, DataDirMeta};
use crate::directory::environment::Environment;
use crate::directory::origin::{GROWN_FILE, GrownInto};
use crate::node::Node;

/// Returns the identity of a directory that a cluster can continue.
///
/// Errors: `Invalid` with all reasons against it.
pub fn check_directory(
    dir: &Path,
    environment: &Environment,
    meta: &DataDirMeta,
    app: &App,
) -> Result<String> {
    let has = |name: &str| environment.disk.open(&dir.join(name)).is_ok();
    let log_elsewhere = environment.log.id(&app.settings);
    let mut refused = Vec::new();
    if has(BACKUP_MANIFEST) {
        refused.push("it is a backup: make a data directory of it first, with `tidemill restore`".to_owned());
    }
    if meta.encrypted || app.settings.encryption.source().is_some() {
        refused.push(
            "it is encrypted: the records of a log in Kafka are not, and its keys are in the directory only"
                .to_owned(),
        );
    }
    if let Some(log) = &log_elsewhere {
        refused.push(format!(
            "its log is in Kafka already, in the topic {log}, which has positions of this directory alone: a cluster continues a log in files"
        ));
    } else if !has("log/log.meta") {
        refused.push("it has no log in files (log/log.meta is missing)".to_owned());
    }
    if meta.id.is_none() {
        refused.push(
            "it was made by a version that gave it no identity, by which other systems would know its events: back it up and restore it, and \
             the new directory has one"
                .to_owned(),
        );
    }
    match (&meta.id, refused.is_empty()) {
        (Some(id), true) => Ok(id.clone()),
        _ => Err(Error::invalid(format!(
            "{}: cannot become a cluster; nothing was changed\n  {}",
            dir.display(),
            refused.join("\n  ")
        ))),
    }
}

/// Checks that a directory which has become a cluster is given the same one again.
///
/// Errors: `Conflict`.
pub fn check_same_target(dir: &Path, grown: &GrownInto, cluster: &str, store: &str) -> Result<()> {
    if grown.origin.cluster == cluster && grown.store == store {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{}: has become the cluster {} with the store {}, and not {cluster} with {store}: give the former ones, or remove the file {GROWN_FILE} if \
         that cluster was given up",
        dir.display(),
        grown.origin.cluster,
        grown.store
    )))
}

/// Checks that logs of a cluster have had no record.
///
/// Errors: `Conflict` if they have; those of opening them.
pub fn check_logs_unused(logs: &dyn ClusterLogs, partitions: u32) -> Result<()> {
    let log = logs.open(partitions, None)?;
    let used = (0..).map(tidemill_types::PartitionId).zip(log.latest_ends()?);
    if let Some((id, end)) = used.into_iter().find(|(_, end)| *end > Offset(0)) {
        return Err(Error::conflict(format!(
            "the log of the cluster {} is in use: the next record of partition {id} gets the offset {end}, and 0 is expected: name another \
             topic",
            logs.cluster()
        )));
    }
    check_no_member(logs)
}

/// Checks that a cluster has had no member.
///
/// Errors: `Conflict` if it has; those of opening the log.
pub fn check_no_member(logs: &dyn ClusterLogs) -> Result<()> {
    let control = logs.open_control()?;
    match control.latest_ends()?.iter().all(|end| *end == Offset(0)) {
        true => Ok(()),
        false => Err(Error::conflict(format!(
            "the cluster {} has had members, so it has begun without the directory: name another topic",
            logs.cluster()
        ))),
    }
}

/// Checks that no record waits to be run again: its note is in the directory, and no node would have it.
///
/// Errors: `Invalid`.
pub fn check_set_aside(node: &Node) -> Result<()> {
    let aside = node.host.set_aside.all();
    if aside.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = aside.iter().map(|record| record.problem()).collect();
    Err(Error::invalid(format!(
        "{}: cannot become a cluster while records are set aside, as their notes stay in the directory; nothing was written elsewhere\n  {}",
        node.host.dir.display(),
        problems.join("\n  ")
    )))
}

/// Returns what the nodes of the cluster do not get from the directory.
pub fn notes(disk: &dyn Disk, dir: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    if disk.open(&dir.join("access.json")).is_ok() {
        notes.push(format!(
            "users and tokens are those of each node: copy {} into the data directories of the nodes",
            dir.join("access.json").display()
        ));
    }
    notes
}
