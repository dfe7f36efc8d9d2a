//! Sinks that send events to another system.

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use async_trait::async_trait;
use tidemill_types::{Error, EventId, PartitionId, Result, murmur2, row_value};

use crate::mapper::{RefusedRow, SinkMapper};
use crate::message::Payload;
use crate::runtime::runtime;
use crate::template::write_value;

/// The last event of each partition that the other side has.
pub type DeliveredEvents = BTreeMap<PartitionId, EventId>;

/// The partitions whose events a sink delivers, each with the epoch in which its process owns it. A later owner has a greater epoch; 0 says
/// that the partition does not move between processes.
pub type PartitionEpochs = BTreeMap<PartitionId, u64>;

/// Positions and owners of partitions, as the other side of a sink knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SinkPositions {
    /// The last event of each partition that it has.
    pub delivered: DeliveredEvents,
    /// Partitions that it has got events of from an owner with a greater epoch, which is given. It takes none from this process.
    pub later_owners: PartitionEpochs,
}

/// Connection to a system that takes events.
#[async_trait]
pub trait SinkConnector: Send + 'static {
    /// Connects: before the first delivery, and after each that failed. Returns the last event of each partition
    /// that the other side has, if it remembers: those before are not sent again.
    ///
    /// Errors: why the other side cannot be reached, without confidential values.
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>>;

    /// Takes note of the partitions whose events it delivers from now on: after each [`Self::connect`], and when they change. Returns what
    /// the other side knows of them now, if it remembers: former owners have delivered meanwhile.
    ///
    /// Errors: the connection failed; [`Self::connect`] follows.
    async fn own(&mut self, _partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        Ok(None)
    }

    /// Returns whether each call of [`Self::deliver`] has events of one partition only, because the other side keeps what is delivered
    /// together by partition.
    fn delivers_by_partition(&self) -> bool {
        false
    }

    /// Sends the events of `batch` in order, beginning with row `progress.delivered`, and counts there how far it
    /// came: what is counted is acknowledged by the other side. Events that it refuses for good are counted and
    /// added to `progress.refused`.
    ///
    /// The future is dropped when the sink stops.
    ///
    /// Errors: the connection failed; the rest is sent again after [`Self::connect`].
    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()>;

    /// Closes the connection.
    async fn close(&mut self) {}
}

/// Events for a sink, in order.
#[derive(Debug, Clone)]
pub struct SinkBatch {
    /// Events, with the columns of the stream.
    pub rows: RecordBatch,
    /// Id of each event. It is the same when an event is sent again.
    pub ids: Vec<EventId>,
    /// Messages that the mapper made of the events; empty for a sink that takes rows.
    pub messages: Vec<Payload>,
}

/// Progress of a delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryProgress {
    /// Rows that the other side has taken or refused.
    pub delivered: usize,
    /// Rows among them that it refused for good.
    pub refused: Vec<RefusedRow>,
}

/// Returns whether an owner in the epoch `own` may not follow one in `known`: that one is later. A partition that does not move, of epoch 0,
/// follows all.
pub fn is_later_owner(known: u64, own: u64) -> bool {
    own > 0 && known > own
}

impl DeliveryProgress {
    /// Counts the rows of a message as delivered.
    pub fn took(&mut self, message: &Payload) {
        self.delivered = message.row + message.rows;
    }

    /// Counts the rows of a message as refused.
    pub fn refused(&mut self, message: &Payload, reason: &str) {
        let rows = message.row..message.row + message.rows;
        self.refused.extend(rows.map(|row| RefusedRow { row, reason: reason.to_owned() }));
        self.delivered = message.row + message.rows;
    }
}

impl SinkBatch {
    /// Returns the messages that are not delivered.
    pub fn messages_from(&self, progress: &DeliveryProgress) -> &[Payload] {
        let from = self.messages.partition_point(|message| message.row < progress.delivered);
        &self.messages[from..]
    }
}

/// Rule that distributes events among the destinations of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// To the next one in turn.
    RoundRobin,
    /// Events with equal values of this column go to the same one.
    Partitioned(usize),
}

/// A sink, driven by one thread: a connector with its mapper, or several among which events are distributed.
pub struct ConnectorSink {
    name: String,
    destinations: Vec<Destination>,
    distribution: Distribution,
    /// Events delivered since the start, for taking turns.
    delivered: usize,
}

struct Destination {
    connector: Box<dyn SinkConnector>,
    mapper: Option<Box<dyn SinkMapper>>,
    connected: bool,
    /// The partitions that it was told of since it is connected.
    owned: Option<PartitionEpochs>,
}

impl ConnectorSink {
    /// Creates a sink that is not connected.
    pub fn new(name: String, connector: Box<dyn SinkConnector>, mapper: Option<Box<dyn SinkMapper>>) -> Self {
        let destinations = vec![Destination { connector, mapper, connected: false, owned: None }];
        Self { name, destinations, distribution: Distribution::RoundRobin, delivered: 0 }
    }

    /// Creates a sink that distributes events among the destinations of others.
    pub fn distributed(name: String, sinks: Vec<Self>, distribution: Distribution) -> Self {
        let destinations = sinks.into_iter().flat_map(|sink| sink.destinations).collect();
        Self { name, destinations, distribution, delivered: 0 }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a delivery may have events of one partition only.
    pub fn delivers_by_partition(&self) -> bool {
        self.destinations.iter().any(|destination| destination.connector.delivers_by_partition())
    }

    /// Connects where necessary, as the sink of these partitions. Returns what the other side knows of them, if it remembers and was asked
    /// now. What one of several destinations has delivered says nothing about the events of the others.
    ///
    /// Errors: the other side cannot be reached, or `stop` ended first.
    pub fn connect(
        &mut self,
        partitions: &PartitionEpochs,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<SinkPositions>> {
        let is_single = self.destinations.len() == 1;
        let connecting = async {
            let mut known: Option<SinkPositions> = None;
            for destination in &mut self.destinations {
                let Some(positions) = destination.connect(partitions).await? else { continue };
                let known = known.get_or_insert_default();
                known.later_owners.extend(positions.later_owners);
                if is_single {
                    known.delivered = positions.delivered;
                }
            }
            Ok(known)
        };
        until(stop, connecting)
    }

    /// Delivers events, see [`SinkConnector::deliver`]. Those that cannot be represented are among the refused.
    ///
    /// Errors: the connection failed, or `stop` ended first.
    pub fn deliver(
        &mut self,
        rows: &RecordBatch,
        ids: &[EventId],
        progress: &mut DeliveryProgress,
        stop: impl Future<Output = ()>,
    ) -> Result<()> {
        let delivered = match self.destinations.as_mut_slice() {
            [only] => until(stop, only.deliver(rows.clone(), ids.to_vec(), progress)),
            _ => until(stop, self.distribute(rows, ids, progress)),
        };
        self.delivered += progress.delivered;
        delivered
    }

    async fn distribute(
        &mut self,
        rows: &RecordBatch,
        ids: &[EventId],
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        let mut shares = vec![vec![]; self.destinations.len()];
        for row in 0..rows.num_rows() {
            shares[self.destination(rows, row)].push(row);
        }
        progress.delivered = rows.num_rows();
        let mut result = Ok(());
        for (destination, share) in self.destinations.iter_mut().zip(shares) {
            if share.is_empty() {
                continue;
            }
            let indices = UInt32Array::from_iter_values(share.iter().map(|row| *row as u32));
            let taken = take_record_batch(rows, &indices)
                .map_err(|e| Error::internal("rows of a sink cannot be taken").with_source(e))?;
            let taken_ids = share.iter().map(|row| ids[*row]).collect();
            let mut of_share = DeliveryProgress::default();
            let delivered = destination.deliver(taken, taken_ids, &mut of_share).await;
            let refused = of_share.refused.into_iter();
            progress.refused.extend(refused.map(|refused| RefusedRow { row: share[refused.row], ..refused }));
            if let Some(first) = share.get(of_share.delivered) {
                progress.delivered = progress.delivered.min(*first);
            }
            result = result.and(delivered);
        }
        result
    }

    fn destination(&self, rows: &RecordBatch, row: usize) -> usize {
        let count = self.destinations.len();
        match self.distribution {
            Distribution::RoundRobin => (self.delivered + row) % count,
            Distribution::Partitioned(column) => {
                let mut key = String::new();
                write_value(&row_value(rows, column, row), &mut key);
                murmur2(key.as_bytes()) as usize % count
            }
        }
    }

    /// Closes the connections.
    pub fn close(&mut self) {
        for destination in &mut self.destinations {
            if std::mem::take(&mut destination.connected) {
                runtime().block_on(destination.connector.close());
            }
        }
    }
}

impl Destination {
    /// Connects if it is not connected, and tells the partitions if they have changed.
    async fn connect(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        let mut known = None;
        if !self.connected {
            let delivered = self.connector.connect().await?;
            known = delivered.map(|delivered| SinkPositions { delivered, ..SinkPositions::default() });
            (self.connected, self.owned) = (true, None);
        }
        if self.owned.as_ref() != Some(partitions) {
            match self.connector.own(partitions).await {
                Ok(told) => known = told.or(known),
                Err(e) => {
                    self.connected = false;
                    return Err(e);
                }
            }
            self.owned = Some(partitions.clone());
        }
        Ok(known)
    }

    async fn deliver(
        &mut self,
        rows: RecordBatch,
        ids: Vec<EventId>,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        let mapped = self.mapper.as_mut().map(|mapper| mapper.map(&rows, &mut progress.refused));
        let batch = SinkBatch { rows, ids, messages: mapped.unwrap_or_default() };
        let delivered = self.connector.deliver(&batch, progress).await;
        match &delivered {
            Ok(()) => progress.delivered = batch.rows.num_rows(),
            Err(_) => self.connected = false,
        }
        delivered
    }
}

fn until<T>(stop: impl Future<Output = ()>, work: impl Future<Output = Result<T>>) -> Result<T> {
    runtime().block_on(async {
        tokio::select! {
            done = work => done,
            () = stop => Err(Error::unavailable("the sink stops")),
        }
    })
}
