//! Records of the control partition.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::hybrid_time::HybridTime;
use crate::timing::Timing;

/// Largest number of partitions of a cluster.
pub const PARTITIONS_MAX: u32 = 65_536;
/// Largest weight of a node.
pub const WEIGHT_MAX: u32 = 10_000;
/// Largest number of bytes of an address, a zone, a cluster's id or the hash of an app.
pub const TEXT_BYTES_MAX: usize = 255;
const NAME_BYTES_MAX: usize = 100;

/// Name of a node: 1 to 100 letters, digits, `.`, `_` and `-`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Creates a name.
    ///
    /// Errors: `Invalid` for other characters or another length.
    pub fn new(name: &str) -> Result<Self> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_allowed) {
            let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
            return Err(Error::invalid(format!(
                "name of a node `{}`: expected 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` and `-`, for example node-1",
                shown.escape_debug()
            )));
        }
        Ok(Self(name.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for NodeName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

/// One life of a node as a member: a random number, drawn at each start and again after each removal. Two processes with one name
/// differ by it, so it must not repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// Facts that all members of a cluster share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFacts {
    /// Id of the cluster, given when it is created.
    pub id: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of the rule by which queries get their partitions. It never changes, as the state of queries is where they run. Clusters that
    /// were made before there were rules have 0, which is left out, so that their nodes read each other's records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub home_rule: u32,
    /// Identity of what the cluster was made from, with the offsets at which its partitions begin; empty, and left out, if it began without data.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub origin: String,
    /// Hash of the app.
    pub app: String,
    /// Intervals of the protocol.
    pub timing: Timing,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A node asks to become a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// Name of the node.
    pub node: NodeName,
    /// Its life that begins.
    pub incarnation: Incarnation,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Address at which other nodes call it, `HOST:PORT`; empty where all nodes have all partitions and do not call each other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub calls: String,
    /// Zone in which the machine is; nodes of one zone may fail together. Empty if unknown.
    pub zone: String,
    /// Share of the partitions relative to other nodes, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// Smallest protocol that the build speaks.
    pub protocol_min: u16,
    /// Largest protocol that the build speaks.
    pub protocol_max: u16,
    /// Facts that must be those of the cluster.
    pub cluster: ClusterFacts,
    /// Wall clock of the node, milliseconds since 1970.
    pub clock_ms: u64,
}

/// A member is alive.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Name of the node.
    pub node: NodeName,
    /// Its life.
    pub incarnation: Incarnation,
    /// Number of the heartbeat in this life, from 1, rising.
    pub sequence: u64,
    /// Wall clock of the node, milliseconds since 1970.
    pub clock_ms: u64,
    /// Bound of the stamps that the node gives once it has read this heartbeat back.
    pub reserve: HybridTime,
    /// For each partition that the node follows, the offset of the record that it applies next; partitions ascend.
    pub applied: Vec<(PartitionId, Offset)>,
}

/// A member is lost, or leaves. The record counts only if `last_sequence` is that of the member's last heartbeat before it in the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    /// Name of the member.
    pub node: NodeName,
    /// Its life.
    pub incarnation: Incarnation,
    /// Number of the last heartbeat that the author has read of it, 0 for none.
    pub last_sequence: u64,
    /// Name of the author: the member itself where it leaves.
    pub by: NodeName,
}

/// An owner has stopped answering for a partition, so that the next owner may begin without waiting.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resigned {
    /// The partition.
    pub partition: PartitionId,
    /// Epoch of the owner that resigns.
    pub epoch: Offset,
    /// Stamp at or above all that the owner has given for the partition.
    pub stamp: HybridTime,
}

/// A record of the control partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Record {
    /// A node asks to become a member.
    Join(Join),
    /// A member is alive.
    Heartbeat(Heartbeat),
    /// A member is lost, or leaves.
    Remove(Remove),
    /// A member is to own and follow nothing.
    Drain {
        /// Name of the member.
        node: NodeName,
    },
    /// An owner has stopped answering for a partition.
    Resigned(Resigned),
    /// A partition is to move to a member, and to stay there.
    Move {
        /// The partition.
        partition: PartitionId,
        /// Name of the member.
        to: NodeName,
    },
    /// A changed app is in the store. The state carries the hash; nothing applies it yet.
    Deploy {
        /// Hash of the app.
        app: String,
    },
    /// The cluster uses a later protocol from here on.
    Finalize {
        /// Number of the protocol.
        protocol: u16,
    },
}

impl Record {
    /// Returns the name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Join(_) => "join",
            Self::Heartbeat(_) => "heartbeat",
            Self::Remove(_) => "remove",
            Self::Drain { .. } => "drain",
            Self::Resigned(_) => "resigned",
            Self::Move { .. } => "move",
            Self::Deploy { .. } => "deploy",
            Self::Finalize { .. } => "finalize",
        }
    }

    /// Checks the values that its types do not bound.
    ///
    /// Errors: `Invalid` with field, value and what was expected.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Join(join) => join.check(),
            Self::Heartbeat(heartbeat) => heartbeat.check(),
            Self::Deploy { app } => check_text("app", app, 1),
            Self::Resigned(Resigned { partition, .. }) | Self::Move { partition, .. } => {
                check_partition(*partition)
            }
            Self::Remove(_) | Self::Drain { .. } | Self::Finalize { .. } => Ok(()),
        }
    }
}

impl Join {
    fn check(&self) -> Result<()> {
        check_text("address", &self.address, 1)?;
        check_text("calls", &self.calls, 0)?;
        check_text("zone", &self.zone, 0)?;
        check_text("cluster.id", &self.cluster.id, 1)?;
        check_text("cluster.app", &self.cluster.app, 1)?;
        check_text("cluster.origin", &self.cluster.origin, 0)?;
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            return Err(Error::invalid(format!("weight {}: expected 1 to {WEIGHT_MAX}", self.weight)));
        }
        if self.protocol_min == 0 || self.protocol_min > self.protocol_max {
            let (min, max) = (self.protocol_min, self.protocol_max);
            return Err(Error::invalid(format!(
                "protocols {min} to {max}: expected a range that begins at 1 or later"
            )));
        }
        if !(1..=PARTITIONS_MAX).contains(&self.cluster.partitions) {
            let partitions = self.cluster.partitions;
            return Err(Error::invalid(format!(
                "cluster.partitions {partitions}: expected 1 to {PARTITIONS_MAX}"
            )));
        }
        self.cluster.timing.check()
    }
}

impl Heartbeat {
    fn check(&self) -> Result<()> {
        if self.sequence == 0 {
            return Err(Error::invalid("sequence 0: expected a number from 1"));
        }
        if let Some((partition, _)) = self.applied.last() {
            check_partition(*partition)?;
        }
        match self.applied.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            Some(pair) => Err(Error::invalid(format!(
                "applied: partition {} stands before {}, expected ascending partitions",
                pair[0].0, pair[1].0
            ))),
            None => Ok(()),
        }
    }
}

fn check_partition(partition: PartitionId) -> Result<()> {
    if partition.0 >= PARTITIONS_MAX {
        return Err(Error::invalid(format!("partition {partition}: expected less than {PARTITIONS_MAX}")));
    }
    Ok(())
}

fn check_text(field: &str, text: &str, bytes_min: usize) -> Result<()> {
    if (bytes_min..=TEXT_BYTES_MAX).contains(&text.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("{field} of {} bytes: expected {bytes_min} to {TEXT_BYTES_MAX}", text.len())))
}
