//! Row lookup: by the key or an index if the condition allows it, else by a scan.

use std::ops::RangeInclusive;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::MemoryTable;
use super::float_text;
use super::index;
use super::key::{CellRef, PrimaryKey};
use super::rows::RowIndex;
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{AccessPath, ColumnBounds, Expr, Frame, Node, RowRef, TableSearch};

/// An index is used only if at most one row in this many is a candidate.
const SCAN_RATIO: usize = 4;

impl MemoryTable {
    /// Visits the rows that a search finds, until `visit` returns false. Table order: by a numeric key, else
    /// by insertion. Errors: an expression fails.
    pub fn find(
        &self,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(RowIndex, &[Column], usize) -> bool,
    ) -> Result<(), EvalError> {
        let mut verify = RowFilter { table: self, search, frame, visit };
        match &search.access {
            AccessPath::Scan => {}
            AccessPath::Key { values, .. } => {
                let Some(key) = &self.key else { return verify.visit_all() };
                match self.find_by_key(key, values, frame)? {
                    Some(found) => return verify.visit_rows(found.into_iter()),
                    None => {
                        if let (Some(_), [column]) = (key.order(), key.columns())
                            && let CandidateKeys::Within(keys) =
                                keys_equal_to(&values[0].eval(frame)?, self.plan.attributes[*column].1)
                        {
                            return verify.visit_rows(key.range(keys));
                        }
                    }
                }
            }
            AccessPath::KeyRange(bounds) => {
                let Some(key) = &self.key else { return verify.visit_all() };
                let ty = self.plan.attributes[key.columns()[0]].1;
                match bounds.keys(ty, &|_| 0, frame)? {
                    CandidateKeys::NoMatch => return Ok(()),
                    CandidateKeys::Within(keys) => return verify.visit_rows(key.range(keys)),
                    CandidateKeys::Unknown => {}
                }
            }
            AccessPath::Index(number, bounds) => {
                let index = &self.indexes[*number];
                let ty = self.plan.attributes[index.column].1;
                match bounds.keys(ty, &|text| index.text_key(text), frame)? {
                    CandidateKeys::NoMatch => return Ok(()),
                    CandidateKeys::Within(keys) if keys.start() == keys.end() && !self.is_ordered() => {
                        return verify.visit_rows(index.range(keys));
                    }
                    CandidateKeys::Within(keys) => {
                        let most = self.len() / SCAN_RATIO;
                        let mut found: Vec<RowIndex> = index.range(keys).take(most + 1).collect();
                        if found.len() <= most {
                            self.sort(&mut found);
                            return verify.visit_rows(found.into_iter());
                        }
                    }
                    CandidateKeys::Unknown => {}
                }
            }
        }
        verify.visit_all()
    }

    fn is_ordered(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.order().is_some())
    }

    /// Sorts rows into table order.
    fn sort(&self, places: &mut [RowIndex]) {
        match &self.key {
            Some(key) if self.is_ordered() => {
                let column = key.columns()[0];
                places.sort_unstable_by_key(|place| index::order_key(self.rows.cell(*place, column)));
            }
            _ => places.sort_unstable(),
        }
    }

    /// Returns the row with the given key, `Some(None)` if it does not exist, and `None` if a key lookup
    /// cannot answer the search.
    fn find_by_key(
        &self,
        key: &PrimaryKey,
        values: &[Expr],
        frame: &Frame<'_>,
    ) -> Result<Option<Option<RowIndex>>, EvalError> {
        // values in columns of the same type are compared in place
        let mut made: SmallVec<[Option<Column>; 2]> = SmallVec::new();
        for (column, value) in key.columns().iter().zip(values) {
            let ty = self.plan.attributes[*column].1;
            if cell_in_place(value, frame).is_some_and(|(c, row)| {
                c.ty() == ty
                    && !c.is_null(row)
                    && matches!(ty, FieldType::String | FieldType::Int | FieldType::Long)
            }) {
                made.push(None);
                continue;
            }
            match coerce(&value.eval(frame)?, ty, key.columns().len() > 1) {
                CoercedValue::NoEqual => return Ok(Some(None)),
                CoercedValue::Unknown => return Ok(None),
                CoercedValue::As(value) => {
                    let mut column = Column::new(ty);
                    column.push(value);
                    made.push(Some(column));
                }
            }
        }
        let cell = |column: usize| -> CellRef<'_> {
            let i = key.columns().iter().position(|c| *c == column).unwrap_or_default();
            match &made[i] {
                Some(column) => (column, 0),
                None => cell_in_place(&values[i], frame).unwrap_or_else(|| unreachable!("looked at above")),
            }
        };
        Ok(Some(key.find(key.probe(cell), &self.rows, cell)))
    }
}

/// Returns the cell of a column expression; `None` for other expressions and missing rows.
fn cell_in_place<'a>(value: &Expr, frame: &Frame<'a>) -> Option<CellRef<'a>> {
    match value.node {
        Node::Column { slot, column } => {
            let (columns, row) = frame.rows.get(slot).copied().flatten()?;
            Some((&columns[column], row))
        }
        _ => None,
    }
}

/// Filters candidate rows by the condition of a search.
struct RowFilter<'f, 'v> {
    table: &'f MemoryTable,
    search: &'f TableSearch,
    frame: &'f Frame<'f>,
    visit: &'v mut dyn FnMut(RowIndex, &[Column], usize) -> bool,
}

impl RowFilter<'_, '_> {
    fn visit_rows(&mut self, places: impl Iterator<Item = RowIndex>) -> Result<(), EvalError> {
        let Frame { time, now, host, .. } = *self.frame;
        let mut rows: SmallVec<[RowRef<'_>; 8]> = SmallVec::new();
        let exact = self.search.exact_key().is_some();
        let condition = self.search.condition.as_ref().filter(|_| !exact);
        if condition.is_some() {
            rows.extend(self.frame.rows.iter().copied());
            rows.resize(rows.len().max(self.search.slot + 1), None);
        }
        for place in places {
            let (columns, row) = self.table.rows.row(place);
            if let Some(condition) = condition {
                rows[self.search.slot] = Some((columns, row));
                if !condition.is_true(&Frame { rows: &rows, time, now, host })? {
                    continue;
                }
            }
            if !(self.visit)(place, columns, row) {
                break;
            }
        }
        Ok(())
    }

    fn visit_all(&mut self) -> Result<(), EvalError> {
        let table = self.table;
        match table.key.as_ref().and_then(PrimaryKey::order) {
            Some(order) => self.visit_rows(order.values().copied()),
            None => self.visit_rows(table.rows.indexes()),
        }
    }
}

/// A value converted to the type of a column.
enum CoercedValue {
    As(Value),
    /// No value of the type equals it.
    NoEqual,
    /// Several values of the type may equal it.
    Unknown,
}

/// Converts `value` to type `ty`. If `written`, a double equals the float with its decimal form.
fn coerce(value: &Value, ty: FieldType, written: bool) -> CoercedValue {
    let whole = match (value, value.as_i64(), value.as_f64()) {
        (Value::Null, ..) => return CoercedValue::NoEqual,
        (_, None, Some(n)) if n.is_nan() => return CoercedValue::NoEqual,
        (_, Some(n), _) => Some(n),
        (_, _, Some(n)) if n.fract() == 0.0 && n.abs() < (1_i64 << 53) as f64 => Some(n as i64),
        _ => None,
    };
    match (ty, value.as_f64()) {
        (FieldType::Int, Some(_)) => match whole.and_then(|n| i32::try_from(n).ok()) {
            Some(n) => CoercedValue::As(Value::Int(n)),
            None => CoercedValue::NoEqual,
        },
        (FieldType::Long, Some(n)) => match whole {
            Some(n) => CoercedValue::As(Value::Long(n)),
            None if n.fract() == 0.0 => CoercedValue::Unknown,
            None => CoercedValue::NoEqual,
        },
        // 0.0 and -0.0 are equal, but different keys
        (FieldType::Float | FieldType::Double, Some(0.0)) => CoercedValue::Unknown,
        (FieldType::Double, Some(n)) => CoercedValue::As(Value::Double(n)),
        (FieldType::Float, Some(n)) if written && matches!(value, Value::Double(_)) => {
            match float_text::written_as_double(n as f32) == n {
                true => CoercedValue::As(Value::Float(n as f32)),
                false => CoercedValue::NoEqual,
            }
        }
        (FieldType::Float, Some(n)) if f64::from(n as f32) == n => CoercedValue::As(Value::Float(n as f32)),
        (FieldType::Float, Some(_)) => CoercedValue::NoEqual,
        _ if value.ty() == Some(ty) => CoercedValue::As(value.clone()),
        _ => CoercedValue::Unknown,
    }
}

/// Keys that rows matching a condition may have.
enum CandidateKeys {
    /// No row can match.
    NoMatch,
    /// The condition cannot be expressed as a key range.
    Unknown,
    Within(RangeInclusive<i64>),
}

/// Returns the keys of numbers or bools of type `ty` that may equal `value`.
fn keys_equal_to(value: &Value, ty: FieldType) -> CandidateKeys {
    match (ty, value) {
        (_, Value::Null) => CandidateKeys::NoMatch,
        (FieldType::Bool, Value::Bool(b)) => CandidateKeys::Within(i64::from(*b)..=i64::from(*b)),
        (FieldType::Int | FieldType::Long, _) => match (value.as_i64(), value.as_f64()) {
            (Some(n), _) => CandidateKeys::Within(n..=n),
            (None, Some(n)) if n.is_nan() || n.is_infinite() || n.fract() != 0.0 => CandidateKeys::NoMatch,
            // beyond that, several longs convert to one double
            (None, Some(n)) if n.abs() < (1_i64 << 53) as f64 => CandidateKeys::Within(n as i64..=n as i64),
            _ => CandidateKeys::Unknown,
        },
        (FieldType::Float | FieldType::Double, _) => match value.as_f64() {
            Some(n) if n.is_nan() => CandidateKeys::NoMatch,
            Some(n) => CandidateKeys::Within(low_key(n)..=high_key(n)),
            None => CandidateKeys::Unknown,
        },
        _ => CandidateKeys::Unknown,
    }
}

/// Returns the least key of values equal to `n`: 0.0 and -0.0 are equal, but different keys.
fn low_key(n: f64) -> i64 {
    index::float_order_key(if n == 0.0 { -0.0 } else { n })
}

fn high_key(n: f64) -> i64 {
    index::float_order_key(if n == 0.0 { 0.0 } else { n })
}

/// Returns the keys of numbers of type `ty` within inclusive bounds.
fn keys_within(low_bound: Option<&Value>, high_bound: Option<&Value>, ty: FieldType) -> CandidateKeys {
    let whole = matches!(ty, FieldType::Int | FieldType::Long);
    let key = |value: &Value, of: fn(f64) -> i64| match value {
        value if whole => value.as_i64(),
        value => value.as_f64().filter(|n| !n.is_nan()).map(of),
    };
    let mut keys = i64::MIN..=i64::MAX;
    if let Some(value) = low_bound {
        let Some(key) = key(value, low_key) else { return CandidateKeys::NoMatch };
        keys = key..=i64::MAX;
    }
    if let Some(value) = high_bound {
        let Some(key) = key(value, high_key) else { return CandidateKeys::NoMatch };
        keys = *keys.start()..=key;
    }
    if keys.is_empty() { CandidateKeys::NoMatch } else { CandidateKeys::Within(keys) }
}

impl ColumnBounds {
    /// Evaluates the bounds to a key range for a column of type `ty`. `text` maps a string to its key.
    fn keys(
        &self,
        ty: FieldType,
        text: &dyn Fn(&str) -> i64,
        frame: &Frame<'_>,
    ) -> Result<CandidateKeys, EvalError> {
        let value = |x: &Option<Expr>| x.as_ref().map(|x| x.eval(frame)).transpose();
        Ok(match self {
            Self::Equal(x) => match x.eval(frame)? {
                Value::Str(s) if ty == FieldType::String => CandidateKeys::Within(text(&s)..=text(&s)),
                value => keys_equal_to(&value, ty),
            },
            Self::Range { low, high } => keys_within(value(low)?.as_ref(), value(high)?.as_ref(), ty),
        })
    }
}
