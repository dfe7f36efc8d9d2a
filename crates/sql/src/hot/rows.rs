//! Scan of all rows of some tablets from their decoded columns.
//!
//! A query that no synopsis answers reads rows. Decoding them from Parquet takes most of its time, so columns that are asked
//! for repeatedly are kept, like those of other hot data. The scan belongs to one snapshot; the rows of the tail are read
//! beside it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, MutableArrayData, RecordBatch, make_array};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt, stream};

use super::block::Block;
use super::reader::TabletReader;
use super::store::HotStore;

/// Rows of one tablet.
#[derive(Debug, Clone)]
pub(super) struct BlockRows {
    pub block: Arc<Block>,
    pub rows: Range<usize>,
}

/// Operator that returns columns of all rows of some tablets. Shape: as many partitions as there are threads for a query, each with
/// about as many rows.
#[derive(Debug)]
pub(crate) struct HotRowsExec {
    table: Arc<str>,
    partitions: Vec<Vec<BlockRows>>,
    /// Indexes of the columns in the table.
    columns: Arc<[usize]>,
    statistics: Arc<Statistics>,
    store: Arc<HotStore>,
    reader: TabletReader,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl HotRowsExec {
    /// Creates the scan of `blocks`; `schema` and `statistics` are those of `columns`.
    pub(super) fn new(
        table: Arc<str>,
        blocks: &[Arc<Block>],
        (columns, schema): (Arc<[usize]>, SchemaRef),
        statistics: Statistics,
        (store, reader): (Arc<HotStore>, TabletReader),
        threads: usize,
    ) -> Self {
        let partitions = split(blocks, threads);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            table,
            partitions,
            columns,
            statistics: Arc::new(statistics),
            store,
            reader,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// Distributes the rows of `blocks` over at most `parts` parts of equal size; at least one part, which may be empty.
fn split(blocks: &[Arc<Block>], parts: usize) -> Vec<Vec<BlockRows>> {
    let total: usize = blocks.iter().map(|block| block.rows()).sum();
    let share = total.div_ceil(parts.max(1)).max(1);
    let mut out = vec![Vec::new()];
    let mut room = share;
    for block in blocks {
        let mut start = 0;
        while start < block.rows() {
            if room == 0 {
                out.push(Vec::new());
                room = share;
            }
            let rows = start..block.rows().min(start + room);
            (start, room) = (rows.end, room - rows.len());
            if let Some(part) = out.last_mut() {
                part.push(BlockRows { block: block.clone(), rows });
            }
        }
    }
    out
}

impl DisplayAs for HotRowsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.schema_ref().fields().iter().map(|f| f.name().as_str()).collect();
        write!(f, "HotRowsExec: table={}, columns=[{}]", self.table, names.join(", "))
    }
}

impl HotRowsExec {
    fn schema_ref(&self) -> &SchemaRef {
        self.properties.equivalence_properties().schema()
    }
}

impl ExecutionPlan for HotRowsExec {
    fn name(&self) -> &'static str {
        "HotRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(parts) = self.partitions.get(partition) else {
            return internal_err!("HotRowsExec has no partition {partition}");
        };
        self.store.touch(parts.iter().map(|part| &part.block));
        let rows = context.session_config().batch_size().max(1);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let (columns, schema) = (self.columns.clone(), self.schema_ref().clone());
        let (store, reader) = (self.store.clone(), self.reader.clone());
        let batches = stream::iter(parts.clone()).then(move |part| {
            let (columns, schema, store) = (columns.clone(), schema.clone(), store.clone());
            let reader = reader.clone();
            async move {
                let (decoded, new) = part.block.rows_of(&columns, &reader).await?;
                if new {
                    store.make_room(0);
                }
                let arrays: Vec<ArrayRef> = decoded.iter().map(|column| column.values.clone()).collect();
                let starts = part.rows.clone().step_by(rows);
                let end = part.rows.end;
                let slices =
                    starts.map(move |start| copy_rows(&schema, &arrays, start..end.min(start + rows)));
                Ok::<_, DataFusionError>(stream::iter(slices))
            }
        });
        let batches = batches.try_flatten().inspect_ok(move |batch| {
            metrics.record_output(batch.num_rows());
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        match partition {
            None => Ok(self.statistics.clone()),
            Some(_) => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }
}

/// Returns these rows in memory of their own: operators that keep batches count the whole memory of each, and that of a slice is all
/// of the block's.
pub(crate) fn copy_rows(schema: &SchemaRef, columns: &[ArrayRef], rows: Range<usize>) -> Result<RecordBatch> {
    let copy = |column: &ArrayRef| {
        let data = column.to_data();
        let mut copied = MutableArrayData::new(vec![&data], false, rows.len());
        copied.try_extend(0, rows.start, rows.end)?;
        Ok(make_array(copied.freeze()))
    };
    let copied = columns.iter().map(copy).collect::<Result<_>>()?;
    Ok(RecordBatch::try_new(schema.clone(), copied)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::block::BlockSource;
    use crate::hot::scan::Roles;
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    fn block(rows: usize) -> Arc<Block> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let batch = RecordBatch::try_new(schema.clone(), vec![column]).expect("one column");
        let roles = Roles { key: None, time: 0, time_field: None };
        Arc::new(Block::new(BlockSource::Batches(vec![batch]), schema, roles))
    }

    #[test]
    fn parts_have_every_row_once_and_about_equal_sizes() {
        for (sizes, parts) in
            [(vec![], 2), (vec![1], 2), (vec![10, 0, 3], 2), (vec![7, 7, 7], 4), (vec![100], 3)]
        {
            let blocks: Vec<Arc<Block>> = sizes.iter().map(|rows| block(*rows)).collect();
            let split = split(&blocks, parts);
            let total: usize = sizes.iter().sum();
            let largest = total.div_ceil(parts);
            assert!(split.len() <= parts, "{sizes:?}");
            let mut found = Vec::new();
            for part in &split {
                assert!(part.iter().map(|rows| rows.rows.len()).sum::<usize>() <= largest, "{sizes:?}");
                for BlockRows { block, rows } in part {
                    let number = blocks.iter().position(|other| Arc::ptr_eq(other, block)).expect("a block");
                    found.extend(rows.clone().map(|row| (number, row)));
                }
            }
            let all =
                sizes.iter().enumerate().flat_map(|(number, rows)| (0..*rows).map(move |row| (number, row)));
            assert!(all.eq(found), "{sizes:?}");
        }
    }
}
