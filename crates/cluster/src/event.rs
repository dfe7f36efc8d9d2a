//! Effects of control records, for logs, metrics and `status`.

use std::fmt;

use tidemill_types::{Offset, PartitionId};

use crate::member::Refusal;
use crate::record::{Incarnation, NodeName};

/// Effect of a control record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A node is a member now.
    Joined {
        /// Its name.
        node: NodeName,
        /// Its life.
        incarnation: Incarnation,
    },
    /// A join was refused.
    Refused {
        /// Name of the node.
        node: NodeName,
        /// Its life.
        incarnation: Incarnation,
        /// Reason.
        refusal: Refusal,
    },
    /// A member is removed, or has left.
    Removed {
        /// Its name.
        node: NodeName,
        /// Its life.
        incarnation: Incarnation,
        /// Author of the record; the member itself where it left.
        by: NodeName,
    },
    /// A partition has another owner, or the same one in a new epoch, or none.
    Owner(OwnerChange),
    /// A partition has another standby, or none.
    Standby {
        /// The partition.
        partition: PartitionId,
        /// Name of the standby.
        node: Option<NodeName>,
    },
    /// A member begins to follow a partition that it is to own.
    MoveStarted {
        /// The partition.
        partition: PartitionId,
        /// Name of the member.
        to: NodeName,
        /// Reason.
        reason: MoveReason,
    },
    /// A member is to own and follow nothing.
    Draining {
        /// Its name.
        node: NodeName,
    },
    /// A changed app is in the store.
    Deployed {
        /// Hash of the app.
        app: String,
    },
    /// The cluster uses a later protocol.
    Finalized {
        /// Number of the protocol.
        protocol: u16,
    },
    /// A request of a user was refused.
    Rejected {
        /// Reason, with what to do.
        reason: String,
    },
}

/// Change of the owner of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerChange {
    /// The partition.
    pub partition: PartitionId,
    /// Name of the former owner.
    pub from: Option<NodeName>,
    /// Name of the next owner.
    pub to: Option<NodeName>,
    /// Epoch of the next owner; that of the former one if there is no next owner.
    pub epoch: Offset,
    /// Reason.
    pub reason: OwnerReason,
}

/// Reason why a partition changes its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerReason {
    /// The former owner was removed, so it may still answer until its lease ends.
    Removed,
    /// The former owner has resigned.
    Resigned,
    /// The partition had no owner.
    Missing,
}

/// Reason of a planned move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveReason {
    /// The owner is draining.
    Drain,
    /// A user asked for it.
    Requested,
    /// The owner has more than its share.
    Balance,
}

impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |node: &Option<NodeName>| node.as_ref().map_or("none".to_owned(), ToString::to_string);
        match self {
            Self::Joined { node, .. } => write!(f, "{node} is a member"),
            Self::Refused { node, refusal, .. } => write!(f, "{node} was refused: {refusal}"),
            Self::Removed { node, by, .. } if node == by => write!(f, "{node} has left"),
            Self::Removed { node, by, .. } => write!(f, "{node} was removed by {by}: it sent no heartbeats"),
            Self::Owner(OwnerChange { partition, from, to, epoch, reason }) => {
                let reason = match reason {
                    OwnerReason::Removed => "the former one was removed",
                    OwnerReason::Resigned => "the former one has resigned",
                    OwnerReason::Missing => "there was none",
                };
                let (from, to) = (name(from), name(to));
                write!(f, "owner of partition {partition}: {to} in epoch {epoch} after {from}, as {reason}")
            }
            Self::Standby { partition, node } => {
                write!(f, "standby of partition {partition}: {}", name(node))
            }
            Self::MoveStarted { partition, to, reason } => {
                let reason = match reason {
                    MoveReason::Drain => "its owner is draining",
                    MoveReason::Requested => "a user asked for it",
                    MoveReason::Balance => "its owner has more than its share",
                };
                write!(f, "partition {partition} moves to {to}, as {reason}")
            }
            Self::Draining { node } => write!(f, "{node} is draining"),
            Self::Deployed { app } => write!(f, "the app {app} is in the store"),
            Self::Finalized { protocol } => write!(f, "the cluster uses protocol {protocol}"),
            Self::Rejected { reason } => f.write_str(reason),
        }
    }
}
