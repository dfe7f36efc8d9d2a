//! What a backup of a running engine contains.
//!
//! The order is what makes the copy consistent: the log is cut last. Everything before it has seen records only that were
//! appended by then, so the copy is what a power failure at the moment of the cut could have left, and it recovers as that
//! does. `docs/rfcs/0017-backup.md` has the reasons.

use std::collections::BTreeSet;

use tidemill_types::{Error, Offset, Result};

use super::content::BackupContent;
use super::manifest::PartitionRange;
use crate::changes::CHANGES_DIR;
use crate::directory::encryption::KEY_RING_FILE;
use crate::jobs;
use crate::node::Node;
use crate::sinks::{DELIVERIES_DIR, partition_name, queue_dirs};
use crate::state::set_aside::SET_ASIDE_DIR;

/// Looks at everything, holds no sender up and copies nothing. The caller holds [`crate::services::BackupLocks::removals`]
/// until the files are copied.
///
/// Errors: `Invalid` when the log is not in files; `Corrupt` naming a damaged file; `Unavailable`.
pub fn collect(node: &Node) -> Result<BackupContent> {
    // keeps the replay of the copy short; why it fails is on the health board, and the one before it does
    if let Err(error) = jobs::checkpoint::checkpoint(node) {
        tracing::info!(%error, "the backup begins with an older checkpoint");
    }
    let mut content = BackupContent::default();
    let (disk, dir) = (&*node.host.stored_disk, node.host.dir.as_path());
    // no new checkpoint, and nothing of the log is dropped
    let _no_checkpoint = node.host.checkpointing.lock();
    add_tables(node, &mut content)?;
    for partition in node.host.partition_ids() {
        content.add_checkpoints(&*node.host.disk, disk, dir, partition)?;
    }
    content.add_small_files(disk, dir, "sinks")?;
    content.add_small_files(disk, dir, SET_ASIDE_DIR)?;
    super::stopped::add_partition_progress(disk, dir, &mut content)?;
    add_deliveries(node, &mut content)?;
    content.add_log(CHANGES_DIR, node.host.changes.files()?);
    for name in ["meta.json", "app.json", KEY_RING_FILE] {
        content.add_small(disk, dir, name)?;
    }
    let ends = cut(node);
    content.add_log("log", node.host.log.files(&ends)?);
    let ranges = node.host.partition_ids().zip(ends).map(|(partition, log_end)| PartitionRange {
        partition: partition.0,
        log_start: node.host.log.start(partition),
        log_end,
    });
    content.partitions = ranges.collect();
    Ok(content)
}

/// Returns where the logs of all partitions end at one moment. No event is forwarded meanwhile, so a record that another
/// partition has emitted is before the cut only if its cause is.
fn cut(node: &Node) -> Vec<Offset> {
    let _none_on_its_way = node.host.backups.forwarding.write();
    node.host.partition_ids().map(|partition| node.host.log.end(partition)).collect()
}

/// Adds the tables, each at its newest version.
///
/// Errors: `Corrupt` naming a damaged file of a Delta log; `Unavailable`.
pub fn add_tables(node: &Node, content: &mut BackupContent) -> Result<()> {
    for name in node.host.runtime.block_on(node.host.until_stop(node.host.zones.table_names()))? {
        let version =
            node.host.runtime.block_on(node.host.until_stop(node.host.zones.newest_version(&name)))?;
        version.into_iter().for_each(|version| content.add_table(version));
    }
    Ok(())
}

/// Adds the queues of sinks to other systems, each as it is at one moment.
fn add_deliveries(node: &Node, content: &mut BackupContent) -> Result<()> {
    let mut open = BTreeSet::new();
    for sink in node.app.sinks.deliveries() {
        for queue in sink.all_queues() {
            let name = format!("{}/{}", partition_name(queue.partition()), sink.queue_name());
            let dir = format!("{DELIVERIES_DIR}/{name}");
            // the delivery thread waits; the files are open when it continues
            let queue = queue.lock();
            content.add_small(&*node.host.disk, &node.host.dir, &format!("{dir}/progress.json"))?;
            content.add_log(&format!("{dir}/events"), queue.files()?);
            open.insert(name);
        }
    }
    // those of sinks that only earlier apps had; they are no longer written
    let (disk, dir) = (&*node.host.disk, &node.host.dir);
    for name in queue_dirs(disk, &dir.join(DELIVERIES_DIR))?.iter().filter(|name| !open.contains(*name)) {
        super::stopped::add_queue(disk, dir, content, name)?;
    }
    Ok(())
}

/// Checks that there is something to copy.
///
/// Errors: `Invalid` for an engine in memory.
pub fn check_has_directory(node: &Node) -> Result<()> {
    match node.host.dir.as_os_str().is_empty() {
        true => Err(Error::invalid("an engine without a data directory has no backup")),
        false => Ok(()),
    }
}
