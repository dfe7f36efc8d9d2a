//! Values of matches as words, and where texts and objects lie.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use crate::column::{Column, Data};
use crate::value::Value;

/// Texts and objects that matches keep: a word of theirs is a place in here. What no match needs any more is swept out
/// now and then.
pub(super) struct ValueArena {
    texts: Column,
    objects: Column,
    hasher: DefaultHashBuilder,
    /// It is swept when it has so many.
    sweep_at: usize,
    used: bool,
}

/// So many may lie there before anything is swept.
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

    /// The value at `row` of a column as a word; `None` for null.
    #[inline]
    pub fn keep(&mut self, column: &Column, row: usize) -> Option<u64> {
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

    /// The value that a word stands for.
    pub fn get(&self, word: u64, ty: FieldType) -> Value {
        match ty {
            FieldType::Bool => Value::Bool(word != 0),
            FieldType::Int => Value::Int(word as i32),
            FieldType::Long | FieldType::Time => Value::Long(word as i64),
            FieldType::Float => Value::Float(f32::from_bits(word as u32)),
            FieldType::Double => Value::Double(f64::from_bits(word)),
            FieldType::String => self.texts.get(word as usize),
            FieldType::Object => self.objects.get(word as usize),
        }
    }

    /// The text that a word stands for.
    pub fn text(&self, word: u64) -> &str {
        text(&self.texts, word as usize)
    }

    /// All texts, or all objects.
    pub fn column(&self, ty: FieldType) -> &Column {
        if ty == FieldType::String { &self.texts } else { &self.objects }
    }

    /// A text as a key: equal texts have equal ones.
    pub fn hash(&self, text: &str) -> i64 {
        self.hasher.hash_one(text) as i64
    }

    /// Whether it is time to sweep.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used && self.texts.len() + self.objects.len() >= self.sweep_at
    }

    /// Keeps what the words of `needed` stand for, and writes where it is now into them.
    pub fn sweep<'w>(&mut self, needed: impl Iterator<Item = (&'w mut u64, FieldType)>) {
        let texts = std::mem::replace(&mut self.texts, Column::new(FieldType::String));
        let objects = std::mem::replace(&mut self.objects, Column::new(FieldType::Object));
        for (word, ty) in needed {
            let from = if ty == FieldType::String { &texts } else { &objects };
            // a null stands for nothing
            *word = match (*word as usize) < from.len() {
                true => self.keep(from, *word as usize).unwrap_or_default(),
                false => 0,
            };
        }
        self.sweep_at = SWEEP_VALUES_MIN + 2 * (self.texts.len() + self.objects.len());
    }
}

/// Text `row` of a column of texts.
pub(super) fn text(column: &Column, row: usize) -> &str {
    match column.data() {
        Data::Str(texts) if row < texts.len() => texts.get(row),
        _ => "",
    }
}

/// A whole number of a column.
#[inline]
pub(super) fn long(column: &Column, row: usize) -> i64 {
    match column.data() {
        Data::Int(values) => i64::from(values[row]),
        Data::Long(values) => values[row],
        _ => 0,
    }
}

/// A number of a column as a double.
#[inline]
pub(super) fn double(column: &Column, row: usize) -> f64 {
    match column.data() {
        Data::Int(values) => f64::from(values[row]),
        Data::Long(values) => values[row] as f64,
        Data::Float(values) => f64::from(values[row]),
        Data::Double(values) => values[row],
        _ => f64::NAN,
    }
}

/// A number of a column with the precision of a float.
#[inline]
pub(super) fn float(column: &Column, row: usize) -> f64 {
    f64::from(match column.data() {
        Data::Int(values) => values[row] as f32,
        Data::Long(values) => values[row] as f32,
        Data::Float(values) => values[row],
        _ => f32::NAN,
    })
}

/// The number that a word stands for, as a double.
#[inline]
pub(super) fn word_double(word: u64, ty: FieldType) -> f64 {
    match ty {
        FieldType::Double => f64::from_bits(word),
        FieldType::Float => f64::from(f32::from_bits(word as u32)),
        _ => word as i64 as f64,
    }
}

/// The number that a word stands for, with the precision of a float.
#[inline]
pub(super) fn word_float(word: u64, ty: FieldType) -> f64 {
    f64::from(match ty {
        FieldType::Float => f32::from_bits(word as u32),
        _ => word as i64 as f32,
    })
}
