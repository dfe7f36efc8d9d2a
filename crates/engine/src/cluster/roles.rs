//! The thread that gives the replicas of this node the roles that the control partition says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidemill_types::{Offset, PartitionId, Result};

use super::membership::AREA;
use super::{ClusterNode, now};
use crate::lifecycle::ownership;
use crate::node::Node;

/// Interval between two looks at the roles.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which those who follow changes look for changes of other nodes.
const CHANGES_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which standbys learn what the owners have committed.
const COMMITS_INTERVAL: Duration = Duration::from_secs(1);

/// Epochs in which this node owns partitions, as far as it has taken them over.
type OwnedEpochs = BTreeMap<PartitionId, Offset>;

/// Role of this node that the protocol says.
enum WantedRole {
    /// This node owns it in this epoch, and has applied what former owners have.
    Owner(Offset),
    /// This node is going to own it.
    NextOwner,
    /// Another node owns it, or none.
    Standby,
    /// Others apply it.
    Nothing,
}

/// Follows, promotes and demotes until the engine stops.
pub fn run(node: &Node, cluster: &ClusterNode) {
    let mut commits_due = Duration::ZERO;
    let mut changes_due = Duration::ZERO;
    let mut epochs = OwnedEpochs::new();
    let mut failing = BTreeSet::new();
    while !node.host.is_stopping() {
        for id in node.host.partition_ids() {
            match step(node, cluster, &mut epochs, id) {
                Ok(()) if failing.remove(&id) => node.host.health.clear_problem_of(AREA, &id.to_string()),
                Ok(()) => {}
                Err(e) => {
                    failing.insert(id);
                    node.host.health.report_problem_of(AREA, &id.to_string(), e.to_string());
                }
            }
        }
        ownership::drop_arrived(node);
        if node.host.clock.monotonic() >= commits_due {
            // decisions on transactions are kept as long as another log has the records
            if let Err(error) = node.host.log.learn_starts() {
                tracing::debug!(%error, "the starts of the logs are not known");
            }
            // a store that does not answer is reported by those who write to it
            if let Err(error) = ownership::tend_standbys(node) {
                tracing::debug!(%error, "the tables' commits are not known");
            }
            commits_due = node.host.clock.monotonic() + COMMITS_INTERVAL;
        }
        if node.host.clock.monotonic() >= changes_due {
            // those who follow changes are not told by the nodes that have the other partitions
            if !node.has_all() {
                node.host.changes.notify();
            }
            changes_due = node.host.clock.monotonic() + CHANGES_INTERVAL;
        }
        node.host.clock.sleep(POLL_INTERVAL);
    }
}

fn step(node: &Node, cluster: &ClusterNode, epochs: &mut OwnedEpochs, id: PartitionId) -> Result<()> {
    let is_opening = node.owned.opening().iter().any(|partition| partition.id == id);
    let is_owned = node.owned.get(id).is_some() || is_opening;
    match wanted(node, cluster, id) {
        WantedRole::Owner(epoch) if is_owned && epochs.get(&id) == Some(&epoch) => Ok(()),
        WantedRole::Owner(epoch) => {
            // another node may have owned it in between
            if is_opening {
                ownership::lose(node, id);
            }
            ownership::demote_now(node, id);
            become_owner(node, id, cluster.owner_epoch(epoch))?;
            epochs.insert(id, epoch);
            Ok(())
        }
        WantedRole::NextOwner if node.owned.get(id).is_some() => Ok(()),
        WantedRole::Nothing => {
            if is_opening {
                ownership::lose(node, id);
            }
            ownership::demote_now(node, id);
            ownership::unfollow(node, id);
            Ok(())
        }
        WantedRole::Standby | WantedRole::NextOwner => {
            if is_opening {
                ownership::lose(node, id);
            }
            ownership::demote_now(node, id);
            match node.owned.replica(id) {
                Some(_) => Ok(()),
                None => ownership::follow(node, id).and_then(|standby| standby.start_threads()),
            }
        }
    }
}

fn become_owner(node: &Node, id: PartitionId, epoch: u64) -> Result<()> {
    if node.owned.standby(id).is_some() && ownership::promote(node, id, epoch)? {
        tracing::info!(partition = id.0, epoch, "owned");
        return Ok(());
    }
    tracing::info!(partition = id.0, epoch, "owned, and opened from its checkpoint");
    ownership::acquire(node, id, epoch).and_then(|partition| partition.start_threads())
}

fn wanted(node: &Node, cluster: &ClusterNode, id: PartitionId) -> WantedRole {
    let protocol = cluster.protocol.lock();
    let own = &protocol.profile().name;
    match protocol.state().owner(id) {
        Some(owner) if owner.node == own && owner.incarnation == protocol.incarnation() => {
            match protocol.may_answer(id, now(&*node.host.clock).boot) {
                true => WantedRole::Owner(owner.epoch),
                false => WantedRole::NextOwner,
            }
        }
        _ if cluster.applies_all || protocol.state().role(id, own).is_some() => WantedRole::Standby,
        _ => WantedRole::Nothing,
    }
}
