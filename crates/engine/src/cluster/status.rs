//! The cluster, as one of its nodes sees it.

use serde::Serialize;
use tidemill_cluster::{Role, Standing};
use tidemill_types::{Offset, PartitionId};

use super::ClusterNode;

/// The cluster, as one of its nodes sees it.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterStatus {
    /// Id of the cluster.
    pub cluster: String,
    /// Name of the node that tells it.
    pub node: String,
    /// Standing of that node: `joining`, `member`, `removed`, `left`, or `refused` with the reason.
    pub standing: String,
    /// Members by name.
    pub members: Vec<MemberStatus>,
    /// Partitions by id.
    pub partitions: Vec<ReplicaStatus>,
}

/// A member.
#[derive(Debug, Clone, Serialize)]
pub struct MemberStatus {
    /// Name.
    pub name: String,
    /// Address at which it is reached.
    pub address: String,
    /// Zone; empty if unknown.
    pub zone: String,
    /// True if its partitions move to others.
    pub draining: bool,
}

/// A partition.
#[derive(Debug, Clone, Serialize)]
pub struct ReplicaStatus {
    /// Id.
    pub partition: u32,
    /// Name of its owner; none while it has none.
    pub owner: Option<String>,
    /// Epoch of the owner.
    pub epoch: Option<u64>,
    /// Name of the standby that becomes the next owner.
    pub standby: Option<String>,
    /// Role of the node that tells it: `owner`, `next owner`, or `standby`.
    pub role: &'static str,
    /// By member, the offset of the record that it applies next, as its last heartbeat says.
    pub applied: Vec<(String, u64)>,
}

impl ClusterNode {
    /// Returns the cluster with its `partitions`, as this node sees it.
    pub fn status(
        &self,
        partitions: impl Iterator<Item = PartitionId>,
        boot: tidemill_cluster::BootTime,
    ) -> ClusterStatus {
        let protocol = self.protocol.lock();
        let state = protocol.state();
        let members = state.members().iter().map(|(name, member)| MemberStatus {
            name: name.as_str().to_owned(),
            address: member.address.clone(),
            zone: member.zone.clone(),
            draining: member.draining,
        });
        let own = &protocol.profile().name;
        let of_partition = |id: PartitionId| {
            let owner = state.owner(id);
            let applied = state.members().iter().filter_map(|(name, member)| {
                let Offset(next) = member.applied(id)?;
                Some((name.as_str().to_owned(), next))
            });
            ReplicaStatus {
                partition: id.0,
                owner: owner.map(|owner| owner.node.as_str().to_owned()),
                epoch: owner.map(|owner| owner.epoch.0),
                standby: state.standby(id).map(|name| name.as_str().to_owned()),
                role: match state.role(id, own) {
                    Some(Role::Owner) if protocol.may_answer(id, boot) => "owner",
                    Some(Role::Owner) => "next owner",
                    None if !self.applies_all => "none",
                    _ => "standby",
                },
                applied: applied.collect(),
            }
        };
        ClusterStatus {
            cluster: protocol.profile().cluster.id.clone(),
            node: own.as_str().to_owned(),
            standing: match protocol.standing() {
                Standing::Joining => "joining".into(),
                Standing::Member => "member".into(),
                Standing::Refused(refusal) => format!("refused: {refusal}"),
                Standing::Removed { by } => format!("removed by {by}"),
                Standing::Left => "left".into(),
            },
            members: members.collect(),
            partitions: partitions.map(of_partition).collect(),
        }
    }
}
