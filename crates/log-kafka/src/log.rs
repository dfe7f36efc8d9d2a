//! The log as its users see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_log::{AppenderClock, Durability, Log, NewRecord, Record, Subscription, Ticket};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::base;
use crate::config::KafkaConfig;
use crate::consumer::{KafkaSubscription, Reader};
use crate::error::no_partition;
use crate::fetcher::SharedFetcher;
use crate::producer::{PartitionProgress, Producer, Shared};
use crate::topic::Topic;

/// A log in a topic of a Kafka cluster.
///
/// Shape: record and message have the same partition. Its offset is that of the message plus the base of the partition, which is 0 unless the
/// log was created with [`KafkaConfig::base_offsets`].
/// Durability: every level means that all in-sync replicas have acknowledged the record.
/// Time: that of the broker's append, in whole milliseconds.
/// Bounds: see [`KafkaConfig`].
pub struct KafkaLog {
    shared: Arc<Shared>,
    topic: Topic,
    producer: Producer,
    readers: Vec<Reader>,
    subscriptions: SharedFetcher,
    /// A partition is assigned to a consumer once, and may be read while it is consumed.
    reads: SharedFetcher,
}

impl KafkaLog {
    /// Opens the log; creates the topic with `partitions` partitions if it does not exist.
    ///
    /// Errors: `Unavailable` when no broker answers, `Invalid` when the topic has another number of partitions, other base offsets, or settings
    /// with which records would be lost.
    pub fn open(config: &KafkaConfig, partitions: u32) -> Result<Self> {
        Self::open_with_clock(config, partitions, AppenderClock::default())
    }

    /// Opens the log as [`Self::open`] does. Records of this process carry the values of `clock`.
    ///
    /// Errors: those of [`Self::open`].
    pub fn open_with_clock(config: &KafkaConfig, partitions: u32, clock: AppenderClock) -> Result<Self> {
        if let Some(asked) = config.partitions.filter(|asked| *asked != partitions) {
            return Err(Error::invalid(format!(
                "{config}: the option partitions = {asked} differs from the setting partitions = {partitions}"
            )));
        }
        let topic = Topic::connect(config)?;
        let bases = base::resolve(&topic, partitions)?;
        topic.ensure(partitions)?;
        let progress = |(p, base)| {
            let (start, end) = watermarks(&topic, PartitionId(p), base)?;
            Ok(PartitionProgress::new(base, start, end))
        };
        let progress = (0..partitions).zip(bases).map(progress).collect::<Result<Vec<_>>>()?;
        let shared = Arc::new(Shared::new(config.clone(), progress, clock));
        let producer = Producer::open(&shared)?;
        Ok(Self {
            shared,
            topic,
            producer,
            readers: (0..partitions).map(|_| Reader::default()).collect(),
            subscriptions: SharedFetcher::default(),
            reads: SharedFetcher::default(),
        })
    }

    fn partition(&self, id: PartitionId) -> Result<&PartitionProgress> {
        self.shared.partitions.get(id.0 as usize).ok_or_else(|| no_partition(id, self.partitions()))
    }

    /// Checks a position, and asks the brokers for the end if it lies at or after the known one.
    fn check(&self, id: PartitionId, from: Offset) -> Result<u64> {
        let progress = self.partition(id)?;
        if from.0 >= progress.end.load(Ordering::Acquire) {
            let (start, end) = watermarks(&self.topic, id, progress.base)?;
            progress.start.fetch_max(start, Ordering::AcqRel);
            progress.end.fetch_max(end, Ordering::AcqRel);
        }
        let (start, end) = (progress.start.load(Ordering::Acquire), progress.end.load(Ordering::Acquire));
        if from.0 < start {
            return Err(Error::not_found(format!(
                "offset {from} was truncated away: the log starts at {start}"
            )));
        }
        if from.0 > end {
            return Err(Error::invalid(format!("offset {from} is behind the end of the log, {end}")));
        }
        Ok(end)
    }
}

/// Returns the first offset and the one after the last.
fn watermarks(topic: &Topic, partition: PartitionId, base: u64) -> Result<(u64, u64)> {
    let (start, end) = topic.watermarks(partition)?;
    Ok((start + base, end + base))
}

impl Log for KafkaLog {
    fn partitions(&self) -> u32 {
        self.shared.partitions.len() as u32
    }

    fn append(&self, partition: PartitionId, record: NewRecord, _: Durability) -> Result<Ticket> {
        self.partition(partition)?;
        self.producer.append(partition, record)
    }

    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        self.check(partition, from)?;
        let progress = self.partition(partition)?;
        if !progress.start_consuming() {
            return Err(Error::conflict(format!(
                "partition {partition} of the log is consumed already: end that subscription first"
            )));
        }
        // recovery is over
        self.readers[partition.0 as usize].rest();
        match KafkaSubscription::open(&self.shared, &self.subscriptions, partition, from) {
            Ok(subscription) => Ok(Box::new(subscription)),
            Err(e) => {
                progress.stop_consuming();
                Err(e)
            }
        }
    }

    /// Acknowledged records are durable. Appenders know an offset only then, and consumers get no others.
    fn sync(&self, partition: PartitionId, upto: Offset, _: Durability) -> Result<()> {
        let progress = self.partition(partition)?;
        if upto.0 < progress.end.load(Ordering::Acquire) {
            return Ok(());
        }
        let (_, end) = watermarks(&self.topic, partition, progress.base)?;
        progress.end.fetch_max(end, Ordering::AcqRel);
        if upto.0 >= end {
            return Err(Error::invalid(format!("offset {upto} cannot be synced: the log ends at {end}")));
        }
        Ok(())
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        let end = self.check(partition, from)?;
        if from.0 == end {
            return Ok(Vec::new());
        }
        self.readers[partition.0 as usize].read((&self.shared, &self.reads), partition, from, end, max_bytes)
    }

    fn start(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, |p| p.start.load(Ordering::Acquire)))
    }

    fn end(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, |p| p.end.load(Ordering::Acquire)))
    }

    /// An acknowledged record is below the offset up to which all replicas have it, which the leader tells.
    fn latest_ends(&self) -> Result<Vec<Offset>> {
        let ends = self.topic.ends(self.partitions())?;
        let ends = self.shared.partitions.iter().zip(ends).map(|(progress, end)| {
            let end = end + progress.base;
            progress.end.fetch_max(end, Ordering::AcqRel);
            Offset(end)
        });
        Ok(ends.collect())
    }

    fn base(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, |p| p.base))
    }

    fn learn_starts(&self) -> Result<()> {
        let starts = self.topic.starts(self.partitions())?;
        for (progress, start) in self.shared.partitions.iter().zip(starts) {
            progress.start.fetch_max(start + progress.base, Ordering::AcqRel);
        }
        Ok(())
    }

    fn durable(&self, partition: PartitionId) -> Offset {
        self.end(partition)
    }

    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()> {
        let progress = self.partition(partition)?;
        let upto = upto.min(self.end(partition));
        if upto.0 > progress.start.load(Ordering::Acquire) {
            let upto = Offset(upto.0.saturating_sub(progress.base));
            let start = self.topic.truncate(partition, upto)?;
            progress.start.fetch_max(start + progress.base, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Estimates from the records that this process appended or consumed.
    fn bytes(&self, partition: PartitionId) -> u64 {
        self.partition(partition).map_or(0, PartitionProgress::bytes)
    }

    fn problem(&self) -> Option<String> {
        self.shared.problem()
    }

    fn flush(&self) -> Result<()> {
        self.producer.flush()
    }

    fn close(&self) -> Result<()> {
        self.producer.close();
        self.producer.flush()
    }
}
