//! Rows that satisfy a condition: by the key or an index where the condition names them, else all are looked at.

use std::ops::RangeInclusive;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::Table;
use super::index;
use super::key::{Cell, PrimaryKey};
use super::rows::Place;
use super::search::{Access, Bounds, Search};
use super::written;
use crate::column::Column;
use crate::expr::{EvalError, Expr, Frame, Node, RowRef};
use crate::value::Value;

/// More candidates than one row of so many are not worth an index.
const SCAN_RATIO: usize = 4;

impl Table {
    /// Shows the rows that a search finds, in the table's order, as long as `visit` wants more: insertion, or the order
    /// of a numeric key. Errors: what an expression says.
    pub fn find(
        &self,
        search: &Search,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(Place, &[Column], usize) -> bool,
    ) -> Result<(), EvalError> {
        let mut verify = Verify { table: self, search, frame, visit };
        match &search.access {
            Access::Scan => {}
            Access::Key { values, .. } => {
                let Some(key) = &self.key else { return verify.all() };
                match self.by_key(key, values, frame)? {
                    Some(found) => return verify.each(found.into_iter()),
                    None => {
                        if let (Some(_), [column]) = (key.order(), key.columns())
                            && let Keys::Within(keys) =
                                equal(&values[0].eval(frame)?, self.plan.attributes[*column].1)
                        {
                            return verify.each(key.range(keys));
                        }
                    }
                }
            }
            Access::KeyRange(bounds) => {
                let Some(key) = &self.key else { return verify.all() };
                let ty = self.plan.attributes[key.columns()[0]].1;
                match bounds.keys(ty, &|_| 0, frame)? {
                    Keys::Nothing => return Ok(()),
                    Keys::Within(keys) => return verify.each(key.range(keys)),
                    Keys::Unknown => {}
                }
            }
            Access::Index(number, bounds) => {
                let index = &self.indexes[*number];
                let ty = self.plan.attributes[index.column].1;
                match bounds.keys(ty, &|text| index.text(text), frame)? {
                    Keys::Nothing => return Ok(()),
                    Keys::Within(keys) if keys.start() == keys.end() && !self.is_ordered() => {
                        return verify.each(index.range(keys));
                    }
                    Keys::Within(keys) => {
                        let most = self.len() / SCAN_RATIO;
                        let mut found: Vec<Place> = index.range(keys).take(most + 1).collect();
                        if found.len() <= most {
                            self.sort(&mut found);
                            return verify.each(found.into_iter());
                        }
                    }
                    Keys::Unknown => {}
                }
            }
        }
        verify.all()
    }

    fn is_ordered(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.order().is_some())
    }

    /// Puts rows in the table's order.
    fn sort(&self, places: &mut [Place]) {
        match &self.key {
            Some(key) if self.is_ordered() => {
                let column = key.columns()[0];
                places.sort_unstable_by_key(|place| index::ordered(self.rows.cell(*place, column)));
            }
            _ => places.sort_unstable(),
        }
    }

    /// The row whose key is equal to the values, if there is one; `None` when the key cannot tell.
    fn by_key(
        &self,
        key: &PrimaryKey,
        values: &[Expr],
        frame: &Frame<'_>,
    ) -> Result<Option<Option<Place>>, EvalError> {
        // values that lie in columns of the same type are looked at there
        let mut made: SmallVec<[Option<Column>; 2]> = SmallVec::new();
        for (column, value) in key.columns().iter().zip(values) {
            let ty = self.plan.attributes[*column].1;
            if in_place(value, frame).is_some_and(|(c, row)| {
                c.ty() == ty
                    && !c.is_null(row)
                    && matches!(ty, FieldType::String | FieldType::Int | FieldType::Long)
            }) {
                made.push(None);
                continue;
            }
            match fitted(&value.eval(frame)?, ty, key.columns().len() > 1) {
                Fitted::Nothing => return Ok(Some(None)),
                Fitted::Unknown => return Ok(None),
                Fitted::As(value) => {
                    let mut column = Column::new(ty);
                    column.push(value);
                    made.push(Some(column));
                }
            }
        }
        let cell = |column: usize| -> Cell<'_> {
            let i = key.columns().iter().position(|c| *c == column).unwrap_or_default();
            match &made[i] {
                Some(column) => (column, 0),
                None => in_place(&values[i], frame).unwrap_or_else(|| unreachable!("looked at above")),
            }
        };
        Ok(Some(key.find(key.code(cell), &self.rows, cell)))
    }
}

/// Where the value lies that an expression says, when it is a column.
fn in_place<'a>(value: &Expr, frame: &Frame<'a>) -> Option<Cell<'a>> {
    match value.node {
        Node::Column { slot, column } => {
            let (columns, row) = frame.rows.get(slot).copied().flatten()?;
            Some((&columns[column], row))
        }
        _ => None,
    }
}

/// Looks at rows one by one.
struct Verify<'f, 'v> {
    table: &'f Table,
    search: &'f Search,
    frame: &'f Frame<'f>,
    visit: &'v mut dyn FnMut(Place, &[Column], usize) -> bool,
}

impl Verify<'_, '_> {
    fn each(&mut self, places: impl Iterator<Item = Place>) -> Result<(), EvalError> {
        let Frame { time, now, host, .. } = *self.frame;
        let mut rows: SmallVec<[RowRef<'_>; 8]> = SmallVec::new();
        let exact = self.search.exact_key().is_some();
        let condition = self.search.condition.as_ref().filter(|_| !exact);
        if condition.is_some() {
            rows.extend(self.frame.rows.iter().copied());
            rows.resize(rows.len().max(self.search.slot + 1), None);
        }
        for place in places {
            let (columns, row) = self.table.rows.at(place);
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

    fn all(&mut self) -> Result<(), EvalError> {
        let table = self.table;
        match table.key.as_ref().and_then(PrimaryKey::order) {
            Some(order) => self.each(order.values().copied()),
            None => self.each(table.rows.places()),
        }
    }
}

/// A value as one of a column's type that is equal to it.
enum Fitted {
    As(Value),
    /// No value of the type is equal to it.
    Nothing,
    /// Several may be.
    Unknown,
}

/// With `written` a double is equal to the float that is written as it is.
fn fitted(value: &Value, ty: FieldType, written: bool) -> Fitted {
    let whole = match (value, value.as_i64(), value.as_f64()) {
        (Value::Null, ..) => return Fitted::Nothing,
        (_, None, Some(n)) if n.is_nan() => return Fitted::Nothing,
        (_, Some(n), _) => Some(n),
        (_, _, Some(n)) if n.fract() == 0.0 && n.abs() < (1_i64 << 53) as f64 => Some(n as i64),
        _ => None,
    };
    match (ty, value.as_f64()) {
        (FieldType::Int, Some(_)) => match whole.and_then(|n| i32::try_from(n).ok()) {
            Some(n) => Fitted::As(Value::Int(n)),
            None => Fitted::Nothing,
        },
        (FieldType::Long, Some(n)) => match whole {
            Some(n) => Fitted::As(Value::Long(n)),
            None if n.fract() == 0.0 => Fitted::Unknown,
            None => Fitted::Nothing,
        },
        // the two zeros are equal, but two keys
        (FieldType::Float | FieldType::Double, Some(0.0)) => Fitted::Unknown,
        (FieldType::Double, Some(n)) => Fitted::As(Value::Double(n)),
        (FieldType::Float, Some(n)) if written && matches!(value, Value::Double(_)) => {
            match written::double(n as f32) == n {
                true => Fitted::As(Value::Float(n as f32)),
                false => Fitted::Nothing,
            }
        }
        (FieldType::Float, Some(n)) if f64::from(n as f32) == n => Fitted::As(Value::Float(n as f32)),
        (FieldType::Float, Some(_)) => Fitted::Nothing,
        _ if value.ty() == Some(ty) => Fitted::As(value.clone()),
        _ => Fitted::Unknown,
    }
}

/// The keys that a column may have.
enum Keys {
    /// None: nothing satisfies the condition.
    Nothing,
    /// The keys cannot tell.
    Unknown,
    Within(RangeInclusive<i64>),
}

/// The keys of numbers or bools of type `ty` that may be equal to a value.
fn equal(value: &Value, ty: FieldType) -> Keys {
    match (ty, value) {
        (_, Value::Null) => Keys::Nothing,
        (FieldType::Bool, Value::Bool(b)) => Keys::Within(i64::from(*b)..=i64::from(*b)),
        (FieldType::Int | FieldType::Long, _) => match (value.as_i64(), value.as_f64()) {
            (Some(n), _) => Keys::Within(n..=n),
            (None, Some(n)) if n.is_nan() || n.is_infinite() || n.fract() != 0.0 => Keys::Nothing,
            // further out several longs are the same double
            (None, Some(n)) if n.abs() < (1_i64 << 53) as f64 => Keys::Within(n as i64..=n as i64),
            _ => Keys::Unknown,
        },
        (FieldType::Float | FieldType::Double, _) => match value.as_f64() {
            Some(n) if n.is_nan() => Keys::Nothing,
            Some(n) => Keys::Within(low(n)..=high(n)),
            None => Keys::Unknown,
        },
        _ => Keys::Unknown,
    }
}

/// The two zeros are equal, but two keys.
fn low(n: f64) -> i64 {
    index::decimal(if n == 0.0 { -0.0 } else { n })
}

fn high(n: f64) -> i64 {
    index::decimal(if n == 0.0 { 0.0 } else { n })
}

/// The keys of numbers of type `ty` that are within bounds, and on them.
fn within(low_bound: Option<&Value>, high_bound: Option<&Value>, ty: FieldType) -> Keys {
    let whole = matches!(ty, FieldType::Int | FieldType::Long);
    let key = |value: &Value, of: fn(f64) -> i64| match value {
        value if whole => value.as_i64(),
        value => value.as_f64().filter(|n| !n.is_nan()).map(of),
    };
    let mut keys = i64::MIN..=i64::MAX;
    if let Some(value) = low_bound {
        let Some(key) = key(value, low) else { return Keys::Nothing };
        keys = key..=i64::MAX;
    }
    if let Some(value) = high_bound {
        let Some(key) = key(value, high) else { return Keys::Nothing };
        keys = *keys.start()..=key;
    }
    if keys.is_empty() { Keys::Nothing } else { Keys::Within(keys) }
}

impl Bounds {
    /// The keys of a column of type `ty`. `text` gives those of texts.
    fn keys(&self, ty: FieldType, text: &dyn Fn(&str) -> i64, frame: &Frame<'_>) -> Result<Keys, EvalError> {
        let value = |x: &Option<Expr>| x.as_ref().map(|x| x.eval(frame)).transpose();
        Ok(match self {
            Self::Equal(x) => match x.eval(frame)? {
                Value::Str(s) if ty == FieldType::String => Keys::Within(text(&s)..=text(&s)),
                value => equal(&value, ty),
            },
            Self::Range { low, high } => within(value(low)?.as_ref(), value(high)?.as_ref(), ty),
        })
    }
}
