//! Backup of a cluster, taken by one of its nodes.
//!
//! A node has replicas of some partitions, and tails of tables that others have too. What all nodes share is in the store and in the log, so a
//! backup is made from these, in this order:
//!
//! ```text
//! store   partition 0: state at 120, 1: state at 77      the newest published versions
//! store   tables at their newest versions                have all rows below the states
//! log     ends 131 and 80                                taken last: everything above is below them
//! log     cut  133 and 80                                raised until each effect has its cause, see cut.rs
//! copy    records 120..133 and 77..80, states, tablets
//! ```
//!
//! The result is a backup of a data directory, as a power failure at the cut would have left it: of a single node with this state, these tables and
//! this log. What owners remove meanwhile is missed when it is read; the copy begins again with newer versions then. Owners remove nothing
//! that a backup holds ([`StateHold`]). `docs/rfcs/0041-backup-of-a-cluster.md` has the reasons.

mod cut;
mod hold;
mod records;

use std::path::Path;

use tidemill_log::disk::Disk;
use tidemill_log::{LogFileContent, SegmentEncoder, meta_file};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result};

use super::content::{BackupContent, FileContent};
use super::manifest::Manifest;
use super::{StoresOfNode, running, write};
use crate::changes::CHANGES_DIR;
use crate::checkpoint;
use crate::directory::datadir;
use crate::directory::partition_store::PublishedState;
use crate::jobs;
use crate::jobs::checkpoint::CHECKPOINTS_KEPT;
use crate::node::{ClusterPart, Node};
use crate::process::disk_files::list;
use crate::state::set_aside::SET_ASIDE_DIR;
use hold::StateHold;
use records::CopyTarget;

/// Attempts at a copy whose source was removed before it was read.
const ATTEMPTS: u32 = 8;

/// Copies the cluster of a node to a directory of a disk.
///
/// Errors: `Conflict` and `Unavailable` for a node that has not joined; `Invalid` for an encrypted cluster; `Unavailable` if log or store do not
/// answer, and if states are replaced faster than they are copied; `Corrupt` naming what is damaged.
pub fn copy(node: &Node, part: &dyn ClusterPart, to: (&dyn Disk, &Path)) -> Result<Manifest> {
    part.check_member().map_err(|e| e.context("the cluster is not backed up by this node"))?;
    if node.app.deployment.settings.encryption.source().is_some() {
        return Err(Error::invalid(
            "an encrypted cluster is not backed up: the records of its log in Kafka are not encrypted, and would be readable in the backup",
        ));
    }
    // keeps the replay of the copy short; other owners take theirs by themselves
    if let Err(error) = jobs::checkpoint::checkpoint(node) {
        tracing::info!(%error, "the backup begins with older checkpoints");
    }
    let _no_removals = node.host.backups.removals.lock();
    let hold = StateHold::new(&node.host)?;
    let mut attempt = 1;
    loop {
        match copy_once(node, part, &hold, to) {
            Err(e) if e.kind() == ErrorKind::NotFound && attempt < ATTEMPTS => {
                tracing::info!(error = %e, "the backup begins again, as its source was replaced");
                remove_below(to, "")?;
                attempt += 1;
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Error::unavailable(format!(
                    "the state or the tables of the cluster were replaced before they were copied, {ATTEMPTS} times: take the backup when there \
                     is less to do, or by a node with a faster way to the store, or raise the setting checkpoint_interval of the nodes"
                ))
                .with_source(e));
            }
            done => return done,
        }
    }
}

/// Errors: as [`copy`]; `NotFound` if something was removed before it was copied.
fn copy_once(
    node: &Node,
    part: &dyn ClusterPart,
    hold: &StateHold<'_>,
    (disk, dir): (&dyn Disk, &Path),
) -> Result<Manifest> {
    let host = &node.host;
    let mut manifest =
        Manifest::new(host.clock.now().to_string(), None, Some(node.app.deployment.app.name.clone()));
    manifest.cluster = Some(part.cluster_id());
    let meta = datadir::read_meta(&*host.disk, &host.dir)?;
    manifest.tables_location = meta.tables_elsewhere(&node.app.deployment.settings);

    let mut states = published_states(node)?;
    let starts = log_starts(node, &mut states)?;
    let begin: Vec<Offset> = states.iter().map(|state| state.next).collect();
    let mut content = BackupContent::default();
    add_notes(node, &mut content)?;
    // behind the states, so that they have all rows below them
    running::add_tables(node, &mut content)?;
    // behind the tables, so that it is above the epochs of those who have written them
    let epochs = host.partition_ids().map(|id| host.partition_store.newest_epoch(id));
    let epoch = epochs.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or_default();
    content.add("meta.json".to_owned(), FileContent::Written(datadir::meta_of_cluster(&meta, epoch)?));
    content.add_small(&*host.stored_disk, &host.dir, "app.json")?;
    add_states(states, &mut content);
    write::check_room(dir, content.bytes(&*host.stored_disk)? + node.app.deployment.settings.reserve_bytes)?;

    // last, so that no state, table or queue is ahead of the log
    let ends = host.log.latest_ends()?;
    check_ends(&begin, &ends)?;
    let goes_on = || {
        hold.renew();
        !host.is_stopping()
    };
    let log = records::copy(&*host.log, &starts, ends, CopyTarget { disk, dir, goes_on: &goes_on })?;
    content.partitions = log.partitions;
    manifest.files = log.files;
    write::write(&*host.stored_disk, &content, manifest, (disk, dir), &StoresOfNode(node), &goes_on)
}

/// Returns the newest published state of each partition. One that was never published is that of an empty log.
fn published_states(node: &Node) -> Result<Vec<PublishedState>> {
    let empty = || PublishedState { next: Offset(0), files: Vec::new() };
    let state = |id| Ok(node.host.partition_store.newest_state(id)?.unwrap_or_else(empty));
    node.host.partition_ids().map(state).collect()
}

/// Returns the offset from which the copy needs the log of each partition: that of its oldest checkpoint. Checkpoints that the log does not
/// reach back to any more are left out of the states.
///
/// All states are there by now, and all logs reach back to them. So no state has forgotten the decision on a transaction that another one has
/// not applied: decisions are kept as long as the log of another participant has the record.
///
/// Errors: `NotFound` if a state was replaced, and the log cut behind it; `Unavailable`.
fn log_starts(node: &Node, states: &mut [PublishedState]) -> Result<Vec<Offset>> {
    node.host.log.learn_starts()?;
    let start_of = |(id, state): (PartitionId, &mut PublishedState)| {
        let start = node.host.log.start(id);
        let mut checkpoints: Vec<Offset> = checkpoints_of(state).collect();
        checkpoints.sort_unstable();
        let newest = checkpoints.last().copied();
        // a build before this one has published a third one, whose files with ids may be gone
        let kept = &checkpoints[checkpoints.len().saturating_sub(CHECKPOINTS_KEPT)..];
        let oldest = kept.iter().copied().find(|at| *at >= start);
        match (oldest, newest) {
            (Some(oldest), _) => {
                remove_checkpoints_below(state, oldest);
                Ok(oldest)
            }
            (None, None) if start == Offset(0) => Ok(start),
            (None, None) => Err(Error::unavailable(format!(
                "partition {id}: its log begins at offset {start}, and its owner has published no state: wait until it has taken a \
                 checkpoint (setting checkpoint_interval), and look at `tidemill cluster status` if there is no owner"
            ))),
            (None, Some(newest)) => Err(Error::not_found(format!(
                "partition {id}: its log begins at offset {start}, and the state was at {newest}"
            ))),
        }
    };
    node.host.partition_ids().zip(states).map(start_of).collect()
}

fn remove_checkpoints_below(state: &mut PublishedState, oldest: Offset) {
    state.files.retain(|file| {
        let name = file.name.rsplit('/').next().unwrap_or_default();
        let explained = || name.strip_suffix(".why")?.parse().ok().map(Offset);
        checkpoint::offset_of_file(name).or_else(explained).is_none_or(|at| at >= oldest)
    });
}

/// Checks that the log of each partition has the records below its state.
///
/// Errors: `Corrupt`.
fn check_ends(states: &[Offset], ends: &[Offset]) -> Result<()> {
    let lost = (0..).zip(states.iter().zip(ends)).find(|(_, (state, end))| end < state);
    lost.map_or(Ok(()), |(p, (state, end)): (u32, _)| {
        Err(Error::corrupt(format!(
            "partition {p}: its state is at offset {state}, but the log ends at {end}: the log has lost records, and no backup is right"
        )))
    })
}

fn checkpoints_of(state: &PublishedState) -> impl Iterator<Item = Offset> {
    let names = state.files.iter().filter_map(|file| file.name.rsplit('/').next());
    names.filter_map(checkpoint::offset_of_file)
}

/// Adds the notes on records of own partitions that are set aside. Other nodes have those of theirs.
fn add_notes(node: &Node, content: &mut BackupContent) -> Result<()> {
    let host = &node.host;
    for name in list(&*host.stored_disk, &host.dir.join(SET_ASIDE_DIR))? {
        let is_own = |id: PartitionId| name.starts_with(&format!("p{:05}-", id.0)) && name.ends_with(".json");
        if node.owned.all().iter().any(|partition| is_own(partition.id)) {
            content.add_small(&*host.stored_disk, &host.dir, &format!("{SET_ASIDE_DIR}/{name}"))?;
        }
    }
    Ok(())
}

/// Adds the files of published states. The change log gets the file that belongs to no partition, and an empty history for partitions
/// that have begun none.
fn add_states(states: Vec<PublishedState>, content: &mut BackupContent) {
    let is_change = |name: &str| name.starts_with(CHANGES_DIR);
    let has_changes = |state: &PublishedState| state.files.iter().any(|file| is_change(&file.name));
    if states.iter().any(has_changes) {
        let mut files = vec![meta_file(states.len() as u32)];
        for (p, _) in (0..).zip(&states).filter(|(_, state)| !has_changes(state)) {
            let empty = SegmentEncoder::new(PartitionId(p), Offset(0));
            files.push(tidemill_log::LogFile {
                name: empty.name(),
                content: LogFileContent::Written(empty.header()),
            });
            files.push(empty.newest_file());
        }
        content.add_log(CHANGES_DIR, files);
    }
    for file in states.into_iter().flat_map(|state| state.files) {
        content.add(file.name.clone(), FileContent::Published(file));
    }
}

/// Removes the files that an attempt has written.
fn remove_below((disk, dir): (&dyn Disk, &Path), below: &str) -> Result<()> {
    for name in list(disk, &dir.join(below))? {
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        let path = dir.join(&name);
        match disk.list(&path) {
            Ok(_) => remove_below((disk, dir), &name)?,
            Err(_) if name == write::LOCK => {}
            Err(_) => disk.remove(&path).map_err(|e| {
                Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e)
            })?,
        }
    }
    Ok(())
}
