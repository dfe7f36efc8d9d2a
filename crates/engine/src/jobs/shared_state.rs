//! Publishing the state of partitions for the process that owns them next.

use tidemill_types::{Offset, PartitionId, Result};

use crate::checkpoint;
use crate::directory::partition_store::StateGroup;
use crate::node::Node;
use crate::shared_state::{add_below, directory_files, partition_files};
use crate::sinks::DELIVERIES_DIR;

/// Publishes the files that belong to no partition. It comes before the partitions whose rows sinks have.
///
/// Errors: those of [`crate::directory::partition_store::PartitionStore::publish`]; `Unavailable` when the disk fails.
pub fn publish_directory(node: &Node) -> Result<()> {
    let (host, disk) = (&node.host, &*node.host.stored_disk);
    host.partition_store.publish(StateGroup::Directory, Offset(0), &|| {
        let mut files = directory_files(disk, &host.dir)?;
        for sink in node.app.sinks.deliveries() {
            // the delivery thread waits; the files are open when it continues
            let _queue = sink.queue();
            let dir = format!("{DELIVERIES_DIR}/{}", sink.queue_name());
            add_below(disk, &host.dir, &dir, &mut files)?;
        }
        Ok(files)
    })
}

/// Publishes a partition as of its last checkpoint. The caller takes no other checkpoint meanwhile, so that no file with ids is removed.
///
/// Errors: as [`publish_directory`].
pub fn publish_partition(node: &Node, id: PartitionId) -> Result<()> {
    let host = &node.host;
    let dir = checkpoint::checkpoint_dir(&host.dir, id);
    let at = checkpoint::list(&*host.disk, &dir)?.pop().map_or(Offset(0), |(at, _)| at);
    let files = || partition_files(&*host.stored_disk, &host.dir, id);
    host.partition_store.publish(StateGroup::Partition(id), at, &files)
}

/// Publishes everything that this process owns, before the threads begin or after they have ended.
///
/// Errors: as [`publish_directory`].
pub fn publish_all(node: &Node) -> Result<()> {
    publish_directory(node)?;
    node.owned.all().iter().try_for_each(|partition| publish_partition(node, partition.id))
}
