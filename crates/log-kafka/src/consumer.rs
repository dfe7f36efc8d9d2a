//! Reads records: for a subscription, and from any offset.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_log::{ConsumedRecord, Content, Record, Subscription};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::fetcher::{OpenPartition, SharedFetcher};
use crate::position::Take;
use crate::producer::Shared;

/// Interval at which a read checks whether its time is over.
const READ_POLL: Duration = Duration::from_millis(100);
/// Longest wait of a subscription in one step; a record or the end of the subscription comes before it.
const NEXT_WAIT: Duration = Duration::from_secs(60);

/// Reads a partition from any offset; keeps its place for the next read until it has reached the end.
#[derive(Default)]
pub(crate) struct Reader(Mutex<Option<Place>>);

struct Place {
    partition: OpenPartition,
    next: u64,
}

impl Reader {
    /// Returns records from `from` to `end`, about `max_bytes` of them, at least one.
    pub(crate) fn read(
        &self,
        (shared, fetcher): (&Arc<Shared>, &SharedFetcher),
        partition: PartitionId,
        from: Offset,
        end: u64,
        max_bytes: usize,
    ) -> Result<Vec<Record>> {
        let mut current = self.0.lock();
        let mut place = match current.take().filter(|place| place.next == from.0) {
            Some(place) => place,
            None => Place { partition: fetcher.open(shared, partition, from, false)?, next: from.0 },
        };
        let deadline = Instant::now() + shared.config.request_timeout;
        let (mut records, mut bytes) = (Vec::<Record>::new(), 0);
        while place.next < end && (records.is_empty() || bytes < max_bytes) {
            let records_max = usize::try_from(end - place.next).unwrap_or(usize::MAX);
            let payload_bytes_max = max_bytes.saturating_sub(bytes);
            let take = Take { records_max, payload_bytes_max, timeout: READ_POLL };
            let taken = place.partition.position.take(take)?;
            if taken.is_empty() {
                if !records.is_empty() {
                    break;
                }
                if Instant::now() >= deadline {
                    return Err(Error::unavailable(format!(
                        "{}: partition {partition} gave no record at offset {from} within {} ms",
                        shared.config,
                        shared.config.request_timeout.as_millis()
                    )));
                }
            }
            for fetched in taken {
                let ConsumedRecord { offset, time, clock, content } = fetched.record;
                let Content::Payload(payload) = content else {
                    return Err(Error::internal("a read was given an attachment"));
                };
                bytes += payload.len();
                place.next = offset.0 + 1;
                records.push(Record { offset, time, clock, payload });
            }
        }
        *current = Some(place).filter(|place| place.next < end);
        Ok(records)
    }

    /// Gives up the place, for which records are fetched ahead.
    pub(crate) fn rest(&self) {
        *self.0.lock() = None;
    }
}

/// Implements [`Subscription`].
pub(crate) struct KafkaSubscription {
    shared: Arc<Shared>,
    partition: OpenPartition,
    closed: Mutex<bool>,
}

impl KafkaSubscription {
    /// The caller has registered it with [`crate::producer::PartitionProgress::start_consuming`].
    pub(crate) fn open(
        shared: &Arc<Shared>,
        fetcher: &SharedFetcher,
        partition: PartitionId,
        from: Offset,
    ) -> Result<Self> {
        let partition = fetcher.open(shared, partition, from, true)?;
        Ok(Self { shared: Arc::clone(shared), partition, closed: Mutex::new(false) })
    }

    /// Takes what is there after waiting up to `timeout` for the first record.
    fn take(&self, records_max: usize, timeout: Duration) -> Result<Vec<ConsumedRecord>> {
        let position = &self.partition.position;
        let taken = position.take(Take { records_max, payload_bytes_max: usize::MAX, timeout })?;
        if let Some(last) = taken.last()
            && let Some(progress) = self.shared.partitions.get(position.partition.0 as usize)
        {
            let bytes = taken.iter().map(|fetched| fetched.payload_bytes).sum();
            progress.saw(last.record.offset.0, taken.len(), bytes);
        }
        Ok(taken.into_iter().map(|fetched| fetched.record).collect())
    }
}

impl Subscription for KafkaSubscription {
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>> {
        while !self.partition.position.is_closed() {
            let records = self.take(records_max, NEXT_WAIT)?;
            if !records.is_empty() {
                return Ok(Some(records));
            }
        }
        Ok(None)
    }

    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        self.take(records_max, Duration::ZERO)
    }

    fn close(&self) {
        let mut closed = self.closed.lock();
        if !std::mem::replace(&mut *closed, true) {
            self.partition.position.close();
            if let Some(progress) = self.shared.partitions.get(self.partition.position.partition.0 as usize) {
                progress.stop_consuming();
            }
        }
    }
}

impl Drop for KafkaSubscription {
    fn drop(&mut self) {
        self.close();
    }
}
