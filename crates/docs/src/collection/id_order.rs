//! The order of the documents by `_id`: an index that a collection gets when queries need it.
//!
//! The hash table finds documents by their `_id`, and has no order. The first query that an order would serve
//! only marks the order as wanted. From then on it is built at the next write by the owner of the collection,
//! which keeps it; or by the next such query, in the snapshot that it reads, from which the owner takes it
//! over. So a collection without ordered reads pays nothing, one without writes gets its order as well, and a
//! single query costs no more than its own sort.
//!
//! The order is derived state. It is not in checkpoints, and because it may be missing after a restart, no write depends
//! on it: what it takes of `store_bytes_max` is given up before a write is refused.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use super::{Collection, MemoryUsage};
use crate::index::{ENTRY_BYTES, Index};
use crate::limits::StoreLimits;
use crate::rows::{RowIndex, StoredDocument};
use crate::values::key::Key;
use crate::values::raw::field;

/// The order by `_id`, if there is one, and whether queries need it.
#[derive(Debug, Clone, Default)]
pub(crate) struct IdOrder {
    /// Shared by the collection and all snapshots of it.
    wanted: Arc<AtomicBool>,
    built: OnceLock<Result<BuiltIdOrder, TooLarge>>,
}

#[derive(Debug, Clone)]
struct BuiltIdOrder {
    index: Index,
    /// Memory charged to the reader that built the order; `None` once the owner is charged.
    charge: Option<Arc<ReaderCharge>>,
}

/// There was no room for this many bytes.
#[derive(Debug, Clone, Copy)]
struct TooLarge(u64);

/// Memory of an order that a reader built, charged until the last snapshot with it goes or the owner takes it over.
#[derive(Debug)]
struct ReaderCharge {
    usage: Arc<MemoryUsage>,
    bytes: u64,
}

impl Drop for ReaderCharge {
    fn drop(&mut self) {
        self.usage.derived_by_readers.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl IdOrder {
    /// Returns the order if it is built.
    pub fn index(&self) -> Option<&Index> {
        self.built.get()?.as_ref().ok().map(|built| &built.index)
    }

    /// Returns for users why the order is not there.
    pub fn why_missing(&self) -> &'static str {
        match self.built.get() {
            Some(_) => "store_bytes_max leaves no room for an index of _id in order",
            None => {
                "_id has no index in order yet: the next such query, or a write after this one, builds it"
            }
        }
    }

    fn index_mut(&mut self) -> Option<&mut Index> {
        self.built.get_mut()?.as_mut().ok().map(|built| &mut built.index)
    }
}

impl Collection {
    /// Notes that a query needs the order, and returns it if it is there. With `build`, for readers of a snapshot, it
    /// is built if another query needed it before.
    pub(crate) fn want_id_order(&self, build: bool) -> Option<&Index> {
        let order = &self.id_order;
        if order.built.get().is_some() {
            return order.index();
        }
        // a swap would take the cache line from other readers
        let was_wanted = order.wanted.load(Ordering::Relaxed) || order.wanted.swap(true, Ordering::Relaxed);
        if build && was_wanted {
            order.built.get_or_init(|| {
                let index = self.ordered_ids()?;
                let charge = ReaderCharge { usage: self.usage.clone(), bytes: index.bytes };
                charge.usage.derived_by_readers.fetch_add(charge.bytes, Ordering::Relaxed);
                Ok(BuiltIdOrder { index, charge: Some(Arc::new(charge)) })
            });
        }
        order.index()
    }

    /// Returns the definition of the order, an index without entries.
    pub(crate) fn id_order_definition(&self) -> Cow<'static, Index> {
        static SIMPLE: LazyLock<Index> = LazyLock::new(|| Index::of_id(None));
        match &self.collation {
            None => Cow::Borrowed(&SIMPLE),
            collation => Cow::Owned(Index::of_id(collation.clone())),
        }
    }

    /// Returns the key of a document in the order: that of its `_id`, by the collation of the collection.
    fn order_key(&self, row: &StoredDocument) -> Key {
        match (&self.collation, field(&row.doc, b"_id")) {
            (Some(collation), Some(id)) => Key::of_raw_by(id.value, Some(collation)),
            _ => row.key.clone(),
        }
    }

    /// Takes over the order that a reader has built, or builds it if queries need it. For the owner, before a write.
    pub(crate) fn prepare_id_order(&mut self) {
        if !self.id_order.wanted.load(Ordering::Relaxed) {
            return;
        }
        match self.id_order.built.get_mut() {
            Some(Ok(built)) => {
                if built.charge.take().is_some() {
                    self.usage.derived.fetch_add(built.index.bytes, Ordering::Relaxed);
                }
                return;
            }
            Some(Err(TooLarge(bytes))) if *bytes > self.usage.room(&self.limits) => return,
            Some(Err(_)) | None => {}
        }
        let built = self.ordered_ids().map(|index| {
            self.usage.derived.fetch_add(index.bytes, Ordering::Relaxed);
            BuiltIdOrder { index, charge: None }
        });
        self.id_order.built = OnceLock::from(built);
    }

    /// Returns the rows by `_id`. Errors: that takes more memory than there is room for.
    fn ordered_ids(&self) -> Result<Index, TooLarge> {
        let room = self.usage.room(&self.limits);
        let least = self.len() as u64 * ENTRY_BYTES;
        if least > room {
            return Err(TooLarge(least));
        }
        let mut entries: Vec<(Key, RowIndex)> =
            self.rows.iter().map(|(slot, row)| (self.order_key(row), slot)).collect();
        entries.sort_unstable();
        let mut index = Index::of_id(self.collation.clone());
        entries.into_iter().for_each(|(key, slot)| index.add_key(key, slot));
        if index.bytes > room { Err(TooLarge(index.bytes)) } else { Ok(index) }
    }

    /// Charges the store to which the collection belongs from now on.
    pub(super) fn charge_id_order(&mut self) {
        if let Some(Ok(built)) = self.id_order.built.get_mut() {
            built.charge = None;
            self.usage.derived.fetch_add(built.index.bytes, Ordering::Relaxed);
        }
    }

    /// Adds the document of a new row.
    pub(super) fn add_to_id_order(&mut self, slot: RowIndex) {
        if self.id_order.index().is_none() {
            return;
        }
        let Some(key) = self.rows.get(slot).map(|row| self.order_key(row)) else { return };
        let Some(index) = self.id_order.index_mut() else { return };
        let before = index.bytes;
        index.add_key(key, slot);
        self.usage.derived.fetch_add(index.bytes - before, Ordering::Relaxed);
    }

    /// Removes the document of a row that is still there.
    pub(super) fn remove_from_id_order(&mut self, slot: RowIndex) {
        if self.id_order.index().is_none() {
            return;
        }
        let Some(key) = self.rows.get(slot).map(|row| self.order_key(row)) else { return };
        let Some(index) = self.id_order.index_mut() else { return };
        let before = index.bytes;
        index.remove_key(key, slot);
        self.usage.derived.fetch_sub(before - index.bytes, Ordering::Relaxed);
    }

    pub(super) fn renumber_id_order(&mut self, new: &[RowIndex]) {
        if let Some(index) = self.id_order.index_mut() {
            index.renumber(new);
        }
    }

    /// Gives up the order as the store has no room for it, until there is.
    pub(crate) fn give_up_id_order(&mut self) {
        if let Some(bytes) = self.id_order.index().map(|index| index.bytes) {
            self.drop_id_order();
            self.id_order.built = OnceLock::from(Err(TooLarge(bytes)));
        }
    }

    /// Drops the order. It is built again when it is needed.
    pub(super) fn drop_id_order(&mut self) {
        self.release_id_order();
        self.id_order.built.take();
    }

    /// Stops charging for the order.
    pub(crate) fn release_id_order(&self) {
        if let Some(Ok(BuiltIdOrder { index, charge: None })) = self.id_order.built.get() {
            self.usage.derived.fetch_sub(index.bytes, Ordering::Relaxed);
        }
    }

    /// Returns what is wrong with the order, compared with the documents; nothing if it is right or not there.
    pub(super) fn check_id_order(&self) -> Option<String> {
        let index = self.id_order.index()?;
        let mut fresh = index.emptied();
        self.rows.iter().for_each(|(slot, row)| fresh.add_key(self.order_key(row), slot));
        let is_right = fresh.entries == index.entries && fresh.bytes == index.bytes;
        (!is_right).then(|| "the index of _id in order does not have the entries of its documents".to_owned())
    }
}

impl MemoryUsage {
    /// Returns the bytes that documents and derived state take.
    pub fn total(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.derived_total()
    }

    /// Returns the bytes of derived state, of the owner and of readers.
    pub fn derived_total(&self) -> u64 {
        self.derived.load(Ordering::Relaxed) + self.derived_by_readers.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of derived state the store may build: half of those that are left, so that they are not given
    /// up again soon.
    fn room(&self, limits: &StoreLimits) -> u64 {
        limits.store_bytes_max.saturating_sub(self.total()) / 2
    }
}
