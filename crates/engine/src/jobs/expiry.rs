//! Deletes documents whose time in an index with `expire_after_seconds` has passed.

use tidemill_docs::{Collection, DocumentCommand};
use tidemill_types::{ErrorKind, PartitionId, Result};

use crate::entry::Entry;
use crate::node::Node;

/// Runs as a job.
pub fn run(node: &Node) {
    node.host.health.record_outcome("expiry", delete_expired(node));
}

/// Writes for each collection with expired documents a command that deletes them, into the log of each partition that has
/// some. Which documents it deletes is decided by the time of its record, so that a replay deletes the same.
fn delete_expired(node: &Node) -> Result<()> {
    let now = node.host.clock.now();
    let expires = |collection: &Collection| {
        let spec = collection.spec();
        spec.indexes.iter().any(|index| index.expire_after_seconds.is_some()) && collection.has_expired(now)
    };
    let mut entries: Vec<(PartitionId, Entry)> = Vec::new();
    for partition in node.owned.all() {
        let view = partition.view();
        for collection in view.documents.collections().filter(|collection| expires(collection)) {
            let command = DocumentCommand::Expire { collection: collection.spec().name.clone() };
            entries.push((partition.id, Entry::Command(command.to_bytes()?)));
        }
    }
    if entries.is_empty() {
        return Ok(());
    }
    match node.write_and_wait(entries, None) {
        // somebody dropped a collection meanwhile
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.map(|_| ()),
    }
}
