//! Numbers by keys of eight bytes: whole numbers, decimals, texts of a few bytes.

use std::hash::{BuildHasher, RandomState};

/// Slots to begin with.
const FIRST_BITS: u32 = 6;

/// From so many slots on they are asked for ahead: fewer are at hand anyway.
const FAR_SLOTS: usize = 8192;

/// Asks for the memory at `place`, which is going to be read or written soon.
#[inline]
pub(crate) fn prefetch<T>(place: Option<&T>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(place) = place {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it is a hint, for whatever address
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// From so many states on they are asked for ahead.
const FAR_STATES: usize = 4096;

/// Asks for the memory of these states, where there are so many that it may be far away.
pub(crate) fn prefetch_all<T>(states: &[T], numbers: &[u32]) {
    if states.len() >= FAR_STATES {
        numbers.iter().for_each(|number| prefetch(states.get(*number as usize)));
    }
}

/// Numbers by keys that are numbers themselves: open addressing, at most three quarters of the slots taken.
///
/// Nearly every event of a query with groups, of a join or for a table asks here, most for a key that is there; so the hash is a
/// multiplication (by an odd number drawn for each table, so that nobody can choose keys that collide), and keys lie
/// beside what they stand for.
pub(crate) struct Tiny {
    /// Key and number plus one; zero where there is nothing.
    slots: Vec<(u64, u32)>,
    taken: usize,
    factor: u64,
    bits: u32,
}

impl Default for Tiny {
    fn default() -> Self {
        Self { slots: vec![], taken: 0, factor: RandomState::new().hash_one(0) | 1, bits: 0 }
    }
}

impl Tiny {
    /// The slot in which a key is looked for first; there are slots.
    #[inline]
    fn first(&self, key: u64) -> usize {
        (key.wrapping_mul(self.factor) >> (64 - self.bits)) as usize
    }

    /// The slots in which it is looked for, one after the other.
    #[inline]
    fn way(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        (self.first(key)..).map(move |slot| slot & mask)
    }

    /// The number of a key.
    #[inline]
    pub(crate) fn get(&self, key: u64) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        for slot in self.way(key) {
            let (there, id) = self.slots[slot];
            let id = id.checked_sub(1)?;
            if there == key {
                return Some(id);
            }
        }
        None
    }

    /// Asks for the memory in which these keys are looked up, if it may be far away: for many keys at once a processor
    /// waits no longer than for a few.
    pub(crate) fn expect(&self, keys: impl Iterator<Item = u64>) {
        if self.slots.len() >= FAR_SLOTS {
            keys.for_each(|key| prefetch(self.slots.get(self.first(key))));
        }
    }

    /// Gives a key its number, which it did not have.
    pub(crate) fn put(&mut self, key: u64, id: u32) -> u32 {
        if self.slots.len() * 3 < (self.taken + 1) * 4 {
            self.grow();
        }
        self.taken += 1;
        self.place(key, id + 1);
        id
    }

    /// Takes a key and its number out.
    pub(crate) fn remove(&mut self, key: u64) {
        if self.slots.is_empty() {
            return;
        }
        let mask = self.slots.len() - 1;
        let found = self.way(key).find(|slot| self.slots[*slot].1 == 0 || self.slots[*slot].0 == key);
        let Some(mut free) = found.filter(|slot| self.slots[*slot].1 != 0) else { return };
        self.taken -= 1;
        // what went on behind it comes nearer, unless that is in front of its first slot
        let mut slot = free;
        loop {
            slot = (slot + 1) & mask;
            let (there, id) = self.slots[slot];
            if id == 0 {
                break;
            }
            let first = self.first(there);
            if (slot.wrapping_sub(first) & mask) >= (slot.wrapping_sub(free) & mask) {
                self.slots[free] = (there, id);
                free = slot;
            }
        }
        self.slots[free] = (0, 0);
    }

    /// Forgets all, and gives back the memory.
    pub(crate) fn clear(&mut self) {
        (self.slots, self.taken, self.bits) = (vec![], 0, 0);
    }

    fn place(&mut self, key: u64, id: u32) {
        let free = self.way(key).find(|slot| self.slots[*slot].1 == 0);
        if let Some(free) = free {
            self.slots[free] = (key, id);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.bits = if self.bits == 0 { FIRST_BITS } else { self.bits + 1 };
        let before = std::mem::replace(&mut self.slots, vec![(0, 0); 1 << self.bits]);
        before.into_iter().filter(|(_, id)| *id != 0).for_each(|(key, id)| self.place(key, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_numbers_while_the_table_grows() {
        let mut tiny = Tiny::default();
        // neighbours, and numbers that differ in their high bits only
        let keys: Vec<u64> = (1..5_000).flat_map(|i| [i, i << 51]).collect();
        let first = |key: &u64| keys.iter().position(|k| k == key).map(|id| id as u32);
        for (id, key) in keys.iter().enumerate() {
            if tiny.get(*key).is_none() {
                tiny.put(*key, id as u32);
            }
        }
        assert!(keys.iter().step_by(37).all(|key| tiny.get(*key) == first(key)));
        assert_eq!((tiny.get(0), tiny.get(u64::MAX)), (None, None));
        assert!(3 * tiny.slots.len() >= 4 * tiny.taken);
    }

    #[test]
    fn what_is_taken_out_is_gone_and_nothing_else() {
        let mut tiny = Tiny::default();
        // few slots, so that ways cross, also at the end of the table
        for round in 0..200_u64 {
            let keys: Vec<u64> = (0..46).map(|i| (i + round).wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            for (id, key) in keys.iter().enumerate() {
                tiny.put(*key, id as u32);
            }
            assert_eq!(tiny.slots.len(), 1 << FIRST_BITS);
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
