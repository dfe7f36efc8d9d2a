//! Delivery of events to a bucket.

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use tidemill_connect::{DeliveredEvents, DeliveryProgress, SinkBatch, SinkConnector};
use tidemill_types::{Error, Result};

use super::bucket::{Bucket, Storage};
use super::object::{Division, Objects};
use super::plan::Plans;

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
    pub plans: Plans,
    pub bucket: Option<Bucket>,
}

impl ObjectSink {
    pub(super) fn new(open: OpenBucket, objects: Objects, storage: Storage, mark: &str) -> Self {
        let plans = Plans::new(Path::from(format!("_tidemill/{mark}.json")));
        Self { open, objects, storage, plans, bucket: None }
    }
}

#[async_trait]
impl SinkConnector for ObjectSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        let bucket = (self.open)()?;
        let known = self.plans.settle(&bucket).await?;
        self.bucket = Some(bucket);
        Ok(Some(known))
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(bucket) = &self.bucket else {
            return Err(Error::unavailable("not connected to the bucket"));
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
            let delivered = self.plans.begin(bucket, keys, ids).await?;
            let puts = objects.into_iter().map(|object| async move {
                bucket.put(&object.key, object.content, &object.content_type, storage).await
            });
            stream::iter(puts).buffer_unordered(REQUESTS_MAX).try_collect::<()>().await?;
            self.plans.finish(delivered);
            refused.iter().for_each(|(message, why)| progress.refused(message, why));
            progress.delivered = end;
        }
    }

    async fn close(&mut self) {
        self.bucket = None;
    }
}
