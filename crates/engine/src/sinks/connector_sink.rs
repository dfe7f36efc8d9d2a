//! A sink that sends events to another system: what the thread that delivers shares with the others.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tidemill_connect::{ConnectorSink, OnError};
use tidemill_types::{Offset, PartitionId, Result, StreamSchema};
use tokio::sync::watch;

use super::SinkInfo;
use super::delivery_queue::{self, DeliveryQueue, SinkCounts};

/// Minimum interval at which a sink logs that events were refused.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time that the delivery thread waits for events before it checks whether the engine stops.
const WAIT: Duration = Duration::from_millis(100);

/// Sink of a stream.
pub struct DeliverySink {
    name: String,
    stream: usize,
    schema: Arc<StreamSchema>,
    on_error: OnError,
    /// Taken by the thread that delivers.
    connector: Mutex<Option<ConnectorSink>>,
    queue: Mutex<DeliveryQueue>,
    changed: Condvar,
    /// Why events are not delivered at present.
    problem: Mutex<Option<String>>,
    refusals: Mutex<RefusalLog>,
    stop: watch::Sender<bool>,
}

impl DeliverySink {
    /// Creates a sink of the program's stream at `stream`.
    pub fn new(
        connector: ConnectorSink,
        stream: usize,
        schema: Arc<StreamSchema>,
        on_error: OnError,
        queue: DeliveryQueue,
    ) -> Self {
        Self {
            name: connector.name().to_owned(),
            stream,
            schema,
            on_error,
            connector: Mutex::new(Some(connector)),
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            problem: Mutex::new(None),
            refusals: Mutex::default(),
            stop: watch::Sender::new(false),
        }
    }

    /// Counts refused events. Returns how many have to be logged now; `None` if it is too early.
    pub fn count_refusals(&self, events: u64, now: Duration) -> Option<u64> {
        self.refusals.lock().count(events, now)
    }

    /// Returns the name: the app's file, the stream and the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of its stream in the program.
    pub fn stream(&self) -> usize {
        self.stream
    }

    /// Returns what became of the events.
    pub fn info(&self) -> SinkInfo {
        let queue = self.queue.lock();
        let (memory, stored) = queue.bytes();
        let SinkCounts { emitted, delivered, failed } = queue.counts();
        SinkInfo {
            name: self.name.clone(),
            stream: self.schema.name.clone(),
            emitted,
            delivered,
            failed,
            waiting: queue.waiting(),
            waiting_bytes: memory as u64 + stored,
            problem: self.problem.lock().clone(),
        }
    }

    /// Adds rows of a record, see [`DeliveryQueue::push`].
    ///
    /// Errors: those of [`DeliveryQueue::push`].
    pub fn push(&self, partition: PartitionId, offset: Offset, rows: &RecordBatch) -> Result<()> {
        self.queue.lock().push(partition, offset, rows)
    }

    /// Records that all rows of a partition below `next` are in the queue, and delivers them.
    pub fn set_applied(&self, partition: PartitionId, next: Offset) {
        let mut queue = self.queue.lock();
        queue.set_applied(partition, next);
        if queue.waiting() > 0 {
            self.changed.notify_one();
        }
    }

    /// Drops rows, see [`DeliveryQueue::forget_unapplied`].
    pub fn forget_unapplied(&self, partition: PartitionId) {
        self.queue.lock().forget_unapplied(partition);
    }

    /// Returns whether rows in memory should go to the disk.
    pub fn is_memory_full(&self) -> bool {
        self.queue.lock().is_memory_full()
    }

    /// Returns the bytes that wait in memory and on the disk.
    pub fn waiting_bytes(&self) -> u64 {
        let (memory, stored) = self.queue.lock().bytes();
        memory as u64 + stored
    }

    /// Returns the offset of a partition below which all events are delivered or stored durably.
    pub fn stored(&self, partition: PartitionId) -> Offset {
        self.queue.lock().stored(partition)
    }

    /// Makes all events of applied records durable in the queue, if they are in the log.
    ///
    /// Errors: those of [`DeliveryQueue::store`], and of syncing the log.
    pub fn store(&self) -> Result<()> {
        self.queue.lock().store()
    }

    /// Returns the events' fields.
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// Returns what happens to events that the other side refuses.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns the name of the directory of the queue.
    pub fn queue_name(&self) -> String {
        delivery_queue::queue_name(&self.name)
    }

    /// Returns the queue.
    pub fn queue(&self) -> MutexGuard<'_, DeliveryQueue> {
        self.queue.lock()
    }

    /// Takes the connector, for the thread that delivers.
    pub fn take_connector(&self) -> Option<ConnectorSink> {
        self.connector.lock().take()
    }

    /// Returns why events are not delivered at present.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Sets why events are not delivered at present. Returns the former reason.
    pub fn set_problem(&self, problem: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.problem.lock(), problem)
    }

    /// Waits a moment for events.
    pub fn wait_for_events(&self) {
        let mut queue = self.queue.lock();
        if !self.is_stopped() {
            self.changed.wait_for(&mut queue, WAIT);
        }
    }

    /// Returns whether [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Ends when [`Self::stop`] is called.
    pub fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.subscribe();
        async move {
            // an error means that the sink itself has ended
            let _ = stop.wait_for(|stop| *stop).await;
        }
    }

    /// Ends deliveries.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        self.changed.notify_all();
    }

    /// Closes the files of the queue.
    pub fn close(&self) {
        if let Err(e) = self.queue.lock().close() {
            tracing::warn!(sink = self.name, error = %e, "the queue was not closed properly");
        }
    }
}

/// Refused events that are not logged yet, and when some were logged.
#[derive(Default)]
struct RefusalLog {
    logged: Option<Duration>,
    unlogged: u64,
}

impl RefusalLog {
    fn count(&mut self, events: u64, now: Duration) -> Option<u64> {
        self.unlogged += events;
        if self.logged.is_some_and(|logged| now.saturating_sub(logged) < REFUSAL_LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_at_once_and_then_by_their_number() {
        let mut log = RefusalLog::default();
        let at = Duration::from_secs;
        assert_eq!(log.count(3, at(5)), Some(3));
        assert_eq!(log.count(1, at(5)), None);
        assert_eq!(log.count(1700, at(64)), None);
        assert_eq!(log.count(2, at(65)), Some(1703));
        assert_eq!(log.count(1, at(66)), None);
    }
}
