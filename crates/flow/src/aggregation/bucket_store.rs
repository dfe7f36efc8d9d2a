//! Rows of closed buckets in the store of one granularity.

use std::ops::Range;

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tidemill_connect::{RefusedRow, StoreComparison, StoreExpr, StoreUpdate, TableStore, WritePosition};
use tidemill_types::FieldType;

use super::accumulators::AccumulatorColumn;
use super::stored_accumulators::StoredState;
use crate::arrow;
use crate::catalog::{AggregationPlan, AggregationStore, Attributes};
use crate::columns::column::Column;
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;

/// Open store of one granularity. Searches read through a shared reference.
pub(super) struct BucketStore(Mutex<Box<dyn TableStore>>);

/// Rows that were read from a store, in order of bucket and group.
pub(super) struct StoredRows {
    /// Start of the bucket of each row.
    pub(super) starts: Vec<i64>,
    /// Values of the group of each row.
    pub(super) groups: Vec<Box<[Value]>>,
    /// Accumulators of all rows.
    pub(super) columns: Vec<AccumulatorColumn>,
}

impl BucketStore {
    pub(super) fn new(store: Box<dyn TableStore>) -> Self {
        Self(Mutex::new(store))
    }

    /// Reads the rows of the buckets that start in `range`, of all groups or of one.
    ///
    /// Errors: the other system does not answer; the rows are not as this program writes them.
    pub(super) fn read(
        &self,
        plan: &AggregationPlan,
        store: &AggregationStore,
        range: Range<i64>,
        group: Option<&[Value]>,
    ) -> Result<StoredRows, EvalError> {
        let attributes = &store.tables[0].attributes;
        let mut condition = StoreExpr::And(
            Box::new(compare(StoreComparison::Ge, 0, 0)),
            Box::new(compare(StoreComparison::Lt, 0, 1)),
        );
        let mut values = vec![Value::Long(range.start), Value::Long(range.end)];
        let mut names: Attributes = vec![("p0".into(), FieldType::Long), ("p1".into(), FieldType::Long)];
        for (place, value) in group.unwrap_or_default().iter().enumerate() {
            let equal = compare(StoreComparison::Eq, place + 1, place + 2);
            condition = StoreExpr::And(Box::new(condition), Box::new(equal));
            values.push(value.clone());
            names.push((format!("p{}", place + 2), attributes[place + 1].1));
        }
        let parameters = arrow::record_batch(columns_of(&values, &names), &names)?;
        let found = self.0.lock().find(Some(&condition), &parameters, None)?;
        let columns = arrow::columns(found, attributes)?;
        StoredRows::new(plan, store, &columns)
            .map_err(|what| EvalError::argument(format!("aggregation `{}`: a stored row: {what}", plan.name)))
    }

    /// Writes rows with all columns of the store, in place of those with the same bucket and group.
    ///
    /// Errors: the other system does not answer.
    pub(super) fn write(
        &mut self,
        store: &AggregationStore,
        rows: Vec<Column>,
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>, EvalError> {
        let table = &store.tables[0];
        let rows: RecordBatch = arrow::record_batch(rows, &table.attributes)?;
        let key = &table.primary_key;
        let equal = key.iter().map(|column| compare(StoreComparison::Eq, *column, *column));
        let condition = equal.reduce(|a, b| StoreExpr::And(Box::new(a), Box::new(b)));
        let condition = condition.ok_or_else(|| EvalError::internal("stored rows without a key"))?;
        let others = (0..store.columns.len()).filter(|column| !key.contains(column));
        let set = others.map(|column| (column, StoreExpr::Parameter(column))).collect();
        let change = StoreUpdate { condition, set };
        Ok(self.0.get_mut().update(&change, &rows, Some(&rows), at)?)
    }

    /// Deletes the rows of buckets that start before `time`.
    ///
    /// Errors: the other system does not answer.
    pub(super) fn delete_before(&mut self, time: i64, at: Option<WritePosition>) -> Result<(), EvalError> {
        let names: Attributes = vec![("p0".into(), FieldType::Long)];
        let parameters = arrow::record_batch(columns_of(&[Value::Long(time)], &names), &names)?;
        self.0.get_mut().delete(Some(&compare(StoreComparison::Lt, 0, 0)), &parameters, at)?;
        Ok(())
    }
}

impl StoredRows {
    fn new(plan: &AggregationPlan, store: &AggregationStore, columns: &[Column]) -> Result<Self, String> {
        let groups = plan.group_by.len();
        let start = |row: usize| columns[0].get(row).as_i64();
        let group = |row: usize| columns[1..=groups].iter().map(|column| column.get(row)).collect();
        let mut rows: Vec<(i64, Box<[Value]>, usize)> = Vec::with_capacity(columns[0].len());
        for row in 0..columns[0].len() {
            rows.push((start(row).ok_or("it has no AGG_TIMESTAMP")?, group(row), row));
        }
        let keys = |group: &[Value]| group.iter().cloned().map(Key).collect::<Vec<_>>();
        rows.sort_by_cached_key(|(start, group, _)| (*start, keys(group)));
        let mut accumulators = Vec::with_capacity(plan.accumulators.len());
        for (spec, of) in plan.accumulators.iter().zip(&store.accumulators) {
            let mut restored = AccumulatorColumn::new(spec.kind);
            let arg = spec.arg.map_or(FieldType::Long, |arg| plan.args[arg].ty);
            let cell =
                |column: Option<usize>, row: usize| column.map_or(Value::Null, |c| columns[c].get(row));
            for (_, _, row) in &rows {
                let state = StoredState {
                    value: cell(Some(of.value), *row),
                    count: cell(of.count, *row),
                    last_event_time: cell(store.last_event_time, *row),
                };
                restored.push_stored(state, arg)?;
            }
            accumulators.push(restored);
        }
        Ok(Self {
            starts: rows.iter().map(|(start, ..)| *start).collect(),
            groups: rows.into_iter().map(|(_, group, _)| group).collect(),
            columns: accumulators,
        })
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.starts.len()
    }
}

fn compare(operator: StoreComparison, column: usize, parameter: usize) -> StoreExpr {
    StoreExpr::Compare(
        operator,
        Box::new(StoreExpr::Column(column)),
        Box::new(StoreExpr::Parameter(parameter)),
    )
}

fn columns_of(values: &[Value], attributes: &Attributes) -> Vec<Column> {
    let column = |(value, (_, ty)): (&Value, &(String, FieldType))| {
        let mut column = Column::new(*ty);
        column.push(value.clone());
        column
    };
    values.iter().zip(attributes).map(column).collect()
}
