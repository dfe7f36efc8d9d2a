//! Primary key: rows by a hash of the key, and a single numeric key also in order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::index::{self, is_number};
use super::rows::{RowIndex, TableRows};
use crate::catalog;
use crate::columns::column::{Column, Data};
use crate::columns::string_column::{hash_of, tiny_key_of};
use crate::columns::u64_map::U64IndexMap;
use crate::columns::value_ref::ValueRef;

/// Reference to a value in place: column and row.
pub(super) type CellRef<'a> = (&'a Column, usize);

/// Primary key: the value of one column, or the concatenated strings of several.
pub(super) struct PrimaryKey {
    columns: Vec<usize>,
    /// Rows whose key is one value of at most eight bytes.
    exact: U64IndexMap,
    /// The other rows, by the hash of the key.
    rows: HashTable<HashedRow>,
    /// Rows in key order; only for a single numeric column.
    order: Option<BTreeMap<i64, RowIndex>>,
    state: DefaultHashBuilder,
}

/// Encoded key for a lookup.
#[derive(Clone, Copy)]
pub(super) enum KeyProbe {
    /// The whole key.
    Exact(u64),
    /// Hash of the key; a match must be verified.
    Hash(u32),
}

#[derive(Clone, Copy)]
struct HashedRow {
    hash: u32,
    place: RowIndex,
}

impl HashedRow {
    /// Spreads a hash over 64 bits, because `HashTable` uses both its high and its low bits.
    #[inline]
    fn spread_bits(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// Comparable form of one value of a key.
#[derive(PartialEq)]
enum KeyComponent<'a> {
    Null,
    Bits(u64),
    Text(Cow<'a, str>),
}

/// Separator of the strings of a multi-column key.
const TEXT_SEPARATOR: &str = ":-:";

impl PrimaryKey {
    /// Creates the key of a table; `None` if the table has none.
    pub(super) fn new(plan: &catalog::CatalogTable) -> Option<Self> {
        let columns = plan.primary_key.clone();
        let order = match columns.as_slice() {
            [] => return None,
            [column] => is_number(plan.attributes[*column].1).then(BTreeMap::new),
            _ => None,
        };
        let (exact, rows, state) = (U64IndexMap::default(), HashTable::new(), DefaultHashBuilder::default());
        Some(Self { columns, exact, rows, order, state })
    }

    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the rows in key order; `None` unless the key is a single number.
    pub(super) fn order(&self) -> Option<&BTreeMap<i64, RowIndex>> {
        self.order.as_ref()
    }

    /// Returns the rows whose numeric key is in a range.
    pub(super) fn range(&self, keys: RangeInclusive<i64>) -> impl Iterator<Item = RowIndex> + '_ {
        self.order.iter().flat_map(move |order| order.range(keys.clone()).map(|(_, place)| *place))
    }

    /// Returns whether a row may have this key: a numeric key cannot be null. `cell` returns the value of a
    /// table column, in its type.
    pub(super) fn may_hold<'a>(&self, cell: impl Fn(usize) -> CellRef<'a>) -> bool {
        let (column, row) = cell(self.columns[0]);
        self.may_be(column.is_null(row))
    }

    /// Returns whether a row may have a key whose first value is null if `null`.
    pub(super) fn may_be(&self, null: bool) -> bool {
        self.order.is_none() || !null
    }

    /// Encodes a key for a lookup as [`Self::probe`] does; for keys of one column of another type than object.
    #[inline]
    pub(super) fn probe_value(&self, value: ValueRef<'_>) -> KeyProbe {
        match value {
            ValueRef::Str(text) => match tiny_key_of(text) {
                Some(number) => KeyProbe::Exact(number),
                None => KeyProbe::Hash(hash_of(text, &self.state) as u32),
            },
            _ => number_bits(value).map_or(KeyProbe::Hash(0), KeyProbe::Exact),
        }
    }

    /// Prefetches the memory of a lookup that follows; for keys of one column.
    #[inline]
    pub(super) fn prefetch_value(&self, value: &ValueRef<'_>) {
        let number = match value {
            ValueRef::Str(text) => tiny_key_of(text),
            value => number_bits(*value),
        };
        self.exact.prefetch_keys(number.into_iter());
    }

    /// Returns the row with a key, as [`Self::find`] does; for keys of one column of another type than object.
    #[inline]
    pub(super) fn find_value(
        &self,
        code: KeyProbe,
        rows: &TableRows,
        value: ValueRef<'_>,
    ) -> Option<RowIndex> {
        let hash = match code {
            KeyProbe::Exact(number) => return self.exact.get(number),
            KeyProbe::Hash(hash) => hash,
        };
        let same = |e: &HashedRow| {
            let (column, row) = rows.cell(e.place, self.columns[0]);
            e.hash == hash && column.value_ref(row).as_str() == value.as_str()
        };
        self.rows.find(HashedRow::spread_bits(hash), same).map(|e| e.place)
    }

    /// Encodes a key for a lookup.
    #[inline]
    pub(super) fn probe<'a>(&self, cell: impl Fn(usize) -> CellRef<'a>) -> KeyProbe {
        if let [column] = self.columns.as_slice() {
            let (column, row) = cell(*column);
            if let Data::Str(texts) = column.data()
                && !column.is_null(row)
            {
                return match texts.tiny_key(row) {
                    Some(number) => KeyProbe::Exact(number),
                    None => KeyProbe::Hash(texts.hash(row, &self.state) as u32),
                };
            }
            return match component((column, row)) {
                KeyComponent::Null => KeyProbe::Hash(0),
                KeyComponent::Bits(bits) => KeyProbe::Exact(bits),
                KeyComponent::Text(text) => KeyProbe::Hash(self.state.hash_one(text.as_ref()) as u32),
            };
        }
        let mut hash = 0_u64;
        for column in &self.columns {
            let next = match null_as_text(component(cell(*column))) {
                KeyComponent::Null => 0,
                KeyComponent::Bits(bits) => self.state.hash_one(bits),
                KeyComponent::Text(text) if text.contains(':') => {
                    return KeyProbe::Hash(self.state.hash_one(self.text(&cell)) as u32);
                }
                KeyComponent::Text(text) => self.state.hash_one(text.as_ref()),
            };
            hash = (hash.rotate_left(23) ^ next).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        KeyProbe::Hash((hash >> 32) as u32)
    }

    /// Concatenates the key's strings; rows have one key if these are equal. A lookup needs them only if a
    /// string contains a colon: otherwise equal concatenations imply equal values.
    pub(super) fn text<'a>(&self, cell: &impl Fn(usize) -> CellRef<'a>) -> String {
        let mut text = String::new();
        for column in &self.columns {
            let (column, row) = cell(*column);
            text.push_str(&column.get(row).to_string());
            text.push_str(TEXT_SEPARATOR);
        }
        text
    }

    fn has_same_key<'a, 'b>(
        &self,
        a: impl Fn(usize) -> CellRef<'a>,
        b: impl Fn(usize) -> CellRef<'b>,
    ) -> bool {
        if let [column] = self.columns.as_slice() {
            let ((a, i), (b, j)) = (a(*column), b(*column));
            return match (a.data(), b.data()) {
                (Data::Str(x), Data::Str(y)) if !a.is_null(i) && !b.is_null(j) => x.is_equal(i, y, j),
                _ => component((a, i)) == component((b, j)),
            };
        }
        let has_colon =
            |part: &KeyComponent<'_>| matches!(part, KeyComponent::Text(text) if text.contains(':'));
        let (mut equal, mut colons) = (true, (false, false));
        for column in &self.columns {
            let (a, b) = (null_as_text(component(a(*column))), null_as_text(component(b(*column))));
            equal &= a == b;
            colons = (colons.0 || has_colon(&a), colons.1 || has_colon(&b));
        }
        equal || colons == (true, true) && self.text(&a) == self.text(&b)
    }

    /// Returns the row with a key.
    #[inline]
    pub(super) fn find<'a>(
        &self,
        code: KeyProbe,
        rows: &TableRows,
        cell: impl Fn(usize) -> CellRef<'a>,
    ) -> Option<RowIndex> {
        let hash = match code {
            KeyProbe::Exact(number) => return self.exact.get(number),
            KeyProbe::Hash(hash) => hash,
        };
        let same =
            |e: &HashedRow| e.hash == hash && self.has_same_key(&cell, |column| rows.cell(e.place, column));
        self.rows.find(HashedRow::spread_bits(hash), same).map(|e| e.place)
    }

    /// Prefetches the memory of lookups that follow.
    pub(super) fn prefetch(&self, codes: &[KeyProbe]) {
        self.exact.prefetch_keys(codes.iter().filter_map(|code| match code {
            KeyProbe::Exact(number) => Some(*number),
            KeyProbe::Hash(_) => None,
        }));
    }

    /// Returns a candidate row for a key, without comparing keys in case of a hash.
    #[inline]
    pub(super) fn likely_row(&self, code: KeyProbe) -> Option<RowIndex> {
        match code {
            KeyProbe::Exact(number) => self.exact.get(number),
            KeyProbe::Hash(hash) => {
                self.rows.find(HashedRow::spread_bits(hash), |e| e.hash == hash).map(|e| e.place)
            }
        }
    }

    /// Returns whether a candidate row has the key; for single-column keys.
    #[inline]
    pub(super) fn has_key(
        &self,
        place: RowIndex,
        code: KeyProbe,
        rows: &TableRows,
        cell: CellRef<'_>,
    ) -> bool {
        matches!(code, KeyProbe::Exact(_)) || self.has_same_key(|_| cell, |column| rows.cell(place, column))
    }

    /// Inserts a row; its key must not exist.
    pub(super) fn insert(&mut self, code: KeyProbe, rows: &TableRows, place: RowIndex) {
        match code {
            KeyProbe::Exact(number) => {
                self.exact.insert(number, place);
            }
            KeyProbe::Hash(hash) => {
                let entry = HashedRow { hash, place };
                self.rows
                    .insert_unique(HashedRow::spread_bits(hash), entry, |e| HashedRow::spread_bits(e.hash));
            }
        }
        if let Some(order) = &mut self.order
            && let Some(key) = index::order_key(rows.cell(place, self.columns[0]))
        {
            order.insert(key, place);
        }
    }

    /// Removes a row; must be called before its key changes.
    pub(super) fn remove(&mut self, rows: &TableRows, place: RowIndex) {
        match self.probe(|column| rows.cell(place, column)) {
            KeyProbe::Exact(number) => self.exact.remove(number),
            KeyProbe::Hash(hash) => {
                if let Ok(entry) = self.rows.find_entry(HashedRow::spread_bits(hash), |e| e.place == place) {
                    entry.remove();
                }
            }
        }
        if let Some(order) = &mut self.order
            && let Some(key) = index::order_key(rows.cell(place, self.columns[0]))
        {
            order.remove(&key);
        }
    }

    /// Rebuilds the key after row indexes have changed.
    pub(super) fn rebuild(&mut self, rows: &TableRows) {
        self.exact.clear();
        self.rows.clear();
        self.order.iter_mut().for_each(BTreeMap::clear);
        for place in rows.indexes() {
            self.insert(self.probe(|column| rows.cell(place, column)), rows, place);
        }
        self.rows.shrink_to_fit(|e| HashedRow::spread_bits(e.hash));
    }
}

/// Returns the comparable form of a value; numbers of one column are equal exactly if their strings are.
#[inline]
fn component((column, row): CellRef<'_>) -> KeyComponent<'_> {
    match (column.data(), column.value_ref(row)) {
        (_, ValueRef::Null) => KeyComponent::Null,
        (Data::Object(v), _) => KeyComponent::Text(Cow::Owned(v[row].to_string())),
        (_, ValueRef::Str(text)) => KeyComponent::Text(Cow::Borrowed(text)),
        (_, value) => number_bits(value).map_or(KeyComponent::Null, KeyComponent::Bits),
    }
}

/// Returns a number or bool as bits; `None` for other values.
#[inline]
fn number_bits(value: ValueRef<'_>) -> Option<u64> {
    let decimal = |n: f64| if n.is_nan() { f64::NAN.to_bits() } else { n.to_bits() };
    Some(match value {
        ValueRef::Int(n) => i64::from(n) as u64,
        ValueRef::Long(n) => n as u64,
        ValueRef::Bool(x) => u64::from(x),
        ValueRef::Float(n) => decimal(f64::from(n)),
        ValueRef::Double(n) => decimal(n),
        ValueRef::Null | ValueRef::Str(_) | ValueRef::Object(_) => return None,
    })
}

/// Replaces null by the string `null`, as multi-column keys require.
fn null_as_text(part: KeyComponent<'_>) -> KeyComponent<'_> {
    if part == KeyComponent::Null { KeyComponent::Text(Cow::Borrowed("null")) } else { part }
}
