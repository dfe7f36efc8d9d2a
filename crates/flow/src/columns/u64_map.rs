//! Hash map from keys of eight bytes to ids; the keys are whole numbers, doubles, or strings of a few bytes.

use std::hash::{BuildHasher, RandomState};

/// Initial number of slots, as a power of two.
const INITIAL_BITS: u32 = 6;

/// Minimum number of slots for prefetching; fewer slots are in the cache anyway.
const PREFETCH_MIN_SLOTS: usize = 8192;

/// Prefetches memory that is about to be read or written.
#[inline]
pub(crate) fn prefetch<T>(place: Option<&T>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(place) = place {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: prefetching is a hint that accepts any address
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Minimum number of states for prefetching.
const PREFETCH_MIN_STATES: usize = 4096;

/// Prefetches these states if there are so many that they may not be in the cache.
pub(crate) fn prefetch_all<T>(states: &[T], numbers: &[u32]) {
    if states.len() >= PREFETCH_MIN_STATES {
        numbers.iter().for_each(|number| prefetch(states.get(*number as usize)));
    }
}

/// Hash map from `u64` keys to `u32` ids. Open addressing with linear probing, load factor at most 0.5.
///
/// Nearly every event of a query with groups, of a join or for a table makes a lookup, mostly for a key that
/// is present. Hence the hash is a multiplication, by a random odd factor per table, so that colliding keys
/// cannot be chosen, and keys are stored next to their ids.
pub(crate) struct U64IndexMap {
    /// Key and id plus one; zero if the slot is free.
    slots: Vec<(u64, u32)>,
    taken: usize,
    factor: u64,
    bits: u32,
}

impl Default for U64IndexMap {
    fn default() -> Self {
        Self { slots: vec![], taken: 0, factor: RandomState::new().hash_one(0) | 1, bits: 0 }
    }
}

impl U64IndexMap {
    /// Returns the slot in which a search for the key begins. There must be slots.
    #[inline]
    fn first_slot(&self, key: u64) -> usize {
        (key.wrapping_mul(self.factor) >> (64 - self.bits)) as usize
    }

    /// Returns the slots to search for the key, in order.
    #[inline]
    fn probe_sequence(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        (self.first_slot(key)..).map(move |slot| slot & mask)
    }

    /// Returns the id of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        for slot in self.probe_sequence(key) {
            let (there, id) = self.slots[slot];
            let id = id.checked_sub(1)?;
            if there == key {
                return Some(id);
            }
        }
        None
    }

    /// Returns the ids of keys. For a key that is not in its first slot, the id is arbitrary and its index is
    /// added to `rest`.
    pub(crate) fn get_all(&self, keys: &[u64], rest: &mut Vec<u32>) -> Vec<u32> {
        self.prefetch_keys(keys.iter().copied());
        rest.clear();
        if self.slots.is_empty() {
            rest.extend(0..keys.len() as u32);
            return vec![0; keys.len()];
        }
        // Without a branch, which would be unpredictable: every index is written to the next free entry, and
        // the entry is overwritten by the next one if the key was found.
        rest.resize(keys.len() + 1, 0);
        let mut missing = 0;
        let find = |(place, key): (usize, &u64)| {
            let (there, id) = self.slots[self.first_slot(*key)];
            rest[missing] = place as u32;
            missing += usize::from(there != *key || id == 0);
            id.wrapping_sub(1)
        };
        let ids = keys.iter().enumerate().map(find).collect();
        rest.truncate(missing);
        ids
    }

    /// Prefetches the slots of these keys if they may not be in the cache: memory accesses for many keys
    /// overlap, so that they take hardly longer than for a few.
    pub(crate) fn prefetch_keys(&self, keys: impl Iterator<Item = u64>) {
        if self.slots.len() >= PREFETCH_MIN_SLOTS {
            keys.for_each(|key| prefetch(self.slots.get(self.first_slot(key))));
        }
    }

    /// Inserts a key that is not in the map, with its id. Returns the id.
    pub(crate) fn insert(&mut self, key: u64, id: u32) -> u32 {
        // the higher the load, the fewer keys are in their first slot
        if self.taken >= self.slots.len() / 2 {
            self.grow();
        }
        self.taken += 1;
        self.insert_slot(key, id + 1);
        id
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.slots.is_empty() {
            return;
        }
        let mask = self.slots.len() - 1;
        let found =
            self.probe_sequence(key).find(|slot| self.slots[*slot].1 == 0 || self.slots[*slot].0 == key);
        let Some(mut free) = found.filter(|slot| self.slots[*slot].1 != 0) else { return };
        self.taken -= 1;
        // later entries of the probe sequence move back into the free slot, unless their first slot is after
        // it
        let mut slot = free;
        loop {
            slot = (slot + 1) & mask;
            let (there, id) = self.slots[slot];
            if id == 0 {
                break;
            }
            let first = self.first_slot(there);
            if (slot.wrapping_sub(first) & mask) >= (slot.wrapping_sub(free) & mask) {
                self.slots[free] = (there, id);
                free = slot;
            }
        }
        self.slots[free] = (0, 0);
    }

    /// Removes all keys and frees the memory.
    pub(crate) fn clear(&mut self) {
        (self.slots, self.taken, self.bits) = (vec![], 0, 0);
    }

    fn insert_slot(&mut self, key: u64, id: u32) {
        let free = self.probe_sequence(key).find(|slot| self.slots[*slot].1 == 0);
        if let Some(free) = free {
            self.slots[free] = (key, id);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.bits = if self.bits == 0 { INITIAL_BITS } else { self.bits + 1 };
        let before = std::mem::replace(&mut self.slots, vec![(0, 0); 1 << self.bits]);
        before.into_iter().filter(|(_, id)| *id != 0).for_each(|(key, id)| self.insert_slot(key, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_numbers_while_the_table_grows() {
        let mut tiny = U64IndexMap::default();
        // consecutive numbers, and numbers that differ only in their high bits
        let keys: Vec<u64> = (1..5_000).flat_map(|i| [i, i << 51]).collect();
        let first = |key: &u64| keys.iter().position(|k| k == key).map(|id| id as u32);
        for (id, key) in keys.iter().enumerate() {
            if tiny.get(*key).is_none() {
                tiny.insert(*key, id as u32);
            }
        }
        assert!(keys.iter().step_by(37).all(|key| tiny.get(*key) == first(key)));
        assert_eq!((tiny.get(0), tiny.get(u64::MAX)), (None, None));
        assert!(2 * tiny.taken <= tiny.slots.len());
        let mut rest = Vec::new();
        let ids = tiny.get_all(&keys, &mut rest);
        assert!(rest.len() < keys.len() / 2, "{} of {}", rest.len(), keys.len());
        assert!((0..keys.len()).all(|i| rest.contains(&(i as u32)) || Some(ids[i]) == first(&keys[i])));
        assert_eq!(U64IndexMap::default().get_all(&[7, 8], &mut rest).len(), 2);
        assert_eq!(rest, [0, 1]);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_nothing_else() {
        let mut tiny = U64IndexMap::default();
        // few slots, so that probe sequences overlap, also at the end of the table
        for round in 0..200_u64 {
            let keys: Vec<u64> = (0..32).map(|i| (i + round).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            for (id, key) in keys.iter().enumerate() {
                tiny.insert(*key, id as u32);
            }
            assert_eq!(tiny.slots.len(), 1 << INITIAL_BITS);
            for gone in 0..keys.len() {
                tiny.remove(keys[gone]);
                tiny.remove(keys[gone]);
                let there = |id: usize| (id > gone).then_some(id as u32);
                assert!((0..keys.len()).all(|id| tiny.get(keys[id]) == there(id)), "round {round}");
            }
            assert_eq!(tiny.taken, 0);
        }
        tiny.clear();
        tiny.remove(1);
        assert_eq!(tiny.get(1), None);
    }
}
