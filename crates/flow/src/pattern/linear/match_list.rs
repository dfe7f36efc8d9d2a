//! Ordered list of the matches that wait at a step, with an index to find those that an event satisfies.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::super::conditions::ComparisonDomain;
use super::plan::IndexedComparison;
use crate::expr::Comparison;

/// Number of words before a match's values: the time of its last event, that of its first, and its marks.
pub(super) const HEADER_WORDS: usize = 3;
pub(super) const TIME: usize = 0;
pub(super) const BEGIN: usize = 1;
pub(super) const MARKS: usize = 2;

/// Mark of a removed match. The lower bits mark the values that are null.
const REMOVED: u64 = 1 << 63;
/// Mark of a match whose key is null.
const NO_KEY: u64 = 1 << 62;

/// Minimum number of matches for which blocks are skipped by their bounds, or keys are looked up in a map.
const INDEX_MATCHES_MIN: usize = 128;
const BLOCK_MATCHES: usize = 64;

type MatchIndexes = SmallVec<[u32; 4]>;

/// Key by which a match or an event is looked up; `None` for null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MatchKey {
    Double(Option<f64>),
    Long(Option<i64>),
}

/// Matches in order of arrival, each `stride` words.
#[derive(Debug, Clone)]
pub(super) struct MatchList {
    stride: usize,
    words: Vec<u64>,
    /// Number of matches, including removed ones.
    slot_count: usize,
    keys: KeyIndex,
    /// Index of the first match that is not removed.
    head: usize,
    /// Number of removed matches after `head`.
    removed: usize,
}

#[derive(Debug, Clone)]
enum KeyIndex {
    None,
    Double(Comparison, OrderedKeys<f64>),
    Long(Comparison, OrderedKeys<i64>),
    Equal(EqualKeys),
}

/// Keys for `event < key` and the like. The least (or greatest) key of each block bounds the block.
#[derive(Debug, Clone, Default)]
struct OrderedKeys<T> {
    keys: Vec<T>,
    bounds: Vec<T>,
}

/// Keys for `event == key`: bits of numbers, hashes of strings.
#[derive(Debug, Clone, Default)]
struct EqualKeys {
    keys: Vec<u64>,
    /// Indexes of the matches by key, built from `INDEX_MATCHES_MIN` keys on.
    by_key: Option<HashMap<u64, MatchIndexes>>,
}

trait KeyBound: PartialOrd + Copy {
    /// Returns a key that no event exceeds (`upwards`), or that no event is below.
    fn unreachable_bound(upwards: bool) -> Self;
}

impl KeyBound for f64 {
    fn unreachable_bound(_: bool) -> Self {
        Self::NAN
    }
}

impl KeyBound for i64 {
    fn unreachable_bound(upwards: bool) -> Self {
        if upwards { Self::MAX } else { Self::MIN }
    }
}

impl<T: KeyBound> OrderedKeys<T> {
    fn push(&mut self, op: Comparison, key: T) {
        let place = self.keys.len();
        self.keys.push(key);
        let block = place / BLOCK_MATCHES;
        self.bounds.truncate(block + 1);
        match self.bounds.get_mut(block) {
            Some(bound) if !place.is_multiple_of(BLOCK_MATCHES) => *bound = Self::looser(op, *bound, key),
            Some(bound) => *bound = key,
            None => self.bounds.push(key),
        }
    }

    fn pop(&mut self) {
        // the bound of the block stays; it may be looser than necessary
        self.keys.pop();
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.bounds.clear();
    }

    /// Keeps the first `len` keys, which the caller may have replaced.
    fn truncate(&mut self, op: Comparison, len: usize) {
        self.keys.truncate(len);
        let bound = |block: &[T]| block.iter().copied().reduce(|a, b| Self::looser(op, a, b));
        self.bounds.clear();
        self.bounds.extend(self.keys.chunks(BLOCK_MATCHES).filter_map(bound));
    }

    /// Returns the key that more events satisfy. A NaN, which nothing satisfies, is never preferred.
    fn looser(op: Comparison, a: T, b: T) -> T {
        let upwards = matches!(op, Comparison::Gt | Comparison::Ge);
        let nearer = if upwards { b < a } else { b > a };
        if nearer || a.partial_cmp(&a).is_none() { b } else { a }
    }

    fn find(&mut self, op: Comparison, head: usize, x: T, found: &mut Vec<u32>) {
        match op {
            Comparison::Gt => self.scan(op, head, found, |key| x > key),
            Comparison::Ge => self.scan(op, head, found, |key| x >= key),
            Comparison::Lt => self.scan(op, head, found, |key| x < key),
            _ => self.scan(op, head, found, |key| x <= key),
        }
    }

    #[inline]
    fn scan(&mut self, op: Comparison, head: usize, found: &mut Vec<u32>, fits: impl Fn(T) -> bool) {
        if self.keys.len() - head < INDEX_MATCHES_MIN {
            for (place, key) in self.keys.iter().enumerate().skip(head) {
                if fits(*key) {
                    found.push(place as u32);
                }
            }
            return;
        }
        for block in head / BLOCK_MATCHES..self.keys.len().div_ceil(BLOCK_MATCHES) {
            if !fits(self.bounds[block]) {
                continue;
            }
            let range = (block * BLOCK_MATCHES).max(head)..((block + 1) * BLOCK_MATCHES).min(self.keys.len());
            let before = found.len();
            let keys = &self.keys[range.clone()];
            found
                .extend(keys.iter().zip(range).filter(|(key, _)| fits(**key)).map(|(_, place)| place as u32));
            if found.len() == before {
                // the key that set the bound was removed: compute it again
                let bound = keys.iter().copied().reduce(|a, b| Self::looser(op, a, b));
                self.bounds[block] = bound.unwrap_or(self.bounds[block]);
            }
        }
    }
}

impl EqualKeys {
    fn push(&mut self, key: u64) {
        let place = self.keys.len() as u32;
        self.keys.push(key);
        match &mut self.by_key {
            Some(places) => places.entry(key).or_default().push(place),
            None => self.build_index(),
        }
    }

    /// Keeps the first `len` keys, which the caller may have replaced.
    fn truncate(&mut self, len: usize) {
        self.keys.truncate(len);
        self.by_key = None;
        self.build_index();
    }

    /// Builds the map from keys to matches if there are enough of them.
    fn build_index(&mut self) {
        if self.keys.len() < INDEX_MATCHES_MIN {
            return;
        }
        let mut places: HashMap<u64, MatchIndexes> = HashMap::new();
        for (place, key) in self.keys.iter().enumerate() {
            places.entry(*key).or_default().push(place as u32);
        }
        self.by_key = Some(places);
    }

    fn pop(&mut self) {
        let Some(key) = self.keys.pop() else { return };
        if let Some(places) = &mut self.by_key
            && let Some(list) = places.get_mut(&key)
        {
            list.pop();
            if list.is_empty() {
                places.remove(&key);
            }
        }
    }

    fn find(&self, head: usize, key: u64, found: &mut Vec<u32>) {
        match &self.by_key {
            Some(places) => {
                let at = places.get(&key).map_or(&[][..], MatchIndexes::as_slice);
                found.extend(&at[at.partition_point(|place| (*place as usize) < head)..]);
            }
            None => {
                let keys = self.keys.iter().enumerate().skip(head);
                found.extend(keys.filter(|(_, k)| **k == key).map(|(place, _)| place as u32));
            }
        }
    }
}

impl MatchKey {
    /// Returns bits that are equal if and only if the numbers are; `None` for null and NaN, which equal
    /// nothing.
    fn bits(self) -> Option<u64> {
        match self {
            Self::Long(key) => key.map(|key| key as u64),
            // adding 0.0 turns -0.0 into 0.0
            Self::Double(key) => key.filter(|key| !key.is_nan()).map(|key| (key + 0.0).to_bits()),
        }
    }
}

/// Iterates over those matches of a list that are not removed.
pub(super) fn waiting(words: &[u64], stride: usize) -> impl DoubleEndedIterator<Item = &[u64]> {
    words.chunks_exact(stride).filter(|found| found[MARKS] & REMOVED == 0)
}

impl MatchList {
    pub fn new(width: usize, index: Option<&IndexedComparison>) -> Self {
        let keys = match index {
            None => KeyIndex::None,
            Some(IndexedComparison { op: Comparison::Eq, .. }) => KeyIndex::Equal(EqualKeys::default()),
            Some(IndexedComparison { op, domain: ComparisonDomain::Long, .. }) => {
                KeyIndex::Long(*op, OrderedKeys::default())
            }
            Some(IndexedComparison { op, .. }) => KeyIndex::Double(*op, OrderedKeys::default()),
        };
        Self { stride: HEADER_WORDS + width, words: vec![], slot_count: 0, keys, head: 0, removed: 0 }
    }

    /// Returns the number of waiting matches.
    pub fn len(&self) -> usize {
        self.slot_count - self.head - self.removed
    }

    /// Returns the match at an index returned by [`Self::find`].
    #[inline]
    pub fn get(&self, place: usize) -> &[u64] {
        &self.words[place * self.stride..(place + 1) * self.stride]
    }

    /// Returns the first waiting match.
    #[inline]
    pub fn first(&self) -> Option<&[u64]> {
        (self.head < self.slot_count).then(|| self.get(self.head))
    }

    /// Iterates over the waiting matches in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u64]> {
        waiting(&self.words[self.head * self.stride..], self.stride)
    }

    /// Returns a copy of the words of the waiting matches, with removed ones among them, and the number of words of each.
    pub fn copy_words(&self) -> (Vec<u64>, usize) {
        (self.words[self.head * self.stride..].to_vec(), self.stride)
    }

    /// Iterates over the matches to change their values; the keys must stay as they are.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u64]> {
        self.words.chunks_exact_mut(self.stride).filter(|found| found[MARKS] & REMOVED == 0)
    }

    pub fn push(&mut self, record: &[u64], key: Option<MatchKey>) {
        let mut marks = record[MARKS] & !NO_KEY;
        match (&mut self.keys, key) {
            (KeyIndex::Double(op, ordered), Some(MatchKey::Double(key))) => {
                ordered.push(*op, key.unwrap_or(f64::NAN))
            }
            (KeyIndex::Long(op, ordered), Some(MatchKey::Long(key))) => {
                if key.is_none() {
                    marks |= NO_KEY;
                }
                let upwards = matches!(op, Comparison::Gt | Comparison::Ge);
                ordered.push(*op, key.unwrap_or(i64::unreachable_bound(upwards)));
            }
            (KeyIndex::Equal(equal), key) => {
                let bits = key.and_then(MatchKey::bits);
                if bits.is_none() {
                    marks |= NO_KEY;
                }
                equal.push(bits.unwrap_or_default());
            }
            _ => {}
        }
        self.words.extend_from_slice(record);
        self.slot_count += 1;
        let at = self.words.len() - self.stride + MARKS;
        self.words[at] = marks;
    }

    /// Appends the indexes of the matches that an event with this key may satisfy, in order; all matches if
    /// the list has no index.
    pub fn find(&mut self, key: Option<MatchKey>, found: &mut Vec<u32>) {
        match (&mut self.keys, key) {
            (KeyIndex::Double(op, ordered), Some(MatchKey::Double(key))) => {
                return ordered.find(*op, self.head, key.unwrap_or(f64::NAN), found);
            }
            (KeyIndex::Long(op, ordered), Some(MatchKey::Long(key))) => {
                let Some(key) = key else { return };
                ordered.find(*op, self.head, key, found);
            }
            (KeyIndex::Equal(equal), key) => {
                let Some(key) = key.and_then(MatchKey::bits) else { return };
                equal.find(self.head, key, found);
            }
            _ => {
                found.extend(self.head as u32..self.slot_count as u32);
                if self.removed == 0 {
                    return;
                }
            }
        }
        let (words, stride) = (&self.words, self.stride);
        found.retain(|place| words[*place as usize * stride + MARKS] & (REMOVED | NO_KEY) == 0);
    }

    /// Removes the match at an index returned by [`Self::find`]. After the last removal, and before any other
    /// lookup, the caller must call [`Self::compact_if_needed`].
    pub fn remove(&mut self, place: usize) {
        self.words[place * self.stride + MARKS] |= REMOVED;
        self.removed += 1;
        match &mut self.keys {
            KeyIndex::Double(_, ordered) => ordered.keys[place] = f64::unreachable_bound(true),
            KeyIndex::Long(op, ordered) => {
                ordered.keys[place] = i64::unreachable_bound(matches!(op, Comparison::Gt | Comparison::Ge));
            }
            KeyIndex::None | KeyIndex::Equal(_) => {}
        }
    }

    /// Removes the first match.
    pub fn remove_first(&mut self) {
        self.remove(self.head);
        self.compact_if_needed();
    }

    #[inline]
    fn is_removed(&self, place: usize) -> bool {
        self.words[place * self.stride + MARKS] & REMOVED != 0
    }

    /// Drops removed matches at both ends of the list. Compacts the list when removed matches make up more
    /// than half of it and more than a block.
    #[inline]
    pub fn compact_if_needed(&mut self) {
        if self.removed + self.head == self.slot_count {
            return self.clear();
        }
        while self.is_removed(self.slot_count - 1) {
            self.removed -= 1;
            self.pop();
        }
        while self.is_removed(self.head) {
            self.head += 1;
            self.removed -= 1;
        }
        if self.head + self.removed > BLOCK_MATCHES && (self.head + self.removed) * 2 > self.slot_count {
            self.compact();
        }
    }

    fn pop(&mut self) {
        self.words.truncate(self.words.len() - self.stride);
        self.slot_count -= 1;
        match &mut self.keys {
            KeyIndex::None => {}
            KeyIndex::Double(_, ordered) => ordered.pop(),
            KeyIndex::Long(_, ordered) => ordered.pop(),
            KeyIndex::Equal(equal) => equal.pop(),
        }
    }

    /// Removes all matches.
    #[inline]
    pub fn clear(&mut self) {
        if self.slot_count == 0 {
            return;
        }
        self.words.clear();
        (self.slot_count, self.head, self.removed) = (0, 0, 0);
        match &mut self.keys {
            KeyIndex::None => {}
            KeyIndex::Double(_, ordered) => ordered.clear(),
            KeyIndex::Long(_, ordered) => ordered.clear(),
            KeyIndex::Equal(equal) => {
                equal.keys.clear();
                equal.by_key = None;
            }
        }
    }

    /// Moves the matches that are not removed to the front.
    fn compact(&mut self) {
        let stride = self.stride;
        let mut kept = 0;
        for place in self.head..self.slot_count {
            if self.is_removed(place) {
                continue;
            }
            self.words.copy_within(place * stride..(place + 1) * stride, kept * stride);
            match &mut self.keys {
                KeyIndex::None => {}
                KeyIndex::Double(_, ordered) => ordered.keys[kept] = ordered.keys[place],
                KeyIndex::Long(_, ordered) => ordered.keys[kept] = ordered.keys[place],
                KeyIndex::Equal(equal) => equal.keys[kept] = equal.keys[place],
            }
            kept += 1;
        }
        self.words.truncate(kept * stride);
        (self.slot_count, self.head, self.removed) = (kept, 0, 0);
        match &mut self.keys {
            KeyIndex::None => {}
            KeyIndex::Double(op, ordered) => ordered.truncate(*op, kept),
            KeyIndex::Long(op, ordered) => ordered.truncate(*op, kept),
            KeyIndex::Equal(equal) => equal.truncate(kept),
        }
    }
}
