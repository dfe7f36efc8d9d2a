//! Secondary indexes: rows by the values of one column.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use super::key::CellRef;
use super::rows::{RowIndex, TableRows};
use crate::columns::column::Data;

/// Rows ordered by the value of one column, strings by their hash. Rows with a null are not indexed.
pub(super) struct SecondaryIndex {
    pub(super) column: usize,
    rows: BTreeSet<(i64, RowIndex)>,
    state: DefaultHashBuilder,
}

impl SecondaryIndex {
    pub(super) fn new(column: usize) -> Self {
        Self { column, rows: BTreeSet::new(), state: DefaultHashBuilder::default() }
    }

    /// Returns the index key of a value; `None` for null and objects.
    pub(super) fn key(&self, (column, row): CellRef<'_>) -> Option<i64> {
        match column.data() {
            Data::Str(v) if !column.is_null(row) => Some(self.text_key(v.get(row))),
            _ => order_key((column, row)),
        }
    }

    /// Returns the index key of a string.
    pub(super) fn text_key(&self, text: &str) -> i64 {
        self.state.hash_one(text) as i64
    }

    pub(super) fn insert(&mut self, rows: &TableRows, place: RowIndex) {
        if let Some(key) = self.key(rows.cell(place, self.column)) {
            self.rows.insert((key, place));
        }
    }

    /// Removes a row; must be called before its value changes.
    pub(super) fn remove(&mut self, rows: &TableRows, place: RowIndex) {
        if let Some(key) = self.key(rows.cell(place, self.column)) {
            self.rows.remove(&(key, place));
        }
    }

    /// Returns the rows in a range of keys, by key and then by row index.
    pub(super) fn range(&self, keys: RangeInclusive<i64>) -> impl Iterator<Item = RowIndex> + '_ {
        self.rows.range((*keys.start(), 0)..=(*keys.end(), RowIndex::MAX)).map(|(_, place)| *place)
    }

    /// Rebuilds the index after row indexes have changed.
    pub(super) fn rebuild(&mut self, rows: &TableRows) {
        self.rows.clear();
        rows.indexes().for_each(|place| self.insert(rows, place));
    }
}

/// Maps a value to an integer with the order of the column's type; `None` for null and for types without such
/// a mapping.
pub(super) fn order_key((column, row): CellRef<'_>) -> Option<i64> {
    if column.is_null(row) {
        return None;
    }
    match column.data() {
        Data::Int(v) => Some(v[row].into()),
        Data::Long(v) => Some(v[row]),
        Data::Bool(v) => Some(v[row].into()),
        Data::Float(v) => Some(float_order_key(v[row].into())),
        Data::Double(v) => Some(float_order_key(v[row])),
        Data::Str(_) | Data::Object(_) => None,
    }
}

/// Maps a float to an integer, preserving the order: -0.0 before 0.0, NaN last.
pub(super) fn float_order_key(n: f64) -> i64 {
    let bits = if n.is_nan() { f64::NAN } else { n }.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

pub(super) fn is_number(ty: FieldType) -> bool {
    matches!(ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double)
}
