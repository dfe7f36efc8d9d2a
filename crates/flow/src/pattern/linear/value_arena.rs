//! Encoding of the values of matches as words, and the arena of their strings and objects.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use crate::columns::column::{Column, Data};
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;

/// Arena of the strings and objects of matches, which store an index into it. Values that no match references
/// are swept when the arena is full.
#[derive(Clone)]
pub(super) struct ValueArena {
    texts: Column,
    objects: Column,
    hasher: DefaultHashBuilder,
    /// Number of values at which the arena is swept.
    sweep_at: usize,
    used: bool,
}

/// Number of live and dead values below which nothing is swept.
const SWEEP_VALUES_MIN: usize = 4_096;

impl ValueArena {
    pub fn new(texts: bool, objects: bool) -> Self {
        Self {
            texts: Column::new(FieldType::String),
            objects: Column::new(FieldType::Object),
            hasher: DefaultHashBuilder::default(),
            sweep_at: SWEEP_VALUES_MIN,
            used: texts || objects,
        }
    }

    /// Lets clones share the strings and objects.
    pub fn share(&mut self) {
        self.texts.share();
        self.objects.share();
    }

    /// Encodes the value at `row` of a column as [`Self::keep`] does. A short string is copied as it is.
    #[inline]
    pub fn keep_of(&mut self, column: &Column, row: usize) -> Option<u64> {
        if column.is_null(row) {
            return None;
        }
        Some(match column.data() {
            Data::Bool(values) => u64::from(values[row]),
            Data::Int(values) => i64::from(values[row]) as u64,
            Data::Long(values) => values[row] as u64,
            Data::Float(values) => u64::from(values[row].to_bits()),
            Data::Double(values) => values[row].to_bits(),
            Data::Str(_) => {
                self.texts.push_from(column, row);
                self.texts.len() as u64 - 1
            }
            Data::Object(_) => {
                self.objects.push_from(column, row);
                self.objects.len() as u64 - 1
            }
        })
    }

    /// Encodes a value of type `ty` as a word, adding a string or object to the arena; `None` for null.
    #[inline]
    pub fn keep(&mut self, value: ValueRef<'_>, ty: FieldType) -> Option<u64> {
        Some(match value {
            ValueRef::Null => return None,
            _ if ty == FieldType::Object => {
                self.objects.push_ref(&value);
                self.objects.len() as u64 - 1
            }
            ValueRef::Bool(x) => u64::from(x),
            ValueRef::Int(n) => i64::from(n) as u64,
            ValueRef::Long(n) => n as u64,
            ValueRef::Float(n) => u64::from(n.to_bits()),
            ValueRef::Double(n) => n.to_bits(),
            ValueRef::Str(_) => {
                self.texts.push_ref(&value);
                self.texts.len() as u64 - 1
            }
            // only values of type object are objects
            ValueRef::Object(_) => return None,
        })
    }

    /// Decodes a word.
    pub fn get(&self, word: u64, ty: FieldType) -> Value {
        self.value_ref(word, ty).to_value()
    }

    /// Decodes a word without a copy.
    #[inline]
    pub fn value_ref(&self, word: u64, ty: FieldType) -> ValueRef<'_> {
        match ty {
            FieldType::Bool => ValueRef::Bool(word != 0),
            FieldType::Int => ValueRef::Int(word as i32),
            FieldType::Long | FieldType::Time => ValueRef::Long(word as i64),
            FieldType::Float => ValueRef::Float(f32::from_bits(word as u32)),
            FieldType::Double => ValueRef::Double(f64::from_bits(word)),
            FieldType::String => self.texts.value_ref(word as usize),
            FieldType::Object => self.objects.value_ref(word as usize),
        }
    }

    /// Returns the string that a word refers to.
    pub fn text(&self, word: u64) -> &str {
        match self.texts.data() {
            Data::Str(texts) if (word as usize) < texts.len() => texts.get(word as usize),
            _ => "",
        }
    }

    /// Returns all strings, or all objects.
    pub fn column(&self, ty: FieldType) -> &Column {
        if ty == FieldType::String { &self.texts } else { &self.objects }
    }

    /// Hashes a string as a key: equal strings have equal hashes.
    pub fn hash(&self, text: &str) -> i64 {
        self.hasher.hash_one(text) as i64
    }

    /// Returns whether the arena should be swept.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used && self.texts.len() + self.objects.len() >= self.sweep_at
    }

    /// Keeps only the values that `needed` refers to, and updates these words to the new indexes.
    pub fn sweep<'w>(&mut self, needed: impl Iterator<Item = (&'w mut u64, FieldType)>) {
        let texts = std::mem::replace(&mut self.texts, Column::new(FieldType::String));
        let objects = std::mem::replace(&mut self.objects, Column::new(FieldType::Object));
        for (word, ty) in needed {
            let from = if ty == FieldType::String { &texts } else { &objects };
            // an index out of range belongs to a null
            *word = match (*word as usize) < from.len() {
                true => self.keep_of(from, *word as usize).unwrap_or_default(),
                false => 0,
            };
        }
        self.sweep_at = SWEEP_VALUES_MIN + 2 * (self.texts.len() + self.objects.len());
    }
}

/// Decodes the number in a word as `f64`.
#[inline]
pub(super) fn word_double(word: u64, ty: FieldType) -> f64 {
    match ty {
        FieldType::Double => f64::from_bits(word),
        FieldType::Float => f64::from(f32::from_bits(word as u32)),
        _ => word as i64 as f64,
    }
}

/// Decodes the number in a word, rounded to `f32`.
#[inline]
pub(super) fn word_float(word: u64, ty: FieldType) -> f64 {
    f64::from(match ty {
        FieldType::Float => f32::from_bits(word as u32),
        _ => word as i64 as f32,
    })
}
