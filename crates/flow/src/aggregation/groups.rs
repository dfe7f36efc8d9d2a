//! Groups of an aggregation; buckets refer to them by id.

use hashbrown::HashMap;

use crate::columns::column::{Column, Data};
use crate::columns::shareable::BlockVec;
use crate::columns::value::Value;

/// Mapping of groups between keys and ids.
#[derive(Default)]
pub(super) struct GroupTable {
    ids: HashMap<Box<[u8]>, u32>,
    values: BlockVec<Box<[Value]>>,
    /// Ids of evicted groups, to be reused.
    free: Vec<u32>,
}

impl GroupTable {
    /// Returns the id of the group with `key`, adding the group with `values` if it is new.
    pub(super) fn id_or_insert(&mut self, key: &[u8], values: impl FnOnce() -> Box<[Value]>) -> u32 {
        if let Some(number) = self.ids.get(key) {
            return *number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                *self.values.get_mut(number as usize) = values();
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

    /// Returns the id of the group with `key`, if there is one.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        self.ids.get(key).copied()
    }

    /// Returns a value of a group; null if the group has no such value.
    pub(super) fn value(&self, number: u32, column: usize) -> Value {
        match (number as usize) < self.values.len() {
            true => self.values.get(number as usize).get(column).cloned().unwrap_or_default(),
            false => Value::Null,
        }
    }

    /// Returns the values of all groups by id; empty for evicted groups, and for all of them without `group
    /// by`.
    pub(super) fn all(&self) -> &BlockVec<Box<[Value]>> {
        &self.values
    }

    /// Lets clones of [`Self::all`] share the values.
    pub(super) fn share(&mut self) {
        self.values.share();
    }

    /// Returns the number of ids, including those of evicted groups.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Evicts the groups whose entry in `used` is false.
    pub(super) fn retain_used(&mut self, used: &[bool]) {
        let Self { ids: numbers, values, free } = self;
        numbers.retain(|_, number| {
            let keep = used.get(*number as usize).copied().unwrap_or(false);
            if !keep {
                *values.get_mut(*number as usize) = Box::default();
                free.push(*number);
            }
            keep
        });
    }

    /// Restores groups with their index as id; `None` marks the id of an evicted group.
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

/// Groups of a search: those of the aggregation, and those that only stored rows have.
pub(super) struct FoundGroups<'a> {
    known: &'a GroupTable,
    found: GroupTable,
}

impl<'a> FoundGroups<'a> {
    pub(super) fn new(known: &'a GroupTable) -> Self {
        Self { known, found: GroupTable::default() }
    }

    /// Returns the id of a group, adding it if it is new.
    pub(super) fn id_or_insert(&mut self, values: &[Value]) -> u32 {
        let key = key_of(values);
        let further = |id: u32| id + self.known.len() as u32;
        self.known.find(&key).unwrap_or_else(|| further(self.found.id_or_insert(&key, || values.into())))
    }

    /// Returns the id of a group, if there is one.
    pub(super) fn find(&self, values: &[Value]) -> Option<u32> {
        let key = key_of(values);
        let found = || Some(self.found.find(&key)? + self.known.len() as u32);
        self.known.find(&key).or_else(found)
    }
}

/// Values of groups by id.
pub(super) trait GroupValues {
    /// Returns a value of a group; null if the group has no such value.
    fn value(&self, id: u32, column: usize) -> Value;
}

impl GroupValues for GroupTable {
    fn value(&self, id: u32, column: usize) -> Value {
        self.value(id, column)
    }
}

impl GroupValues for FoundGroups<'_> {
    fn value(&self, id: u32, column: usize) -> Value {
        match id.checked_sub(self.known.len() as u32) {
            None => self.known.value(id, column),
            Some(found) => self.found.value(found, column),
        }
    }
}

fn key_of(values: &[Value]) -> Vec<u8> {
    let mut key = Vec::new();
    values.iter().for_each(|value| write_value(&mut key, value));
    key
}

/// Appends the value at `row` of a column to a key.
pub(super) fn write_key(key: &mut Vec<u8>, column: &Column, row: usize) {
    match column.data() {
        Data::Str(texts) if !column.is_null(row) => write_text(key, texts.get(row)),
        _ => write_value(key, &column.get(row)),
    }
}

/// Appends a value to a key. Null differs from all other values; 0.0 differs from -0.0, NaN equals NaN.
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
