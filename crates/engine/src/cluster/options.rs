//! Options of a node, and the parts of an app that a cluster does not run yet.

use std::sync::Arc;

use tidemill_cluster::{NodeName, Timing};
use tidemill_log::Log;
use tidemill_types::{Error, PartitionId, Result};

use crate::node::Node;
use crate::peers::PeerOptions;

/// Nodes that apply a partition.
#[derive(Debug)]
pub enum Replicas {
    /// All of them. Nodes that know each other execute parts of each other's statements; otherwise none asks another one.
    All(Option<PeerOptions>),
    /// Its owner, and one standby. A node asks owners for the partitions that it does not have.
    OwnerAndStandby(PeerOptions),
}

impl Replicas {
    /// Returns their name, which is the same for all nodes of a cluster.
    pub fn name(&self) -> &'static str {
        match self {
            Self::All(_) => "all",
            Self::OwnerAndStandby(_) => "2",
        }
    }
}

/// Options of a node of a cluster.
pub struct ClusterOptions {
    /// Id of the cluster. Nodes of another cluster are refused.
    pub cluster: String,
    /// Name of the node, unique in the cluster.
    pub name: NodeName,
    /// Address at which clients and other nodes reach it, as `HOST:PORT`.
    pub address: String,
    /// Zone of the machine; empty if unknown.
    pub zone: String,
    /// Share of the partitions relative to other nodes; 100 for a usual one.
    pub weight: u32,
    /// Nodes that apply a partition, the same for all nodes.
    pub replicas: Replicas,
    /// Intervals of the protocol, the same for all nodes.
    pub timing: Timing,
    /// Log with one partition, which all nodes append to and read.
    pub control: Arc<dyn Log>,
}

/// Checks that a cluster can run the app.
///
/// Errors: `Invalid` with what it cannot run yet.
pub fn check_app(node: &Node) -> Result<()> {
    let deployment = &node.app.deployment;
    let mut refused = Vec::new();
    if !node.app.sinks.all().is_empty() {
        refused.push("sinks of the type `file`, as each node would have a part of the events: write to an object store, or to Kafka");
    }
    if node.host.partition_ids().any(|id: PartitionId| deployment.queries.has_external_tables(id)) {
        refused.push("tables and aggregations in other systems");
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a cluster does not run these parts of the app yet: {}. Run it by one process, without --cluster",
        refused.join("; ")
    )))
}
