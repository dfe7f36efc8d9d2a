//! Delivery of events to a bucket.

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use std::collections::BTreeMap;

use tidemill_connect::{
    DeliveredEvents, DeliveryProgress, PartitionEpochs, SinkBatch, SinkConnector, SinkPositions,
};
use tidemill_types::{Error, PartitionId, Result};

use super::bucket::{Bucket, Storage};
use super::object::{Division, Objects};
use super::plan::{Plans, Settled};

/// Requests at the same time.
const REQUESTS_MAX: usize = 8;
/// Events of one plan.
const PLANNED_MAX: usize = 10_000;

/// Opens a bucket. Files with credentials are read then.
pub(super) type OpenBucket = Box<dyn Fn() -> Result<Bucket> + Send + Sync>;

/// A sink that writes objects.
pub(super) struct ObjectSink {
    pub open: OpenBucket,
    pub objects: Objects,
    pub storage: Storage,
    plans: SinkPlans,
    pub bucket: Option<Bucket>,
}

/// Plans of a sink.
enum SinkPlans {
    /// One for all partitions.
    Single(Plans),
    /// One for each partition, as these move between processes.
    ByPartition { mark: String, plans: BTreeMap<PartitionId, Plans> },
}

impl ObjectSink {
    pub(super) fn new(
        open: OpenBucket,
        objects: Objects,
        storage: Storage,
        mark: &str,
        shares_partitions: bool,
    ) -> Self {
        let plans = match shares_partitions {
            true => SinkPlans::ByPartition { mark: mark.to_owned(), plans: BTreeMap::new() },
            false => SinkPlans::Single(Plans::new(Path::from(format!("_tidemill/{mark}.json")), 0)),
        };
        Self { open, objects, storage, plans, bucket: None }
    }
}

#[async_trait]
impl SinkConnector for ObjectSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        let bucket = (self.open)()?;
        let known = match &mut self.plans {
            SinkPlans::Single(plans) => match plans.settle(&bucket).await? {
                Settled::Delivered(known) => Some(known),
                Settled::LaterOwner(epoch) => {
                    return Err(Error::conflict(format!(
                        "the plan in the bucket is that of a process in a cluster (epoch {epoch})"
                    )));
                }
            },
            SinkPlans::ByPartition { plans, .. } => {
                plans.clear();
                None
            }
        };
        self.bucket = Some(bucket);
        Ok(known)
    }

    async fn own(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        let (Some(bucket), SinkPlans::ByPartition { mark, plans }) = (&self.bucket, &mut self.plans) else {
            return Ok(None);
        };
        let mut known = SinkPositions::default();
        plans.retain(|id, plan| partitions.get(id) == Some(&plan.epoch()));
        for (id, epoch) in partitions {
            let key = Path::from(format!("_tidemill/{mark}-p{:05}.json", id.0));
            let plan = plans.entry(*id).or_insert_with(|| Plans::new(key, *epoch));
            match plan.settle(bucket).await? {
                Settled::Delivered(delivered) => known.delivered.extend(delivered),
                Settled::LaterOwner(later) => _ = known.later_owners.insert(*id, later),
            }
        }
        Ok(Some(known))
    }

    fn delivers_by_partition(&self) -> bool {
        matches!(self.plans, SinkPlans::ByPartition { .. })
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(bucket) = &self.bucket else {
            return Err(Error::unavailable("not connected to the bucket"));
        };
        let plans = match (&mut self.plans, batch.ids.first()) {
            (SinkPlans::Single(plans), _) => plans,
            (SinkPlans::ByPartition { plans, .. }, Some(first)) => {
                let unknown =
                    || Error::unavailable(format!("the sink does not own partition {}", first.partition));
                plans.get_mut(&first.partition).ok_or_else(unknown)?
            }
            (SinkPlans::ByPartition { .. }, None) => return Ok(()),
        };
        let storage = &self.storage;
        loop {
            let messages = batch.messages_from(progress);
            let messages = &messages[..messages.len().min(PLANNED_MAX)];
            let Some(last) = messages.last() else { return Ok(()) };
            let end = last.row + last.rows;
            let Division { objects, refused } = self.objects.divide(batch, messages);
            let ids = batch.ids.get(progress.delivered..end).unwrap_or_default();
            let keys = objects.iter().map(|object| &object.key);
            let delivered = plans.begin(bucket, keys, ids).await?;
            let puts = objects.into_iter().map(|object| async move {
                bucket.put(&object.key, object.content, &object.content_type, storage).await
            });
            stream::iter(puts).buffer_unordered(REQUESTS_MAX).try_collect::<()>().await?;
            plans.finish(delivered);
            refused.iter().for_each(|(message, why)| progress.refused(message, why));
            progress.delivered = end;
        }
    }

    async fn close(&mut self) {
        self.bucket = None;
    }
}
