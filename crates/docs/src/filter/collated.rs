//! Comparisons with strings in the order of a collation.

use super::{Comparison, RegexPattern};
use crate::collation::Collation;
use crate::values::key::{Key, has_strings, rank};
use crate::values::raw::{OwnedRawValue, RawValue, tag};

/// A comparison with at least one operand that is or has a string; it holds if it does for one of the operands.
#[derive(Debug, Clone)]
pub(crate) struct CollatedTest {
    pub comparison: Comparison,
    /// One operand, or those of an `$in`.
    pub values: Vec<OwnedRawValue>,
    /// The keys of operands with strings.
    keys: Vec<Option<Key>>,
    pub patterns: Vec<RegexPattern>,
    pub collation: Collation,
}

impl CollatedTest {
    pub fn new(
        comparison: Comparison,
        values: Vec<OwnedRawValue>,
        patterns: Vec<RegexPattern>,
        collation: &Collation,
    ) -> Self {
        let key = |value: &OwnedRawValue| {
            let value = value.as_raw();
            has_strings(value).then(|| Key::of_raw_by(value, Some(collation)))
        };
        let keys = values.iter().map(key).collect();
        Self { comparison, values, keys, patterns, collation: collation.clone() }
    }

    pub fn holds(&self, value: RawValue<'_>) -> bool {
        let mut found = None;
        let mut compared = self.values.iter().zip(&self.keys);
        compared.any(|(operand, key)| match key {
            Some(key) if rank(value.tag) == rank(operand.tag) => {
                let found = found.get_or_insert_with(|| Key::of_raw_by(value, Some(&self.collation)));
                self.comparison.accepts((*found).cmp(key))
            }
            _ => self.comparison.holds(value, operand.as_raw()),
        }) || self.patterns.iter().any(|pattern| pattern.holds(value))
    }

    pub fn holds_for_missing(&self) -> bool {
        self.comparison.includes_equal() && self.values.iter().any(|value| value.tag == tag::NULL)
    }

    /// Returns whether the tests hold for the same values.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_operand = |at: usize| match (&self.keys[at], &other.keys[at]) {
            (Some(a), Some(b)) => a == b,
            (None, None) => self.values[at] == other.values[at],
            _ => false,
        };
        self.comparison == other.comparison
            && self.collation == other.collation
            && self.values.len() == other.values.len()
            && (0..self.values.len()).all(same_operand)
            && self.patterns.is_empty()
            && other.patterns.is_empty()
    }

    /// Returns the value that a document must equal, if there is a single one.
    pub fn equal_to(&self) -> Option<RawValue<'_>> {
        match (self.comparison, self.values.as_slice(), self.patterns.as_slice()) {
            (Comparison::Eq, [one], []) => Some(one.as_raw()),
            _ => None,
        }
    }
}
