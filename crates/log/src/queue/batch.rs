//! The items of one commit to one queue, and how far they are.

use std::sync::Arc;

use bytes::Bytes;

use super::ItemId;
use super::entry::{Cursor, Items};

/// What a batch costs beside its entry.
const BATCH_OVERHEAD_BYTES: usize = 256;
/// What an item costs beside its bytes: its place once somebody asks for it, and a bit.
const ITEM_OVERHEAD_BYTES: usize = 5;

pub(super) struct Batch {
    pub queue: Arc<str>,
    /// Offset of the record that holds it now; its origin at first.
    pub at: u64,
    /// Bytes written to the log before that record.
    pub written_before: u64,
    /// Waits for its commit to become durable.
    pub is_hidden: bool,
    origin: u64,
    items: Items,
    /// Items before it were handed out or are done.
    cursor: Cursor,
    /// A bit per item: acknowledged.
    done: Box<[u64]>,
    live: u32,
    /// Where each item begins, once one was asked for by its index.
    places: Option<Box<[u32]>>,
}

/// What items with an entry of that size cost in memory.
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

    /// Bytes of items that are still wanted, on average.
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

    /// The next item that was neither handed out nor acknowledged.
    pub(super) fn take_next(&mut self) -> Option<(ItemId, Bytes)> {
        while let Some((index, bytes, next)) = self.items.next(self.cursor) {
            let ordinal = std::mem::replace(&mut self.cursor, next).ordinal;
            if !self.is_done(ordinal) {
                return Some((ItemId { origin: self.origin, index }, bytes));
            }
        }
        None
    }

    /// Acknowledges item `index`; false when there is no such item or it was done.
    pub(super) fn finish(&mut self, index: u32) -> bool {
        let Some(ordinal) = self.ordinal(index).filter(|o| !self.is_done(*o)) else {
            return false;
        };
        self.done[ordinal as usize / 64] |= 1 << (ordinal % 64);
        self.live -= 1;
        true
    }

    /// Above every index.
    pub(super) fn index_end(&mut self) -> u32 {
        if !self.items.has_indexes() {
            return self.items.count();
        }
        self.fill_places();
        let last = self.places.as_deref().and_then(|places| places.last());
        let item = last.and_then(|pos| self.items.next(self.items.cursor(self.items.count() - 1, *pos)));
        item.map_or(0, |(index, ..)| index.saturating_add(1))
    }

    /// Whether item `index` is there and not acknowledged.
    pub(super) fn is_live(&mut self, index: u32) -> bool {
        self.ordinal(index).is_some_and(|o| !self.is_done(o))
    }

    /// Whether item `index` was handed out and is not acknowledged.
    pub(super) fn is_taken(&mut self, index: u32) -> bool {
        self.ordinal(index).is_some_and(|o| !self.is_done(o) && o < self.cursor.ordinal)
    }

    /// The bytes of item `index`.
    pub(super) fn item(&mut self, index: u32) -> Option<Bytes> {
        let ordinal = self.ordinal(index)?;
        self.fill_places();
        let pos = *self.places.as_deref()?.get(ordinal as usize)?;
        self.items.next(self.items.cursor(ordinal, pos)).map(|(_, bytes, _)| bytes)
    }

    /// The items that are still wanted.
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

    /// The same batch with only the live items, which the record `at` holds.
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
