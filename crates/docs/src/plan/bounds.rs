//! Ranges of keys, and the bounds of a field from which they are made.

use std::ops::Bound;

use imbl::ordset::RangedIter;
use imbl::shared_ptr::DefaultSharedPtr;

use super::{ConditionKind, IndexCondition};
use crate::collation::Collation;
use crate::filter::{Comparison, is_nan};
use crate::index::{Index, put_field};
use crate::rows::RowIndex;
use crate::spec::Direction;
use crate::values::display::display;
use crate::values::key::{Key, KeyBuf, rank};
use crate::values::order::compare_by;
use crate::values::path::Path;
use crate::values::raw::{RawValue, tag};

/// A half-open range of keys, from `low` up to but excluding `high`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(super) low: KeyBuf,
    /// `None` for the end of the index.
    pub(super) high: Option<KeyBuf>,
}

/// The entries of a range of an index, in order.
pub(crate) type IndexEntries<'i> = RangedIter<'i, (Key, RowIndex), DefaultSharedPtr>;

/// Range conditions on one field: bound, and whether it is inclusive.
pub(super) struct FieldBounds<'f> {
    pub low: Option<(RawValue<'f>, bool)>,
    pub high: Option<(RawValue<'f>, bool)>,
}

impl<'f> FieldBounds<'f> {
    /// Returns the tightest bounds of one type. On a multikey index different elements may satisfy two
    /// bounds, so only the first one is used.
    pub fn find(
        conditions: &[IndexCondition<'f>],
        path: &Path,
        multikey: bool,
        collation: Option<&Collation>,
    ) -> Option<Self> {
        let mut bounds = Self { low: None, high: None };
        for c in conditions.iter().filter(|c| c.path == path) {
            let ConditionKind::Range(op, v) = c.kind else { continue };
            let v = v.as_raw();
            if bounds.either_bound().is_some_and(|other| multikey || rank(other.tag) != rank(v.tag)) {
                continue;
            }
            match op {
                Comparison::Gt | Comparison::Gte => {
                    if bounds.low.is_none_or(|(old, _)| compare_by(v, old, collation).is_gt()) {
                        bounds.low = Some((v, op == Comparison::Gte));
                    }
                }
                _ => {
                    if bounds.high.is_none_or(|(old, _)| compare_by(v, old, collation).is_lt()) {
                        bounds.high = Some((v, op == Comparison::Lte));
                    }
                }
            }
        }
        bounds.either_bound().is_some().then_some(bounds)
    }

    pub fn is_numeric(&self) -> bool {
        self.either_bound().is_some_and(|value| rank(value.tag) == rank(tag::INT32))
    }

    /// Returns whether the condition is a range of the same type, so that the bounds imply it.
    pub fn includes(&self, condition: &IndexCondition<'_>) -> bool {
        match &condition.kind {
            ConditionKind::Range(_, value) => self
                .either_bound()
                .is_some_and(|bound| rank(bound.tag) == rank(value.tag) && !is_nan(value.as_raw())),
            ConditionKind::OneOf(_) => false,
        }
    }

    pub fn either_bound(&self) -> Option<RawValue<'f>> {
        self.low.or(self.high).map(|(v, _)| v)
    }

    pub fn describe(&self, path: &Path) -> String {
        let low = self
            .low
            .map(|(v, inclusive)| format!("{path} {} {}", if inclusive { ">=" } else { ">" }, display(v)));
        let high = self
            .high
            .map(|(v, inclusive)| format!("{path} {} {}", if inclusive { "<=" } else { "<" }, display(v)));
        low.into_iter().chain(high).collect::<Vec<_>>().join(", ")
    }

    /// Returns the range of keys that continue `prefix` with a value within the bounds. A side without a
    /// bound is limited by the type of the other one.
    pub fn range(&self, prefix: KeyBuf, direction: Direction, collation: Option<&Collation>) -> KeyRange {
        let key = |v: RawValue<'_>| {
            let mut key = prefix.clone();
            put_field(&mut key, v, direction, collation);
            key
        };
        let mut bracket = prefix.clone();
        let rank = self.either_bound().map_or(0, |v| rank(v.tag));
        bracket.push(if direction == Direction::Descending { !rank } else { rank });
        let (first, last) = match direction {
            Direction::Ascending => (self.low, self.high),
            Direction::Descending => (self.high, self.low),
        };
        let low = match first {
            None => Some(bracket.clone()),
            Some((v, true)) => Some(key(v)),
            Some((v, false)) => successor(&key(v)),
        };
        let high = match last {
            None => successor(&bracket),
            Some((v, true)) => successor(&key(v)),
            Some((v, false)) => Some(key(v)),
        };
        // a key has no successor only if all its bytes are 0xFF, and no type starts with that byte
        KeyRange { low: low.unwrap_or(bracket), high }
    }
}

/// Returns the smallest bytes above everything that starts with `prefix`; `None` if all bytes are 0xFF.
pub(super) fn successor(prefix: &KeyBuf) -> Option<KeyBuf> {
    let end = prefix.iter().rposition(|b| *b != 0xFF)?;
    let mut next = KeyBuf::from_slice(&prefix[..=end]);
    next[end] += 1;
    Some(next)
}

impl KeyRange {
    /// Returns the range of all keys of an index without a collation that start with the key of `value`.
    pub fn equal(value: RawValue<'_>, direction: Direction) -> Self {
        let mut low = KeyBuf::new();
        put_field(&mut low, value, direction, None);
        Self { high: successor(&low), low }
    }

    /// Leaves out keys below `low`, and those from `high` on.
    pub fn clip(&mut self, low: Option<&Key>, high: Option<&Key>) {
        if let Some(low) = low.filter(|low| low.0 > self.low) {
            self.low = low.0.clone();
        }
        if let Some(high) = high.filter(|high| self.high.as_ref().is_none_or(|own| high.0 < *own)) {
            self.high = Some(high.0.clone());
        }
    }

    pub fn entries<'i>(&self, index: &'i Index) -> IndexEntries<'i> {
        let low = (Key(self.low.clone()), 0);
        let high = match &self.high {
            // bounds that exclude each other make an empty range, not an inverted one
            Some(high) => Bound::Excluded((Key(high.clone().max(self.low.clone())), 0)),
            None => Bound::Unbounded,
        };
        index.entries.range((Bound::Included(low), high))
    }
}
