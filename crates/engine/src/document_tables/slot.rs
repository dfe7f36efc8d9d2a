//! The documents of a partition, as its tables reach them.

use std::sync::Arc;

use bson::oid::ObjectId;
use parking_lot::Mutex;
use tidemill_docs::{Collection, Store, StoreLimits, StoreSnapshot};
use tidemill_types::{Offset, PartitionId, Timestamp};
use xxhash_rust::xxh3::Xxh3;

/// Place in which the owner of a partition lays its documents while its queries run, and a reader a snapshot of them.
/// Without either, tables have documents of their own, as in a backtest.
#[derive(Clone, Default)]
pub struct DocumentSlot {
    content: Arc<Mutex<SlotContent>>,
    is_used: bool,
}

/// Content of a [`DocumentSlot`].
pub struct SlotContent {
    store: Store,
    snapshot: Option<StoreSnapshot>,
    record: RecordIds,
}

/// The record that is applied, and how many ids it has needed.
#[derive(Debug, Clone, Copy, Default)]
struct RecordIds {
    partition: u32,
    offset: u64,
    time: Timestamp,
    ids: u64,
}

impl Default for SlotContent {
    fn default() -> Self {
        Self { store: Store::new(StoreLimits::default()), snapshot: None, record: RecordIds::default() }
    }
}

impl DocumentSlot {
    /// Creates an empty slot; one that no table uses stays so.
    pub fn new(is_used: bool) -> Self {
        Self { is_used, ..Self::default() }
    }

    /// Says which record is applied next.
    pub fn set_record(&self, partition: PartitionId, offset: Offset, time: Timestamp) {
        self.content.lock().record = RecordIds { partition: partition.0, offset: offset.0, time, ids: 0 };
    }

    /// Exchanges the documents for those in the slot. The owner does so before its queries run, and again after.
    pub fn exchange(&self, store: &mut Store) {
        if self.is_used {
            std::mem::swap(&mut self.content.lock().store, store);
        }
    }

    /// Sets the documents that readers see, or takes them away.
    pub fn set_snapshot(&self, snapshot: Option<StoreSnapshot>) {
        self.content.lock().snapshot = snapshot;
    }

    /// Calls `work` with what is in the slot.
    pub fn with<T>(&self, work: impl FnOnce(&mut SlotContent) -> T) -> T {
        work(&mut self.content.lock())
    }
}

impl SlotContent {
    /// Returns a collection for reading.
    pub fn collection(&self, name: &str) -> Option<&Collection> {
        match &self.snapshot {
            Some(snapshot) => snapshot.collection(name),
            None => self.store.collection(name),
        }
    }

    /// Returns the documents for changes.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Returns the time of the record.
    pub fn now(&self) -> Timestamp {
        self.record.time
    }

    /// Returns an id for a new document of a collection: the same one when the record is applied again.
    pub fn next_id(&mut self, collection: &str) -> ObjectId {
        let RecordIds { partition, offset, time, ids } = self.record;
        self.record.ids += 1;
        let mut hash = Xxh3::new();
        hash.update(collection.as_bytes());
        hash.update(&partition.to_le_bytes());
        hash.update(&offset.to_le_bytes());
        hash.update(&ids.to_le_bytes());
        let mut bytes = [0; 12];
        // an ObjectId begins with seconds, so that ids ascend with time
        let seconds = u32::try_from(time.0.div_euclid(1_000_000)).unwrap_or_default();
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..].copy_from_slice(&hash.digest().to_be_bytes());
        ObjectId::from_bytes(bytes)
    }
}
