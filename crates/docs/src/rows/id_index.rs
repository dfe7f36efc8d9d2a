//! Rows by the hash of their `_id`: linear hashing over segments that clones share.
//!
//! The table grows by one segment at a time, so no insert moves more than the entries of one segment, and a
//! change after a clone copies one segment (4 to 8 KiB). Within a segment entries are found by linear probing,
//! most of them in one cache line.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;

use super::RowIndex;
use crate::page_tree::PageTree;
use crate::values::key::Key;

/// Average number of entries of a segment. Before it is split, a segment holds up to twice as many.
const SEGMENT_LOAD: usize = 256;

/// Slots of the smallest segment.
const SLOTS_MIN: usize = 8;

/// Hash table from `_id` to row. It stores no keys: a lookup asks whether a row has the wanted one.
#[derive(Debug, Clone)]
pub(super) struct IdIndex {
    segments: PageTree<IdSlots>,
    len: usize,
    hasher: DefaultHashBuilder,
}

impl IdIndex {
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    /// Returns an empty index that hashes as this one.
    pub fn emptied(&self) -> Self {
        Self::with_hasher(self.hasher.clone())
    }

    fn with_hasher(hasher: DefaultHashBuilder) -> Self {
        let mut segments = PageTree::new();
        segments.push(IdSlots::with_capacity(0));
        Self { segments, len: 0, hasher }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the row for which `is_wanted` holds among those whose `_id` hashes as `key`.
    #[inline]
    pub fn find(&self, key: &Key, is_wanted: impl FnMut(RowIndex) -> bool) -> Option<RowIndex> {
        let hash = self.hash(key);
        self.segments.get(self.segment_of(hash))?.find(hash, is_wanted)
    }

    /// Adds an entry for a key that has none.
    pub fn insert(&mut self, key: &Key, row: RowIndex) {
        if self.len >= self.segments.len() * SEGMENT_LOAD {
            self.split();
        }
        let hash = self.hash(key);
        let at = self.segment_of(hash);
        if let Some(segment) = self.segments.get_mut(at) {
            segment.insert(Slot::new(hash, row));
            self.len += 1;
        }
    }

    pub fn remove(&mut self, key: &Key, row: RowIndex) {
        let hash = self.hash(key);
        let at = self.segment_of(hash);
        let segment = self.segments.get_mut(at);
        self.len -= usize::from(segment.is_some_and(|segment| segment.remove(Slot::new(hash, row))));
    }

    /// Returns the segment of a hash: its low bits, one bit fewer where that segment is not split off yet.
    #[inline]
    fn segment_of(&self, hash: u32) -> usize {
        let mask = self.segments.len().next_power_of_two() - 1;
        let at = hash as usize & mask;
        if at < self.segments.len() { at } else { at & (mask >> 1) }
    }

    /// Adds a segment, and moves into it what the segment that it splits holds for it.
    fn split(&mut self) {
        let new = self.segments.len();
        let mask = (new + 1).next_power_of_two() - 1;
        let mut moved = IdSlots::with_capacity(SEGMENT_LOAD);
        if let Some(old) = self.segments.get_mut(new & (mask >> 1)) {
            let mut kept = IdSlots::with_capacity(SEGMENT_LOAD);
            for slot in old.slots.iter().filter(|slot| !slot.is_empty()) {
                let goes = slot.hash() as usize & mask == new;
                if goes { &mut moved } else { &mut kept }.insert(*slot);
            }
            *old = kept;
        }
        self.segments.push(moved);
    }

    #[inline]
    fn hash(&self, key: &Key) -> u32 {
        let mut state = self.hasher.build_hasher();
        state.write(key.as_bytes());
        // the upper half, as every bit of it depends on the whole key
        (state.finish() >> 32) as u32
    }
}

/// An entry, or 0: the hash in the upper half, the row and 1 in the lower one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slot(u64);

impl Slot {
    const EMPTY: Self = Self(0);

    fn new(hash: u32, row: RowIndex) -> Self {
        // a row is below `RowIndex::MAX`
        Self((u64::from(hash) << 32) | (u64::from(row) + 1))
    }

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn row(self) -> RowIndex {
        self.0 as u32 - 1
    }
}

/// Entries in a power of two of slots, at most three quarters of them used.
#[derive(Debug, Clone)]
struct IdSlots {
    slots: Box<[Slot]>,
    len: usize,
}

impl IdSlots {
    /// Creates a segment in which `entries` fit without growth.
    fn with_capacity(entries: usize) -> Self {
        let slots = (entries * 4 / 3 + 1).next_power_of_two().max(SLOTS_MIN);
        Self { slots: vec![Slot::EMPTY; slots].into(), len: 0 }
    }

    /// Returns the slot in which the search for a hash begins: its upper bits, as the lower ones are those of
    /// the segment.
    #[inline]
    fn start(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    /// Returns the slots from the start of `hash` up to the first empty one, with their positions.
    #[inline]
    fn probe(&self, hash: u32) -> impl Iterator<Item = (usize, Slot)> {
        let (mask, start) = (self.slots.len() - 1, self.start(hash));
        (start..).map(move |at| (at & mask, self.slots[at & mask])).take_while(|(_, slot)| !slot.is_empty())
    }

    #[inline]
    fn find(&self, hash: u32, mut is_wanted: impl FnMut(RowIndex) -> bool) -> Option<RowIndex> {
        self.probe(hash).map(|(_, slot)| slot).find(|s| s.hash() == hash && is_wanted(s.row())).map(Slot::row)
    }

    fn insert(&mut self, slot: Slot) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            let mut grown = Self::with_capacity(self.slots.len());
            self.slots.iter().filter(|s| !s.is_empty()).for_each(|s| grown.insert(*s));
            *self = grown;
        }
        let mask = self.slots.len() - 1;
        let mut at = self.start(slot.hash());
        while !self.slots[at].is_empty() {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
        self.len += 1;
    }

    /// Removes an entry, and moves those behind it back, so that no search ends early. Returns whether there
    /// was one.
    fn remove(&mut self, slot: Slot) -> bool {
        let Some((mut hole, _)) = self.probe(slot.hash()).find(|(_, s)| *s == slot) else {
            return false;
        };
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.slots[at];
            if next.is_empty() {
                break;
            }
            // an entry may move back to the hole if that is not before the start of its search
            let distance = |to: usize| to.wrapping_sub(self.start(next.hash())) & mask;
            if distance(hole) <= distance(at) {
                self.slots[hole] = next;
                hole = at;
            }
        }
        self.slots[hole] = Slot::EMPTY;
        self.len -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::Value;

    use super::*;

    #[test]
    fn finds_what_was_inserted_and_not_removed() {
        let keys: Vec<Key> = (0..20_000).map(|n| Key::of(&Value::Int(n))).collect();
        let mut index = IdIndex::new();
        for (row, key) in (0..).zip(&keys) {
            index.insert(key, row);
        }
        let all = index.clone();
        for (row, key) in (0..).zip(&keys).filter(|(row, _)| row % 3 != 1) {
            index.remove(key, row);
        }
        for (row, key) in (0..).zip(&keys) {
            let found = |index: &IdIndex| index.find(key, |r| r == row);
            assert_eq!(found(&all), Some(row));
            assert_eq!(found(&index), (row % 3 == 1).then_some(row));
        }
        assert_eq!((all.len(), index.len()), (20_000, 6667));
        let longest = all.segments.iter().map(|segment| segment.len).max();
        assert!(longest < Some(3 * SEGMENT_LOAD), "a segment of {longest:?} entries");
    }

    #[test]
    fn a_segment_of_equal_starts_is_searched_to_its_end() {
        let mut segment = IdSlots::with_capacity(0);
        // all searches begin in the last slot and continue in the first
        let slots: Vec<Slot> = (0..5).map(|row| Slot::new(u32::MAX - row, row)).collect();
        slots.iter().for_each(|slot| segment.insert(*slot));
        for gone in [3, 0, 4] {
            assert!(segment.remove(slots[gone]) && !segment.remove(slots[gone]));
        }
        for (row, slot) in (0..).zip(&slots) {
            let there = [1, 2].contains(&row);
            assert_eq!(segment.find(slot.hash(), |_| true), there.then_some(row));
        }
    }
}
