//! Publishing the state of partitions for the process that owns them next.

use tidemill_types::{Offset, PartitionId, Result};

use crate::checkpoint;
use crate::directory::partition_store::StateGroup;
use crate::node::Node;
use crate::shared_state::{add_below, directory_files, partition_files};
use crate::sinks::{DELIVERIES_DIR, DeliverySink};

/// Publishes the files that belong to no partition. It comes before the partitions whose rows sinks have.
///
/// Errors: those of [`crate::directory::partition_store::PartitionStore::publish`]; `Unavailable` when the disk fails.
pub fn publish_directory(node: &Node) -> Result<()> {
    let host = &node.host;
    let mut files = directory_files(&*host.stored_disk, &host.dir)?;
    for sink in node.app.sinks.deliveries() {
        // the delivery thread waits; the files are open when it continues
        let _queue = sink.queue();
        add_below(
            &*host.stored_disk,
            &host.dir,
            &format!("{DELIVERIES_DIR}/{}", sink.queue_name()),
            &mut files,
        )?;
    }
    host.partition_store.publish(StateGroup::Directory, Offset(0), files)
}

/// Publishes a partition as of its last checkpoint. The caller takes no other checkpoint meanwhile, so that no file with ids is removed.
///
/// Errors: as [`publish_directory`].
pub fn publish_partition(node: &Node, id: PartitionId) -> Result<()> {
    let host = &node.host;
    let dir = checkpoint::checkpoint_dir(&host.dir, id);
    let at = checkpoint::list(&*host.disk, &dir)?.pop().map_or(Offset(0), |(at, _)| at);
    host.partition_store.publish(
        StateGroup::Partition(id),
        at,
        partition_files(&*host.stored_disk, &host.dir, id)?,
    )
}

/// Publishes everything, before the threads begin or after they have ended.
///
/// Errors: as [`publish_directory`].
pub fn publish_all(node: &Node) -> Result<()> {
    let host = &node.host;
    let mut files = directory_files(&*host.stored_disk, &host.dir)?;
    let queues = node.app.sinks.deliveries().iter().map(DeliverySink::queue_name);
    for queue in queues {
        add_below(&*host.stored_disk, &host.dir, &format!("{DELIVERIES_DIR}/{queue}"), &mut files)?;
    }
    host.partition_store.publish(StateGroup::Directory, Offset(0), files)?;
    host.partition_ids().try_for_each(|id| publish_partition(node, id))
}
