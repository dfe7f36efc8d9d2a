//! Keys and indexes: from values to rows.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hashbrown::HashMap;
use tidemill_types::FieldType;

use super::RowId;
use crate::catalog;
use crate::value::Value;

/// A value by which rows are found. All keys of an index are of one kind.
#[derive(Debug, Clone)]
pub(super) enum IndexKey {
    Bool(bool),
    Whole(i64),
    Decimal(f64),
    Text(Arc<str>),
}

impl IndexKey {
    /// The key of a value; none for null and for what cannot be ordered.
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Self::Bool(*b),
            Value::Int(_) | Value::Long(_) => Self::Whole(value.as_i64()?),
            Value::Float(_) | Value::Double(_) => Self::Decimal(value.as_f64()?),
            Value::Str(s) => Self::Text(s.clone()),
            Value::Null | Value::Object(_) => return None,
        })
    }

    /// The keys in a column of type `ty` that are equal to a value; `Some(None)` when nothing is, `None` when the keys
    /// cannot tell.
    pub(super) fn equal(value: &Value, ty: FieldType) -> Option<Option<RangeInclusive<Self>>> {
        let key = match (ty, value) {
            (_, Value::Null) => return Some(None),
            (FieldType::Int | FieldType::Long, Value::Int(_) | Value::Long(_))
            | (FieldType::String, Value::Str(_))
            | (FieldType::Bool, Value::Bool(_)) => Self::of(value)?,
            (FieldType::Float | FieldType::Double, _) => match value.as_f64()? {
                n if n.is_nan() => return Some(None),
                // the two zeros are equal, but two keys
                0.0 => return Some(Some(Self::Decimal(-0.0)..=Self::Decimal(0.0))),
                n => Self::Decimal(n),
            },
            _ => return None,
        };
        Some(Some(key.clone()..=key))
    }
}

impl Ord for IndexKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Whole(a), Self::Whole(b)) => a.cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl IndexKey {
    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Whole(_) => 1,
            Self::Decimal(_) => 2,
            Self::Text(_) => 3,
        }
    }
}

impl PartialOrd for IndexKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for IndexKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for IndexKey {}

/// What makes rows differ.
pub(super) enum PrimaryKey {
    None,
    /// One number: rows are in its order.
    Ordered {
        column: usize,
        rows: BTreeMap<IndexKey, RowId>,
    },
    /// Anything else, by its text.
    Hashed {
        columns: Vec<usize>,
        rows: HashMap<String, RowId>,
    },
}

impl PrimaryKey {
    pub(super) fn new(plan: &catalog::Table) -> Self {
        match plan.primary_key.as_slice() {
            [] => Self::None,
            [column] if is_number(plan.attributes[*column].1) => {
                Self::Ordered { column: *column, rows: BTreeMap::new() }
            }
            columns => Self::Hashed { columns: columns.to_vec(), rows: HashMap::new() },
        }
    }

    /// Whether a row may have this key.
    pub(super) fn may_hold(&self, values: &[Value]) -> bool {
        match self {
            Self::Ordered { column, .. } => !values[*column].is_null(),
            Self::None | Self::Hashed { .. } => true,
        }
    }

    /// The row with the key of `values`.
    pub(super) fn find(&self, values: &[Value]) -> Option<RowId> {
        match self {
            Self::None => None,
            Self::Ordered { column, rows } => rows.get(&IndexKey::of(&values[*column])?).copied(),
            Self::Hashed { columns, rows } => rows.get(&text(columns.iter().map(|c| &values[*c]))).copied(),
        }
    }

    pub(super) fn insert(&mut self, values: &[Value], id: RowId) {
        match self {
            Self::None => {}
            Self::Ordered { column, rows } => {
                if let Some(key) = IndexKey::of(&values[*column]) {
                    rows.insert(key, id);
                }
            }
            Self::Hashed { columns, rows } => {
                rows.insert(text(columns.iter().map(|c| &values[*c])), id);
            }
        }
    }

    pub(super) fn remove(&mut self, values: &[Value]) {
        match self {
            Self::None => {}
            Self::Ordered { column, rows } => {
                if let Some(key) = IndexKey::of(&values[*column]) {
                    rows.remove(&key);
                }
            }
            Self::Hashed { columns, rows } => {
                rows.remove(&text(columns.iter().map(|c| &values[*c])));
            }
        }
    }
}

/// The texts of the values together. A null alone is no text.
pub(super) fn text<'v>(values: impl ExactSizeIterator<Item = &'v Value>) -> String {
    let alone = values.len() == 1;
    let mut text = String::new();
    for value in values {
        match value {
            Value::Null if alone => text.push('\0'),
            value if alone => drop(write!(text, "{value}")),
            value => drop(write!(text, "{value}:-:")),
        }
    }
    text
}

pub(super) fn is_number(ty: FieldType) -> bool {
    matches!(ty, FieldType::Int | FieldType::Long | FieldType::Float | FieldType::Double)
}

/// The rows by the value of one column; rows where it is null are not in it.
pub(super) struct Index {
    pub(super) column: usize,
    rows: BTreeMap<IndexKey, BTreeSet<RowId>>,
}

impl Index {
    pub(super) fn new(column: usize) -> Self {
        Self { column, rows: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, values: &[Value], id: RowId) {
        if let Some(key) = IndexKey::of(&values[self.column]) {
            self.rows.entry(key).or_default().insert(id);
        }
    }

    pub(super) fn remove(&mut self, values: &[Value], id: RowId) {
        let Some(key) = IndexKey::of(&values[self.column]) else { return };
        if let Some(ids) = self.rows.get_mut(&key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.rows.remove(&key);
            }
        }
    }

    pub(super) fn find(&self, keys: RangeInclusive<IndexKey>) -> Vec<RowId> {
        self.rows.range(keys).flat_map(|(_, ids)| ids.iter().copied()).collect()
    }
}
