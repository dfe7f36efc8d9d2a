//! Matches that reach a step during an event, in order.

use super::NEVER;
use super::match_list::{HEADER_WORDS, TIME};

/// Matches that become visible to the next event.
#[derive(Debug, Clone, Default)]
pub(super) struct NewMatches {
    stride: usize,
    words: Vec<u64>,
    count: usize,
}

impl NewMatches {
    pub fn new(width: usize) -> Self {
        Self { stride: HEADER_WORDS + width, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a match of `stride` words.
    #[inline]
    pub fn push(&mut self, words: impl Iterator<Item = u64>) {
        self.words.extend(words);
        self.count += 1;
        debug_assert_eq!(self.words.len(), self.count * self.stride);
    }

    /// Appends a match from its header, the captures of earlier steps and those of its last step.
    #[inline]
    pub fn push_words(&mut self, head: [u64; HEADER_WORDS], kept: &[u64], own: &[u64]) {
        self.words.reserve(self.stride);
        self.words.extend_from_slice(&head);
        self.words.extend_from_slice(kept);
        self.words.extend_from_slice(own);
        self.count += 1;
        debug_assert_eq!(self.words.len(), self.count * self.stride);
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u64]> {
        (0..self.count).map(|i| &self.words[i * self.stride..(i + 1) * self.stride])
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u64]> {
        self.words.chunks_exact_mut(self.stride)
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.count = 0;
    }

    /// Removes the matches that satisfy `out` and passes each to `took`, in order.
    pub fn extract(&mut self, out: impl Fn(&[u64]) -> bool, mut took: impl FnMut(&[u64])) {
        if !self.iter().any(&out) {
            return;
        }
        let words = std::mem::take(&mut self.words);
        self.count = 0;
        for found in words.chunks_exact(self.stride) {
            match out(found) {
                true => took(found),
                false => self.push(found.iter().copied()),
            }
        }
    }

    /// Sorts by time, matches without events last. The sort is stable.
    pub fn sort(&mut self) {
        let order = |found: &[u64]| (found[TIME] as i64 == NEVER, found[TIME] as i64);
        if self.count > 1 && !self.iter().is_sorted_by_key(order) {
            let words = std::mem::take(&mut self.words);
            let mut sorted: Vec<&[u64]> = words.chunks_exact(self.stride).collect();
            sorted.sort_by_key(|found| order(found));
            self.words = sorted.concat();
        }
    }
}
