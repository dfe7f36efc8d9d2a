//! A system outside of the engines of a simulation, to which sinks deliver events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tidemill_connect::{
    Catalog, ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec,
    Options, PartitionEpochs, SinkBatch, SinkConnector, SinkPositions, SinkType, is_later_owner,
};
use tidemill_types::{Error, EventId, PartitionId, Result};

/// Name of the type of sinks that keep positions with epochs beside the events.
pub const EXACTLY_ONCE: &str = "ledger";
/// Name of the type of sinks that know nothing of them.
pub const AT_LEAST_ONCE: &str = "mailbox";
/// Events that the system acknowledges together.
const ACKNOWLEDGED: usize = 3;

/// The system. Each sink has a table of its own in it.
#[derive(Default)]
pub struct Outside(Mutex<State>);

#[derive(Default)]
struct State {
    is_down: bool,
    /// Events after which the connection is lost once, in the middle of a delivery.
    events_left: Option<u32>,
    /// Partitions whose events a former owner may deliver as well.
    contested: BTreeSet<PartitionId>,
    /// By partition, the number of times that its owner ended without telling the next one how far it came.
    interruptions: BTreeMap<PartitionId, u64>,
    tables: BTreeMap<String, OutsideTable>,
}

/// Events of a sink.
#[derive(Default, Clone)]
pub struct OutsideTable {
    /// The events in the order in which they came.
    pub events: Vec<ArrivedEvent>,
    /// By partition, the last event and the epoch of its owner, for a sink that keeps positions.
    positions: BTreeMap<PartitionId, (EventId, u64)>,
    /// Deliveries of former owners that were refused.
    pub refused: u64,
}

/// An event that has come.
#[derive(Debug, Clone, Copy)]
pub struct ArrivedEvent {
    pub id: EventId,
    /// True if a former owner of its partition may have delivered as well.
    is_contested: bool,
    /// Interruptions of its partition before.
    interruptions: u64,
    /// True if the answer about it was lost.
    is_unanswered: bool,
}

impl ArrivedEvent {
    /// Returns whether the event may come again as `later`.
    pub fn may_repeat(&self, later: &Self) -> bool {
        self.is_unanswered
            || self.is_contested
            || later.is_contested
            || later.interruptions > self.interruptions
    }
}

impl Outside {
    /// Returns the types of sinks of the system.
    pub fn catalog(self: &Arc<Self>) -> Arc<Catalog> {
        let mut catalog = Catalog::default();
        for keeps_positions in [true, false] {
            catalog.add_sink(OutsideSinkType { outside: self.clone(), keeps_positions });
        }
        Arc::new(catalog)
    }

    /// Lets the system take events, or not.
    pub fn set_down(&self, is_down: bool) {
        self.0.lock().is_down = is_down;
    }

    /// Lets the connection be lost once after some events; `None` for no such loss.
    pub fn lose_connection_after(&self, events: Option<u32>) {
        self.0.lock().events_left = events;
    }

    /// Names the partitions whose events a former owner may deliver as well.
    pub fn set_contested(&self, partitions: BTreeSet<PartitionId>) {
        self.0.lock().contested = partitions;
    }

    /// Notes that the owner of a partition has ended without telling the next one how far it came.
    pub fn interrupt(&self, partition: PartitionId) {
        *self.0.lock().interruptions.entry(partition).or_default() += 1;
    }

    /// Returns what has come from a sink.
    pub fn table(&self, sink: &str) -> OutsideTable {
        self.0.lock().tables.get(sink).cloned().unwrap_or_default()
    }
}

#[derive(Clone)]
struct OutsideSinkType {
    outside: Arc<Outside>,
    keeps_positions: bool,
}

impl SinkType for OutsideSinkType {
    fn name(&self) -> &'static str {
        if self.keeps_positions { EXACTLY_ONCE } else { AT_LEAST_ONCE }
    }

    fn summary(&self) -> &'static str {
        "Gives events to the simulated system."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        if self.keeps_positions { DeliveryGuarantee::ExactlyOnce } else { DeliveryGuarantee::AtLeastOnce }
    }

    fn takes_messages(&self) -> bool {
        false
    }

    fn create(&self, _: &Options, context: &ConnectorContext) -> Result<Box<dyn SinkConnector>, OptionError> {
        let (kind, owned) = (self.clone(), PartitionEpochs::new());
        Ok(Box::new(OutsideSink { kind, name: context.name.clone(), owned }))
    }
}

struct OutsideSink {
    kind: OutsideSinkType,
    name: String,
    owned: PartitionEpochs,
}

#[async_trait]
impl SinkConnector for OutsideSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        match self.kind.outside.0.lock().is_down {
            true => Err(Error::unavailable("the system outside is down")),
            false => Ok(None),
        }
    }

    async fn own(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        self.owned.clone_from(partitions);
        if !self.kind.keeps_positions {
            return Ok(None);
        }
        let table = self.kind.outside.table(&self.name);
        let mut known = SinkPositions::default();
        for (id, (last, epoch)) in table.positions {
            known.delivered.insert(id, last);
            if partitions.get(&id).is_some_and(|own| is_later_owner(epoch, *own)) {
                known.later_owners.insert(id, epoch);
            }
        }
        Ok(Some(known))
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let mut state = self.kind.outside.0.lock();
        let State { is_down, events_left, contested, interruptions, tables } = &mut *state;
        let table = tables.entry(self.name.clone()).or_default();
        let begin = table.events.len();
        for (row, id) in batch.ids.iter().enumerate().skip(progress.delivered) {
            let is_lost = *events_left == Some(0);
            *events_left = events_left.and_then(|left| left.checked_sub(1));
            if *is_down || is_lost {
                // nor is there an answer about those before
                let unanswered = row - progress.delivered;
                let from = table.events.len().saturating_sub(unanswered).max(begin);
                table.events[from..].iter_mut().for_each(|event| event.is_unanswered = true);
                return Err(Error::unavailable("the connection is lost"));
            }
            if self.kind.keeps_positions {
                let own = self.owned.get(&id.partition).copied().unwrap_or_default();
                if table
                    .positions
                    .get(&id.partition)
                    .is_some_and(|(last, epoch)| *epoch > own || *last >= *id)
                {
                    table.refused += 1;
                    return Err(Error::unavailable(format!("event {id} comes from a former owner")));
                }
                table.positions.insert(id.partition, (*id, own));
            }
            table.events.push(ArrivedEvent {
                id: *id,
                is_contested: contested.contains(&id.partition),
                interruptions: interruptions.get(&id.partition).copied().unwrap_or_default(),
                is_unanswered: false,
            });
            if row % ACKNOWLEDGED == ACKNOWLEDGED - 1 {
                progress.delivered = row + 1;
            }
        }
        progress.delivered = batch.ids.len();
        Ok(())
    }
}
