//! Tables: rows that stay until a query changes or deletes them.
//!
//! A row has a number that it keeps for life and a place in segments of typed columns. A change writes the row anew at
//! the end; places that were left are given back when they are more than those in use.

mod index;
mod lookup;
mod plan;
mod snapshot;

use std::collections::BTreeMap;

use tidemill_types::FieldType;

use crate::batch::Batch;
use crate::catalog;
use crate::column::Column;
use crate::expr::{Expr, Failure, Frame, NoHost};
use crate::value::Value;
use index::{Index, PrimaryKey};

pub(crate) use plan::{action, definition};

/// Most rows of one table; an insert beyond fails.
pub const TABLE_ROWS_MAX: usize = 1 << 24;

/// Rows of one segment.
const SEGMENT_ROWS: usize = 4096;

/// The slot of the event in the expressions of an [`Action`].
pub const EVENT: usize = 0;
/// The slot of the table's row there.
pub const ROW: usize = 1;

/// A row's number: it keeps it for life, and later rows have greater ones.
pub type RowId = u64;

/// What events do to a table.
#[derive(Debug, Clone)]
pub enum Action {
    /// `insert into`: the event's columns are the table's.
    Insert,
    /// `delete`: every row that satisfies the condition.
    Delete(Option<Expr>),
    /// `update`: every row that satisfies the condition.
    Update {
        /// Which rows.
        on: Expr,
        /// New values of columns, in the order of the table's.
        set: Vec<(usize, Expr)>,
        /// When no row satisfies the condition: the event's column for each column of the new row, null without one.
        insert: Option<Vec<Option<usize>>>,
    },
}

/// A table at work.
pub struct Table {
    plan: catalog::Table,
    segments: Vec<Vec<Column>>,
    /// Places used, in all segments.
    used: usize,
    /// The place of each row.
    rows: BTreeMap<RowId, usize>,
    next: RowId,
    key: PrimaryKey,
    indexes: Vec<Index>,
    rows_max: usize,
}

impl Table {
    /// A table without rows.
    pub fn new(plan: catalog::Table) -> Self {
        let key = PrimaryKey::new(&plan);
        let indexes = plan.indexes.iter().map(|column| Index::new(*column)).collect();
        let rows = BTreeMap::new();
        Self { plan, segments: vec![], used: 0, rows, next: 0, key, indexes, rows_max: TABLE_ROWS_MAX }
    }

    /// The same with another greatest number of rows.
    pub fn with_rows_max(self, rows_max: usize) -> Self {
        Self { rows_max, ..self }
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Each event in turn does `action`. Errors: what an expression says, and that the table is full; what was done
    /// before stays.
    pub fn apply(&mut self, action: &Action, events: &Batch, now: i64) -> Result<(), Failure> {
        for i in 0..events.len() {
            let rows = [Some((events.columns.as_slice(), i))];
            let frame = Frame { rows: &rows, time: events.times[i], now, host: &NoHost };
            match action {
                Action::Insert => {
                    self.insert(events.columns.iter().map(|c| c.get(i)).collect())?;
                }
                Action::Delete(on) => {
                    for id in self.matching(on.as_ref(), &frame)? {
                        self.delete(id);
                    }
                }
                Action::Update { on, set, insert } => {
                    let found = self.matching(Some(on), &frame)?;
                    match insert {
                        Some(columns) if found.is_empty() => {
                            let value =
                                |c: &Option<usize>| c.map_or(Value::Null, |c| events.columns[c].get(i));
                            self.insert(columns.iter().map(value).collect())?;
                        }
                        _ => {
                            for id in found {
                                self.assign(id, set, &frame)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The rows that satisfy the condition, in the table's order.
    fn matching(&self, on: Option<&Expr>, frame: &Frame<'_>) -> Result<Vec<RowId>, Failure> {
        let mut found = Vec::new();
        self.find(on, ROW, frame, &mut |id, _, _| {
            found.push(id);
            true
        })?;
        Ok(found)
    }

    /// Adds a row; one whose key is there already is dropped. Whether it was added.
    ///
    /// Errors: the table is full, or a key that orders rows is null.
    pub fn insert(&mut self, mut values: Vec<Value>) -> Result<bool, Failure> {
        for (value, (_, ty)) in values.iter_mut().zip(&self.plan.attributes) {
            *value = fit(std::mem::take(value), *ty);
        }
        if !self.key.may_hold(&values) {
            return Err(Failure(format!("the primary key of `{}` cannot be null", self.plan.name)));
        }
        if self.key.find(&values).is_some() {
            return Ok(false);
        }
        if self.rows.len() >= self.rows_max {
            return Err(Failure(format!(
                "table `{}` has {} rows, the most it may",
                self.plan.name, self.rows_max
            )));
        }
        let id = self.next;
        self.next += 1;
        let place = self.write(&values);
        self.rows.insert(id, place);
        self.enter(id, &values);
        Ok(true)
    }

    fn enter(&mut self, id: RowId, values: &[Value]) {
        self.key.insert(values, id);
        for index in &mut self.indexes {
            index.insert(values, id);
        }
    }

    fn leave(&mut self, id: RowId, values: &[Value]) {
        self.key.remove(values);
        for index in &mut self.indexes {
            index.remove(values, id);
        }
    }

    /// Deletes a row.
    pub fn delete(&mut self, id: RowId) {
        if let Some(place) = self.rows.get(&id).copied() {
            let values = self.values(place);
            self.rows.remove(&id);
            self.leave(id, &values);
            self.reclaim();
        }
    }

    /// Assigns one value after the other, each seeing those before it. Nothing changes when another row has the new key.
    fn assign(&mut self, id: RowId, set: &[(usize, Expr)], event: &Frame<'_>) -> Result<(), Failure> {
        let Some(place) = self.rows.get(&id).copied() else { return Ok(()) };
        let before = self.values(place);
        let mut after = before.clone();
        for (column, expr) in set {
            let row = one_row(&after, &self.plan.attributes);
            let rows = [event.rows[EVENT], Some((row.as_slice(), 0))];
            let value =
                expr.eval(&Frame { rows: &rows, time: event.time, now: event.now, host: event.host })?;
            after[*column] = fit(value, self.plan.attributes[*column].1);
        }
        if !self.key.may_hold(&after) || self.key.find(&after).is_some_and(|other| other != id) {
            return Ok(());
        }
        self.leave(id, &before);
        let place = self.write(&after);
        self.rows.insert(id, place);
        self.enter(id, &after);
        self.reclaim();
        Ok(())
    }

    fn write(&mut self, values: &[Value]) -> usize {
        if self.used.is_multiple_of(SEGMENT_ROWS) {
            self.segments.push(columns(&self.plan.attributes));
        }
        if let Some(segment) = self.segments.last_mut() {
            for (column, value) in segment.iter_mut().zip(values) {
                column.push(value.clone());
            }
        }
        self.used += 1;
        self.used - 1
    }

    fn at(&self, place: usize) -> (&[Column], usize) {
        (&self.segments[place / SEGMENT_ROWS], place % SEGMENT_ROWS)
    }

    fn values(&self, place: usize) -> Vec<Value> {
        let (columns, row) = self.at(place);
        columns.iter().map(|c| c.get(row)).collect()
    }

    /// Gives places back when more are left than in use.
    fn reclaim(&mut self) {
        if self.used < 2 * (self.rows.len() + SEGMENT_ROWS) {
            return;
        }
        let segments = std::mem::take(&mut self.segments);
        self.used = 0;
        for place in self.rows.values_mut() {
            if self.used.is_multiple_of(SEGMENT_ROWS) {
                self.segments.push(columns(&self.plan.attributes));
            }
            let (from, row) = (&segments[*place / SEGMENT_ROWS], *place % SEGMENT_ROWS);
            if let Some(segment) = self.segments.last_mut() {
                segment.iter_mut().zip(from).for_each(|(column, from)| column.push_from(from, row));
            }
            *place = self.used;
            self.used += 1;
        }
    }
}

fn columns(attributes: &catalog::Attributes) -> Vec<Column> {
    attributes.iter().map(|(_, ty)| Column::new(*ty)).collect()
}

fn one_row(values: &[Value], attributes: &catalog::Attributes) -> Vec<Column> {
    let mut row = columns(attributes);
    row.iter_mut().zip(values).for_each(|(column, value)| column.push(value.clone()));
    row
}

/// A number as the column's type, cut as a conversion in Java cuts it.
fn fit(value: Value, ty: FieldType) -> Value {
    match (ty, &value) {
        (FieldType::Int, Value::Long(n)) => Value::Int(*n as i32),
        (FieldType::Int, Value::Float(_) | Value::Double(_)) => {
            value.as_f64().map_or(Value::Null, |n| Value::Int(n as i32))
        }
        (FieldType::Long, Value::Float(_) | Value::Double(_)) => {
            value.as_f64().map_or(Value::Null, |n| Value::Long(n as i64))
        }
        (FieldType::Float, Value::Double(n)) => Value::Float(*n as f32),
        _ => value.widen(ty),
    }
}

#[cfg(test)]
mod tests;
