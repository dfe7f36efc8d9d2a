//! Numbers of objects, as PostgreSQL has them: oids.
//!
//! A number follows from the kind and the name of an object and from nothing else, so it is the same in all connections, after a
//! restart, and on each node. PostgreSQL's own objects have the numbers that they have there, all below
//! [`FIRST`]. Where two names of a kind have the same number, the second in the order of names has the next free one of its sequence:
//!
//! ```text
//! relation events.Reading  ──FNV-1a──▶ 64 bits ──▶ FIRST + bits mod (2^31 - FIRST)
//! ```

use std::collections::HashSet;

/// First number that PostgreSQL does not keep for itself.
pub(super) const FIRST: u32 = 16_384;

/// Numbers that have been given.
#[derive(Debug, Default)]
pub(super) struct Oids {
    given: HashSet<u32>,
}

impl Oids {
    /// Returns the number of an object. Objects have to come in the same order each time.
    pub fn give(&mut self, kind: &str, schema: &str, name: &str) -> u32 {
        let mut attempt = 0_u64;
        loop {
            let oid = number(kind, schema, name, attempt);
            if self.given.insert(oid) {
                return oid;
            }
            attempt += 1;
        }
    }
}

/// Returns a number from [`FIRST`] to 2^31 - 1, as some drivers take it as signed.
fn number(kind: &str, schema: &str, name: &str, attempt: u64) -> u32 {
    let range = (1_u64 << 31) - u64::from(FIRST);
    let text = [kind, "\0", schema, "\0", name].concat();
    let hash = text.bytes().chain(attempt.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // below 2^31 by the range
    FIRST + ((hash ^ (hash >> 32)) % range) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_names() {
        let mut oids = Oids::default();
        // clients keep them over restarts, so they do not change between versions either
        assert_eq!(oids.give("relation", "events", "Reading"), 321_440_449);
        let (a, b) = (oids.give("relation", "docs", "a"), oids.give("relation", "docs", "b"));
        let mut others = Oids::default();
        assert_eq!((others.give("relation", "docs", "b"), others.give("relation", "docs", "a")), (b, a));
    }

    #[test]
    fn names_with_the_same_number_get_different_ones() {
        let mut oids = Oids::default();
        let first = oids.give("relation", "events", "x");
        let second = oids.give("relation", "events", "x");
        assert_ne!(first, second);
        assert!(first >= FIRST && second >= FIRST && first < 1 << 31 && second < 1 << 31);
    }
}
