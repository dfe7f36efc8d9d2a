//! What a backup of a running engine contains.
//!
//! The order is what makes the copy consistent: the log is cut last. Everything before it has seen records only that were
//! appended by then, so the copy is what a power failure at the moment of the cut could have left, and it recovers as that
//! does. `docs/rfcs/0017-backup.md` has the reasons.

use tidemill_types::{Error, Offset, Result};

use super::content::BackupContent;
use super::manifest::PartitionRange;
use crate::changes::CHANGES_DIR;
use crate::core::Core;
use crate::directory::encryption::KEY_RING_FILE;
use crate::host::disk_files::list;
use crate::jobs;
use crate::sinks::{DELIVERIES_DIR, DeliverySink};
use crate::state::set_aside::SET_ASIDE_DIR;

/// Looks at everything, holds no sender up and copies nothing. The caller holds [`crate::services::BackupLocks::removals`]
/// until the files are copied.
///
/// Errors: `Invalid` when the log is not in files; `Corrupt` naming a damaged file; `Unavailable`.
pub fn collect(core: &Core) -> Result<BackupContent> {
    // keeps the replay of the copy short; why it fails is on the health board, and the one before it does
    if let Err(error) = jobs::checkpoint::checkpoint(core) {
        tracing::info!(%error, "the backup begins with an older checkpoint");
    }
    let mut content = BackupContent::default();
    let (disk, dir) = (&*core.stored_disk, core.dir.as_path());
    // no new checkpoint, and nothing of the log is dropped
    let _no_checkpoint = core.checkpointing.lock();
    add_tables(core, &mut content)?;
    for partition in core.partitions() {
        content.add_checkpoints(&*core.disk, disk, dir, partition.id)?;
    }
    content.add_small_files(disk, dir, "sinks")?;
    content.add_small_files(disk, dir, SET_ASIDE_DIR)?;
    add_deliveries(core, &mut content)?;
    content.add_log(CHANGES_DIR, core.changes.files()?);
    for name in ["meta.json", "app.json", KEY_RING_FILE] {
        content.add_small(disk, dir, name)?;
    }
    let ends = cut(core);
    content.add_log("log", core.log.files(&ends)?);
    content.partitions = core
        .partitions()
        .iter()
        .zip(ends)
        .map(|(partition, log_end)| PartitionRange {
            partition: partition.id.0,
            log_start: core.log.start(partition.id),
            log_end,
        })
        .collect();
    Ok(content)
}

/// Returns where the logs of all partitions end at one moment. No event is forwarded meanwhile, so a record that another
/// partition has emitted is before the cut only if its cause is.
fn cut(core: &Core) -> Vec<Offset> {
    let _none_on_its_way = core.backups.forwarding.write();
    core.partitions().iter().map(|partition| core.log.end(partition.id)).collect()
}

fn add_tables(core: &Core, content: &mut BackupContent) -> Result<()> {
    let tables = &core.tables;
    for name in tables.runtime.block_on(core.until_stop(tables.zones.table_names()))? {
        let version = tables.runtime.block_on(core.until_stop(tables.zones.newest_version(&name)))?;
        version.into_iter().for_each(|version| content.add_table(version));
    }
    Ok(())
}

/// Adds the queues of sinks to other systems, each as it is at one moment.
fn add_deliveries(core: &Core, content: &mut BackupContent) -> Result<()> {
    let open: Vec<String> = core.sinks.deliveries().iter().map(DeliverySink::queue_name).collect();
    for (name, sink) in open.iter().zip(core.sinks.deliveries()) {
        let dir = format!("{DELIVERIES_DIR}/{name}");
        // the thread that delivers waits; the files are open when it goes on
        let queue = sink.queue();
        content.add_small(&*core.disk, &core.dir, &format!("{dir}/progress.json"))?;
        content.add_log(&format!("{dir}/events"), queue.files()?);
    }
    // those of sinks that only earlier apps had; nobody writes them
    for name in list(&*core.disk, &core.dir.join(DELIVERIES_DIR))?.iter().filter(|name| !open.contains(name))
    {
        add_closed_queue(core, content, name)?;
    }
    Ok(())
}

fn add_closed_queue(core: &Core, content: &mut BackupContent, name: &str) -> Result<()> {
    super::stopped::add_queue(&*core.disk, &core.dir, content, name)
}

/// Checks that there is something to copy.
///
/// Errors: `Invalid` for an engine in memory.
pub fn check_has_directory(core: &Core) -> Result<()> {
    match core.dir.as_os_str().is_empty() {
        true => Err(Error::invalid("an engine without a data directory has no backup")),
        false => Ok(()),
    }
}
