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
//! refused by the tables, which know the later epoch, or are the rows that B would have written; its deliveries to other systems are
//! refused where these keep the position and the epoch, and come twice elsewhere; its checkpoints are states that B
//! comes through too. As A cuts the log below its checkpoints, B may have to begin again from a later one: it fails then, and is
//! acquired once more. A learns from a refused commit that it has lost the partition ([`lose`]).
//!
//! Who owns what, and in which epoch, is decided elsewhere. `docs/rfcs/0020-engine-by-lifetime.md` has the steps of a move and what a
//! crash between them leaves.

use std::sync::Arc;
use std::time::Duration;

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

/// Time that a delivery has to end before its partition is given up.
const DELIVERY_WAIT: Duration = Duration::from_secs(5);
/// Interval between two looks at it.
const DELIVERY_POLL: Duration = Duration::from_millis(5);

/// Begins to open a partition that this process owns from now on, in `epoch`. It answers when it has applied its log
/// as far as it goes now, see [`opening::serve_caught_up`].
///
/// Errors: those of a start; `Unavailable` when the tables' store does not answer. This process does not own the partition then.
pub fn acquire(node: &Node, id: PartitionId, epoch: u64) -> Result<Arc<Partition>> {
    node.host.zones.own(id, epoch);
    node.host.health.clear_problem_of("apply", &id.to_string());
    let store = &node.host.partition_store;
    // what this process had of it is replaced
    node.app.sinks.close_partition(id);
    let opened = store.claim(StateGroup::Partition(id), epoch).and_then(|()| {
        store.fetch(StateGroup::Partition(id))?;
        node.app.sinks.open_partition(id, sink_epoch(node, epoch), node.host.log.end(id))?;
        take_over(node, id)
    });
    if opened.is_err() {
        node.app.sinks.close_partition(id);
        node.host.zones.disown(id);
    }
    opened
}

/// Returns the epoch that sinks tell other systems. A directory whose state stays there begins with small epochs when it is made anew, and
/// owns all partitions at any rate.
pub fn sink_epoch(node: &Node, epoch: u64) -> u64 {
    if node.host.partition_store.is_shared() { epoch } else { 0 }
}

fn take_over(node: &Node, id: PartitionId) -> Result<Arc<Partition>> {
    for (_, table) in node.app.tables.writable() {
        node.host.runtime.block_on(node.host.until_stop(table.refresh()))?;
        forget_tail(table, id)?;
    }
    let end = node.host.log.end(id);
    opening::open_partition(node, id, |partition| partition.serving_from(end))
}

/// Gives a partition up so that the next owner has little to apply: between two records, with its rows flushed, deliveries ended and a
/// checkpoint. When those fail, the next owner applies more, and may deliver events again to systems that do not recognize them. Returns
/// whether all was done.
pub fn release(node: &Node, id: PartitionId) -> bool {
    let Some(partition) = stop(node, id) else { return false };
    let deadline = node.host.clock.monotonic() + DELIVERY_WAIT;
    let delivered = node.app.sinks.stop_partition(id, || {
        node.host.clock.sleep(DELIVERY_POLL);
        node.host.clock.monotonic() < deadline
    });
    if !delivered {
        tracing::warn!(partition = id.0, "given up while another system is given events of it");
    }
    let taken = checkpoint_partition(node, &partition);
    if let Err(error) = &taken {
        tracing::warn!(partition = id.0, %error, "given up without a last checkpoint");
    }
    forget(node, id);
    delivered && taken.is_ok()
}

/// Gives a partition up at once, as another process owns it.
pub fn lose(node: &Node, id: PartitionId) {
    match stop(node, id) {
        Some(_) => forget(node, id),
        // one that could not be opened to its end has queues all the same
        None => node.app.sinks.close_partition(id),
    }
}

/// Gives up the partitions that another process owns, as far as the tables and the other sides of sinks tell. Returns them.
pub fn lose_taken_over(node: &Node) -> Vec<PartitionId> {
    let mut lost = Vec::new();
    for (_, table) in node.app.tables.writable() {
        lost.extend(node.host.runtime.block_on(table.lost_partitions()));
    }
    lost.extend(node.app.sinks.lost_partitions());
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
    node.app.sinks.close_partition(id);
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
