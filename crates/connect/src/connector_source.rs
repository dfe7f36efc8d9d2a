//! Sources that wait for messages: the connector on its task, and the rows that the engine takes from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tidemill_types::{Error, Result, StreamSchema, Timestamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::ConnectorHealth;
use crate::mapper::{EventBuilder, SourceMapper};
use crate::message::Message;
use crate::runtime::{Backoff, runtime};
use crate::source::{Acknowledgement, Receipt, Source, SourceBatch};

/// Deliveries that may wait for the engine.
const DELIVERIES_MAX: usize = 1024;
/// Bytes of messages that may wait for the engine.
const BYTES_MAX: usize = 32 << 20;
/// Rows after which a batch ends.
const BATCH_ROWS: usize = 8192;
/// Maximum time [`Source::next`] waits for the first message.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A connection that lasted as long counts as one that works.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Position of each split from which a source continues: the number of the first message that is not taken.
pub type SplitPositions = BTreeMap<String, u64>;

/// Connection to a system that sends messages.
#[async_trait]
pub trait SourceConnector: Send + 'static {
    /// Connects and hands everything that arrives to `output`, until the connection fails or the input ends. It
    /// is called again after a failure, with growing delays, and continues behind what it has handed over. The
    /// future is dropped when the source stops.
    ///
    /// Errors: why the connection failed, without confidential values.
    async fn run(&mut self, output: &SourceOutput) -> Result<()>;
}

/// Output of a connector, to which it hands over messages. Clones feed the same source.
#[derive(Clone)]
pub struct SourceOutput {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Delivery>,
}

struct Shared {
    /// Position behind what was handed over of each split.
    positions: Mutex<SplitPositions>,
    bytes: Arc<Semaphore>,
    health: Mutex<ConnectorHealth>,
}

/// Messages on their way to the engine.
struct Delivery {
    split: Option<Arc<str>>,
    messages: Vec<Message>,
    position: u64,
    receipt: oneshot::Sender<Result<Receipt>>,
    _room: OwnedSemaphorePermit,
}

/// Claim to the receipt of messages that were handed over. Dropping it does not withdraw them.
pub struct PendingReceipt(oneshot::Receiver<Result<Receipt>>);

impl PendingReceipt {
    /// Waits until the events are durable in the log.
    ///
    /// Errors: `Unavailable` if they are not known to be: the sender should send them again.
    pub async fn wait(self) -> Result<Receipt> {
        match self.0.await {
            Ok(receipt) => receipt,
            Err(_) => Err(Error::unavailable("the source stopped before the events were in the log")),
        }
    }
}

impl SourceOutput {
    /// Hands over messages, which become events in one step: all of them are taken or, after a crash, none.
    /// Waits while too many wait for the engine.
    ///
    /// Errors: `Unavailable` when the source stops.
    pub async fn send(&self, messages: Vec<Message>) -> Result<PendingReceipt> {
        self.hand_over(None, messages, 0).await
    }

    /// Hands over messages of a split, whose numbers do not decrease, with the position behind them. The engine
    /// stores the position with the events, so that none is lost or doubled.
    ///
    /// Errors: `Unavailable` when the source stops.
    pub async fn send_split(
        &self,
        split: &Arc<str>,
        messages: Vec<Message>,
        position: u64,
    ) -> Result<PendingReceipt> {
        let pending = self.hand_over(Some(split.clone()), messages, position).await?;
        self.shared.positions.lock().insert(split.to_string(), position);
        Ok(pending)
    }

    async fn hand_over(
        &self,
        split: Option<Arc<str>>,
        messages: Vec<Message>,
        position: u64,
    ) -> Result<PendingReceipt> {
        let stopped = || Error::unavailable("the source stops");
        let bytes: usize = messages.iter().map(|m| m.payload.len() + 64).sum();
        let permits = bytes.clamp(1, BYTES_MAX) as u32;
        let room = self.shared.bytes.clone().acquire_many_owned(permits).await.map_err(|_| stopped())?;
        let (receipt, pending) = oneshot::channel();
        let delivery = Delivery { split, messages, position, receipt, _room: room };
        self.sender.send(delivery).await.map_err(|_| stopped())?;
        Ok(PendingReceipt(pending))
    }

    /// Returns the position from which a split continues: behind what was handed over, or where the log says.
    /// `None` for a split that was never read.
    pub fn position(&self, split: &str) -> Option<u64> {
        self.shared.positions.lock().get(split).copied()
    }

    /// Returns the positions of all splits.
    pub fn positions(&self) -> SplitPositions {
        self.shared.positions.lock().clone()
    }

    /// Notes that the connection works.
    pub fn report_connected(&self) {
        *self.shared.health.lock() = ConnectorHealth::Working;
    }

    /// Reports a problem that does not end the connection.
    pub fn report_problem(&self, problem: impl Into<String>) {
        *self.shared.health.lock() = ConnectorHealth::Degraded(problem.into());
    }
}

/// Source of the events that a mapper makes of a connector's messages.
pub struct ConnectorSource {
    name: String,
    mapper: Box<dyn SourceMapper>,
    events: EventBuilder,
    deliveries: mpsc::Receiver<Delivery>,
    /// Delivery that was received and belongs to the next batch.
    held: Option<Delivery>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl ConnectorSource {
    /// Starts the connector on a task of its own.
    pub fn start(
        name: &str,
        connector: Box<dyn SourceConnector>,
        mapper: Box<dyn SourceMapper>,
        schema: Arc<StreamSchema>,
        starts: SplitPositions,
    ) -> Self {
        let (sender, deliveries) = mpsc::channel(DELIVERIES_MAX);
        let shared = Arc::new(Shared {
            positions: Mutex::new(starts),
            bytes: Arc::new(Semaphore::new(BYTES_MAX)),
            health: Mutex::new(ConnectorHealth::Degraded("it is connecting".into())),
        });
        let output = SourceOutput { shared: shared.clone(), sender };
        let task = runtime().spawn(keep_running(name.to_owned(), connector, output));
        Self {
            name: name.to_owned(),
            mapper,
            events: EventBuilder::new(schema),
            deliveries,
            held: None,
            shared,
            task,
        }
    }

    fn receive(&mut self) -> Received {
        if let Some(held) = self.held.take() {
            return Received::Delivery(held);
        }
        let deliveries = &mut self.deliveries;
        match runtime().block_on(async { tokio::time::timeout(POLL_INTERVAL, deliveries.recv()).await }) {
            Ok(Some(delivery)) => Received::Delivery(delivery),
            Ok(None) => Received::End,
            Err(_) => Received::Nothing,
        }
    }
}

enum Received {
    Delivery(Delivery),
    Nothing,
    End,
}

impl Drop for ConnectorSource {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a connector until its input ends, connecting again after failures.
async fn keep_running(name: String, mut connector: Box<dyn SourceConnector>, output: SourceOutput) {
    let mut backoff = Backoff::default();
    loop {
        let started = Instant::now();
        match connector.run(&output).await {
            Ok(()) => return,
            Err(_) if output.sender.is_closed() => return,
            Err(e) => {
                if started.elapsed() >= STABLE_AFTER {
                    backoff.reset();
                }
                let delay = backoff.next_delay();
                // the reader of the source reports the problem once; this line is logged for each attempt
                tracing::debug!(source = name, error = %e, ?delay, "the source connects again");
                output.report_problem(format!("{e}; the source connects again"));
                tokio::time::sleep(delay).await;
            }
        }
    }
}

impl Source for ConnectorSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        let first = match self.receive() {
            Received::Delivery(delivery) => delivery,
            Received::Nothing => return Ok(Some(SourceBatch::default())),
            Received::End => return Ok(None),
        };
        self.events.set_now(now);
        let split = first.split.clone();
        let mut position = 0;
        let mut receipts = vec![];
        let mut next = Some(first);
        while let Some(delivery) = next.take() {
            let (events, rejected) = self.events.counts();
            delivery.messages.iter().for_each(|message| self.mapper.map(message, &mut self.events));
            let (events_after, _) = self.events.counts();
            let receipt =
                Receipt { accepted: events_after - events, rejected: self.events.reasons_from(rejected) };
            receipts.push((delivery.receipt, receipt));
            position = delivery.position;
            if self.events.len() < BATCH_ROWS
                && let Ok(more) = self.deliveries.try_recv()
            {
                match more.split == split {
                    true => next = Some(more),
                    false => self.held = Some(more),
                }
            }
        }
        let decoded = self.events.finish();
        Ok(Some(SourceBatch {
            rows: decoded.rows,
            row_numbers: decoded.row_numbers,
            rejected: decoded.rejected,
            position,
            split,
            acknowledge: Some(acknowledgement(receipts)),
        }))
    }

    fn health(&self) -> ConnectorHealth {
        self.shared.health.lock().clone()
    }
}

fn acknowledgement(receipts: Vec<(oneshot::Sender<Result<Receipt>>, Receipt)>) -> Acknowledgement {
    Acknowledgement::new(move |result| {
        for (sender, receipt) in receipts {
            let result = match &result {
                Ok(()) => Ok(receipt),
                Err(e) => Err(Error::new(e.kind(), e.message())),
            };
            // the sender of the messages may not wait for the receipt
            let _ = sender.send(result);
        }
    })
}
