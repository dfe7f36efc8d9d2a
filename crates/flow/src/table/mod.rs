//! Tables: rows that stay until a query changes or deletes them, in memory or in the [store](external) of another
//! system.
//!
//! Rows in memory are stored in segments of typed columns and changed in place. A row has an index; keys and secondary
//! indexes refer to it. Removed rows leave holes, which are compacted when there are more of them than rows.

mod apply;
mod cache;
mod external;
mod float_text;
mod index;
mod index_options;
mod key;
mod location;
mod lookup;
mod plan;
mod rows;
mod search;
mod snapshot;

use tidemill_types::FieldType;

use crate::catalog;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Frame, NoContext, TableSearch};
use crate::limits::Limits;
use crate::snapshot::{self as snapshot_format, Reader, SnapshotWriter};
use index::SecondaryIndex;
use key::{CellRef, PrimaryKey};
use rows::{RowIndex, TableRows};

pub(crate) use apply::KeyedUpdate;
pub use external::ExternalTable;
pub(crate) use location::{StoredElement, compile as compile_location};
pub use location::{context as store_context, create as create_store};
pub(crate) use plan::{compile_action, compile_definition};
pub(crate) use search::equal_to;

/// Slot of the event in the expressions of a [`TableAction`].
pub const EVENT: usize = 0;
/// Slot of the table's row in the expressions of a [`TableAction`].
pub const ROW: usize = 1;

/// Action of a query's output events on a table.
#[derive(Debug, Clone)]
pub enum TableAction {
    /// `insert into`; the event has the columns of the table.
    Insert,
    /// `delete` of all matching rows.
    Delete(TableSearch),
    /// `update` of all matching rows.
    Update {
        /// Search for the matching rows.
        on: TableSearch,
        /// Assigned columns with their new values, in table order.
        set: Vec<(usize, Expr)>,
        /// True if the event is inserted if no row matches (`update or insert into`).
        insert: bool,
    },
}

/// A table.
pub enum Table {
    /// Its rows are in memory, and part of the state of the app.
    Memory(Box<MemoryTable>),
    /// Its rows are in another system.
    External(Box<ExternalTable>),
}

impl Table {
    /// Creates an empty table, or one whose store is not open.
    pub fn new(plan: catalog::CatalogTable) -> Self {
        match plan.store {
            None => Self::Memory(Box::new(MemoryTable::new(plan))),
            Some(_) => Self::External(Box::new(ExternalTable::new(plan))),
        }
    }

    /// Sets the maximum number of rows in memory, at most 2^30; an insert beyond it fails.
    pub fn with_rows_max(self, rows_max: usize) -> Self {
        match self {
            Self::Memory(table) => Self::Memory(Box::new(table.with_rows_max(rows_max))),
            external @ Self::External(_) => external,
        }
    }

    /// Returns the definition of the table.
    pub fn plan(&self) -> &catalog::CatalogTable {
        match self {
            Self::Memory(table) => table.plan(),
            Self::External(table) => table.plan(),
        }
    }

    /// Returns the table if its rows are in memory.
    pub fn memory(&self) -> Option<&MemoryTable> {
        match self {
            Self::Memory(table) => Some(table),
            Self::External(_) => None,
        }
    }

    /// Visits the rows that a search finds, until `visit` returns false. Table order: by a numeric key, else
    /// by insertion; rows in another system come in its order. Errors: an expression fails, or the other system does
    /// not answer.
    pub fn find(
        &self,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize) -> bool,
    ) -> Result<(), EvalError> {
        match self {
            Self::Memory(table) => table.find(search, frame, &mut |_, columns, row| visit(columns, row)),
            Self::External(table) => table.find(search, frame, visit),
        }
    }

    /// Applies `action` for each event in order. `now` is the time for events of a batch without chunks.
    ///
    /// Errors: an expression fails, or the table is full or refuses a row; earlier changes remain, and events behind the
    /// one that fails change nothing in memory.
    pub fn apply(&mut self, action: &TableAction, events: &Batch, now: i64) -> Result<(), EvalError> {
        match self {
            Self::Memory(table) => table.apply_rows(action, events, now).map_err(|(_, failure)| failure),
            Self::External(table) => {
                let failed = table.apply_rows(action, events, now)?;
                failed.into_iter().next().map_or(Ok(()), |(_, failure)| Err(failure))
            }
        }
    }

    /// Applies `action` for each event in order. Returns the chunks in which an event fails, each once, in order.
    pub(crate) fn apply_chunks(
        &mut self,
        action: &TableAction,
        events: Batch,
        now: i64,
    ) -> Vec<(usize, EvalError)> {
        let mut failed: Vec<(usize, EvalError)> = vec![];
        match self {
            Self::Memory(table) => {
                let mut rest = events;
                let mut done = 0;
                while let Err((row, failure)) = table.apply_rows(action, &rest, now) {
                    let chunk = rest.chunk_of(row);
                    failed.push((done + chunk, failure));
                    done += chunk + 1;
                    rest = rest.chunks_after(chunk);
                }
            }
            Self::External(table) => match table.apply_rows(action, &events, now) {
                Ok(rows) => {
                    failed.extend(rows.into_iter().map(|(row, failure)| (events.chunk_of(row), failure)));
                    failed.dedup_by_key(|(chunk, _)| *chunk);
                }
                Err(failure) => {
                    failed.extend((0..events.chunk_ends.len()).map(|chunk| (chunk, failure.clone())));
                }
            },
        }
        failed
    }

    /// Lets the next [`Self::save`] share the rows, if there are at least `rows_min`.
    pub(crate) fn share(&mut self, rows_min: usize) {
        match self {
            Self::Memory(table) => table.share(rows_min),
            Self::External(_) => {}
        }
    }

    /// Writes the rows in insertion order; nothing for rows in another system.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), snapshot_format::Error> {
        match self {
            Self::Memory(table) => table.save(out),
            Self::External(_) => Ok(()),
        }
    }

    /// Replaces the rows by saved ones, even if they are more than the limit; unchanged on error.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), snapshot_format::Error> {
        match self {
            Self::Memory(table) => table.restore(from),
            Self::External(_) => Ok(()),
        }
    }
}

/// Rows, key and indexes of a table in memory.
pub struct MemoryTable {
    plan: catalog::CatalogTable,
    rows: TableRows,
    key: Option<PrimaryKey>,
    indexes: Vec<SecondaryIndex>,
    rows_max: usize,
}

impl MemoryTable {
    /// Creates an empty table.
    pub fn new(plan: catalog::CatalogTable) -> Self {
        let key = PrimaryKey::new(&plan);
        let indexes = plan.indexes.iter().map(|column| SecondaryIndex::new(*column)).collect();
        let types: Vec<FieldType> = plan.attributes.iter().map(|(_, ty)| *ty).collect();
        let rows_max = Limits::default().table_rows;
        Self { plan, rows: TableRows::new(types), key, indexes, rows_max }
    }

    /// Sets the maximum number of rows, at most 2^30; an insert beyond it fails.
    pub fn with_rows_max(self, rows_max: usize) -> Self {
        Self { rows_max: rows_max.min(1 << 30), ..self }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Copies the rows, in table order, into a chunk of current events with timestamp `time`.
    pub fn rows(&self, time: i64) -> Batch {
        let mut rows = Batch::new(self.rows.types().iter().copied());
        let frame = Frame { rows: &[], time, now: time, host: &NoContext };
        let all = self.find(&TableSearch::new(None, ROW, &self.plan), &frame, &mut |_, columns, row| {
            rows.columns.iter_mut().zip(columns).for_each(|(column, from)| column.push_from(from, row));
            rows.times.push(time);
            rows.kinds.push(EventKind::Current);
            true
        });
        debug_assert!(all.is_ok(), "without a condition nothing fails");
        rows.end_chunk(time);
        rows
    }

    /// Returns the definition of the table.
    pub fn plan(&self) -> &catalog::CatalogTable {
        &self.plan
    }

    /// Inserts a row unless its key exists; returns whether it was inserted.
    ///
    /// Errors: the table is full, or a key that orders the rows is null.
    pub fn insert(&mut self, values: Vec<Value>) -> Result<bool, EvalError> {
        let mut row: Vec<Column> = self.rows.types().iter().map(|ty| Column::new(*ty)).collect();
        for (value, column) in values.into_iter().zip(&mut row) {
            column.push(cast(value, column.ty()));
        }
        row.iter_mut().filter(|c| c.is_empty()).for_each(Column::push_null);
        self.insert_cells(|column| (&row[column], 0))
    }

    /// Inserts a row as [`Self::insert`] does, from cells of the columns' types, without converting them to
    /// values.
    fn insert_cells<'a>(&mut self, cell: impl Fn(usize) -> CellRef<'a>) -> Result<bool, EvalError> {
        let mut code = None;
        if let Some(key) = &self.key {
            self.check_key(key.may_hold(&cell))?;
            let of_key = key.probe(&cell);
            if key.find(of_key, &self.rows, &cell).is_some() {
                return Ok(false);
            }
            code = Some(of_key);
        }
        self.check_capacity()?;
        let place = self.rows.push(|columns| {
            for (i, column) in columns.iter_mut().enumerate() {
                let (from, row) = cell(i);
                column.push_from(from, row);
            }
        });
        if let (Some(key), Some(code)) = (&mut self.key, code) {
            key.insert(code, &self.rows, place);
        }
        self.indexes.iter_mut().for_each(|index| index.insert(&self.rows, place));
        Ok(true)
    }

    /// Errors: a row may not have its key.
    fn check_key(&self, may_hold: bool) -> Result<(), EvalError> {
        match may_hold {
            true => Ok(()),
            false => {
                Err(EvalError::argument(format!("the primary key of `{}` cannot be null", self.plan.name)))
            }
        }
    }

    /// Errors: the table is full.
    fn check_capacity(&self) -> Result<(), EvalError> {
        match self.len() >= self.rows_max {
            false => Ok(()),
            true => Err(EvalError::limit(format!("table `{}`", self.plan.name), self.rows_max, "rows")),
        }
    }

    fn remove(&mut self, place: RowIndex) {
        if let Some(key) = &mut self.key {
            key.remove(&self.rows, place);
        }
        self.indexes.iter_mut().for_each(|index| index.remove(&self.rows, place));
        self.rows.remove(place);
    }

    /// Compacts the rows if there are more holes than rows. This changes row indexes.
    fn compact_if_sparse(&mut self) {
        if self.rows.is_sparse() {
            self.rows.compact();
            self.key.iter_mut().for_each(|key| key.rebuild(&self.rows));
            self.indexes.iter_mut().for_each(|index| index.rebuild(&self.rows));
        }
    }
}

/// Converts a number to the type of a column, truncating it as a Java cast does.
fn cast(value: Value, ty: FieldType) -> Value {
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
