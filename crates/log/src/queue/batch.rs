//! The items of one commit to one queue, and their progress.

use std::sync::Arc;

use bytes::Bytes;

use super::ItemId;
use super::entry::{Cursor, Items};

/// Memory overhead of a batch in addition to its entry.
const BATCH_OVERHEAD_BYTES: usize = 256;
/// Memory overhead of an item in addition to its bytes: its position, once needed, and its bit in `done`.
const ITEM_OVERHEAD_BYTES: usize = 5;

pub(super) struct Batch {
    pub queue: Arc<str>,
    /// Offset of the record that currently holds the batch; initially equal to `origin`.
    pub at: u64,
    /// Bytes written to the log before that record.
    pub written_before: u64,
    /// True while the commit waits for its durability.
    pub is_hidden: bool,
    origin: u64,
    items: Items,
    /// Items before the cursor were handed out or acknowledged.
    cursor: Cursor,
    /// Bitmap of acknowledged items.
    done: Box<[u64]>,
    live: u32,
    /// Start of each item; computed when an item is first accessed by index.
    places: Option<Box<[u32]>>,
}

/// Returns the memory cost of `count` items in an entry of `entry_bytes` bytes.
pub(super) fn cost(entry_bytes: usize, count: u32) -> usize {
    entry_bytes + count as usize * ITEM_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
}

impl Batch {
    pub(super) fn new(queue: Arc<str>, origin: u64, at: u64, written_before: u64, items: Items) -> Self {
        let words = (items.count() as usize).div_ceil(64);
        Self {
            queue,
            at,
            written_before,
            is_hidden: false,
            origin,
            cursor: items.begin(),
            done: vec![0; words].into(),
            live: items.count(),
            items,
            places: None,
        }
    }

    pub(super) fn cost(&self) -> usize {
        cost(self.items.entry_bytes(), self.items.count())
    }

    /// Estimates the bytes of unacknowledged items from the average item size.
    pub(super) fn live_bytes(&self) -> u64 {
        let count = u64::from(self.items.count().max(1));
        self.items.entry_bytes() as u64 * u64::from(self.live) / count
    }

    pub(super) fn live(&self) -> u32 {
        self.live
    }

    pub(super) fn into_bytes(self) -> Bytes {
        self.items.into_bytes()
    }

    /// Returns the next item that was neither handed out nor acknowledged.
    pub(super) fn take_next(&mut self) -> Option<(ItemId, Bytes)> {
        while let Some((index, bytes, next)) = self.items.next(self.cursor) {
            let ordinal = std::mem::replace(&mut self.cursor, next).ordinal;
            if !self.is_done(ordinal) {
                return Some((ItemId { origin: self.origin, index }, bytes));
            }
        }
        None
    }

    /// Acknowledges item `index`. Returns false if the item does not exist or is already acknowledged.
    pub(super) fn finish(&mut self, index: u32) -> bool {
        let Some(ordinal) = self.ordinal(index).filter(|o| !self.is_done(*o)) else {
            return false;
        };
        self.done[ordinal as usize / 64] |= 1 << (ordinal % 64);
        self.live -= 1;
        true
    }

    /// Returns the exclusive upper bound of the indexes.
    pub(super) fn index_end(&mut self) -> u32 {
        if !self.items.has_indexes() {
            return self.items.count();
        }
        self.fill_places();
        let last = self.places.as_deref().and_then(|places| places.last());
        let item = last.and_then(|pos| self.items.next(self.items.cursor(self.items.count() - 1, *pos)));
        item.map_or(0, |(index, ..)| index.saturating_add(1))
    }

    /// Returns whether item `index` exists and is not acknowledged.
    pub(super) fn is_live(&mut self, index: u32) -> bool {
        self.ordinal(index).is_some_and(|o| !self.is_done(o))
    }

    /// Returns whether item `index` was handed out and is not acknowledged.
    pub(super) fn is_taken(&mut self, index: u32) -> bool {
        self.ordinal(index).is_some_and(|o| !self.is_done(o) && o < self.cursor.ordinal)
    }

    /// Returns the bytes of item `index`.
    pub(super) fn item(&mut self, index: u32) -> Option<Bytes> {
        let ordinal = self.ordinal(index)?;
        self.fill_places();
        let pos = *self.places.as_deref()?.get(ordinal as usize)?;
        self.items.next(self.items.cursor(ordinal, pos)).map(|(_, bytes, _)| bytes)
    }

    /// Returns the unacknowledged items with their indexes.
    pub(super) fn live_items(&self) -> Vec<(u32, Bytes)> {
        let mut at = self.items.begin();
        let mut out = Vec::with_capacity(self.live as usize);
        while let Some((index, bytes, next)) = self.items.next(at) {
            if !self.is_done(at.ordinal) {
                out.push((index, bytes));
            }
            at = next;
        }
        out
    }

    /// Returns this batch reduced to its live items, which the record `at` holds. Keeps which leading items
    /// are taken.
    pub(super) fn moved(&mut self, at: u64, written_before: u64, items: Items) -> Self {
        let mut next = Self::new(Arc::clone(&self.queue), self.origin, at, written_before, items);
        while let Some((index, _, after)) = next.items.next(next.cursor) {
            if !self.is_taken(index) {
                break;
            }
            next.cursor = after;
        }
        next
    }

    fn is_done(&self, ordinal: u32) -> bool {
        self.done[ordinal as usize / 64] >> (ordinal % 64) & 1 == 1
    }

    fn ordinal(&mut self, index: u32) -> Option<u32> {
        if !self.items.has_indexes() {
            return (index < self.items.count()).then_some(index);
        }
        self.fill_places();
        let (items, places) = (&self.items, self.places.as_deref()?);
        let ordinal =
            places.partition_point(|pos| items.next(items.cursor(0, *pos)).is_some_and(|(i, ..)| i < index));
        let (found, ..) = items.next(items.cursor(ordinal as u32, *places.get(ordinal)?))?;
        (found == index).then_some(ordinal as u32)
    }

    fn fill_places(&mut self) {
        if self.places.is_none() {
            let mut at = self.items.begin();
            let mut out = Vec::with_capacity(self.items.count() as usize);
            while let Some((_, _, next)) = self.items.next(at) {
                out.push(at.pos());
                at = next;
            }
            self.places = Some(out.into());
        }
    }
}
