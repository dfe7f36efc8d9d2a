//! Opening a partition while others run: load, catch up, answer.

use std::sync::Arc;
use std::time::Duration;

use tidemill_types::{Error, PartitionId, Result};

use crate::lifecycle::recover;
use crate::node::Node;
use crate::partition::Partition;
use crate::partition::outbox::Replies;

/// Answer to those who wait for the emissions of a partition that is closed.
pub const SENT_LATER: &str =
    "the events are in the log and applied; what they emitted is sent when their partition is opened again";
/// Time that another partition has to end its record, so that its decisions can be read.
const RECORD_WAIT: Duration = Duration::from_secs(1);

/// Begins to open a partition from its checkpoint, as `place` wants it. It consumes its log from then on; [`serve_caught_up`] follows.
///
/// Errors: those of a start.
pub fn open_partition(
    node: &Node,
    id: PartitionId,
    place: impl FnOnce(Partition) -> Partition,
) -> Result<Arc<Partition>> {
    let partition = begin_from_checkpoint(node, id, place)?;
    // where each process has a board of its own, replicas that are behind need the decisions
    if node.owned.follows() {
        node.host.commits.begin_with(id, &partition.state.read().decisions);
    }
    node.owned.open(partition.clone());
    Ok(partition)
}

/// Begins to follow a partition from its checkpoint, as a standby of another process.
///
/// Errors: those of a start.
pub fn follow_partition(node: &Node, id: PartitionId) -> Result<Arc<Partition>> {
    let partition = begin_from_checkpoint(node, id, Partition::standing_by)?;
    node.host.commits.begin_with(id, &partition.state.read().decisions);
    node.owned.follow(partition.clone());
    Ok(partition)
}

fn begin_from_checkpoint(
    node: &Node,
    id: PartitionId,
    place: impl FnOnce(Partition) -> Partition,
) -> Result<Arc<Partition>> {
    // a checkpoint that is being written comes first
    let _no_checkpoint = node.host.checkpointing.lock();
    node.host.set_aside.follow_notes(id);
    let mut warnings = Vec::new();
    let loaded = recover::load_partition(node, id, &mut warnings)?;
    warnings.extend(recover::continue_changes(node, &loaded.state)?);
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    node.host.commits.reopen(id);
    know_decisions(node, id)?;
    let partition = place(Partition::new(loaded.state, node.host.clone(), node.app.clone()));
    partition.enqueue_emissions(loaded.outbox, Replies::new());
    partition.publish();
    partition.refresh_next_timer();
    partition.start_consuming()?;
    Ok(Arc::new(partition))
}

/// Lets partitions answer that have come as far as those whose place they take. One that has stopped on the way is given up, to be
/// begun again. Returns those that answer.
pub fn serve_caught_up(node: &Node) -> Vec<PartitionId> {
    let mut serving = Vec::new();
    for partition in node.owned.opening() {
        if partition.has_failed() {
            partition.close(SENT_LATER);
            node.owned.abandon(partition.id);
        } else if partition.has_caught_up() {
            tracing::info!(partition = partition.id.0, applied = partition.applied().0, "opened again");
            let id = partition.id.to_string();
            node.host.health.clear_problem_of("apply", &id);
            node.host.health.clear_problem_of("opening", &id);
            serving.push(partition.id);
            node.owned.add(partition);
        }
    }
    // where replicas begin at any time, they are forgotten by `CommitBoard::forget_known`
    if node.owned.opening().is_empty() && !node.owned.follows() {
        node.host.commits.end_reopening();
    }
    serving
}

/// Tells the board the decisions of the other partitions on transactions whose records the log of `id` has.
///
/// Errors: `Unavailable` while one of them is at a record for longer.
fn know_decisions(node: &Node, id: PartitionId) -> Result<()> {
    for other in node.owned.replicas().iter().filter(|other| other.id != id) {
        let state = other.state.try_read_for(RECORD_WAIT).ok_or_else(|| {
            Error::unavailable(format!(
                "partition {id}: its transactions cannot be decided, as partition {} is at the record {}",
                other.id,
                other.applied()
            ))
        })?;
        node.host.commits.add_known(state.decisions.iter().filter(|(_, d)| d.offsets.contains_key(&id.0)));
    }
    Ok(())
}
