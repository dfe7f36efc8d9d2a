//! Route of the cluster that the server is a node of.

use axum::Json;
use serde::Serialize;
use tidemill_engine::cluster::{ClusterStatus, MemberStatus, ReplicaStatus};
use tidemill_types::Error;
use utoipa::ToSchema;

use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};

/// The cluster, as this node sees it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// Id of the cluster.
    #[schema(example = "orders")]
    cluster: String,
    /// Name of this node.
    #[schema(example = "node-1")]
    node: String,
    /// Standing of this node: `joining`, `member`, `removed by …`, `left`, or `refused: …` with the reason.
    #[schema(example = "member")]
    standing: String,
    /// Members by name.
    members: Vec<Member>,
    /// Partitions by number.
    partitions: Vec<Replica>,
}

/// A node of the cluster.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Member {
    /// Its name.
    name: String,
    /// Address at which it is reached.
    #[schema(example = "10.0.0.1:4700")]
    address: String,
    /// Its zone; empty if unknown.
    zone: String,
    /// True if its partitions move to others.
    draining: bool,
}

/// A partition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Replica {
    /// Its number.
    partition: u32,
    /// Name of its owner, which forwards what it emits and writes its tables and checkpoints.
    owner: Option<String>,
    /// Epoch of the owner.
    epoch: Option<u64>,
    /// Name of the node that owns it next.
    standby: Option<String>,
    /// Role of this node: `owner`, `next owner` or `standby`.
    role: &'static str,
    /// Progress of the members.
    applied: Vec<Progress>,
}

/// Progress of a member in a partition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// Name of the member.
    node: String,
    /// Offset of the record that it applies next, as its last heartbeat says.
    next: u64,
}

impl From<ClusterStatus> for Cluster {
    fn from(status: ClusterStatus) -> Self {
        let ClusterStatus { cluster, node, standing, members, partitions } = status;
        let member = |member: MemberStatus| {
            let MemberStatus { name, address, zone, draining } = member;
            Member { name, address, zone, draining }
        };
        let replica = |replica: ReplicaStatus| {
            let ReplicaStatus { partition, owner, epoch, standby, role, applied } = replica;
            let applied = applied.into_iter().map(|(node, next)| Progress { node, next }).collect();
            Replica { partition, owner, epoch, standby, role, applied }
        };
        let (members, partitions) = (members.into_iter().map(member), partitions.into_iter().map(replica));
        Self { cluster, node, standing, members: members.collect(), partitions: partitions.collect() }
    }
}

/// Show the members of the cluster, and who owns which partition.
#[utoipa::path(
    get, path = "/api/v1/cluster", tag = "system", operation_id = "showCluster",
    responses(
        (status = 200, description = "The cluster, as this node sees it", body = Cluster),
        (status = 404, description = "The server is alone", body = ErrorBody),
    ),
)]
pub(crate) async fn show(call: RequestContext) -> Result<Json<Cluster>, ApiError> {
    let status = call.engine(|engine| {
        engine
            .cluster_status()
            .ok_or_else(|| Error::not_found("this server is alone: it was started without --cluster"))
    });
    Ok(Json(status.await?.into()))
}
