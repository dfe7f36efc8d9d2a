//! Partitions that a process takes over from another one, and gives up.
//!
//! Two processes share a log, a store of tables, and the checkpoints. Partition 3 moves from one to the other:
//!
//! ```text
//! A  owns 3 in epoch 7 ── release: stop between two records, flush, checkpoint at 120, end
//! B                                                       acquire in epoch 8: load 120, apply 121 …, answer
//! ```
//!
//! A move by force is the second line alone: A is cut off and may go on. What it does then changes nothing, as a partition is a function
//! of its log: its emissions have the causes of those that B sends, and are dropped as repetitions; its rows are
//! refused by the tables, which know the later epoch, or are the rows that B would have written; its checkpoints are states that B
//! comes through too. As A cuts the log below its checkpoints, B may have to begin again from a later one: it fails then, and is
//! acquired once more. A learns from a refused commit that it has lost the partition ([`lose`]).
//!
//! Who owns what, and in which epoch, is decided elsewhere. `docs/rfcs/0020-engine-by-lifetime.md` has the steps of a move and what a
//! crash between them leaves.

use std::sync::Arc;

use tidemill_types::{Offset, PartitionId, Result};
use tidemill_zones::Table;

use crate::directory::partition_store::StateGroup;
use crate::jobs::checkpoint::checkpoint_partition;
use crate::lifecycle::opening;
use crate::node::Node;
use crate::partition::{OWNER_WAIT, Partition};
use crate::planted_bugs::{PlantedBug, is_planted};

/// Answer to those who wait for the emissions of a partition that is given up.
const SENT_BY_NEXT_OWNER: &str =
    "the events are in the log and applied; what they emitted is sent by the next owner of their partition";

/// Begins to open a partition that this process owns from now on, in `epoch`. It answers when it has applied its log
/// as far as it goes now, see [`opening::serve_caught_up`].
///
/// Errors: those of a start; `Unavailable` when the tables' store does not answer. This process does not own the partition then.
pub fn acquire(node: &Node, id: PartitionId, epoch: u64) -> Result<Arc<Partition>> {
    node.host.zones.own(id, epoch);
    node.host.health.clear_problem_of("apply", &id.to_string());
    let opened = node.host.partition_store.claim(StateGroup::Partition(id), epoch).and_then(|()| {
        node.host.partition_store.fetch(StateGroup::Partition(id))?;
        take_over(node, id)
    });
    if opened.is_err() {
        node.host.zones.disown(id);
    }
    opened
}

fn take_over(node: &Node, id: PartitionId) -> Result<Arc<Partition>> {
    for (_, table) in node.app.tables.writable() {
        node.host.runtime.block_on(node.host.until_stop(table.refresh()))?;
        forget_tail(table, id)?;
    }
    let end = node.host.log.end(id);
    opening::open_partition(node, id, |partition| partition.serving_from(end))
}

/// Gives a partition up so that the next owner has little to apply: between two records, with its rows flushed and a checkpoint. When
/// those fail, the next owner applies more.
pub fn release(node: &Node, id: PartitionId) {
    let Some(partition) = stop(node, id) else { return };
    if let Err(error) = checkpoint_partition(node, &partition) {
        tracing::warn!(partition = id.0, %error, "given up without a last checkpoint");
    }
    forget(node, id);
}

/// Gives a partition up at once, as another process owns it.
pub fn lose(node: &Node, id: PartitionId) {
    if stop(node, id).is_some() {
        forget(node, id);
    }
}

/// Gives up the partitions that another process owns, as far as the tables tell. Returns them.
pub fn lose_taken_over(node: &Node) -> Vec<PartitionId> {
    let mut lost = Vec::new();
    for (_, table) in node.app.tables.writable() {
        lost.extend(node.host.runtime.block_on(table.lost_partitions()));
    }
    lost.sort_unstable();
    lost.dedup();
    for id in &lost {
        tracing::warn!(partition = id.0, "another process owns the partition");
        lose(node, *id);
    }
    lost
}

/// Ends the answers and the threads of a partition.
fn stop(node: &Node, id: PartitionId) -> Option<Arc<Partition>> {
    let partition = node.owned.remove(id)?;
    // a record that does not end is left behind: it finds the partition closed
    partition.stop_owner(&*node.host.clock, node.host.clock.monotonic() + OWNER_WAIT);
    partition.stop_forwarder(SENT_BY_NEXT_OWNER);
    Some(partition)
}

/// Drops what this process has of a partition.
fn forget(node: &Node, id: PartitionId) {
    node.host.zones.disown(id);
    for (stream, table) in node.app.tables.writable() {
        if let Err(error) = forget_tail(table, id) {
            tracing::error!(stream = stream.name, %error, "rows of a partition that was given up");
        }
    }
}

/// Drops the rows of a partition that are in no file: the next owner makes them again from the log.
fn forget_tail(table: &Table, id: PartitionId) -> Result<()> {
    match is_planted(PlantedBug::KeepFormerTail) {
        true => Ok(()),
        false => table.forget_from(id, Offset(0)),
    }
}
