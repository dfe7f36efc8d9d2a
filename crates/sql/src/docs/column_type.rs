//! Column types inferred from documents.

use std::collections::HashMap;

use arrow::datatypes::{DataType, TimeUnit};
use bytes::Bytes;

use super::raw_bson::{FieldPositions, elements, tag};
use super::{COLUMNS_MAX, WHOLE};

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// Only nulls found so far.
    Null,
    /// No value and no type: an Arrow `Null` column.
    Absent,
    Bool,
    Int,
    Double,
    Text,
    /// ObjectIds as hex strings.
    Id,
    Time,
    /// Decimals as strings of digits.
    Decimal,
    /// Any value as a JSON string.
    Json,
}

impl ColumnType {
    pub(super) fn of(tag: u8) -> Self {
        match tag {
            tag::NULL | tag::UNDEFINED => Self::Null,
            tag::BOOL => Self::Bool,
            tag::INT32 | tag::INT64 => Self::Int,
            tag::DOUBLE => Self::Double,
            tag::STRING => Self::Text,
            tag::OBJECT_ID => Self::Id,
            tag::DATE => Self::Time,
            tag::DECIMAL => Self::Decimal,
            _ => Self::Json,
        }
    }

    /// Returns the narrowest type that can represent values of both.
    pub(super) fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Null, k) | (k, Self::Null) => k,
            (Self::Int, Self::Double) | (Self::Double, Self::Int) => Self::Double,
            (Self::Text, Self::Id) | (Self::Id, Self::Text) => Self::Text,
            _ => Self::Json,
        }
    }

    pub(super) fn arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Absent => DataType::Null,
            Self::Null | Self::Text | Self::Id | Self::Decimal | Self::Json => DataType::Utf8,
        }
    }
}

/// Columns in the order in which their fields first appear.
#[derive(Debug, Default)]
pub(super) struct InferredColumns {
    kinds: Vec<(Box<[u8]>, ColumnType)>,
    index: HashMap<Box<[u8]>, usize>,
}

impl InferredColumns {
    /// Infers the columns of `documents`: at most [`COLUMNS_MAX`], those that appear first.
    pub fn of(documents: &[Bytes]) -> Self {
        let mut found = Self::default();
        let mut layout = FieldPositions::default();
        for document in documents {
            for (place, (name, value)) in elements(document).enumerate() {
                if let Some(column) = layout.target(place, name, |name| found.column(name)) {
                    let kind = &mut found.kinds[column].1;
                    *kind = kind.join(ColumnType::of(value.tag));
                }
            }
        }
        found
    }

    /// Returns the index of the column `name`, adding it if there is room.
    fn column(&mut self, name: &[u8]) -> Option<usize> {
        if let Some(known) = self.index.get(name) {
            return Some(*known);
        }
        if self.kinds.len() >= COLUMNS_MAX || name == WHOLE.as_bytes() || std::str::from_utf8(name).is_err() {
            return None;
        }
        self.kinds.push((name.into(), ColumnType::Null));
        self.index.insert(name.into(), self.kinds.len() - 1);
        Some(self.kinds.len() - 1)
    }

    /// Merges the columns of documents that follow these.
    pub fn merge(&mut self, later: Self) {
        for (name, kind) in later.kinds {
            if let Some(column) = self.column(&name) {
                let known = &mut self.kinds[column].1;
                *known = known.join(kind);
            }
        }
    }

    /// Returns the columns, `_id` first. `_id` is present even if no document has it.
    pub fn into_ordered(self) -> Vec<(Box<[u8]>, ColumnType)> {
        const ID: &[u8] = b"_id";
        let id = self.index.get(ID).map_or(ColumnType::Text, |i| self.kinds[*i].1);
        let rest = self.kinds.into_iter().filter(|(name, _)| **name != *ID);
        std::iter::once((ID.into(), id)).chain(rest).collect()
    }
}
