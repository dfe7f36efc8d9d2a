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
//! acquired once more. A learns from a refused commit that it has lost the partition ([`taken_over`], [`lose`]).
//!
//! A process that *follows* a partition applies its log beside the owner, see [`crate::partition`]'s `role`. It takes the partition over without
//! loading anything ([`promote`]), and follows it again when it gives it up ([`demote`]):
//!
//! ```text
//! A  owns 3 in epoch 7 ── demote: stop between two records, flush, checkpoint, follow
//! B  follows 3         ── promote in epoch 8: forward what A has not, flush, take checkpoints, answer
//! ```
//!
//! Who owns what, and in which epoch, is decided elsewhere. `docs/rfcs/0020-engine-by-lifetime.md` has the steps of a move and what a
//! crash between them leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::Table;

use crate::directory::partition_store::StateGroup;
#[cfg(feature = "sim")]
use crate::jobs::checkpoint::checkpoint_partition;
use crate::lifecycle::opening;
use crate::node::Node;
use crate::partition::{ArrivedCauses, OWNER_WAIT, Partition};
use crate::planted_bugs::{PlantedBug, is_planted};

/// Answer to those who wait for the emissions of a partition that is given up.
const SENT_BY_NEXT_OWNER: &str =
    "the events are in the log and applied; what they emitted is sent by the next owner of their partition";

/// Time that a delivery has to end before its partition is given up.
#[cfg(feature = "sim")]
const DELIVERY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// Interval between two looks at it.
#[cfg(feature = "sim")]
const DELIVERY_POLL: std::time::Duration = std::time::Duration::from_millis(5);

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
    node.host.changes.close_partition(id);
    let opened = store.claim(StateGroup::Partition(id), epoch).and_then(|()| {
        store.fetch(StateGroup::Partition(id))?;
        learn_ends(node)?;
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
    refresh_tables(node)?;
    node.app.tables.writable().try_for_each(|(_, table)| forget_tail(table, id))?;
    let end = node.host.log.end(id);
    opening::open_partition(node, id, |partition| partition.serving_from(end))
}

/// Begins to follow a partition that another process owns, from the newest state that is published. The log must have all records since then.
///
/// Errors: those of a start; `Invalid` for a partition whose queries use tables of other systems, as applying its log changes those;
/// `Unavailable` when the tables' store, or that of the state, does not answer.
pub fn follow(node: &Node, id: PartitionId) -> Result<Arc<Partition>> {
    if node.app.deployment.queries.has_external_tables(id) {
        return Err(Error::invalid(format!(
            "partition {id} cannot have a standby, as its queries use tables in other systems: its next owner begins with a checkpoint"
        )));
    }
    // what this process had of it is replaced
    node.app.sinks.close_partition(id);
    node.host.changes.close_partition(id);
    node.host.partition_store.fetch(StateGroup::Partition(id))?;
    learn_ends(node)?;
    refresh_tables(node)?;
    node.app.tables.writable().try_for_each(|(_, table)| forget_tail(table, id))?;
    node.app.sinks.follow_partition(id, node.host.log.end(id))?;
    let following = opening::follow_partition(node, id);
    if following.is_err() {
        node.app.sinks.close_partition(id);
    }
    following
}

/// Makes a partition that this process follows its own, in `epoch`. Returns false if the standby cannot take over, as it has stopped, is behind
/// the start of its log, or has dropped what the former owner may not have sent: it is given up then, and [`acquire`] opens the partition.
///
/// Errors: `NotFound` for a partition that this process does not follow; `Conflict` if the partition has an owner of a later epoch;
/// `Unavailable` when a store does not answer. The partition stays a standby then.
pub fn promote(node: &Node, id: PartitionId, epoch: u64) -> Result<bool> {
    let standby = node.owned.standby(id);
    let standby =
        standby.ok_or_else(|| Error::not_found(format!("this process does not follow partition {id}")))?;
    node.host.partition_store.claim(StateGroup::Partition(id), epoch)?;
    node.host.zones.own(id, epoch);
    if let Err(error) = refresh_tables(node) {
        node.host.zones.disown(id);
        return Err(error);
    }
    if standby.has_failed() || is_left_behind(node, &standby) || !standby.become_owner() {
        node.host.zones.disown(id);
        unfollow(node, id);
        return Ok(false);
    }
    node.app.sinks.promote_partition(id, sink_epoch(node, epoch));
    node.owned.add(standby);
    node.owned.unfollow(id);
    Ok(true)
}

/// Gives a partition up so that the next owner has little to do, and follows it: as [`release`], but it stays applied here.
#[cfg(feature = "sim")]
pub fn demote(node: &Node, id: PartitionId) {
    let Some(partition) = node.owned.get(id) else { return };
    if let Err(error) = checkpoint_partition(node, &partition) {
        tracing::warn!(partition = id.0, %error, "given up without a last checkpoint");
    }
    demote_now(node, id);
}

/// Follows a partition that this process has owned, as another one owns it.
pub fn demote_now(node: &Node, id: PartitionId) {
    let Some(partition) = node.owned.get(id) else { return };
    node.app.sinks.demote_partition(id);
    if partition.has_failed() || !partition.become_standby() {
        return lose(node, id);
    }
    node.owned.follow(partition);
    _ = node.owned.remove(id);
    node.host.zones.disown(id);
}

/// Stops following a partition, and drops what this process has of it.
pub fn unfollow(node: &Node, id: PartitionId) {
    let Some(partition) = node.owned.unfollow(id) else { return };
    partition.stop_owner(&*node.host.clock, node.host.clock.monotonic() + OWNER_WAIT);
    partition.stop_forwarder(SENT_BY_NEXT_OWNER);
    forget(node, id);
}

/// Drops what standbys keep for the time after a take-over and has arrived in the partitions that it belongs to.
pub fn drop_arrived(node: &Node) {
    let mut following = node.owned.following();
    following.retain(|standby| standby.outbox.keeps_batches());
    if following.is_empty() {
        return;
    }
    let arrived = node.owned.replicas().into_iter().filter_map(|one| Some((one.id, one.arrived_causes()?)));
    let arrived: BTreeMap<PartitionId, ArrivedCauses> = arrived.collect();
    drop_those(&following, &arrived);
}

/// Does as [`drop_arrived`] for partitions that this process does not have, as `ask` tells of a partition what has arrived there from others.
pub fn drop_arrived_elsewhere(
    node: &Node,
    ask: impl Fn(PartitionId, &[PartitionId]) -> Result<ArrivedCauses>,
) {
    let following = node.owned.following();
    let mut targets: BTreeMap<PartitionId, Vec<PartitionId>> = BTreeMap::new();
    for standby in &following {
        for target in standby.outbox.kept_targets().into_iter().filter(|id| !node.has_replica(*id)) {
            targets.entry(target).or_default().push(standby.id);
        }
    }
    // one that cannot be asked is asked again
    let causes = targets.iter().filter_map(|(target, from)| Some((*target, ask(*target, from).ok()?)));
    let mut arrived: BTreeMap<PartitionId, ArrivedCauses> = causes.collect();
    if arrived.is_empty() {
        return;
    }
    let here = node.owned.replicas().into_iter().filter_map(|one| Some((one.id, one.arrived_causes()?)));
    arrived.extend(here);
    drop_those(&following, &arrived);
}

fn drop_those(following: &[Arc<Partition>], arrived: &BTreeMap<PartitionId, ArrivedCauses>) {
    for standby in following {
        standby.drop_arrived(|emission| {
            arrived.get(&emission.target).is_some_and(|causes| causes.contains(standby.id, emission))
        });
    }
}

/// Drops rows of standbys that the owners have committed. Standbys that have stopped are given up, and replicas behind the start of their log,
/// which another owner has cut: they may wait for the vote of another partition whose replica here has begun after it. Returns those that were
/// given up.
///
/// Errors: those of the tables' store.
pub fn tend_standbys(node: &Node) -> Result<Vec<PartitionId>> {
    let following = node.owned.following();
    if following.is_empty() {
        return Ok(Vec::new());
    }
    node.host.commits.forget_known(|id, offset| offset >= node.host.log.start(id));
    let failed = following.iter().filter(|one| one.has_failed() || is_left_behind(node, one));
    let mut failed: Vec<PartitionId> = failed.map(|one| one.id).collect();
    failed.iter().for_each(|id| unfollow(node, *id));
    // a former owner has published a later state than this one had when it took over
    for owner in node.owned.all().iter().filter(|one| is_left_behind(node, one)) {
        tracing::warn!(partition = owner.id.0, "opened again, as a former owner has cut its log");
        lose(node, owner.id);
        failed.push(owner.id);
    }
    refresh_tables(node)?;
    Ok(failed)
}

/// Returns whether a replica is behind the start of its log: only a published state has what is missing.
fn is_left_behind(node: &Node, replica: &Partition) -> bool {
    replica.applied() < node.host.log.start(replica.id)
}

/// Learns where the logs end now: a node that did not follow a partition knows an older end, which the published state may have passed.
fn learn_ends(node: &Node) -> Result<()> {
    match node.cluster.get() {
        Some(_) => node.host.log.latest_ends().map(drop),
        None => Ok(()),
    }
}

/// Learns what other processes have committed.
fn refresh_tables(node: &Node) -> Result<()> {
    for (_, table) in node.app.tables.writable() {
        node.host.runtime.block_on(node.host.until_stop(table.refresh()))?;
    }
    Ok(())
}

/// Gives a partition up so that the next owner has little to apply: between two records, with its rows flushed, deliveries ended and a
/// checkpoint. When those fail, the next owner applies more, and may deliver events again to systems that do not recognize them. Returns
/// whether all was done.
#[cfg(feature = "sim")]
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

/// Returns the partitions of this process that another one owns, as far as the tables and the other sides of sinks tell.
#[cfg(feature = "sim")]
pub fn taken_over(node: &Node) -> Vec<PartitionId> {
    let mut lost = Vec::new();
    for (_, table) in node.app.tables.writable() {
        lost.extend(node.host.runtime.block_on(table.lost_partitions()));
    }
    lost.extend(node.app.sinks.lost_partitions());
    lost.sort_unstable();
    lost.dedup();
    for id in &lost {
        tracing::warn!(partition = id.0, "another process owns the partition");
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
    node.host.commits.close(id);
    node.app.sinks.close_partition(id);
    node.host.changes.close_partition(id);
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
