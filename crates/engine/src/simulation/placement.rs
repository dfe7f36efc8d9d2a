//! Who owns which partition, as all engines of a simulation know it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidemill_types::{Error, PartitionId, Result};

use super::engine::PARTITIONS;
use crate::node::Node;
use crate::partition::{PartitionClient, PartitionPeers};

/// The engines, and the owner of each partition.
#[derive(Default)]
pub struct Placement(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: [Weak<Node>; 2],
    /// An engine, or none while no one could take it.
    owners: BTreeMap<PartitionId, usize>,
}

impl Placement {
    /// Makes an engine known that has started.
    pub fn set_node(&self, engine: usize, node: &Arc<Node>) {
        self.0.lock().nodes[engine] = Arc::downgrade(node);
    }

    /// Returns the owner of a partition.
    pub fn owner(&self, id: PartitionId) -> Option<usize> {
        self.0.lock().owners.get(&id).copied()
    }

    /// Sets the owner of a partition.
    pub fn set_owner(&self, id: PartitionId, engine: Option<usize>) {
        let owners = &mut self.0.lock().owners;
        match engine {
            Some(engine) => _ = owners.insert(id, engine),
            None => _ = owners.remove(&id),
        }
    }

    /// Takes all partitions from an engine that has ended.
    pub fn remove_owner(&self, engine: usize) {
        self.0.lock().owners.retain(|_, owner| *owner != engine);
    }

    /// Returns whether an engine has a partition that it has lost and does not know it yet. A cluster keeps it from answering.
    pub fn is_stale(&self, engine: usize, node: &Node) -> bool {
        let serving = |id: &PartitionId| node.owned.get(*id).is_some();
        (0..PARTITIONS).map(PartitionId).filter(serving).any(|id| self.owner(id) != Some(engine))
    }
}

impl PartitionPeers for Placement {
    fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>> {
        let state = self.0.lock();
        let node = state.owners.get(&id).and_then(|owner| state.nodes[*owner].upgrade());
        let partition = node.and_then(|node| node.owned.get(id));
        let partition = partition
            .ok_or_else(|| Error::unavailable(format!("partition {id} has no owner that answers")))?;
        Ok(partition)
    }
}
