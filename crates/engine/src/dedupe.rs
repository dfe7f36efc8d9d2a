//! Which events of a stream have been seen: first writer wins, in log order.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use arrow_array::RecordBatch;
use tidemill_types::decode::FieldValue;
use tidemill_types::{StreamSchema, Value, row_value};
use xxhash_rust::xxh3::Xxh3;

use crate::id_queue::IdQueue;

/// The ids of the last events of one stream in one partition.
///
/// Bounds: `capacity` ids of 16 bytes (128-bit hashes), the oldest forgotten first. An event that repeats an id
/// older than that is taken as new.
#[derive(Debug, Clone, Default)]
pub struct Dedupe {
    seen: HashSet<u128, BuildHasherDefault<IdentityHasher>>,
    order: IdQueue,
    capacity: usize,
}

/// The ids are hashes already.
#[derive(Debug, Clone, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
    fn write_u128(&mut self, n: u128) {
        self.0 = n as u64;
    }
}

impl Dedupe {
    /// Remembers up to `capacity` ids.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), ..Self::default() }
    }

    /// Takes in `id`; false when it was there already.
    pub fn admit(&mut self, id: u128) -> bool {
        if !self.seen.insert(id) {
            return false;
        }
        if self.order.len() == self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.order.push_back(id);
        true
    }

    /// Returns the ids, oldest first, as they are now.
    pub fn ids(&self) -> IdQueue {
        self.order.clone()
    }
}

/// The id of a stored row, or `None` when all its id fields are missing: such an event is never a duplicate.
pub fn row_id(stream: &StreamSchema, batch: &RecordBatch, row: usize) -> Option<u128> {
    let mut hash = Xxh3::new();
    let mut present = false;
    for column in &stream.id {
        present |= hash_value(&mut hash, &row_value(batch, *column, row));
    }
    present.then(|| hash.digest128())
}

/// The id of an emitted row; agrees with [`row_id`] once the row is stored.
pub fn values_id(id: &[FieldValue]) -> Option<u128> {
    let mut hash = Xxh3::new();
    let mut present = false;
    for cell in id {
        present |= match cell {
            FieldValue::Missing => hash_value(&mut hash, &Value::Missing),
            FieldValue::Bool(b) => hash_value(&mut hash, &Value::Bool(*b)),
            FieldValue::Int(n) => hash_value(&mut hash, &Value::Int(*n)),
            FieldValue::Float(x) => hash_value(&mut hash, &Value::Float(*x)),
            FieldValue::Text(s) => hash_value(&mut hash, &Value::str(s)),
            FieldValue::Time(t) => hash_value(&mut hash, &Value::Time(*t)),
            FieldValue::Span(d) => hash_value(&mut hash, &Value::Int(d.0 / 1000)),
        };
    }
    present.then(|| hash.digest128())
}

/// Integers and floats of equal value feed the same bytes, as an emitted integer may be stored in a float field.
fn hash_value(hash: &mut Xxh3, value: &Value<'_>) -> bool {
    match value {
        Value::Missing | Value::Null | Value::Bson(_) => {
            hash.update(&[0]);
            return false;
        }
        Value::Bool(b) => hash.update(&[1, u8::from(*b)]),
        Value::Int(n) => {
            hash.update(&[2]);
            hash.update(&(*n as f64).to_bits().to_le_bytes());
            hash.update(&n.to_le_bytes());
        }
        Value::Float(x) => {
            hash.update(&[2]);
            hash.update(&x.to_bits().to_le_bytes());
            hash.update(&(*x as i64).to_le_bytes());
        }
        Value::Str(s) => {
            hash.update(&[3]);
            hash.update(&(s.len() as u64).to_le_bytes());
            hash.update(s.as_bytes());
        }
        Value::Time(t) => {
            hash.update(&[4]);
            hash.update(&t.0.to_le_bytes());
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest_only() {
        let mut d = Dedupe::new(2);
        assert!(d.admit(1) && d.admit(2) && !d.admit(1));
        assert!(d.admit(3), "1 makes room");
        assert!(!d.admit(2) && d.admit(1));
        assert_eq!(d.ids().iter().collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn text_boundaries_count() {
        let id = |a: &str, b: &str| values_id(&[FieldValue::Text(a.into()), FieldValue::Text(b.into())]);
        assert_ne!(id("ab", "c"), id("a", "bc"));
        assert_eq!(values_id(&[FieldValue::Missing]), None);
        assert_eq!(values_id(&[FieldValue::Int(3)]), values_id(&[FieldValue::Float(3.0)]));
    }
}
