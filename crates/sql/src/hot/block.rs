//! A block: the rows of one tablet, or of some batches of the tail, in the order of key and time, column by column.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch, new_empty_array, new_null_array};
use arrow::compute::{cast, concat};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::Expr;
use parking_lot::RwLock;
use tidemill_types::{Value, budget};
use tidemill_zones::Tablet;

use super::address::{self, Addresses};
use super::column::{ColumnExpr, HotColumn, array_bytes};
use super::layout::Layout;
use super::reader::TabletReader;
use super::scan::{HotScan, Roles, ScanResult, TimeRange};

/// Maximum number of expressions that a block keeps beside those of the query that it serves.
const EXPRESSIONS_MAX: usize = 16;

/// Origin of the rows of a block.
#[derive(Debug)]
pub(super) enum BlockSource {
    Tablet(Arc<Tablet>),
    /// Batches of the tail, with the columns of the table.
    Batches(Vec<RecordBatch>),
}

/// Rows of a table in memory. Columns are decoded when a query first needs them.
#[derive(Debug)]
pub(crate) struct Block {
    source: BlockSource,
    /// Size of the batches of the source, in bytes.
    source_bytes: usize,
    schema: SchemaRef,
    roles: Roles,
    pub layout: OnceLock<Arc<Layout>>,
    /// True if the declared time field has the value of `_time` in every row.
    time_field_agrees: OnceLock<bool>,
    columns: RwLock<HashMap<Expr, Arc<HotColumn>>>,
    /// Held while columns are decoded, so that concurrent queries decode them once.
    loading: tokio::sync::Mutex<()>,
    /// Number of uses of its columns.
    uses: AtomicU64,
    /// Number of the use in which a query last needed the block.
    pub(super) used: AtomicU64,
}

/// A block with the columns that one scan needs, in the order of [`HotScan::columns`].
#[derive(Debug, Clone)]
pub(crate) struct BoundBlock {
    pub layout: Arc<Layout>,
    pub columns: Vec<Arc<HotColumn>>,
}

/// Answer of a block to a scan.
pub(super) enum Bound {
    Ready(BoundBlock),
    /// Columns have to be decoded first.
    Missing,
    /// The rows must be read in another way.
    Unservable,
}

impl Block {
    pub fn new(source: BlockSource, schema: SchemaRef, roles: Roles) -> Self {
        let source_bytes = match &source {
            BlockSource::Tablet(_) => 0,
            BlockSource::Batches(batches) => {
                batches.iter().flat_map(RecordBatch::columns).map(array_bytes).sum()
            }
        };
        Self {
            source,
            source_bytes,
            schema,
            roles,
            layout: OnceLock::new(),
            time_field_agrees: OnceLock::new(),
            columns: RwLock::default(),
            loading: tokio::sync::Mutex::default(),
            uses: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match &self.source {
            BlockSource::Tablet(tablet) => usize::try_from(tablet.rows).unwrap_or(usize::MAX),
            BlockSource::Batches(batches) => batches.iter().map(RecordBatch::num_rows).sum(),
        }
    }

    /// Returns the size of what is decoded, in bytes. Batches of the tail count, because the block keeps them alive.
    pub fn bytes(&self) -> usize {
        let columns: usize = self.columns.read().values().map(|c| c.bytes()).sum();
        self.source_bytes + columns + self.layout.get().map_or(0, |l| l.bytes())
    }

    /// Returns whether a row of the block may be in `times`, as far as is known without decoding it.
    pub fn may_contain(&self, times: TimeRange) -> bool {
        match &self.source {
            BlockSource::Tablet(tablet) => may_contain(tablet, self.roles.time, times),
            BlockSource::Batches(_) => true,
        }
    }

    /// Returns the columns that `scan` needs, if they are in memory.
    pub(super) fn bound(&self, scan: &HotScan) -> Bound {
        let Some(layout) = self.layout.get() else { return Bound::Missing };
        if scan.selection.by_time_field {
            match self.time_field_agrees.get() {
                None => return Bound::Missing,
                Some(false) => return Bound::Unservable,
                Some(true) => {}
            }
        }
        let known = self.columns.read();
        let mut columns = Vec::with_capacity(scan.columns.len());
        for column in &scan.columns {
            match known.get(&column.expr) {
                None => return Bound::Missing,
                Some(column) => columns.push(column.clone()),
            }
        }
        drop(known);
        if let ScanResult::Aggregates(aggregation) = &scan.result {
            if aggregation.extremes().any(|column| !columns[column].finite) {
                return Bound::Unservable;
            }
            if layout.cells.is_some() && !columns.iter().all(|column| column.has_stats()) {
                return Bound::Missing;
            }
        }
        let use_number = self.uses.fetch_add(1, Ordering::Relaxed) + 1;
        columns.iter().for_each(|column| column.touch(use_number));
        Bound::Ready(BoundBlock { layout: layout.clone(), columns })
    }

    /// Returns the columns `indexes` of the table, with the rows of all of them in the same order, and whether any of them had to be
    /// decoded.
    ///
    /// Errors: those of the object store; `Corrupt` for a damaged tablet.
    pub(super) async fn rows_of(
        &self,
        indexes: &[usize],
        reader: &TabletReader,
    ) -> Result<(Vec<Arc<HotColumn>>, bool)> {
        if let Some(columns) = self.plain_columns(indexes) {
            return Ok((columns, false));
        }
        let _loading = self.loading.lock().await;
        let missing: Vec<usize> = {
            let known = self.columns.read();
            indexes.iter().copied().filter(|index| !known.contains_key(&self.plain(*index))).collect()
        };
        let Some(arrays) = self.read(&missing, reader).await? else {
            return Err(DataFusionError::ResourcesExhausted(
                "the texts of a file are too large for hot data".to_owned(),
            ));
        };
        for (index, array) in missing.into_iter().zip(arrays) {
            // the layout is built by `load` only, which waits for the lock
            let column = match self.layout.get() {
                Some(layout) => HotColumn::ordered(array, layout)?,
                None => HotColumn::new(array),
            };
            self.columns.write().insert(self.plain(index), Arc::new(column));
        }
        match self.plain_columns(indexes) {
            Some(columns) => Ok((columns, true)),
            None => internal_err!("a block lacks columns that it has just decoded"),
        }
    }

    /// Returns the columns `indexes` of the table if all are in memory.
    fn plain_columns(&self, indexes: &[usize]) -> Option<Vec<Arc<HotColumn>>> {
        let known = self.columns.read();
        indexes.iter().map(|index| known.get(&self.plain(*index)).cloned()).collect()
    }

    /// Reads columns of the source; `None` if their texts are too large.
    async fn read(&self, indexes: &[usize], reader: &TabletReader) -> Result<Option<Vec<ArrayRef>>> {
        match &self.source {
            BlockSource::Tablet(tablet) => reader.read(tablet, &self.schema, indexes).await,
            BlockSource::Batches(batches) => {
                let columns = batches.iter().flat_map(|batch| {
                    indexes.iter().filter_map(|index| batch.column_by_name(self.schema.field(*index).name()))
                });
                match columns.map(array_bytes).sum::<usize>() > reader.text_bytes_max {
                    true => Ok(None),
                    false => from_batches(batches, &self.schema, indexes).map(Some),
                }
            }
        }
    }

    /// Decodes what `scan` needs and is not in memory yet. Returns whether the block can serve the scan.
    ///
    /// Errors: those of the object store; `Corrupt` for a damaged tablet.
    pub(super) async fn load(self: &Arc<Self>, scan: &HotScan, reader: &TabletReader) -> Result<Bound> {
        let _loading = self.loading.lock().await;
        let missing = self.missing(scan);
        let Some(sources) = self.read(&missing.sources, reader).await? else { return Ok(Bound::Unservable) };
        let (block, scan) = (self.clone(), scan.clone());
        let budget = budget::current();
        let built = tokio::task::spawn_blocking(move || {
            let _entered = budget.enter();
            block.build(&scan, missing, sources)
        });
        match built.await {
            Ok(bound) => bound,
            Err(e) => internal_err!("decoding a tablet ended early: {e}"),
        }
    }

    fn missing(&self, scan: &HotScan) -> Missing {
        let known = self.columns.read();
        let exprs: Vec<ColumnExpr> =
            scan.columns.iter().filter(|c| !known.contains_key(&c.expr)).cloned().collect();
        let time_field = self
            .roles
            .time_field
            .filter(|_| scan.selection.by_time_field && self.time_field_agrees.get().is_none());
        let mut sources: Vec<usize> = exprs.iter().flat_map(|e| e.inputs.iter().copied()).collect();
        sources.retain(|index| !known.contains_key(&self.plain(*index)));
        let layout_is_missing = self.layout.get().is_none();
        if layout_is_missing || time_field.is_some() {
            sources.extend(self.roles.key);
            sources.push(self.roles.time);
        }
        if layout_is_missing {
            sources.extend(address::columns(&self.schema).into_iter().flatten());
        }
        sources.extend(time_field);
        sources.sort_unstable();
        sources.dedup();
        Missing { exprs, sources, time_field }
    }

    /// Name of a plain column in `columns`.
    fn plain(&self, index: usize) -> Expr {
        Expr::Column(datafusion::common::Column::new_unqualified(self.schema.field(index).name()))
    }

    fn build(&self, scan: &HotScan, missing: Missing, arrays: Vec<ArrayRef>) -> Result<Bound> {
        let sources: HashMap<usize, ArrayRef> = missing.sources.iter().copied().zip(arrays).collect();
        let source = |index: usize| {
            let array = sources.get(&index);
            array.ok_or_else(|| DataFusionError::Internal(format!("column {index} was not read")))
        };
        if self.layout.get().is_none() {
            let time = source(self.roles.time)?;
            if time.null_count() > 0 || !in_nanoseconds(time) {
                return Ok(Bound::Unservable);
            }
            let key = self.roles.key.map(source).transpose()?;
            let addresses = match address::columns(&self.schema) {
                Some([partition, offset, row]) => {
                    Some(Addresses::new([source(partition)?, source(offset)?, source(row)?])?)
                }
                None => None,
            };
            let layout = Layout::build(key, time, addresses.as_ref())?;
            self.reorder(&layout)?;
            let _ = self.layout.set(Arc::new(layout));
        }
        let Some(layout) = self.layout.get().cloned() else { return internal_err!("a block has no layout") };
        if let Some(field) = missing.time_field {
            let (field, time) = (source(field)?, source(self.roles.time)?);
            let _ = self.time_field_agrees.set(field.to_data() == time.to_data());
        }
        let mut needed: Vec<usize> = missing.exprs.iter().flat_map(|e| e.inputs.iter().copied()).collect();
        needed.sort_unstable();
        needed.dedup();
        for index in needed {
            if let Some(array) = sources.get(&index) {
                let column = HotColumn::ordered(array.clone(), &layout)?;
                self.columns.write().insert(self.plain(index), Arc::new(column));
            }
        }
        for expr in missing.exprs.iter().filter(|e| e.plain().is_none()) {
            let known = self.columns.read();
            let inputs: Option<Vec<ArrayRef>> =
                expr.inputs.iter().map(|i| known.get(&self.plain(*i)).map(|c| c.values.clone())).collect();
            drop(known);
            let Some(inputs) = inputs else {
                return internal_err!("the inputs of {} are missing", expr.expr);
            };
            // an error may come from rows that the query does not select: then the rows have to be read one by one
            let Ok(values) = expr.evaluate(inputs, layout.rows) else { return Ok(Bound::Unservable) };
            self.columns.write().insert(expr.expr.clone(), Arc::new(HotColumn::new(values)));
        }
        self.drop_old_expressions(scan);
        if let (ScanResult::Aggregates(_), Some(cells)) = (&scan.result, &layout.cells) {
            let known = self.columns.read().clone();
            scan.columns.iter().filter_map(|c| known.get(&c.expr)).for_each(|column| _ = column.stats(cells));
        }
        Ok(self.bound(scan))
    }

    /// Brings the columns that were decoded before there was a layout into its order.
    fn reorder(&self, layout: &Layout) -> Result<()> {
        if layout.order.is_none() {
            return Ok(());
        }
        let mut columns = self.columns.write();
        for column in columns.values_mut() {
            *column = Arc::new(HotColumn::ordered(column.values.clone(), layout)?);
        }
        Ok(())
    }

    /// Drops the expressions that were needed least recently, if there are many: a query whose constants change has
    /// another expression each time.
    fn drop_old_expressions(&self, scan: &HotScan) {
        let mut columns = self.columns.write();
        let old =
            |expr: &Expr| !matches!(expr, Expr::Column(_)) && scan.columns.iter().all(|c| c.expr != *expr);
        let mut expressions: Vec<(u64, Expr)> = columns
            .iter()
            .filter(|(expr, _)| old(expr))
            .map(|(expr, column)| (column.used(), expr.clone()))
            .collect();
        expressions.sort_by_key(|(used, _)| *used);
        let surplus = expressions.len().saturating_sub(EXPRESSIONS_MAX);
        for (_, expr) in expressions.into_iter().take(surplus) {
            columns.remove(&expr);
        }
    }

    pub(super) fn touch(&self, tick: u64) {
        self.used.store(tick, Ordering::Relaxed);
    }
}

/// Returns whether a row of `tablet` may be in `times` by the column `time`.
pub(super) fn may_contain(tablet: &Tablet, time: usize, times: TimeRange) -> bool {
    let Some(stats) = tablet.columns.get(time) else { return true };
    // the bounds of the Delta log are rounded outwards
    let before = matches!(&stats.max, Some(Value::Time(max)) if max.micros() < times.from);
    let after = matches!(&stats.min, Some(Value::Time(min)) if min.micros() > times.last);
    !before && !after
}

/// Columns that a block has to decode for a scan.
struct Missing {
    exprs: Vec<ColumnExpr>,
    /// Columns of the table to read, ascending.
    sources: Vec<usize>,
    /// The declared time field, if it has to be compared with `_time`.
    time_field: Option<usize>,
}

/// Returns whether all times fit into 64 bits of nanoseconds, in which `date_bin` calculates.
fn in_nanoseconds(times: &ArrayRef) -> bool {
    use arrow::array::AsArray;
    use arrow::datatypes::TimestampMicrosecondType;
    let limit = i64::MAX / 1_000 / 2;
    let times = times.as_primitive_opt::<TimestampMicrosecondType>();
    times.is_some_and(|t| t.values().iter().all(|v| (-limit..=limit).contains(v)))
}

/// Returns the columns `indexes` of `schema` from `batches`, which may lack some of them.
fn from_batches(batches: &[RecordBatch], schema: &SchemaRef, indexes: &[usize]) -> Result<Vec<ArrayRef>> {
    let columns = indexes.iter().map(|index| {
        let field = schema.field(*index);
        let pieces = batches.iter().map(|batch| match batch.column_by_name(field.name()) {
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            Some(column) => conform(column, field.data_type()),
        });
        join(&pieces.collect::<Result<Vec<_>>>()?, field.data_type())
    });
    columns.collect()
}

/// Concatenates pieces of a column.
pub(super) fn join(pieces: &[ArrayRef], ty: &arrow::datatypes::DataType) -> Result<ArrayRef> {
    match pieces {
        [] => Ok(new_empty_array(ty)),
        [one] => Ok(one.clone()),
        several => Ok(concat(&several.iter().map(|a| a.as_ref()).collect::<Vec<_>>())?),
    }
}

/// Casts a column to the type that the table has for it.
pub(super) fn conform(column: &ArrayRef, ty: &arrow::datatypes::DataType) -> Result<ArrayRef> {
    match column.data_type() == ty {
        true => Ok(column.clone()),
        false => Ok(cast(column, ty)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array, TimestampMicrosecondArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use datafusion::execution::runtime_env::RuntimeEnv;

    /// Columns that were decoded for rows before a query needed the order of key and time, and after it.
    #[tokio::test]
    async fn all_columns_have_one_order() {
        let time = TimestampMicrosecondArray::from(vec![30, 10, 20]).with_timezone("UTC");
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("time", Arc::new(time)),
            ("a", Arc::new(Int64Array::from(vec![3, 1, 2]))),
            ("b", Arc::new(Int64Array::from(vec![33, 11, 22]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("equal lengths");
        let fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
        let schema = Arc::new(Schema::new(fields));
        assert_eq!(schema.field(1).data_type(), &DataType::Int64);
        let block = Block::new(
            BlockSource::Batches(vec![batch]),
            schema,
            Roles { key: None, time: 0, time_field: None },
        );
        let reader = TabletReader {
            environment: Arc::new(RuntimeEnv::default()),
            store: url::Url::parse("memory:///").expect("a URL"),
            files: Arc::default(),
            text_bytes_max: 1 << 20,
        };
        let values = |columns: &[Arc<HotColumn>]| -> Vec<Vec<i64>> {
            columns.iter().map(|c| c.values.as_primitive::<Int64Type>().values().to_vec()).collect()
        };
        let (before, new) = block.rows_of(&[1], &reader).await.expect("decoded");
        assert!(new && values(&before) == [[3, 1, 2]]);
        let time = block.read(&[0], &reader).await.expect("decoded").expect("no texts").remove(0);
        let layout = Layout::build(None, &time, None).expect("a layout");
        block.reorder(&layout).expect("reordered");
        block.layout.set(Arc::new(layout)).expect("no layout yet");
        let (after, _) = block.rows_of(&[1, 2], &reader).await.expect("decoded");
        assert_eq!(values(&after), [[1, 2, 3], [11, 22, 33]]);
        let (again, new) = block.rows_of(&[2, 1], &reader).await.expect("in memory");
        assert!(!new && values(&again) == [[11, 22, 33], [1, 2, 3]]);
    }
}
