//! Changes of bytes.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// Inputs that are kept to be changed.
const CORPUS_MAX: usize = 1_000;
/// Changes of an input.
const CHANGES_MAX: usize = 8;
/// Copies of a part, which make brackets within brackets and lists of many items.
const COPIES_MAX: usize = 400;
/// Bytes that mean something in many formats: ends, signs, lengths and the largest numbers.
const WORDS: [&[u8]; 12] = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80",
    b"\x7f\xff\xff\xff",
    b"9223372036854775807",
    b"-1",
    b"1e308",
    b"\xf0\x9f\x98\x80",
    b"\n",
];

/// Changed inputs of a corpus, which begins with seeds and grows by changed ones.
pub struct ByteChanges {
    corpus: Vec<Vec<u8>>,
    seeds: usize,
    words: Vec<Vec<u8>>,
    /// Bytes at the front that are changed rarely, because they say where an input goes.
    head: usize,
    bytes_max: usize,
}

impl ByteChanges {
    /// Creates changes of at least one seed. `words` are put in between.
    pub fn new(seeds: Vec<Vec<u8>>, words: &[&[u8]]) -> Self {
        assert!(!seeds.is_empty(), "changes need a seed");
        let words = words.iter().copied().chain(WORDS).map(<[u8]>::to_vec).collect();
        Self { seeds: seeds.len(), corpus: seeds, words, head: 0, bytes_max: 4_096 }
    }

    /// Returns the changes with bytes at the front that say where an input goes.
    pub fn with_head(self, head: usize) -> Self {
        Self { head, ..self }
    }

    /// Returns the changes with inputs of at most so many bytes.
    pub fn with_bytes_max(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Returns the input with this number: first all seeds as they are, then changed ones.
    pub fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8> {
        if let Some(seed) = usize::try_from(number).ok().and_then(|at| self.corpus[..self.seeds].get(at)) {
            return seed.clone();
        }
        self.changed(random)
    }

    /// Returns a changed input.
    pub fn changed(&mut self, random: &mut StdRng) -> Vec<u8> {
        let input = self.change_one(random);
        // changes upon changes reach further than those of the seeds
        if random.random_ratio(1, 50) {
            // those of the seeds stay
            if self.corpus.len() >= CORPUS_MAX.max(self.seeds + 1) {
                self.corpus.swap_remove(random.random_range(self.seeds..self.corpus.len()));
            }
            self.corpus.push(input.clone());
        }
        input
    }

    fn change_one(&self, random: &mut StdRng) -> Vec<u8> {
        let mut input = self.corpus.choose(random).cloned().unwrap_or_default();
        let head = if random.random_ratio(1, 20) { 0 } else { self.head.min(input.len()) };
        for _ in 0..random.random_range(1..=CHANGES_MAX) {
            self.change(&mut input, head, random);
        }
        input.truncate(self.bytes_max);
        input
    }

    fn change(&self, input: &mut Vec<u8>, head: usize, random: &mut StdRng) {
        let at = random.random_range(head..=input.len());
        match random.random_range(0..9) {
            0 if at < input.len() => input[at] = random.random(),
            1 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
            2 | 3 => {
                let word = self.words.choose(random).map(Vec::as_slice).unwrap_or_default();
                let replaced = if random.random() { word.len().min(input.len() - at) } else { 0 };
                input.splice(at..at + replaced, word.iter().copied());
            }
            4 => input.truncate(at.max(head).max(1)),
            5 => {
                let other = self.corpus.choose(random).map(Vec::as_slice).unwrap_or_default();
                let from = random.random_range(self.head.min(other.len())..=other.len());
                input.splice(at.., other[from..].iter().copied());
            }
            6 => {
                let end = input.len().min(at + random.random_range(1..=16));
                let part = input[at..end].to_vec();
                let copies = if random.random_ratio(1, 8) { COPIES_MAX } else { 3 };
                let copies = part.repeat(random.random_range(1..=copies));
                input.splice(at..at, copies);
            }
            _ => {
                let end = input.len().min(at + random.random_range(1..=8));
                input.drain(at..end);
            }
        }
        // so that copies of copies stay small
        input.truncate(self.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn inputs(seed: u64) -> Vec<Vec<u8>> {
        let seeds = vec![b"\x01\x02first".to_vec(), b"\x03\x04second".to_vec()];
        let mut changes = ByteChanges::new(seeds, &[b"word"]).with_head(2).with_bytes_max(100);
        let mut random = StdRng::seed_from_u64(seed);
        (0..5_000).map(|number| changes.next(number, &mut random)).collect()
    }

    #[test]
    fn seeds_come_first_and_a_seed_repeats_all_inputs() {
        let found = inputs(7);
        assert_eq!(found[..2], [b"\x01\x02first".to_vec(), b"\x03\x04second".to_vec()]);
        assert!(found == inputs(7) && found != inputs(8));
        assert!(found.iter().all(|input| input.len() <= 100));
        let is_changed = |input: &&Vec<u8>| !found[..2].contains(input);
        assert!(found[2..].iter().filter(is_changed).count() > 4_500);
        // the head says where an input goes: few have another one
        let has_head = |input: &&Vec<u8>| input.starts_with(b"\x01\x02") || input.starts_with(b"\x03\x04");
        let with_head = found.iter().filter(has_head).count();
        assert!((4_000..5_000).contains(&with_head), "{with_head}");
        assert!(found.iter().any(|input| input.windows(4).any(|part| part == b"word")));
    }
}
