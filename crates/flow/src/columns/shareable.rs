//! Values that a checkpoint shares with their owner: [`Shareable`], and arrays of such blocks: [`BlockVec`].
//!
//! A checkpoint must have the state of one record, and is written while later records are applied. So it shares the large
//! parts of the state, in constant time each, and the owner copies a part when it first changes it, if the checkpoint still
//! has it. Nothing is copied while no checkpoint is being written.

use std::mem;
use std::sync::Arc;

use crate::columns::u64_map::prefetch;

/// Value that its owner changes in place, until it is [shared](Self::share); the next change then makes a copy if anybody
/// else still has it.
#[derive(Debug, Clone)]
pub(crate) struct Shareable<T>(Repr<T>);

#[derive(Debug, Clone)]
enum Repr<T> {
    Owned(T),
    Shared(Arc<T>),
}

impl<T: Default> Default for Shareable<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Shareable<T> {
    /// Creates a value that is not shared.
    pub(crate) fn new(value: T) -> Self {
        Self(Repr::Owned(value))
    }

    /// Returns whether clones share the value.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.0, Repr::Shared(_))
    }

    /// Returns the value.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        match &self.0 {
            Repr::Owned(value) => value,
            Repr::Shared(value) => value,
        }
    }
}

impl<T: Clone + Default> Shareable<T> {
    /// Moves the value into shared memory, so that later clones share it.
    pub(crate) fn share(&mut self) {
        if let Repr::Owned(value) = &mut self.0 {
            self.0 = Repr::Shared(Arc::new(mem::take(value)));
        }
    }

    /// Returns the value to be changed; a copy of it if others share it.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        if let Repr::Shared(_) = &self.0 {
            self.unshare();
        }
        match &mut self.0 {
            Repr::Owned(value) => value,
            Repr::Shared(_) => unreachable!("made its own above"),
        }
    }

    #[cold]
    #[inline(never)]
    fn unshare(&mut self) {
        if let Repr::Shared(value) = mem::replace(&mut self.0, Repr::Owned(T::default())) {
            self.0 = Repr::Owned(Arc::unwrap_or_clone(value));
        }
    }
}

const BLOCK_BITS: u32 = 12;
/// Number of values per block.
pub(crate) const BLOCK_LEN: usize = 1 << BLOCK_BITS;

/// Number of values from which an array is divided into blocks. Up to it, a copy of all takes less than a millisecond, and
/// loops find a value without a detour.
const FLAT_LEN_MAX: usize = 1 << 15;

/// Array of values that are changed at random. A small one is shared and copied as a whole, a large one in blocks.
#[derive(Debug, Clone)]
pub(crate) enum BlockVec<T> {
    /// All values.
    Flat(Shareable<Vec<T>>),
    /// Blocks of [`BLOCK_LEN`] values, except for the last one.
    Blocks(Vec<Shareable<Vec<T>>>),
}

impl<T> Default for BlockVec<T> {
    fn default() -> Self {
        Self::Flat(Shareable::new(vec![]))
    }
}

impl<T: Clone> BlockVec<T> {
    /// Returns a value. There must be one at `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> &T {
        match self {
            Self::Flat(values) => &values.get()[at],
            Self::Blocks(blocks) => &blocks[at >> BLOCK_BITS].get()[at & (BLOCK_LEN - 1)],
        }
    }

    /// Returns a value to be changed. There must be one at `at`.
    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut T {
        match self {
            Self::Flat(values) => &mut values.get_mut()[at],
            Self::Blocks(blocks) => blocks.at(at),
        }
    }

    /// Appends a value.
    pub(crate) fn push(&mut self, value: T) {
        let len = self.len();
        match self {
            Self::Flat(values) if len < FLAT_LEN_MAX => values.get_mut().push(value),
            Self::Flat(values) => {
                *self = Self::Blocks(into_blocks(mem::take(values.get_mut())));
                self.push(value);
            }
            Self::Blocks(blocks) => {
                if len.is_multiple_of(BLOCK_LEN) {
                    blocks.push(Shareable::new(Vec::with_capacity(BLOCK_LEN)));
                }
                if let Some(block) = blocks.last_mut() {
                    block.get_mut().push(value);
                }
            }
        }
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Flat(values) => values.get().len(),
            Self::Blocks(blocks) => {
                let last = blocks.last().map_or(0, |block| block.get().len());
                blocks.len().saturating_sub(1) * BLOCK_LEN + last
            }
        }
    }

    /// Returns the values in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (flat, blocks) = match self {
            Self::Flat(values) => (values.get().as_slice(), &[][..]),
            Self::Blocks(blocks) => (&[][..], blocks.as_slice()),
        };
        flat.iter().chain(blocks.iter().flat_map(|block| block.get()))
    }

    /// Appends copies of `value` until there are `len`; does nothing if there are as many.
    pub(crate) fn grow(&mut self, len: usize, value: &T) {
        match self {
            Self::Flat(values) if len <= FLAT_LEN_MAX.max(values.get().len()) => {
                if len > values.get().len() {
                    values.get_mut().resize(len, value.clone());
                }
            }
            Self::Flat(values) => {
                *self = Self::Blocks(into_blocks(mem::take(values.get_mut())));
                self.grow(len, value);
            }
            Self::Blocks(blocks) => {
                let last = blocks.last().map_or(0, |block| block.get().len());
                let mut here = blocks.len().saturating_sub(1) * BLOCK_LEN + last;
                while here < len {
                    if here.is_multiple_of(BLOCK_LEN) {
                        blocks.push(Shareable::new(Vec::with_capacity(BLOCK_LEN)));
                    }
                    let Some(block) = blocks.last_mut() else { return };
                    let until = BLOCK_LEN.min(here % BLOCK_LEN + len - here);
                    here += until - here % BLOCK_LEN;
                    block.get_mut().resize(until, value.clone());
                }
            }
        }
    }

    /// Sets all values to `value`.
    pub(crate) fn fill(&mut self, value: &T) {
        match self {
            Self::Flat(values) => values.get_mut().fill(value.clone()),
            Self::Blocks(blocks) => blocks.fill_all(value),
        }
    }

    /// Lets clones share the values.
    pub(crate) fn share(&mut self) {
        match self {
            Self::Flat(values) => values.share(),
            Self::Blocks(blocks) => blocks.iter_mut().for_each(Shareable::share),
        }
    }

    /// Prefetches these values if there are so many that they may not be in the cache.
    pub(crate) fn prefetch_all(&self, numbers: &[u32]) {
        match self {
            Self::Flat(values) => crate::columns::u64_map::prefetch_all(values.get(), numbers),
            Self::Blocks(blocks) => numbers.iter().for_each(|number| {
                let block = blocks.get((number >> BLOCK_BITS) as usize);
                prefetch(block.and_then(|block| block.get().get(*number as usize & (BLOCK_LEN - 1))));
            }),
        }
    }
}

fn into_blocks<T: Clone>(values: Vec<T>) -> Vec<Shareable<Vec<T>>> {
    let mut blocks = Vec::with_capacity(values.len().div_ceil(BLOCK_LEN));
    let mut values = values.into_iter();
    while values.len() > 0 {
        let mut block = Vec::with_capacity(BLOCK_LEN);
        block.extend(values.by_ref().take(BLOCK_LEN));
        blocks.push(Shareable::new(block));
    }
    blocks
}

/// The two forms of a [`BlockVec`], for loops that are compiled for each.
pub(crate) trait Values<T> {
    /// Returns a value to be changed. There must be one at `at`.
    fn at(&mut self, at: usize) -> &mut T;
    /// Sets all values to `value`.
    fn fill_all(&mut self, value: &T);
}

impl<T: Clone> Values<T> for [T] {
    #[inline]
    fn at(&mut self, at: usize) -> &mut T {
        &mut self[at]
    }

    fn fill_all(&mut self, value: &T) {
        self.fill(value.clone());
    }
}

impl<T: Clone> Values<T> for Vec<Shareable<Vec<T>>> {
    #[inline]
    fn at(&mut self, at: usize) -> &mut T {
        &mut self[at >> BLOCK_BITS].get_mut()[at & (BLOCK_LEN - 1)]
    }

    fn fill_all(&mut self, value: &T) {
        self.iter_mut().for_each(|block| {
            let len = block.get().len();
            // what is overwritten need not be copied
            *block = Shareable::new(vec![value.clone(); len]);
        });
    }
}

/// Evaluates an expression for the [`Values`] of a [`BlockVec`].
macro_rules! each_form {
    ($array:expr, $values:ident => $do:expr) => {
        match $array {
            $crate::columns::shareable::BlockVec::Flat(values) => {
                let $values = values.get_mut().as_mut_slice();
                $do
            }
            $crate::columns::shareable::BlockVec::Blocks($values) => $do,
        }
    };
}
pub(crate) use each_form;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_the_values_that_its_origin_changes() {
        let mut array = BlockVec::default();
        // sizes on both sides of the borders
        for len in [1, FLAT_LEN_MAX, FLAT_LEN_MAX + 1, 3 * FLAT_LEN_MAX, 3 * FLAT_LEN_MAX + 7] {
            array.grow(len - 1, &0_u64);
            array.push(0);
            assert_eq!((array.len(), array.iter().count()), (len, len));
            array.share();
            let frozen = array.clone();
            let before: Vec<u64> = (0..len).map(|at| *frozen.get(at)).collect();
            for at in (0..len).step_by(1 + len / 50) {
                *array.get_mut(at) ^= at as u64 + 1;
            }
            *array.get_mut(len - 1) = u64::MAX;
            let after: Vec<u64> = (0..len).map(|at| *frozen.get(at)).collect();
            assert!(before == after, "{len} values");
            assert_eq!(*array.get(len - 1), u64::MAX);
        }
        array.share();
        let frozen = array.clone();
        array.fill(&5);
        assert_eq!(
            (*array.get(0), *array.get(FLAT_LEN_MAX), *frozen.get(3 * FLAT_LEN_MAX + 6)),
            (5, 5, u64::MAX)
        );
    }

    #[test]
    fn a_value_is_copied_only_while_it_is_shared() {
        let mut value = Shareable::new(vec![0; 8]);
        value.share();
        let (address, clone) = (value.get().as_ptr(), value.clone());
        drop(clone);
        value.get_mut()[0] = 1;
        assert_eq!((value.get().as_ptr(), value.is_shared()), (address, false));
        value.share();
        let clone = value.clone();
        value.get_mut()[0] = 2;
        assert_eq!((value.get()[0], clone.get()[0]), (2, 1));
    }
}
