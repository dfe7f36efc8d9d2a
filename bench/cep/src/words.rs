//! Counting words.

use crate::spaces::{BLOCK, blocks, places, spaces};

/// Bytes of a word that are compared at once, but for the one that tells its length.
const SHORT: usize = 16;
/// Marks words that are longer than [`SHORT`] allows.
const LONG: u128 = 0xff << 120;
/// Least places for words.
const PLACES_MIN: usize = 256;

/// Counts the words of a text. To be used again for the next: it keeps its memory.
#[derive(Debug, Default)]
pub struct Words {
    /// The text in small letters, with blanks behind it.
    small: Vec<u8>,
    places: Vec<Place>,
    /// How many of the places are in use, a power of two.
    size: usize,
    /// Different words.
    found: usize,
    /// Which text it is: a place of another is free.
    round: u32,
    most: u32,
    word: (usize, usize),
}

/// A word and how often it was there.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its first bytes and its length, or [`LONG`].
    key: u128,
    round: u32,
    count: u32,
    start: u32,
    end: u32,
}

impl Words {
    /// The word of a text that was first to be there more often than any before it, as it stands there in one place;
    /// none where no word is there twice. Words end at blanks; capitals of ASCII are the same as small letters.
    pub fn most_frequent<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        self.begin(text);
        let mut pending = None;
        let mut before = 1;
        let whole = self.small.len() - BLOCK;
        for at in (0..=whole).step_by(BLOCK) {
            let Some(block) = self.small[at..].first_chunk() else { break };
            let blank = spaces(block);
            let behind_blank = blank << 1 | before;
            before = blank >> (BLOCK - 1);
            let mut starts = !blank & behind_blank;
            let mut ends = blank & !behind_blank;
            while ends != 0 {
                let end = at + ends.trailing_zeros() as usize;
                ends &= ends - 1;
                let start = pending.take().unwrap_or_else(|| {
                    let start = at + starts.trailing_zeros() as usize;
                    starts &= starts - 1;
                    start
                });
                self.count(start, end);
            }
            if starts != 0 {
                pending = Some(at + starts.trailing_zeros() as usize);
            }
        }
        (self.most > 1).then(|| text.get(self.word.0..self.word.1)).flatten()
    }

    fn begin(&mut self, text: &str) {
        self.small.clear();
        self.small.extend_from_slice(text.as_bytes());
        self.small.make_ascii_lowercase();
        // the last word ends, its first bytes can be read beyond its end, and blocks are whole
        let padded = (text.len() / BLOCK + 2) * BLOCK;
        self.small.resize(padded, b' ');
        self.size = (text.len() / 4).next_power_of_two().max(PLACES_MIN);
        self.next_round();
        self.most = 1;
    }

    fn next_round(&mut self) {
        if self.places.len() < self.size || self.round == u32::MAX {
            self.places = vec![Place::default(); self.size.max(self.places.len())];
            self.round = 0;
        }
        self.round += 1;
        self.found = 0;
    }

    #[inline]
    fn count(&mut self, start: usize, end: usize) {
        let Some((key, hash)) = key(&self.small, start, end) else { return };
        let mask = self.size - 1;
        let mut at = hash & mask;
        loop {
            let place = self.places[at];
            // every second word is a new one: both go the same way, for there is no telling which comes next
            let is_new = place.round != self.round;
            let known = place.start as usize..place.end as usize;
            let is_it = is_new | (place.key == key);
            if is_it && (end - start < SHORT || is_new || self.small[known] == self.small[start..end]) {
                let count = if is_new { 1 } else { place.count + 1 };
                self.places[at] =
                    Place { key, round: self.round, count, start: start as u32, end: end as u32 };
                self.found += usize::from(is_new);
                if count > self.most {
                    self.most = count;
                    self.word = (start, end);
                }
                if self.found * 4 > self.size * 3 {
                    self.grow();
                }
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Twice as many places.
    fn grow(&mut self) {
        let round = self.round;
        let known: Vec<Place> =
            self.places[..self.size].iter().filter(|p| p.round == round).copied().collect();
        self.size *= 2;
        self.next_round();
        self.found = known.len();
        let mask = self.size - 1;
        for place in known {
            let Some((_, hash)) = key(&self.small, place.start as usize, place.end as usize) else {
                continue;
            };
            let mut at = hash & mask;
            while self.places[at].round == self.round {
                at = (at + 1) & mask;
            }
            self.places[at] = Place { round: self.round, ..place };
        }
    }
}

/// What a word is compared by, and where it is looked for first. Behind the word there are bytes enough.
#[inline]
fn key(small: &[u8], start: usize, end: usize) -> Option<(u128, usize)> {
    let first = u128::from_le_bytes(*small.get(start..)?.first_chunk::<SHORT>()?);
    let length = end - start;
    let (key, hash) = if length < SHORT {
        let key = first & ((1 << (8 * length)) - 1) | (length as u128) << 120;
        (key, folded(key))
    } else {
        let key = first & (u128::MAX >> 8) | LONG;
        let rest = small[start + SHORT - 1..end].iter();
        (key, rest.fold(folded(key), |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(MULTIPLIER)))
    };
    Some((key, (hash ^ hash >> 32) as usize))
}

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Both halves multiplied with each other, all bits of the product folded together.
#[inline]
fn folded(key: u128) -> u64 {
    let product =
        u128::from(key as u64 ^ MULTIPLIER) * u128::from((key >> 64) as u64 ^ 0xD1B5_4A32_D192_ED03);
    product as u64 ^ (product >> 64) as u64
}

/// Characters, words and paragraphs of a text. Paragraphs are lines that follow each other and hold more than blanks.
pub fn metrics(text: &str) -> [u64; 3] {
    let (mut words, mut paragraphs) = (0, 0);
    let mut before = 1;
    let (mut line_holds, mut in_paragraph) = (false, false);
    let mut end_line = |holds: bool| {
        paragraphs += u64::from(holds && !in_paragraph);
        in_paragraph = holds;
    };
    for block in blocks(text.as_bytes()) {
        let blank = spaces(&block);
        words += u64::from((!blank & (blank << 1 | before)).count_ones());
        before = blank >> (BLOCK - 1);
        let mut ends = places(&block, b'\n');
        // what of the block is behind the last line end
        let mut rest = u64::MAX;
        while ends != 0 {
            let up_to = ends ^ (ends - 1);
            end_line(line_holds | (!blank & rest & up_to != 0));
            line_holds = false;
            rest &= !up_to;
            ends &= ends - 1;
        }
        line_holds |= !blank & rest != 0;
    }
    end_line(line_holds);
    [text.chars().count() as u64, words, paragraphs]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::spaces::is_space;

    /// By the book.
    fn plain_word(text: &str) -> Option<String> {
        let mut counts: HashMap<String, u32> = HashMap::new();
        let (mut most, mut found) = (1, None);
        for word in text.split(|c: char| c.is_ascii() && is_space(c as u8)).filter(|w| !w.is_empty()) {
            let word = word.to_ascii_lowercase();
            let count = counts.entry(word.clone()).or_default();
            *count += 1;
            if *count > most {
                (most, found) = (*count, Some(word));
            }
        }
        found
    }

    fn plain_metrics(text: &str) -> [u64; 3] {
        let words = text.split(|c: char| c.is_ascii() && is_space(c as u8)).filter(|w| !w.is_empty()).count();
        let lines: Vec<bool> = text.split('\n').map(|l| !l.bytes().all(is_space)).collect();
        let begins = |i: usize| lines[i] && (i == 0 || !lines[i - 1]);
        let paragraphs = (0..lines.len()).filter(|i| begins(*i)).count();
        [text.chars().count() as u64, words as u64, paragraphs as u64]
    }

    proptest! {
        #[test]
        fn words_and_paragraphs_are_counted(
            texts in prop::collection::vec("([aAb]{1,3}|[a-d]{14,18}|é|\\PC{1,4}|[ \t\n\r]{1,3}| ){0,120}", 1..4),
        ) {
            let mut words = Words::default();
            for text in &texts {
                prop_assert_eq!(words.most_frequent(text).map(str::to_ascii_lowercase), plain_word(text));
                prop_assert_eq!(metrics(text), plain_metrics(text));
            }
        }
    }

    #[test]
    fn a_text_of_many_words_needs_more_places() {
        let text: String = (0..5000).map(|n| format!("{} ", n % 3000)).collect();
        let mut words = Words::default();
        assert_eq!(words.most_frequent(&text), Some("0"));
        let short: String = (0..260).map(|n| format!("{n:x} ")).collect::<String>() + "103 ff";
        assert_eq!(words.most_frequent(&short), Some("103"));
        assert_eq!(words.most_frequent("once"), None);
    }
}
