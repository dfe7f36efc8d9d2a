//! A sink that sends events to another system: its queues, and what the thread that delivers shares with the others.
//!
//! A sink has one connection and thread in a process, and a queue for each partition that the process owns:
//!
//! ```text
//! queue of partition 0   7 8 9 …  ╮ a share of each, then what is left      one batch    thread, connection
//! queue of partition 3   1 2      ╯ in the order in which the rows came  ─▶ 7 1 8 2 9 ─▶ the other side
//! ```
//!
//! Events of a partition are delivered in order. Those of several are in the order in which they were applied while the sink keeps up; with
//! a backlog each partition gets its share of a batch, so that a long queue does not hold the others up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use parking_lot::{Condvar, Mutex, RwLock};
use tidemill_connect::{ConnectorSink, OnError, PartitionEpochs, SinkPositions};
use tidemill_types::{EventId, Offset, PartitionId, Result, StreamSchema};
use tokio::sync::watch;

use super::SinkInfo;
use super::delivery_queue::{DeliveryQueue, QueueOptions, SinkCounts};
use super::due_events::DueEvents;
use super::former_queue;
use super::partition_queue::{PartitionQueue, Totals};
use super::queue_directory::queue_name;
use crate::planted_bugs::{PlantedBug, is_planted};

/// Bytes of rows of a sink that wait in memory before they go to the disk.
const MEMORY_BYTES_MAX: u64 = 16 << 20;
/// Minimum interval at which a sink logs that events were refused.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum time that the delivery thread waits for events before it checks whether the engine stops.
const WAIT: Duration = Duration::from_millis(100);
/// Queues whose progress is stored at a time, so that many partitions do not keep the disk busy.
const PROGRESS_QUEUES: usize = 4;

/// Sink of a stream.
pub struct DeliverySink {
    stream: usize,
    schema: Arc<StreamSchema>,
    on_error: OnError,
    /// Taken by the thread that delivers.
    connector: Mutex<Option<ConnectorSink>>,
    by_partition: bool,
    options: QueueOptions,
    /// By partition, those of this process.
    queues: RwLock<BTreeMap<PartitionId, Arc<PartitionQueue>>>,
    totals: Arc<Totals>,
    /// Rows that came so far, over all queues.
    arrivals: AtomicU64,
    /// Number of batches, for taking turns.
    turns: AtomicUsize,
    /// Number of times that events became due.
    signals: Mutex<u64>,
    changed: Condvar,
    /// Why events are not delivered at present.
    problem: Mutex<Option<String>>,
    refusals: Mutex<RefusalLog>,
    stop: watch::Sender<bool>,
}

impl DeliverySink {
    /// Creates a sink of the program's stream at `stream`, without queues.
    pub fn new(
        connector: ConnectorSink,
        stream: usize,
        schema: Arc<StreamSchema>,
        on_error: OnError,
        options: QueueOptions,
    ) -> Self {
        Self {
            stream,
            schema,
            on_error,
            by_partition: connector.delivers_by_partition(),
            connector: Mutex::new(Some(connector)),
            options,
            queues: RwLock::default(),
            totals: Arc::default(),
            arrivals: AtomicU64::new(0),
            turns: AtomicUsize::new(0),
            signals: Mutex::default(),
            changed: Condvar::new(),
            problem: Mutex::new(None),
            refusals: Mutex::default(),
            stop: watch::Sender::new(false),
        }
    }

    /// Moves what waits in the queue of an earlier release for all partitions to queues by partition.
    ///
    /// Errors: `Corrupt` for damaged files, `Unavailable` when the disk fails.
    pub fn move_former_queue(&self, partitions: u32) -> Result<()> {
        former_queue::move_to_partitions(&self.options, partitions)
    }

    /// Opens the queue of a partition that this process owns in `epoch`, or follows, and whose log ends at `log_end`.
    ///
    /// Errors: those of [`DeliveryQueue::open`].
    pub fn open_partition(&self, partition: PartitionId, epoch: Option<u64>, log_end: Offset) -> Result<()> {
        let queue = DeliveryQueue::open(self.options.clone(), partition, log_end)?;
        let opened = Arc::new(PartitionQueue::new(partition, epoch, queue, self.totals.clone()));
        let former = self.queues.write().insert(partition, opened);
        debug_assert!(former.is_none(), "a queue is closed before it is opened again");
        Ok(())
    }

    /// Delivers the events of a partition that this process has followed and owns now, in `epoch`.
    pub fn promote_partition(&self, partition: PartitionId, epoch: u64) {
        if let Some(queue) = self.queue(partition) {
            queue.become_owner(epoch);
        }
        self.signal();
    }

    /// Keeps the events of a partition that this process has owned and follows now.
    pub fn demote_partition(&self, partition: PartitionId) {
        if let Some(queue) = self.queue(partition) {
            queue.become_standby();
        }
    }

    /// Notes that the other side has the events of a partition up to `last`, as its owner says.
    ///
    /// Errors: the files cannot be read.
    pub fn note_delivered(&self, partition: PartitionId, last: EventId) -> Result<()> {
        self.queue(partition).map_or(Ok(()), |queue| queue.note_delivered(last))
    }

    /// Ends deliveries of a partition. Returns whether those that had begun have ended after `wait` at most.
    pub fn stop_partition(&self, partition: PartitionId, mut wait: impl FnMut() -> bool) -> bool {
        let Some(queue) = self.queue(partition) else { return true };
        queue.stop();
        while queue.is_delivering() {
            if !wait() {
                return false;
            }
        }
        true
    }

    /// Closes the queue of a partition. Its files stay as they are.
    pub fn close_partition(&self, partition: PartitionId) {
        let Some(queue) = self.queues.write().remove(&partition) else { return };
        queue.leave();
        self.close_files(&queue);
    }

    fn close_files(&self, queue: &PartitionQueue) {
        if let Err(e) = queue.lock().close() {
            let sink = self.name();
            tracing::warn!(sink, partition = queue.partition().0, error = %e, "the queue was not closed properly");
        }
    }

    /// Returns the partitions whose events it delivers.
    pub fn partitions(&self) -> PartitionEpochs {
        self.own_queues().iter().map(|queue| (queue.partition(), queue.epoch())).collect()
    }

    /// Takes over what the other side knows of partitions.
    pub fn set_known(&self, partitions: &PartitionEpochs, known: &SinkPositions) {
        for queue in self.all_queues().iter().filter(|queue| queue.is_in(partitions)) {
            let later_owner = known.later_owners.get(&queue.partition()).copied();
            queue.set_later_owner(later_owner);
            queue.with(|inner| inner.set_known(known.delivered.get(&queue.partition()).copied()));
        }
    }

    /// Returns the partitions with a later owner, as the other side knows.
    pub fn lost_partitions(&self) -> Vec<PartitionId> {
        let queues = self.all_queues();
        let lost = queues.iter().filter(|queue| queue.has_later_owner());
        lost.map(|queue| queue.partition()).collect()
    }

    /// Returns up to about `rows_max` events to deliver of these partitions; `None` if none wait. They stay in their queues until
    /// [`DueEvents::mark_delivered`].
    ///
    /// Errors: files cannot be read.
    pub fn due(&self, partitions: &PartitionEpochs, rows_max: usize) -> Result<Option<DueEvents>> {
        let mut queues = self.all_queues();
        queues.retain(|queue| queue.is_in(partitions) && queue.may_deliver());
        if queues.is_empty() {
            return Ok(None);
        }
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) % queues.len();
        queues.rotate_left(turn);
        if self.by_partition {
            for queue in queues {
                if queue.with(|inner| inner.take_due(rows_max))? > 0 {
                    return DueEvents::of(self.name(), &self.options.schema, vec![queue]);
                }
            }
            return Ok(None);
        }
        let share = rows_max.div_ceil(queues.len());
        let mut rows = Vec::with_capacity(queues.len());
        for queue in &queues {
            rows.push(queue.with(|inner| inner.take_due(share))?);
        }
        let mut left = rows_max.saturating_sub(rows.iter().sum());
        for (queue, has) in queues.iter().zip(rows) {
            if has >= share && left > 0 {
                let took = queue.with(|inner| inner.take_due(has + left))?;
                left = left.saturating_sub(took - has);
            }
        }
        DueEvents::of(self.name(), &self.options.schema, queues)
    }

    /// Returns the queue of a partition, if this process owns it.
    pub fn queue(&self, partition: PartitionId) -> Option<Arc<PartitionQueue>> {
        self.queues.read().get(&partition).cloned()
    }

    /// Returns the queues of the partitions that this process owns, by partition.
    pub fn own_queues(&self) -> Vec<Arc<PartitionQueue>> {
        let mut queues = self.all_queues();
        queues.retain(|queue| !queue.is_standby());
        queues
    }

    /// Returns the queues of all partitions that this process owns or follows, by partition.
    pub fn all_queues(&self) -> Vec<Arc<PartitionQueue>> {
        self.queues.read().values().cloned().collect()
    }

    /// Counts refused events. Returns how many have to be logged now; `None` if it is too early.
    pub fn count_refusals(&self, events: u64, now: Duration) -> Option<u64> {
        self.refusals.lock().count(events, now)
    }

    /// Returns the name: the app's file, the stream and the type.
    pub fn name(&self) -> &str {
        &self.options.sink
    }

    /// Returns the position of its stream in the program.
    pub fn stream(&self) -> usize {
        self.stream
    }

    /// Returns what became of the events of the partitions of this process.
    pub fn info(&self) -> SinkInfo {
        let mut counts = SinkCounts::default();
        for queue in self.own_queues() {
            counts.add(&queue.lock().counts());
        }
        let SinkCounts { emitted, delivered, failed } = counts;
        SinkInfo {
            name: self.name().to_owned(),
            stream: self.schema.name.clone(),
            emitted,
            delivered,
            failed,
            waiting: counts.waiting(),
            waiting_bytes: self.waiting_bytes(),
            problem: self.problem(),
        }
    }

    /// Returns the number of events that wait.
    pub fn waiting(&self) -> u64 {
        self.totals.events.load(Ordering::Acquire)
    }

    /// Adds rows of a record, see [`DeliveryQueue::push`]. The next owner adds those of a partition that is not here any more.
    ///
    /// Errors: those of [`DeliveryQueue::push`], and of storing rows when too many are in memory.
    pub fn push(&self, partition: PartitionId, offset: Offset, rows: &RecordBatch) -> Result<()> {
        let Some(queue) = self.queue(partition) else { return Ok(()) };
        if is_planted(PlantedBug::DropKeptEvents) && queue.is_standby() {
            return Ok(());
        }
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        queue.with(|inner| inner.push(offset, rows, arrival))?;
        match self.totals.memory_bytes.load(Ordering::Acquire) > 4 * MEMORY_BYTES_MAX {
            true => self.store(),
            false => Ok(()),
        }
    }

    /// Records that all rows of a partition below `next` are in the queue, and delivers them.
    pub fn set_applied(&self, partition: PartitionId, next: Offset) {
        let Some(queue) = self.queue(partition) else { return };
        queue.lock().set_applied(next);
        if self.waiting() > 0 {
            self.signal();
        }
    }

    fn signal(&self) {
        *self.signals.lock() += 1;
        self.changed.notify_one();
    }

    /// Drops rows, see [`DeliveryQueue::forget_unapplied`].
    pub fn forget_unapplied(&self, partition: PartitionId) {
        if let Some(queue) = self.queue(partition) {
            queue.with(DeliveryQueue::forget_unapplied);
        }
    }

    /// Returns whether rows in memory should go to the disk.
    pub fn is_memory_full(&self) -> bool {
        self.totals.memory_bytes.load(Ordering::Acquire) > MEMORY_BYTES_MAX
    }

    /// Returns the bytes that wait in memory and on the disk, in all queues.
    pub fn waiting_bytes(&self) -> u64 {
        let load = |total: &AtomicU64| total.load(Ordering::Acquire);
        load(&self.totals.memory_bytes) + load(&self.totals.file_bytes)
    }

    /// Returns the offset of a partition below which all events are delivered or stored durably.
    pub fn stored(&self, partition: PartitionId) -> Offset {
        self.queue(partition).map_or(Offset(0), |queue| queue.lock().stored())
    }

    /// Makes all events of applied records durable in the queues.
    ///
    /// Errors: the first of those of [`DeliveryQueue::store`]; the others are stored all the same.
    pub fn store(&self) -> Result<()> {
        for_each_queue(self.all_queues(), DeliveryQueue::store)
    }

    /// Makes all events of applied records durable in the queues of the partitions that this process owns.
    ///
    /// Errors: as [`Self::store`].
    pub fn store_own(&self) -> Result<()> {
        for_each_queue(self.own_queues(), DeliveryQueue::store)
    }

    /// Makes all events of applied records of one partition durable.
    ///
    /// Errors: those of [`DeliveryQueue::store`].
    pub fn store_partition(&self, partition: PartitionId) -> Result<()> {
        self.queue(partition).map_or(Ok(()), |queue| queue.with(DeliveryQueue::store))
    }

    /// Makes durable how far the deliveries have come, of some partitions at each call.
    ///
    /// Errors: those of [`DeliveryQueue::store_progress`].
    pub fn store_progress(&self) -> Result<()> {
        let mut queues = self.own_queues();
        if !queues.is_empty() {
            let turn = self.turns.load(Ordering::Relaxed) % queues.len();
            queues.rotate_left(turn);
        }
        queues.retain(|queue| queue.lock().has_progressed());
        queues.truncate(PROGRESS_QUEUES);
        for_each_queue(queues, DeliveryQueue::store_progress)
    }

    /// Returns the events' fields.
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// Returns what happens to events that the other side refuses.
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// Returns the name of the directories of its queues.
    pub fn queue_name(&self) -> String {
        queue_name(self.name())
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

    /// Returns the number of times that events became due.
    pub fn signals(&self) -> u64 {
        *self.signals.lock()
    }

    /// Waits a moment for events, unless some became due since [`Self::signals`] returned `seen`.
    pub fn wait_for_events(&self, seen: u64) {
        let mut signals = self.signals.lock();
        if *signals == seen && !self.is_stopped() {
            self.changed.wait_for(&mut signals, WAIT);
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

    /// Closes the files of the queues.
    pub fn close(&self) {
        self.all_queues().iter().for_each(|queue| self.close_files(queue));
    }
}

/// Uses each queue, also after one that fails.
///
/// Errors: the first of those of `step`.
fn for_each_queue(
    queues: Vec<Arc<PartitionQueue>>,
    step: impl Fn(&mut DeliveryQueue) -> Result<()>,
) -> Result<()> {
    let done: Vec<_> = queues.iter().map(|queue| queue.with(&step)).collect();
    done.into_iter().collect()
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
