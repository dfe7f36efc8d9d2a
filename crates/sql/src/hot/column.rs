//! Columns of blocks: those of the table, and expressions over them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::take;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::{DFSchema, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use super::layout::{Cells, Layout};
use super::stats::{StatKind, Stats};

/// Expression over the columns of a table that is evaluated once per block. A plain column is one, too.
#[derive(Debug, Clone)]
pub(crate) struct ColumnExpr {
    /// Expression without table names: the identity of the column in a block.
    pub expr: Expr,
    /// Columns of the table that it reads, in the order of the input batch.
    pub inputs: Vec<usize>,
    pub ty: DataType,
    input_schema: SchemaRef,
    physical: Arc<dyn PhysicalExpr>,
}

impl ColumnExpr {
    /// Creates the expression over a table of `schema`; `None` if it cannot be evaluated row by row, once and for all.
    pub fn new(expr: Expr, schema: &Schema) -> Option<Self> {
        if expr.is_volatile() {
            return None;
        }
        let mut inputs = Vec::new();
        for column in expr.column_refs() {
            inputs.push(schema.index_of(&column.name).ok()?);
        }
        inputs.sort_unstable();
        let input_schema = Arc::new(schema.project(&inputs).ok()?);
        let physical = physical(&expr, &input_schema)?;
        let ty = expr.get_type(&DFSchema::try_from(input_schema.clone()).ok()?).ok()?;
        // arrays of other types have nulls that their bitmap does not show
        let plain_nulls =
            ty.is_primitive() || matches!(ty, DataType::Boolean | DataType::Utf8 | DataType::Utf8View);
        if !plain_nulls {
            return None;
        }
        Some(Self { expr, inputs, ty, input_schema, physical })
    }

    /// Returns the column of the table that this is; `None` for another expression.
    pub fn plain(&self) -> Option<usize> {
        match (&self.expr, self.inputs.as_slice()) {
            (Expr::Column(_), [one]) => Some(*one),
            _ => None,
        }
    }

    /// Evaluates the expression for `rows` rows of its inputs.
    pub fn evaluate(&self, inputs: Vec<ArrayRef>, rows: usize) -> Result<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.input_schema.clone(), inputs, &options)?;
        self.physical.evaluate(&batch)?.into_array(rows)
    }
}

/// Plans `expr` over batches of `schema`; `None` if a part of it is not an expression over rows.
pub(crate) fn physical(expr: &Expr, schema: &SchemaRef) -> Option<Arc<dyn PhysicalExpr>> {
    let names = DFSchema::try_from(schema.clone()).ok()?;
    create_physical_expr(expr, &names, &ExecutionProps::new(), &PhysicalPlanningContext::default()).ok()
}

/// Returns the bytes of the values alone, even if they are a slice of a larger array.
pub(crate) fn array_bytes(values: &ArrayRef) -> usize {
    let bytes = values.to_data().get_slice_memory_size();
    bytes.unwrap_or_else(|_| values.get_array_memory_size())
}

/// Values of a [`ColumnExpr`] in the order of a block.
#[derive(Debug)]
pub(crate) struct HotColumn {
    pub values: ArrayRef,
    /// True if all values are finite: DataFusion's `min` and `max` of NaN and infinite values depend on the
    /// order of rows.
    pub finite: bool,
    /// Size of the values, in bytes.
    bytes: usize,
    /// Aggregates of each cell, once a query has asked for them.
    stats: OnceLock<Stats>,
    /// Number of the use in which a query last needed the column.
    used: AtomicU64,
}

impl HotColumn {
    /// Creates the column of `values`, which have the order of the block.
    pub fn new(values: ArrayRef) -> Self {
        let finite = match values.data_type() {
            DataType::Float32 => values.as_primitive::<Float32Type>().iter().flatten().all(f32::is_finite),
            DataType::Float64 => values.as_primitive::<Float64Type>().iter().flatten().all(f64::is_finite),
            _ => true,
        };
        let bytes = array_bytes(&values);
        Self { values, finite, bytes, stats: OnceLock::new(), used: AtomicU64::new(0) }
    }

    /// Creates the column of `values`, which have the order of the source of the block.
    pub fn ordered(values: ArrayRef, layout: &Layout) -> Result<Self> {
        Ok(Self::new(match &layout.order {
            None => values,
            Some(order) => take(&values, order, None)?,
        }))
    }

    /// Returns the aggregates of each cell.
    pub fn stats(&self, cells: &Cells) -> &Stats {
        self.stats.get_or_init(|| {
            let mut stats = Stats::new(StatKind::of(self.values.data_type()));
            for cell in 0..cells.len() {
                stats.push_empty();
                stats.add_rows(cell, &self.values, cells.start(cell)..cells.start(cell + 1));
            }
            stats
        })
    }

    /// Returns whether the aggregates of cells are known.
    pub fn has_stats(&self) -> bool {
        self.stats.get().is_some()
    }

    /// Returns the number of the use in which a query last needed the column.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub fn touch(&self, use_number: u64) {
        self.used.store(use_number, Ordering::Relaxed);
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes + self.stats.get().map_or(0, Stats::bytes)
    }
}
