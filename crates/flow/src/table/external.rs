//! Tables whose rows are in another system.
//!
//! What a search or an action needs of the event is evaluated here and goes along as parameters; the other system
//! evaluates the rest. An action goes there once for all events of a batch.

use std::sync::Arc;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tidemill_connect::{RefusedRow, StoreUpdate, TableStore, WritePosition};
use tidemill_types::{FieldType, Offset, PartitionId};

use super::apply::reads_assigned_columns;
use super::cache::RowCache;
use super::{ROW, TableAction};
use crate::arrow;
use crate::catalog::{self, Attributes};
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{self, Expr, Frame, NoContext, PushedSearch, TableSearch};

/// Table whose rows are in another system. Without an open store every use fails.
pub struct ExternalTable {
    plan: catalog::CatalogTable,
    /// Searches read through a shared reference.
    access: Mutex<StoreAccess>,
    /// The record that is being processed, and the number of writes that it made.
    record: Option<(PartitionId, Offset, u32)>,
}

#[derive(Default)]
struct StoreAccess {
    store: Option<Box<dyn TableStore>>,
    cache: Option<RowCache>,
}

impl ExternalTable {
    pub(super) fn new(plan: catalog::CatalogTable) -> Self {
        let cache = plan.store.as_ref().and_then(|location| location.cache).map(RowCache::new);
        Self { plan, access: Mutex::new(StoreAccess { store: None, cache }), record: None }
    }

    /// Returns the definition of the table.
    pub fn plan(&self) -> &catalog::CatalogTable {
        &self.plan
    }

    /// Sets where the rows are.
    pub fn open(&mut self, store: Box<dyn TableStore>) {
        self.access.get_mut().store = Some(store);
    }

    /// Takes the store out of another table with the same definition.
    pub(crate) fn take_store(&mut self, other: &mut Self) {
        *self.access.get_mut() = std::mem::take(other.access.get_mut());
    }

    /// Says which record the next writes belong to. Writes of a record happen once, however often it is processed.
    pub fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        self.record = Some((partition, offset, 0));
    }

    fn next_position(&mut self) -> Option<WritePosition> {
        let (partition, offset, calls) = self.record.as_mut()?;
        *calls += 1;
        Some(WritePosition { partition: *partition, offset: *offset, call: *calls - 1 })
    }

    pub(super) fn find(
        &self,
        search: &TableSearch,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize) -> bool,
    ) -> Result<(), EvalError> {
        let pushed = PushedSearch::of(search.condition.as_ref(), search.slot)
            .map_err(|what| EvalError::request(self.plan.cannot_push(&what)))?;
        let mut given: Vec<Column> = pushed.types().map(Column::new).collect();
        for (expr, column) in pushed.parameters.iter().zip(&mut given) {
            column.push(expr.eval(frame)?);
        }
        let mut access = self.access.lock();
        let StoreAccess { store, cache } = &mut *access;
        let key = cache.as_ref().map(|_| {
            let values: Vec<String> = given.iter().map(|column| format!("{:?}", column.get(0))).collect();
            format!("{:?} {}", pushed.condition, values.join(","))
        });
        let known = cache.as_mut().zip(key.as_ref()).and_then(|(cache, key)| cache.get(key, frame.now));
        let columns = match known {
            Some(columns) => columns,
            None => {
                let store = store.as_mut().ok_or_else(|| not_open(&self.plan.name))?;
                let parameters = parameter_batch(given, 1)?;
                let rows = store.find(pushed.condition.as_ref(), &parameters, None)?;
                let columns = Arc::new(arrow::columns(rows, &self.plan.attributes)?);
                if let (Some(cache), Some(key)) = (cache, key) {
                    cache.put(key, columns.clone(), frame.now);
                }
                columns
            }
        };
        // a visitor may search again
        drop(access);
        let rows = columns.first().map_or(0, Column::len);
        for row in 0..rows {
            if !visit(&columns, row) {
                break;
            }
        }
        Ok(())
    }

    /// Applies `action` for all events in one call of the store. Returns the events that fail, in order; all others are
    /// applied.
    ///
    /// Errors: the action as a whole fails, and nothing is applied.
    pub(super) fn apply_rows(
        &mut self,
        action: &TableAction,
        events: &Batch,
        now: i64,
    ) -> Result<Vec<(usize, EvalError)>, EvalError> {
        if events.is_empty() {
            return Ok(vec![]);
        }
        let at = self.next_position();
        let plan = &self.plan;
        let cannot = |what: String| EvalError::request(plan.cannot_push(&what));
        let StoreAccess { store, cache } = self.access.get_mut();
        let store = store.as_mut().ok_or_else(|| not_open(&plan.name))?;
        if let Some(cache) = cache {
            cache.clear();
        }
        let (refused, given) = match action {
            TableAction::Insert => {
                let rows = rows_of(events, &plan.attributes)?;
                (store.insert(&rows, at)?, Parameters::of_all(events.len()))
            }
            TableAction::Delete(on) => {
                let pushed = PushedSearch::of(on.condition.as_ref(), ROW).map_err(cannot)?;
                let given = Parameters::evaluate(&pushed.parameters, events, now)?;
                (store.delete(pushed.condition.as_ref(), &given.rows, at)?, given)
            }
            TableAction::Update { on, set, insert } => {
                let (change, exprs) = push_update(on, set).map_err(cannot)?;
                let given = Parameters::evaluate(&exprs, events, now)?;
                let inserted = match insert {
                    true => Some(given.rows_of(events, &plan.attributes)?),
                    false => None,
                };
                (store.update(&change, &given.rows, inserted.as_ref(), at)?, given)
            }
        };
        let Parameters { event_of_row, mut failed, .. } = given;
        failed.extend(refused.into_iter().filter_map(|RefusedRow { row, reason }| {
            let failure = EvalError::argument(format!("table `{}`: the row is refused: {reason}", plan.name));
            Some((*event_of_row.get(row)?, failure))
        }));
        failed.sort_by_key(|(event, _)| *event);
        Ok(failed)
    }
}

/// Values of events for a store.
struct Parameters {
    rows: RecordBatch,
    event_of_row: Vec<usize>,
    /// Events whose values cannot be computed.
    failed: Vec<(usize, EvalError)>,
}

impl Parameters {
    /// Returns no values for this many events.
    fn of_all(events: usize) -> Self {
        let rows = RecordBatch::new_empty(arrow::schema(&Attributes::new()));
        Self { rows, event_of_row: (0..events).collect(), failed: vec![] }
    }

    /// Evaluates expressions for each event, and leaves out those that fail.
    fn evaluate(exprs: &[Expr], events: &Batch, now: i64) -> Result<Self, EvalError> {
        let mut columns: Vec<Column> = exprs.iter().map(|expr| Column::new(expr.ty)).collect();
        let (mut event_of_row, mut failed) = (vec![], vec![]);
        let mut chunk = 0;
        for i in 0..events.len() {
            while events.chunk_ends.get(chunk).is_some_and(|end| *end as usize <= i) {
                chunk += 1;
            }
            let now = events.chunk_clocks.get(chunk).copied().unwrap_or(now);
            let rows = [Some((events.columns.as_slice(), i))];
            let frame = Frame { rows: &rows, time: events.times[i], now, host: &NoContext };
            let values: Result<Vec<Value>, EvalError> = exprs.iter().map(|expr| expr.eval(&frame)).collect();
            match values {
                Ok(values) => {
                    columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
                    event_of_row.push(i);
                }
                Err(failure) => failed.push((i, failure)),
            }
        }
        let rows = parameter_batch(columns, event_of_row.len())?;
        Ok(Self { rows, event_of_row, failed })
    }

    /// Returns those events that did not fail, which have the columns of a table, as rows.
    fn rows_of(&self, events: &Batch, attributes: &Attributes) -> Result<RecordBatch, EvalError> {
        if self.failed.is_empty() {
            return rows_of(events, attributes);
        }
        let taken = events.columns.iter().map(|from| {
            let mut column = Column::new(from.ty());
            self.event_of_row.iter().for_each(|event| column.push_from(from, *event));
            column
        });
        Ok(arrow::record_batch(taken.collect(), attributes)?)
    }
}

/// Translates an update.
///
/// Errors: what the other system cannot evaluate.
pub(super) fn push_update(
    on: &TableSearch,
    set: &[(usize, Expr)],
) -> Result<(StoreUpdate, Vec<Expr>), String> {
    if reads_assigned_columns(set) {
        return Err("an assignment that reads a column which another one changes".into());
    }
    expr::push_update(on.condition.as_ref(), set, ROW)
}

fn not_open(table: &str) -> EvalError {
    EvalError::request(format!(
        "the rows of `{table}` are in another system, which is only asked where the app runs"
    ))
}

/// Returns events that have the columns of a table as rows.
fn rows_of(events: &Batch, attributes: &Attributes) -> Result<RecordBatch, EvalError> {
    Ok(arrow::record_batch(events.columns.clone(), attributes)?)
}

/// Returns parameters as a batch with the columns `p0`, `p1` and so on.
fn parameter_batch(columns: Vec<Column>, rows: usize) -> Result<RecordBatch, EvalError> {
    let names: Vec<(String, FieldType)> =
        columns.iter().enumerate().map(|(i, column)| (format!("p{i}"), column.ty())).collect();
    if columns.is_empty() {
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        let empty = RecordBatch::try_new_with_options(arrow::schema(&names), vec![], &options);
        return empty.map_err(|e| EvalError::internal(e.to_string()));
    }
    Ok(arrow::record_batch(columns, &names)?)
}
