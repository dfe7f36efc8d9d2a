//! Members of the cluster, nodes that left it, and joins that were refused.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_types::{Offset, PartitionId};

use crate::hybrid_time::HybridTime;
use crate::record::{Incarnation, NodeName};
use crate::timing::CLOCK_OFFSET_MS_MAX;

/// A member, as its records describe it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its life.
    pub incarnation: Incarnation,
    /// Offset of the record with which it joined.
    pub joined: Offset,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Address at which other nodes call it; empty where nodes do not call each other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub calls: String,
    /// Zone of its machine, empty if unknown.
    pub zone: String,
    /// Share of the partitions relative to other members.
    pub weight: u32,
    /// Smallest protocol that it speaks.
    pub protocol_min: u16,
    /// Largest protocol that it speaks.
    pub protocol_max: u16,
    /// True when it is to own and follow nothing.
    pub draining: bool,
    /// Number of its last heartbeat, 0 for none.
    pub sequence: u64,
    /// Wall clock of its last record, milliseconds since 1970.
    pub clock_ms: u64,
    /// Largest bound of stamps in its heartbeats.
    pub reserve: HybridTime,
    /// Offsets of its last heartbeat: partitions that it follows, ascending, and what it applies next.
    pub applied: Vec<(PartitionId, Offset)>,
    /// Number of its last heartbeat when the members last changed.
    pub(crate) sequence_at_change: u64,
}

impl Member {
    /// Returns the offset of the record that the member applies next, if its last heartbeat has the partition.
    pub fn applied(&self, partition: PartitionId) -> Option<Offset> {
        let index = self.applied.binary_search_by_key(&partition, |(id, _)| *id).ok()?;
        Some(self.applied[index].1)
    }
}

/// A node that was a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FormerMember {
    /// Its last life.
    pub incarnation: Incarnation,
    /// Offset of the record that removed it.
    pub removed: Offset,
    /// Name of the author of that record; its own name where it left.
    pub by: NodeName,
}

/// A join that was refused, the last one of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedJoin {
    /// Offset of the join.
    pub offset: Offset,
    /// Life that asked.
    pub incarnation: Incarnation,
    /// Address of the node.
    pub address: String,
    /// Reason.
    pub refusal: Refusal,
}

/// Reason why a join is refused. Its text ends with what helps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// A member of this name is alive in another life.
    NameTaken {
        /// Address of that member.
        address: String,
    },
    /// The life was removed, or has left.
    LifeEnded,
    /// The clock differs too much from those of the members.
    ClockOff {
        /// Milliseconds that it is ahead; negative if it is behind.
        ahead_ms: i64,
    },
    /// The node belongs to another cluster.
    OtherCluster {
        /// Id of this cluster.
        expected: String,
        /// Id that the node has.
        found: String,
    },
    /// The node has another number of partitions.
    OtherPartitions {
        /// Number of this cluster.
        expected: u32,
        /// Number that the node has.
        found: u32,
    },
    /// The node places queries by another rule.
    OtherHomeRule {
        /// Number of the rule of this cluster.
        expected: u32,
        /// Number of the rule of the node.
        found: u32,
    },
    /// The node continues other data.
    OtherOrigin {
        /// Origin of this cluster.
        expected: String,
        /// Origin that the node has found in its store.
        found: String,
    },
    /// The node runs another app.
    OtherApp {
        /// Hash of the app of this cluster.
        expected: String,
        /// Hash of the app of the node.
        found: String,
    },
    /// The node has other intervals of the control protocol.
    OtherTiming,
    /// The build does not speak the protocol of the cluster.
    OtherProtocol {
        /// Protocol of the cluster.
        expected: u16,
        /// Smallest protocol of the build.
        min: u16,
        /// Largest protocol of the build.
        max: u16,
    },
}

impl Refusal {
    /// Returns whether the same node may be admitted later: when the member with its name, or the members with other clocks, turn out
    /// to be lost.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NameTaken { .. } | Self::ClockOff { .. })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NameTaken { address } => write!(
                f,
                "a node of this name is alive at {address}: give this one another name, or stop that one; \
                 `tidemill cluster status` lists all names"
            ),
            Self::LifeEnded => f.write_str("this life of the node has been removed: start the node again"),
            Self::ClockOff { ahead_ms } => {
                let (by, where_to) = (ahead_ms.unsigned_abs(), if *ahead_ms > 0 { "ahead of" } else { "behind" });
                write!(
                    f,
                    "the clock of this machine is {by} ms {where_to} those of the members, at most {CLOCK_OFFSET_MS_MAX} ms are \
                     allowed: compare `date -u` on both machines, and synchronize their clocks"
                )
            }
            Self::OtherCluster { expected, found } => write!(
                f,
                "the control partition belongs to the cluster {expected}, this node to {found}: check the address and the topic \
                 of --cluster"
            ),
            Self::OtherPartitions { expected, found } => write!(
                f,
                "the cluster has {expected} partitions, this node {found}: start it with {expected}, the number cannot change"
            ),
            Self::OtherHomeRule { expected, found } => write!(
                f,
                "the cluster places queries by rule {expected}, this node by rule {found}: start the node again with an empty data \
                 directory, and with the build of the other nodes if that does not help"
            ),
            Self::OtherOrigin { expected, found } => write!(
                f,
                "the cluster continues {}, and the store of this node {}: check --store, which all nodes share, and start the node again",
                origin_text(expected),
                origin_text(found)
            ),
            Self::OtherApp { expected, found } => write!(
                f,
                "the cluster runs the app {expected}, this node {found}: start it with rules, queries, app.toml, variables of queries, and \
                 the settings memory, documents_bytes and query_rows of the other nodes"
            ),
            Self::OtherTiming => f.write_str(
                "the intervals of heartbeats, lease, suspicion, take-over or moves differ from those of the cluster: start the node with \
                 the settings of the other nodes",
            ),
            Self::OtherProtocol { expected, min, max } if expected > max => write!(
                f,
                "the cluster uses protocol {expected}, this build speaks {min} to {max}: start the node with a newer build"
            ),
            Self::OtherProtocol { expected, min, max } => write!(
                f,
                "the cluster uses protocol {expected}, this build speaks {min} to {max}: run `tidemill cluster finalize` once all \
                 members speak protocol {min}, or start the node with an older build"
            ),
        }
    }
}

fn origin_text(origin: &str) -> String {
    match origin {
        "" => "no data directory".to_owned(),
        some => format!("the data directory {some}"),
    }
}
