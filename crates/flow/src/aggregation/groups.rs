//! The groups of an aggregation: each has a number, by which buckets know it.

use hashbrown::HashMap;

use crate::column::{Column, Data};
use crate::value::Value;

/// Groups by key and by number.
#[derive(Default)]
pub(super) struct GroupTable {
    ids: HashMap<Box<[u8]>, u32>,
    values: Vec<Box<[Value]>>,
    /// Numbers of groups that were forgotten.
    free: Vec<u32>,
}

impl GroupTable {
    /// The number of the group with `key`; `values` gives what it shows if it is new.
    pub(super) fn id_or_insert(&mut self, key: &[u8], values: impl FnOnce() -> Box<[Value]>) -> u32 {
        if let Some(number) = self.ids.get(key) {
            return *number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.values[number as usize] = values();
                number
            }
            None => {
                self.values.push(values());
                (self.values.len() - 1) as u32
            }
        };
        self.ids.insert(key.into(), number);
        number
    }

    /// The number of the group with `key`, if there is one.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.ids.get(key).copied()
    }

    /// One of the values of a group.
    pub(super) fn value(&self, number: u32, column: usize) -> Value {
        self.values.get(number as usize).and_then(|v| v.get(column)).cloned().unwrap_or_default()
    }

    /// The values of all numbers in order; none for forgotten groups, unless groups have no values at all.
    pub(super) fn all(&self) -> &[Box<[Value]>] {
        &self.values
    }

    /// Numbers below which all are, forgotten ones included.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Forgets the groups that `used` says false of.
    pub(super) fn retain_used(&mut self, used: &[bool]) {
        let Self { ids: numbers, values, free } = self;
        numbers.retain(|_, number| {
            let keep = used.get(*number as usize).copied().unwrap_or(false);
            if !keep {
                values[*number as usize] = Box::default();
                free.push(*number);
            }
            keep
        });
    }

    /// Groups with the numbers that their places give; `None` in the place of a forgotten one.
    pub(super) fn restored(all: Vec<Option<Box<[Value]>>>) -> Self {
        let mut groups = Self::default();
        let mut key = Vec::new();
        for (number, values) in all.into_iter().enumerate() {
            let number = number as u32;
            match &values {
                None => groups.free.push(number),
                Some(values) => {
                    key.clear();
                    values.iter().for_each(|value| write_value(&mut key, value));
                    groups.ids.insert(key.as_slice().into(), number);
                }
            }
            groups.values.push(values.unwrap_or_default());
        }
        groups
    }
}

/// Adds value `row` of a column to a key.
pub(super) fn write_key(key: &mut Vec<u8>, column: &Column, row: usize) {
    match column.data() {
        Data::Str(texts) if !column.is_null(row) => write_text(key, texts.get(row)),
        _ => write_value(key, &column.get(row)),
    }
}

/// Adds a value to a key. A null is no text and no number; 0.0 and -0.0 are two values, NaN is one.
pub(super) fn write_value(key: &mut Vec<u8>, value: &Value) {
    let mut fixed = |bytes: &[u8]| {
        key.push(1);
        key.extend_from_slice(bytes);
    };
    match value {
        Value::Null => key.push(0),
        Value::Bool(b) => fixed(&[u8::from(*b)]),
        Value::Int(n) => fixed(&n.to_le_bytes()),
        Value::Long(n) => fixed(&n.to_le_bytes()),
        Value::Float(n) => fixed(&if n.is_nan() { f32::NAN } else { *n }.to_bits().to_le_bytes()),
        Value::Double(n) => fixed(&if n.is_nan() { f64::NAN } else { *n }.to_bits().to_le_bytes()),
        Value::Str(text) => write_text(key, text),
        Value::Object(_) => write_text(key, &value.to_string()),
    }
}

fn write_text(key: &mut Vec<u8>, text: &str) {
    key.push(1);
    key.extend_from_slice(&(text.len() as u64).to_le_bytes());
    key.extend_from_slice(text.as_bytes());
}
