//! Deliveries of two engines to a system outside, and the auditor of what has come there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_types::{EventId, Offset, PartitionId};

use super::engine::PARTITIONS;
use super::model::ModelRow;
use super::outside::{ArrivedEvent, Outside};
use super::placement::Placement;
use crate::delivery::Delivery;
use crate::node::Node;

/// The threads of the sinks of two engines, as steps.
pub struct Deliveries {
    rng: StdRng,
    outside: Arc<Outside>,
    /// Those of each engine, by sink.
    threads: [Vec<Delivery>; 2],
}

impl Deliveries {
    pub fn new(seed: u64) -> Self {
        let rng = StdRng::seed_from_u64(seed ^ 0x5145_4e4b);
        Self { rng, outside: Arc::default(), threads: [Vec::new(), Vec::new()] }
    }

    /// Returns the system outside.
    pub fn outside(&self) -> &Arc<Outside> {
        &self.outside
    }

    /// Begins with the sinks of an engine that has started.
    pub fn start(&mut self, engine: usize, node: &Node) {
        self.threads[engine] = node.app.sinks.deliveries().iter().filter_map(Delivery::begin).collect();
    }

    /// Takes a few steps of a random engine.
    pub fn step(&mut self, nodes: &[Option<Arc<Node>>; 2], placement: &Placement) {
        match self.rng.random_range(0..100) {
            0..3 => self.outside.set_down(true),
            3..8 => self.outside.set_down(false),
            8..12 => self.outside.lose_connection_after(Some(self.rng.random_range(0..6))),
            12..55 => {
                let engine = self.rng.random_range(0..2);
                let sink = self.rng.random_range(0..self.threads[engine].len().max(1));
                self.deliver(nodes, placement, engine, sink);
            }
            55..60 => {
                for sink in nodes.iter().flatten().flat_map(|node| node.app.sinks.deliveries()) {
                    // what fails is stored later
                    let _ = sink.store_progress();
                }
            }
            _ => {}
        }
    }

    /// Delivers the next events of a sink. Returns whether there were some, or the other side did not take them.
    fn deliver(
        &mut self,
        nodes: &[Option<Arc<Node>>; 2],
        placement: &Placement,
        engine: usize,
        sink: usize,
    ) -> bool {
        self.outside.set_contested(contested(nodes, placement, engine));
        let Some(node) = &nodes[engine] else { return false };
        let sinks = node.app.sinks.deliveries();
        match (self.threads[engine].get_mut(sink), sinks.get(sink)) {
            (Some(thread), Some(sink)) => thread.deliver_next(node, sink).unwrap_or(true),
            _ => false,
        }
    }

    /// Delivers what waits at both engines, to a system that works. Returns whether there was something.
    pub fn drain(&mut self, nodes: &[Option<Arc<Node>>; 2], placement: &Placement) -> bool {
        self.outside.set_down(false);
        self.outside.lose_connection_after(None);
        let mut worked = false;
        for engine in 0..2 {
            for sink in 0..self.threads[engine].len() {
                worked |= self.deliver(nodes, placement, engine, sink);
            }
        }
        worked
    }

    /// Checks that every stored event has come to a sink, in order by partition: once if the system keeps positions, and twice only if its
    /// owner could not know that it had come.
    pub fn check(&self, sink: &str, is_exact: bool, stored: &[ModelRow]) -> Result<u64, String> {
        let events = self.outside.table(sink).events;
        let mut first: BTreeMap<EventId, ArrivedEvent> = BTreeMap::new();
        let mut last: BTreeMap<PartitionId, EventId> = BTreeMap::new();
        let mut repeated = 0;
        for event in events {
            let id = event.id;
            if let Some(before) = first.insert(id, event) {
                repeated += 1;
                if is_exact || !before.may_repeat(&event) {
                    return Err(format!("{sink}: event {id} has come twice: {before:?}, {event:?}"));
                }
            } else if let Some(before) = last.insert(id.partition, id).filter(|before| *before > id) {
                return Err(format!("{sink}: event {id} has come after {before}"));
            }
        }
        let stored: BTreeSet<EventId> = stored.iter().map(event_id).collect();
        let arrived: BTreeSet<EventId> = first.into_keys().collect();
        match (stored.difference(&arrived).next(), arrived.difference(&stored).next()) {
            (None, None) => Ok(repeated),
            (Some(lost), _) => Err(format!("{sink}: event {lost} has not come")),
            (_, Some(foreign)) => Err(format!("{sink}: event {foreign} was never stored")),
        }
    }
}

fn event_id(row: &ModelRow) -> EventId {
    let (partition, offset, row) = row.position;
    EventId { partition: PartitionId(partition as u32), offset: Offset(offset as u64), row: row as u32 }
}

/// Returns the partitions whose events both engines may deliver, and those of `engine` that are not its own any more.
fn contested(nodes: &[Option<Arc<Node>>; 2], placement: &Placement, engine: usize) -> BTreeSet<PartitionId> {
    let has = |node: &Option<Arc<Node>>, id: PartitionId| {
        node.iter()
            .flat_map(|node| node.app.sinks.deliveries())
            .any(|sink| sink.own_queues().iter().any(|queue| queue.partition() == id))
    };
    let is_contested = |id: &PartitionId| {
        (has(&nodes[0], *id) && has(&nodes[1], *id)) || placement.owner(*id) != Some(engine)
    };
    (0..PARTITIONS).map(PartitionId).filter(is_contested).collect()
}
