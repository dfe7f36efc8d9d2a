//! Group ids of a selection: each distinct key has an id.

use std::borrow::Cow;
use std::hash::BuildHasher;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hashbrown::{DefaultHashBuilder, HashTable};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use tidemill_types::FieldType;

use crate::columns::batch::EventKind;
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::shareable::{BLOCK_LEN, Shareable};
use crate::columns::string_column::{inline_key_of, tiny_key_of};
use crate::columns::u64_map::U64IndexMap;
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;

/// Map from keys to group ids, which are assigned in order of first occurrence.
///
/// As in Siddhi 5.1, keys are equal if their string forms are: null and the string `null` are one group.
#[derive(Default)]
pub(super) struct GroupValues {
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    keys: GroupKeys,
    scratch: Vec<u8>,
    /// Ids of short string keys, found without reading the encoded keys: strings of up to seven bytes here,
    /// other inline strings in `inline_keys`.
    tiny_keys: U64IndexMap,
    inline_keys: PrimitiveGroupKeys,
    /// Rows whose ids a batch lookup did not find; kept to reuse its memory.
    rest: Vec<u32>,
}

/// Encoded keys by group id. A checkpoint shares all but the last block of them, as keys are never changed.
#[derive(Clone, Default)]
pub(super) struct GroupKeys {
    blocks: Vec<Shareable<KeyBlock>>,
    len: usize,
}

/// At most [`BLOCK_LEN`] keys.
#[derive(Clone, Default)]
struct KeyBlock {
    /// The keys, concatenated; `ends` are their end offsets.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl GroupKeys {
    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> &[u8] {
        let KeyBlock { bytes, ends } = self.blocks[id as usize / BLOCK_LEN].get();
        let at = id as usize % BLOCK_LEN;
        let start = if at == 0 { 0 } else { ends[at - 1] };
        &bytes[start..ends[at]]
    }

    fn push(&mut self, key: &[u8]) {
        if self.len.is_multiple_of(BLOCK_LEN) {
            self.blocks.push(Shareable::default());
        }
        if let Some(block) = self.blocks.last_mut() {
            let KeyBlock { bytes, ends } = block.get_mut();
            bytes.extend_from_slice(key);
            ends.push(bytes.len());
        }
        self.len += 1;
    }

    fn share(&mut self) {
        self.blocks.iter_mut().for_each(Shareable::share);
    }

    /// Returns whether clones share the keys.
    pub(super) fn is_shared(&self) -> bool {
        !self.blocks.is_empty() && self.blocks.iter().all(Shareable::is_shared)
    }
}

/// All encoded keys in order of their ids, to be saved.
impl Serialize for GroupKeys {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((0..self.len as u32).map(|id| BASE64.encode(self.get(id))))
    }
}

/// Map from numeric keys to group ids, with the keys stored in the entries.
#[derive(Default)]
struct PrimitiveGroupKeys(HashTable<(u128, u32)>);

impl PrimitiveGroupKeys {
    #[inline]
    fn get(&self, key: u128, hasher: &DefaultHashBuilder) -> Option<u32> {
        self.0.find(hasher.hash_one(key), |(known, _)| *known == key).map(|(_, id)| *id)
    }

    fn put(&mut self, key: u128, id: u32, hasher: &DefaultHashBuilder) -> u32 {
        self.0.insert_unique(hasher.hash_one(key), (key, id), |(known, _)| hasher.hash_one(*known));
        id
    }
}

impl GroupValues {
    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn key(&self, id: u32) -> &[u8] {
        self.keys.get(id)
    }

    /// Returns all keys.
    pub(super) fn keys(&self) -> &GroupKeys {
        &self.keys
    }

    /// Lets clones share the keys.
    pub(super) fn share(&mut self) {
        self.keys.share();
    }

    /// Returns the id of an encoded key; assigns one to a new key.
    #[inline]
    fn find(&mut self, wanted: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(wanted);
        let Self { index, keys, hasher, .. } = self;
        if let Some(id) = index.find(hash, |id| keys.get(*id) == wanted) {
            return *id;
        }
        let id = keys.len() as u32;
        keys.push(wanted);
        index.insert_unique(hash, id, |id| hasher.hash_one(keys.get(*id)));
        id
    }

    /// Returns the id of the group with these values; `alone` if the key has only one.
    pub(super) fn id_of_values(&mut self, values: impl Iterator<Item = Value>, alone: bool) -> u32 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        values.for_each(|value| encode(value.borrowed(), alone, &mut scratch));
        let id = self.find(&scratch);
        self.scratch = scratch;
        id
    }

    /// Returns the id as [`Self::id_of_values`] does.
    pub(super) fn id_of_refs<'a>(&mut self, values: impl Iterator<Item = ValueRef<'a>>, alone: bool) -> u32 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        values.for_each(|value| encode(value, alone, &mut scratch));
        let id = self.find(&scratch);
        self.scratch = scratch;
        id
    }

    /// Returns the id of the group of a string; `texts` is the data of `column`.
    #[inline]
    pub(super) fn id_of_string(&mut self, column: &Column, texts: &StringColumn, row: usize) -> u32 {
        if column.is_null(row) {
            return self.find(NULL);
        }
        self.id_of_keys(texts.tiny_key(row), texts.inline_key(row), || texts.get(row))
    }

    /// Returns the id of the group of a string.
    #[inline]
    pub(super) fn id_of_text(&mut self, text: &str) -> u32 {
        self.id_of_keys(tiny_key_of(text), inline_key_of(text), || text)
    }

    #[inline]
    fn id_of_keys<'t>(&mut self, tiny: Option<u64>, inline: Option<u128>, text: impl Fn() -> &'t str) -> u32 {
        if let Some(number) = tiny {
            return match self.tiny_keys.get(number) {
                Some(id) => id,
                None => {
                    let id = self.find(text().as_bytes());
                    self.tiny_keys.insert(number, id)
                }
            };
        }
        if let Some(number) = inline {
            return match self.inline_keys.get(number, &self.hasher) {
                Some(id) => id,
                None => {
                    let id = self.find(text().as_bytes());
                    self.inline_keys.put(number, id, &self.hasher)
                }
            };
        }
        self.find(text().as_bytes())
    }

    /// Returns the group id of each row; 0 for a reset, which belongs to all groups.
    pub(super) fn ids_of_columns(&mut self, columns: &[Cow<'_, Column>], kinds: &[EventKind]) -> Vec<u32> {
        if let [column] = columns
            && let Data::Str(texts) = column.data()
        {
            if column.nulls().is_empty()
                && !kinds.contains(&EventKind::Reset)
                && let Some(numbers) = texts.all_tiny_keys()
            {
                let mut rest = std::mem::take(&mut self.rest);
                let mut ids = self.tiny_keys.get_all(&numbers, &mut rest);
                rest.iter()
                    .for_each(|row| ids[*row as usize] = self.id_of_string(column, texts, *row as usize));
                self.rest = rest;
                return ids;
            }
            let ids = kinds.iter().enumerate().map(|(row, kind)| match kind {
                EventKind::Reset => 0,
                _ => self.id_of_string(column, texts, row),
            });
            return ids.collect();
        }
        let alone = columns.len() == 1;
        let ids = kinds.iter().enumerate().map(|(row, kind)| match kind {
            EventKind::Reset => 0,
            _ => self.id_of_values(columns.iter().map(|c| c.get(row)), alone),
        });
        ids.collect()
    }

    /// Reads saved keys.
    pub(super) fn restored(state: &Json) -> Result<Self, EvalError> {
        let wrong = || EvalError::state("cannot read the saved groups");
        let mut groups = Self::default();
        for (number, key) in state.as_array().ok_or_else(wrong)?.iter().enumerate() {
            let key = key.as_str().and_then(|key| BASE64.decode(key).ok()).ok_or_else(wrong)?;
            if groups.find(&key) as usize != number {
                return Err(wrong());
            }
        }
        Ok(groups)
    }
}

const NULL: &[u8] = b"null";

/// Appends a value as bytes that are equal if the string forms are. The value is prefixed with its length
/// unless it is `alone` in its key.
fn encode(value: ValueRef<'_>, alone: bool, out: &mut Vec<u8>) {
    let mut text = |bytes: &[u8]| {
        if !alone {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(bytes);
    };
    match value {
        ValueRef::Null => text(NULL),
        ValueRef::Str(s) => text(s.as_bytes()),
        ValueRef::Object(object) => text(object.to_string().as_bytes()),
        ValueRef::Bool(b) => text(&[u8::from(b)]),
        ValueRef::Int(n) => text(&i64::from(n).to_le_bytes()),
        ValueRef::Long(n) => text(&n.to_le_bytes()),
        ValueRef::Float(n) => text(&bits(f64::from(n))),
        ValueRef::Double(n) => text(&bits(n)),
    }
}

/// Returns the bytes of a number; all NaNs have the same.
fn bits(n: f64) -> [u8; 8] {
    (if n.is_nan() { f64::NAN } else { n }).to_bits().to_le_bytes()
}

/// Decodes a key whose parts have these types. A null is returned as null or, if the type is a string or an
/// object, as the string `null`, which is the same group. `None` if the key is malformed.
pub(super) fn decode(key: &[u8], types: &[FieldType]) -> Option<Vec<Value>> {
    let mut rest = key;
    let mut values = Vec::with_capacity(types.len());
    for ty in types {
        let alone = types.len() == 1;
        let part = match alone {
            true => std::mem::take(&mut rest),
            false => {
                let (len, behind) = rest.split_first_chunk::<4>()?;
                let (part, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                rest = behind;
                part
            }
        };
        values.push(match (ty, part) {
            (FieldType::String | FieldType::Object, text) => Value::text(std::str::from_utf8(text).ok()?),
            (_, NULL) => Value::Null,
            (FieldType::Bool, [bit]) => Value::Bool(*bit != 0),
            (FieldType::Int, number) => {
                Value::Int(i32::try_from(i64::from_le_bytes(number.try_into().ok()?)).ok()?)
            }
            (FieldType::Long | FieldType::Time, number) => {
                Value::Long(i64::from_le_bytes(number.try_into().ok()?))
            }
            (FieldType::Float, number) => {
                Value::Float(f64::from_bits(u64::from_le_bytes(number.try_into().ok()?)) as f32)
            }
            (FieldType::Double, number) => {
                Value::Double(f64::from_bits(u64::from_le_bytes(number.try_into().ok()?)))
            }
            (FieldType::Bool, _) => return None,
        });
    }
    Some(values)
}
