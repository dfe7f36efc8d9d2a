//! Which rows satisfy a condition: by the key or an index where it says `T.column == value`, else all are looked at.

use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::index::{self, IndexKey, PrimaryKey};
use super::{RowId, Table};
use crate::column::Column;
use crate::expr::{Comparison, Expr, Failure, Frame, Node, RowRef};
use crate::value::Value;

impl Table {
    /// Shows the rows that satisfy `condition`, in which a row has slot `slot`, in the table's order, as long as
    /// `visit` wants more: insertion, or the order of a numeric key.
    pub fn find(
        &self,
        condition: Option<&Expr>,
        slot: usize,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(RowId, &[Column], usize) -> bool,
    ) -> Result<(), Failure> {
        let mut rows: SmallVec<[RowRef<'_>; 8]> = frame.rows.iter().copied().collect();
        rows.resize(rows.len().max(slot + 1), None);
        rows[slot] = None;
        let candidates = match condition {
            Some(condition) => self.candidates(condition, slot, frame)?,
            None => None,
        };
        let ids: Box<dyn Iterator<Item = RowId>> = match (candidates, &self.key) {
            (Some(ids), _) => Box::new(ids.into_iter()),
            (None, PrimaryKey::Ordered { rows, .. }) => Box::new(rows.values().copied()),
            (None, _) => Box::new(self.rows.keys().copied()),
        };
        for id in ids {
            let Some(place) = self.rows.get(&id) else { continue };
            let (columns, row) = self.at(*place);
            let matches = match condition {
                None => true,
                Some(condition) => {
                    rows[slot] = Some((columns, row));
                    let frame = Frame { rows: &rows, time: frame.time, now: frame.now, host: frame.host };
                    condition.is_true(&frame)?
                }
            };
            if matches && !visit(id, columns, row) {
                break;
            }
        }
        Ok(())
    }

    /// Rows among which all that satisfy the condition are; `None` when they cannot be narrowed down.
    fn candidates(
        &self,
        condition: &Expr,
        slot: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<Vec<RowId>>, Failure> {
        match &self.key {
            PrimaryKey::None => {}
            PrimaryKey::Ordered { column, rows } => {
                if let Some(keys) = self.keys(condition, slot, *column, frame)? {
                    let found = keys.map(|keys| rows.range(keys).map(|(_, id)| *id).collect());
                    return Ok(Some(found.unwrap_or_default()));
                }
            }
            PrimaryKey::Hashed { columns, rows } => {
                if let Some(values) = self.key_values(condition, slot, columns, frame)? {
                    let null = values.iter().any(Value::is_null);
                    let found = if null { None } else { rows.get(&index::text(values.iter())) };
                    return Ok(Some(found.copied().into_iter().collect()));
                }
            }
        }
        for index in &self.indexes {
            if let Some(keys) = self.keys(condition, slot, index.column, frame)? {
                let mut found = keys.map(|keys| index.find(keys)).unwrap_or_default();
                self.sort(&mut found);
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Puts rows in the table's order.
    fn sort(&self, ids: &mut [RowId]) {
        match &self.key {
            PrimaryKey::Ordered { column, .. } => ids.sort_by_cached_key(|id| {
                let (columns, row) = self.rows.get(id).map(|place| self.at(*place))?;
                IndexKey::of(&columns[*column].get(row))
            }),
            _ => ids.sort_unstable(),
        }
    }

    /// The keys that `column` must have.
    fn keys(
        &self,
        condition: &Expr,
        slot: usize,
        column: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<Option<std::ops::RangeInclusive<IndexKey>>>, Failure> {
        match equal_to(condition, slot, column) {
            Some(value) => Ok(IndexKey::equal(&value.eval(frame)?, self.plan.attributes[column].1)),
            None => Ok(None),
        }
    }

    /// The values that the columns of a key must have.
    fn key_values(
        &self,
        condition: &Expr,
        slot: usize,
        columns: &[usize],
        frame: &Frame<'_>,
    ) -> Result<Option<Vec<Value>>, Failure> {
        let mut values = Vec::with_capacity(columns.len());
        for column in columns {
            let ty = self.plan.attributes[*column].1;
            let Some(expr) = equal_to(condition, slot, *column).filter(|x| same_text(ty, x.ty)) else {
                return Ok(None);
            };
            values.push(expr.eval(frame)?);
        }
        Ok(Some(values))
    }
}

/// Whether equal values of these types have the same text.
fn same_text(a: FieldType, b: FieldType) -> bool {
    let whole = |ty| matches!(ty, FieldType::Int | FieldType::Long);
    whole(a) && whole(b) || a == b && matches!(a, FieldType::String | FieldType::Bool)
}

/// What `column` of the row must be equal to, when one of the conditions joined by `and` says so.
fn equal_to(condition: &Expr, slot: usize, column: usize) -> Option<&Expr> {
    match &condition.node {
        Node::And(a, b) => equal_to(a, slot, column).or_else(|| equal_to(b, slot, column)),
        Node::Compare(Comparison::Eq, a, b) => {
            let is_column =
                |x: &Expr| matches!(x.node, Node::Column { slot: s, column: c } if s == slot && c == column);
            let independent = |x: &Expr| {
                let mut free = true;
                x.walk(&mut |part| {
                    free &= !matches!(part.node, Node::Column { slot: s, .. } if s == slot);
                    free &= !matches!(part.node, Node::In { .. });
                });
                free
            };
            match (is_column(a), is_column(b)) {
                (true, _) if independent(b) => Some(b),
                (_, true) if independent(a) => Some(a),
                _ => None,
            }
        }
        _ => None,
    }
}
