//! Plans of deliveries, by which a sink knows after a crash what it has written.
//!
//! Before a delivery its plan is written: the names of its objects, and how far it comes. After a crash or a lost answer the
//! delivery has happened if all of its objects are there; otherwise those that are there are deleted and the events come again,
//! maybe divided in another way. So each event ends up in one object.
//!
//! A plan replaces the one that was read before and no other: a request that arrives late changes nothing. Where partitions move between
//! processes each has a plan of its own, with the epoch of its owner.

use std::collections::BTreeMap;

use object_store::UpdateVersion;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use tidemill_connect::DeliveredEvents;
use tidemill_types::{Error, EventId, PartitionId, Result};

use super::bucket::Bucket;

/// Content of the object with the plan.
#[derive(Debug, Default, Serialize, Deserialize)]
struct PlanFile {
    /// Last event of each partition that was delivered before.
    before: BTreeMap<u32, String>,
    /// Last event of each partition after the delivery.
    after: BTreeMap<u32, String>,
    /// Names of the objects of the delivery.
    objects: Vec<String>,
    /// Epoch of the owner of the partition; 0 if partitions do not move.
    #[serde(default)]
    epoch: u64,
}

/// Location and version of the plan of a sink, and the delivered events.
#[derive(Debug)]
pub(super) struct Plans {
    key: Path,
    version: Option<UpdateVersion>,
    delivered: DeliveredEvents,
    epoch: u64,
}

/// State of a plan that was read.
pub(super) enum Settled {
    /// Its delivery is finished or undone. These events are delivered.
    Delivered(DeliveredEvents),
    /// It is of an owner with this epoch, which is later.
    LaterOwner(u64),
}

impl Plans {
    pub(super) fn new(key: Path, epoch: u64) -> Self {
        Self { key, version: None, delivered: DeliveredEvents::new(), epoch }
    }

    /// Returns the epoch of the owner.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Reads the plan, and finishes or undoes its delivery.
    ///
    /// Errors: `Unavailable`; `Corrupt` if the object is not a plan.
    pub(super) async fn settle(&mut self, bucket: &Bucket) -> Result<Settled> {
        let Some((bytes, version)) = bucket.get(&self.key).await? else {
            self.version = None;
            self.begin(bucket, std::iter::empty(), &[]).await?;
            return Ok(Settled::Delivered(self.delivered.clone()));
        };
        self.version = Some(version);
        let mut file: PlanFile = serde_json::from_slice(&bytes).map_err(|_| self.damaged())?;
        if file.epoch > self.epoch {
            return Ok(Settled::LaterOwner(file.epoch));
        }
        if file.epoch < self.epoch {
            // the former owner plans nothing more
            file.epoch = self.epoch;
            self.write(bucket, &file).await?;
        }
        let keys = file.objects.iter().map(Path::parse).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|_| self.damaged())?;
        let mut found = vec![];
        for key in &keys {
            if bucket.has(key).await? {
                found.push(key);
            }
        }
        self.delivered = match found.len() == keys.len() {
            true => self.parsed(&file.after)?,
            false => {
                for key in found {
                    bucket.delete(key).await?;
                }
                self.parsed(&file.before)?
            }
        };
        Ok(Settled::Delivered(self.delivered.clone()))
    }

    /// Writes the plan of a delivery of these objects, which ends with `ids`.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn begin(
        &mut self,
        bucket: &Bucket,
        objects: impl Iterator<Item = &Path>,
        ids: &[EventId],
    ) -> Result<DeliveredEvents> {
        let mut after = self.delivered.clone();
        after.extend(ids.iter().map(|id| (id.partition, *id)));
        let text = |events: &DeliveredEvents| events.iter().map(|(p, id)| (p.0, id.to_string())).collect();
        let objects = objects.map(ToString::to_string).collect();
        let file =
            PlanFile { before: text(&self.delivered), after: text(&after), objects, epoch: self.epoch };
        self.write(bucket, &file).await?;
        Ok(after)
    }

    /// Replaces the plan that was read or written last.
    async fn write(&mut self, bucket: &Bucket, file: &PlanFile) -> Result<()> {
        let content = serde_json::to_vec(file)
            .map_err(|e| Error::internal("a plan cannot be written as JSON").with_source(e))?;
        self.version = Some(bucket.replace(&self.key, self.version.as_ref(), content.into()).await?);
        Ok(())
    }

    /// Notes that the delivery has happened.
    pub(super) fn finish(&mut self, after: DeliveredEvents) {
        self.delivered = after;
    }

    fn parsed(&self, events: &BTreeMap<u32, String>) -> Result<DeliveredEvents> {
        let parsed = events.iter().map(|(p, id)| Some((PartitionId(*p), id.parse::<EventId>().ok()?)));
        parsed.collect::<Option<_>>().ok_or_else(|| self.damaged())
    }

    fn damaged(&self) -> Error {
        Error::corrupt(format!("{}: the object is no plan of a delivery", self.key))
    }
}
