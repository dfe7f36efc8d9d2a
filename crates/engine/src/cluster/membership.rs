//! The thread that reads the control partition and appends to it.

use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError};
use tidemill_cluster::{Action, ClusterEvent, Record, Standing};
use tidemill_log::{ConsumedRecord, Content, Durability, NewRecord, Subscription};
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::{CONTROL, ClusterNode, new_incarnation, now};
use crate::apply::ApplyReply;
use crate::entry::Entry;
use crate::node::Node;

/// Interval between two looks at the control partition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Records of the control partition that are read at once.
const RECORDS_AT_ONCE: usize = 256;
/// Area of the problems of a node.
pub(super) const AREA: &str = "cluster";

/// Area of the problem of a node that the cluster does not take. Such a node is not ready.
pub const REFUSED_AREA: &str = "membership";

/// A barrier record on its way through the log of a partition.
struct Barrier {
    partition: PartitionId,
    epoch: Offset,
    applied: Receiver<Result<ApplyReply>>,
}

/// Takes part in the cluster until the engine stops.
pub fn run(node: &Node, cluster: &ClusterNode) {
    let mut barriers = Vec::new();
    while !node.host.is_stopping() {
        let next = cluster.protocol.lock().state().next();
        // a log that cannot be reached is asked again
        match cluster.control.subscribe(CONTROL, next) {
            Ok(subscription) => match follow(node, cluster, &*subscription, &mut barriers) {
                Ok(()) => return,
                Err(e) => node.host.health.report_problem(AREA, format!("the control partition: {e}")),
            },
            Err(e) => node.host.health.report_problem(AREA, format!("the control partition: {e}")),
        }
        node.host.clock.sleep(Duration::from_secs(1));
    }
}

fn follow(
    node: &Node,
    cluster: &ClusterNode,
    subscription: &dyn Subscription,
    barriers: &mut Vec<Barrier>,
) -> Result<()> {
    while !node.host.is_stopping() {
        let records = subscription.poll(RECORDS_AT_ONCE)?;
        let was_idle = records.is_empty();
        for record in records {
            read(node, cluster, record)?;
        }
        barriers.retain(|barrier| is_on_its_way(cluster, barrier));
        let actions = {
            let applied: Vec<_> =
                node.owned.replicas().iter().map(|replica| (replica.id, replica.applied())).collect();
            cluster.protocol.lock().decide(now(&*node.host.clock), &applied)
        };
        for action in actions {
            act(node, cluster, action, barriers)?;
        }
        if was_idle {
            node.host.clock.sleep(POLL_INTERVAL);
        }
    }
    Ok(())
}

fn read(node: &Node, cluster: &ClusterNode, consumed: ConsumedRecord) -> Result<()> {
    let Content::Payload(payload) = consumed.content else {
        return Err(Error::internal("a record of the control partition has an attachment"));
    };
    let record = Record::decode(&payload)
        .map_err(|e| e.context(format!("record {} of the control partition", consumed.offset)))?;
    let mut protocol = cluster.protocol.lock();
    let events = protocol.read(consumed.offset, &record, now(&*node.host.clock).boot)?;
    for event in &events {
        note(event);
    }
    match protocol.standing().clone() {
        // another node has not heard of this one for a while, as it was suspended or cut off
        Standing::Removed { by } => {
            tracing::warn!(%by, "removed from the cluster; asks to become a member again");
            protocol.rejoin(new_incarnation());
        }
        Standing::Refused(refusal) => {
            drop(protocol);
            // its records would not be those that the others understand
            node.host.stop_accepting();
            node.host.health.report_problem(REFUSED_AREA, format!("refused by the cluster: {refusal}"));
        }
        Standing::Member => {
            drop(protocol);
            node.host.health.clear_problem(AREA);
        }
        Standing::Joining | Standing::Left => {}
    }
    Ok(())
}

fn note(event: &ClusterEvent) {
    match event {
        ClusterEvent::Joined { node, .. } => tracing::info!(%node, "joined the cluster"),
        ClusterEvent::Removed { node, by, .. } => tracing::warn!(%node, %by, "removed from the cluster"),
        ClusterEvent::Owner(change) => tracing::info!(
            partition = change.partition.0,
            epoch = change.epoch.0,
            owner = change.to.as_ref().map_or("none", |name| name.as_str()),
            "a partition has another owner"
        ),
        ClusterEvent::Rejected { reason } => tracing::warn!("{reason}"),
        _ => {}
    }
}

fn act(node: &Node, cluster: &ClusterNode, action: Action, barriers: &mut Vec<Barrier>) -> Result<()> {
    match action {
        Action::Append(record) => {
            let payload = record.encode()?;
            // it is decided again unless it comes back
            let appended = cluster.control.append(
                CONTROL,
                NewRecord::from(bytes::Bytes::from(payload)),
                Durability::Fsync,
            );
            if let Err(e) = appended {
                node.host.health.report_problem(AREA, format!("the control partition: {e}"));
            }
        }
        Action::AppendBarrier { partition, epoch } => {
            // a node that owns a partition loads it first; then this is decided again
            if !node.has_replica(partition) {
                return Ok(());
            }
            let (sender, applied) = crossbeam_channel::bounded(1);
            let barrier = Entry::Tick { jumps: Vec::new() };
            match node.host.append(partition, barrier, Durability::Fsync, Some(sender)) {
                Ok(_) => barriers.push(Barrier { partition, epoch, applied }),
                Err(e) => node.host.health.report_problem(AREA, format!("partition {partition}: {e}")),
            }
        }
    }
    Ok(())
}

/// Returns whether a barrier has not been applied yet, and may be.
fn is_on_its_way(cluster: &ClusterNode, barrier: &Barrier) -> bool {
    match barrier.applied.try_recv() {
        Ok(Ok(_)) => {
            cluster.protocol.lock().barrier_applied(barrier.partition, barrier.epoch);
            false
        }
        // its replica was given up; the node sends another one
        Ok(Err(_)) | Err(TryRecvError::Disconnected) => false,
        Err(TryRecvError::Empty) => true,
    }
}
