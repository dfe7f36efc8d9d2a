//! One consumer for all partitions that are read.
//!
//! A reader opens a partition at an offset ([`Position`]) and takes records from the partition's own queue at the client, on its own
//! thread. A second thread looks after those that do not: every [`RELIEF_INTERVAL`] it moves what a reader has left in its queue to a buffer, and
//! unassigns the partition if that is full. The reader assigns it again when it has taken half of the buffer.
//!
//! The client has properties that shape this:
//! - Messages point into the response that they came with, and keep all of it in memory. One message of a few bytes in the queue of a slow
//!   reader would keep megabytes that others have long consumed, again with each response. So they do not stay in queues.
//! - With a queue per partition, `queued.max.messages.kbytes` holds for each of them, and one fetch (`fetch.message.max.bytes`) may
//!   exceed it. Both are a fraction of `fetch_bytes_max`, so that all queues and buffers stay below that.
//! - A queue above its bound is not fetched again before `fetch.queue.backoff.ms`, which is a second by default.
//! - A broker has one request of a consumer at a time, and answers it when there are messages or after `fetch.wait.max.ms`, half a second by default.
//!   Only the next request has a partition that was assigned in between.
//! - Only in queues per partition do errors tell their partition.
//! - A queue must be split off before the partition is assigned, or its first messages go to the common queue. That one must be
//!   polled, too, because it brings the errors of the client.
//! - A partition that is paused continues after the last record that was polled, whether that fit into the buffer or not. So partitions are
//!   unassigned instead, and assigned at the record that did not fit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::message::Message;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::config::MESSAGE_BYTES_LIMIT;
use crate::error::failed;
use crate::position::{Bounds, Position};
use crate::producer::{Context, Shared};

/// Interval at which readers are relieved of what they have left in their queues.
const RELIEF_INTERVAL: Duration = Duration::from_millis(100);
/// Least bound of a partition, so that many partitions stay fast.
const PARTITION_BYTES_MIN: usize = 64 << 10;
const QUEUE_BYTES_MAX: usize = 16 << 20;
const FETCH_BYTES_MAX: usize = 1 << 20;
const RESPONSE_BYTES_MAX: usize = 8 << 20;
const FETCH_WAIT_MS: &str = "50";
const THREAD: &str = "kafka-relief";

impl ConsumerContext for Context {}

/// A consumer while partitions are read with it. It ends, with its threads and connections, with the last reader.
#[derive(Default)]
pub(crate) struct SharedFetcher(Mutex<Weak<Fetcher>>);

impl SharedFetcher {
    /// Opens a partition at an offset. It is not open with this fetcher already.
    ///
    /// Errors: `Invalid` for properties that the client does not take, `Unavailable` when the partition cannot be assigned.
    pub(crate) fn open(
        &self,
        shared: &Arc<Shared>,
        partition: PartitionId,
        from: Offset,
        takes_attachments: bool,
    ) -> Result<OpenPartition> {
        let mut current = self.0.lock();
        let fetcher = match current.upgrade() {
            Some(fetcher) => fetcher,
            None => {
                let fetcher = Arc::new(Fetcher::start(shared)?);
                *current = Arc::downgrade(&fetcher);
                fetcher
            }
        };
        drop(current);
        let position = fetcher.open(shared, partition, from, takes_attachments)?;
        Ok(OpenPartition { position, fetcher })
    }
}

/// A partition that is read while this value lives.
pub(crate) struct OpenPartition {
    pub position: Arc<Position>,
    fetcher: Arc<Fetcher>,
}

impl Drop for OpenPartition {
    fn drop(&mut self) {
        self.position.close();
        // the other thread may hold it at this moment, and does not see it again
        self.position.wait_released();
        let mut positions = self.fetcher.positions.lock();
        let partition = self.position.partition;
        if positions.get(&partition).is_some_and(|position| Arc::ptr_eq(position, &self.position)) {
            positions.remove(&partition);
        }
    }
}

type Positions = Mutex<HashMap<PartitionId, Arc<Position>>>;

struct Fetcher {
    /// `None` only while it is dropped.
    consumer: Option<Arc<BaseConsumer<Context>>>,
    bounds: Bounds,
    positions: Arc<Positions>,
    ended: Arc<AtomicBool>,
    relief: Thread,
}

impl Fetcher {
    fn start(shared: &Arc<Shared>) -> Result<Self> {
        let config = &shared.config;
        let all = config.fetch_bytes_max / 2;
        let bounds = bounds(all, shared.partitions.len());
        let mut client = config.client_config();
        client
            // required by the client, and not used: positions are in checkpoints, never at the brokers
            .set("group.id", "tidemill")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("queued.max.messages.kbytes", bounds.queue.div_ceil(1024).to_string())
            .set("fetch.message.max.bytes", bounds.fetch.to_string())
            .set("fetch.max.bytes", (all / 8).clamp(FETCH_BYTES_MAX, RESPONSE_BYTES_MAX).to_string())
            .set("receive.message.max.bytes", (MESSAGE_BYTES_LIMIT + RESPONSE_BYTES_MAX).to_string())
            .set("fetch.wait.max.ms", FETCH_WAIT_MS)
            .set("fetch.queue.backoff.ms", "5")
            .set("fetch.error.backoff.ms", "50");
        let consumer: BaseConsumer<Context> = client
            .create_with_context(Context(Arc::clone(shared)))
            .map_err(|e| failed(config, "cannot create a consumer", e))?;
        let consumer = Arc::new(consumer);
        let (positions, ended) = (Arc::<Positions>::default(), Arc::<AtomicBool>::default());
        let relief = {
            let (shared, consumer) = (Arc::clone(shared), Arc::clone(&consumer));
            let (positions, ended) = (Arc::clone(&positions), Arc::clone(&ended));
            move || relieve(&shared, &consumer, &positions, &ended)
        };
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(relief);
        let thread = thread
            .map_err(|e| Error::unavailable(format!("{config}: cannot start a thread that reads: {e}")))?;
        Ok(Self { consumer: Some(consumer), bounds, positions, ended, relief: thread.thread().clone() })
    }

    fn open(
        &self,
        shared: &Arc<Shared>,
        partition: PartitionId,
        from: Offset,
        takes_attachments: bool,
    ) -> Result<Arc<Position>> {
        let consumer =
            self.consumer.as_ref().ok_or_else(|| Error::internal("a fetcher is used after its end"))?;
        let mut positions = self.positions.lock();
        if let Some(former) = positions.remove(&partition) {
            former.wait_released();
        }
        let position = Position::open(shared, (consumer, self.bounds), partition, from, takes_attachments)?;
        let position = Arc::new(position);
        positions.insert(partition, Arc::clone(&position));
        Ok(position)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        // the other thread closes the consumer, which takes its time
        drop(self.consumer.take());
        self.ended.store(true, Ordering::Release);
        self.relief.unpark();
    }
}

/// Divides `bytes` among partitions: a half for queues at the client, a quarter for the fetches by which these exceed their bound, a
/// quarter for buffers. There are two consumers at most, for subscriptions and for reads, each with a half of what is configured.
fn bounds(bytes: usize, partitions: usize) -> Bounds {
    let share = |part: usize| (bytes / part / partitions.max(1)).max(PARTITION_BYTES_MIN);
    Bounds {
        queue: share(2).min(QUEUE_BYTES_MAX),
        fetch: share(4).min(FETCH_BYTES_MAX),
        buffer: share(4).min(QUEUE_BYTES_MAX),
    }
}

/// Loop of the second thread.
fn relieve(shared: &Shared, consumer: &BaseConsumer<Context>, positions: &Positions, ended: &AtomicBool) {
    while !ended.load(Ordering::Acquire) {
        std::thread::park_timeout(RELIEF_INTERVAL);
        while let Some(event) = consumer.poll(Duration::ZERO) {
            match event {
                Err(error) => shared.report(format!("cannot read: {error}")),
                Ok(message) => tracing::error!(
                    log = %shared.config,
                    partition = message.partition(),
                    offset = message.offset(),
                    "a record came to no reader"
                ),
            }
        }
        let open: Vec<_> = positions.lock().values().cloned().collect();
        open.iter().for_each(|position| position.relieve());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_all_partitions_stay_below_the_configured_bytes() {
        for partitions in [1, 3, 16, 64, 128] {
            let Bounds { queue, fetch, buffer } = bounds(64 << 20, partitions);
            assert!(partitions * (queue + fetch + buffer) <= 64 << 20, "{partitions} partitions");
            assert!(queue.min(fetch).min(buffer) >= PARTITION_BYTES_MIN);
        }
    }
}
