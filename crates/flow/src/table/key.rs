//! The primary key: rows by the hash of its values, and in the order of a single number.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::RangeInclusive;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::index::{self, is_number};
use super::rows::{Place, Rows};
use crate::catalog;
use crate::column::{Column, Data};

/// A value where it lies.
pub(super) type Cell<'a> = (&'a Column, usize);

/// What makes rows differ: one value, or the texts of several put together.
pub(super) struct PrimaryKey {
    columns: Vec<usize>,
    rows: HashTable<Entry>,
    /// The rows of a single number in its order.
    order: Option<BTreeMap<i64, Place>>,
    state: DefaultHashBuilder,
}

#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    place: Place,
}

impl Entry {
    /// The hash as the table of hashes wants it: it looks at both ends.
    #[inline]
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// What of a value makes a key differ.
#[derive(PartialEq)]
enum Part<'a> {
    Null,
    Bits(u64),
    Text(Cow<'a, str>),
}

/// Put between the texts of a key of several values.
const BETWEEN: &str = ":-:";

impl PrimaryKey {
    /// The key of a table, if it has one.
    pub(super) fn new(plan: &catalog::Table) -> Option<Self> {
        let columns = plan.primary_key.clone();
        let order = match columns.as_slice() {
            [] => return None,
            [column] => is_number(plan.attributes[*column].1).then(BTreeMap::new),
            _ => None,
        };
        Some(Self { columns, rows: HashTable::new(), order, state: DefaultHashBuilder::default() })
    }

    pub(super) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The rows in the key's order, if it has one.
    pub(super) fn order(&self) -> Option<&BTreeMap<i64, Place>> {
        self.order.as_ref()
    }

    /// The rows whose key, a number, is in a range.
    pub(super) fn range(&self, keys: RangeInclusive<i64>) -> impl Iterator<Item = Place> + '_ {
        self.order.iter().flat_map(move |order| order.range(keys.clone()).map(|(_, place)| *place))
    }

    /// Whether a row may have this key; `cell` gives the value of a column of the table, of its type.
    pub(super) fn may_hold<'a>(&self, cell: impl Fn(usize) -> Cell<'a>) -> bool {
        let (column, row) = cell(self.columns[0]);
        self.order.is_none() || !column.is_null(row)
    }

    /// The hash of a key.
    #[inline]
    pub(super) fn hash<'a>(&self, cell: impl Fn(usize) -> Cell<'a>) -> u32 {
        if let [column] = self.columns.as_slice() {
            let (column, row) = cell(*column);
            if let Data::Str(texts) = column.data()
                && !column.is_null(row)
            {
                return texts.hash(row, &self.state) as u32;
            }
            return match part((column, row)) {
                Part::Null => 0,
                Part::Bits(bits) => self.state.hash_one(bits) as u32,
                Part::Text(text) => self.state.hash_one(text.as_ref()) as u32,
            };
        }
        let mut hash = 0_u64;
        for column in &self.columns {
            let next = match named(part(cell(*column))) {
                Part::Null => 0,
                Part::Bits(bits) => self.state.hash_one(bits),
                Part::Text(text) if text.contains(':') => {
                    return self.state.hash_one(self.joined(&cell)) as u32;
                }
                Part::Text(text) => self.state.hash_one(text.as_ref()),
            };
            hash = (hash.rotate_left(23) ^ next).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        (hash >> 32) as u32
    }

    /// The texts put together. They are looked at only where one of them has a colon: without, texts put together are
    /// the same when the values are.
    fn joined<'a>(&self, cell: &impl Fn(usize) -> Cell<'a>) -> String {
        let mut text = String::new();
        for column in &self.columns {
            let (column, row) = cell(*column);
            text.push_str(&column.get(row).to_string());
            text.push_str(BETWEEN);
        }
        text
    }

    fn same<'a, 'b>(&self, a: impl Fn(usize) -> Cell<'a>, b: impl Fn(usize) -> Cell<'b>) -> bool {
        if let [column] = self.columns.as_slice() {
            let ((a, i), (b, j)) = (a(*column), b(*column));
            return match (a.data(), b.data()) {
                (Data::Str(x), Data::Str(y)) if !a.is_null(i) && !b.is_null(j) => x.is_equal(i, y, j),
                _ => part((a, i)) == part((b, j)),
            };
        }
        let has_colon = |part: &Part<'_>| matches!(part, Part::Text(text) if text.contains(':'));
        let (mut equal, mut colons) = (true, (false, false));
        for column in &self.columns {
            let (a, b) = (named(part(a(*column))), named(part(b(*column))));
            equal &= a == b;
            colons = (colons.0 || has_colon(&a), colons.1 || has_colon(&b));
        }
        equal || colons == (true, true) && self.joined(&a) == self.joined(&b)
    }

    /// The row with a key and its hash.
    #[inline]
    pub(super) fn find<'a>(&self, hash: u32, rows: &Rows, cell: impl Fn(usize) -> Cell<'a>) -> Option<Place> {
        let same = |e: &Entry| e.hash == hash && self.same(&cell, |column| rows.cell(e.place, column));
        self.rows.find(Entry::spread(hash), same).map(|e| e.place)
    }

    /// A row whose key has this hash: the one that is looked for, nearly always.
    #[inline]
    pub(super) fn likely(&self, hash: u32) -> Option<Place> {
        self.rows.find(Entry::spread(hash), |e| e.hash == hash).map(|e| e.place)
    }

    /// Whether the row at a place has a key, of a single column.
    #[inline]
    pub(super) fn is_at(&self, place: Place, rows: &Rows, cell: Cell<'_>) -> bool {
        self.same(|_| cell, |column| rows.cell(place, column))
    }

    /// Adds a row whose key is not there.
    pub(super) fn insert(&mut self, hash: u32, rows: &Rows, place: Place) {
        self.rows.insert_unique(Entry::spread(hash), Entry { hash, place }, |e| Entry::spread(e.hash));
        if let Some(order) = &mut self.order
            && let Some(key) = index::ordered(rows.cell(place, self.columns[0]))
        {
            order.insert(key, place);
        }
    }

    /// Takes a row out, before its key is changed.
    pub(super) fn remove(&mut self, rows: &Rows, place: Place) {
        let hash = self.hash(|column| rows.cell(place, column));
        if let Ok(entry) = self.rows.find_entry(Entry::spread(hash), |e| e.place == place) {
            entry.remove();
        }
        if let Some(order) = &mut self.order
            && let Some(key) = index::ordered(rows.cell(place, self.columns[0]))
        {
            order.remove(&key);
        }
    }

    /// All rows have other places.
    pub(super) fn rebuild(&mut self, rows: &Rows) {
        self.rows.clear();
        self.order.iter_mut().for_each(BTreeMap::clear);
        for place in rows.places() {
            self.insert(self.hash(|column| rows.cell(place, column)), rows, place);
        }
        self.rows.shrink_to_fit(|e| Entry::spread(e.hash));
    }
}

/// Numbers of one column are the same when their texts are.
#[inline]
fn part((column, row): Cell<'_>) -> Part<'_> {
    if column.is_null(row) {
        return Part::Null;
    }
    let decimal = |n: f64| Part::Bits(if n.is_nan() { f64::NAN.to_bits() } else { n.to_bits() });
    match column.data() {
        Data::Str(v) => Part::Text(Cow::Borrowed(v.get(row))),
        Data::Int(v) => Part::Bits(i64::from(v[row]) as u64),
        Data::Long(v) => Part::Bits(v[row] as u64),
        Data::Bool(v) => Part::Bits(u64::from(v[row])),
        Data::Float(v) => decimal(f64::from(v[row])),
        Data::Double(v) => decimal(v[row]),
        Data::Object(v) => Part::Text(Cow::Owned(v[row].to_string())),
    }
}

/// Among other values a null has a text.
fn named(part: Part<'_>) -> Part<'_> {
    if part == Part::Null { Part::Text(Cow::Borrowed("null")) } else { part }
}
