//! Publishing the state of partitions for the process that owns them next.

use tidemill_types::{Offset, PartitionId, Result};

use crate::checkpoint;
use crate::directory::partition_store::StateGroup;
use crate::node::Node;
use crate::shared_state::{directory_files, partition_files};

/// Publishes the files that belong to no partition. It comes before the partitions whose rows sinks of files have.
///
/// Errors: those of [`crate::directory::partition_store::PartitionStore::publish`]; `Unavailable` when the disk fails.
pub fn publish_directory(node: &Node) -> Result<()> {
    let (host, disk) = (&node.host, &*node.host.stored_disk);
    host.partition_store.publish(StateGroup::Directory, (Offset(0), 0), &|| directory_files(disk, &host.dir))
}

/// Publishes a partition as of its last checkpoint, with the queues of sinks as they are. The caller takes no other checkpoint meanwhile, so that no file with ids is removed.
///
/// Errors: as [`publish_directory`].
pub fn publish_partition(node: &Node, id: PartitionId) -> Result<()> {
    let host = &node.host;
    let dir = checkpoint::checkpoint_dir(&host.dir, id);
    let mut checkpoints = checkpoint::list(&*host.disk, &dir)?.into_iter().rev().map(|(at, _)| at);
    let at = checkpoints.next().unwrap_or_default();
    let has_copy = checkpoints.next() == Some(at);
    let sinks = &node.app.sinks;
    // grows with each change of a queue, and when the checkpoint gets a copy
    let revision = 2 * sinks.with_partition(id, |revision| revision) + u64::from(has_copy);
    // the queues wait while their files are opened, not while they are uploaded; what changes then is published the next time
    let files = || sinks.with_partition(id, |_| partition_files(&*host.stored_disk, &host.dir, id));
    host.partition_store.publish(StateGroup::Partition(id), (at, revision), &files)
}

/// Publishes everything that this process owns, before the threads begin or after they have ended.
///
/// Errors: as [`publish_directory`].
pub fn publish_all(node: &Node) -> Result<()> {
    publish_directory(node)?;
    node.owned.all().iter().try_for_each(|partition| publish_partition(node, partition.id))
}
