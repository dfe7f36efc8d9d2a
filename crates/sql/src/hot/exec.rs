//! The leaf operator of plans that are served from hot data, and the table that stands for it in logical plans.
//!
//! The operator holds no data. Before a plan is executed, each of its scans is bound to the blocks of the query's
//! snapshot ([`Bindings`]), so that a plan can be executed many times and always sees the rows of its time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::TableType;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};

use super::aggregate::GroupColumn;
use super::groups::Aggregator;
use super::latest::latest_rows;
use super::scan::{HotScan, ScanResult};
use super::store::BoundScan;

/// Blocks of the scans of one execution, by scan. An extension of the execution's session configuration.
#[derive(Debug, Default)]
pub(crate) struct Bindings(pub HashMap<u64, Arc<BoundScan>>);

/// Number of the last scan that was planned.
static SCANS: AtomicU64 = AtomicU64::new(0);

/// Table whose rows are the result of a [`HotScan`].
#[derive(Debug)]
pub(crate) struct HotScanTable(pub Arc<HotScan>);

#[async_trait]
impl TableProvider for HotScanTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(HotScanExec::new(self.0.clone(), projection.cloned())?))
    }
}

/// Operator that returns the result of a [`HotScan`]. Shape: one partition.
#[derive(Debug)]
pub(crate) struct HotScanExec {
    pub number: u64,
    pub scan: Arc<HotScan>,
    projection: Option<Vec<usize>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl HotScanExec {
    pub fn new(scan: Arc<HotScan>, projection: Option<Vec<usize>>) -> Result<Self> {
        let schema = match &projection {
            None => scan.schema.clone(),
            Some(columns) => Arc::new(scan.schema.project(columns)?),
        };
        let equivalences = match order(&scan, projection.as_deref(), &schema) {
            None => EquivalenceProperties::new(schema),
            Some(order) => EquivalenceProperties::new_with_orderings(schema, [order]),
        };
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let number = SCANS.fetch_add(1, Ordering::Relaxed);
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { number, scan, projection, properties: Arc::new(properties), metrics })
    }

    /// Returns all operators of this kind in `plan`.
    pub fn all(plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<(u64, Arc<HotScan>)>> {
        let mut found = Vec::new();
        plan.apply(|node| {
            if let Some(exec) = node.downcast_ref::<Self>() {
                found.push((exec.number, exec.scan.clone()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }
}

/// Returns the order of the result by key and finest bin, as far as they are among its columns.
fn order(scan: &HotScan, projection: Option<&[usize]>, schema: &SchemaRef) -> Option<LexOrdering> {
    let ScanResult::Aggregates(aggregation) = &scan.result else { return None };
    let place = |wanted: &dyn Fn(&GroupColumn) -> bool| {
        let column = aggregation.groups.iter().position(wanted)?;
        let column = projection.map_or(Some(column), |p| p.iter().position(|c| *c == column))?;
        let column = Arc::new(Column::new(schema.field(column).name(), column));
        Some(PhysicalSortExpr::new(column, SortOptions { descending: false, nulls_first: true }))
    };
    let finest =
        |group: &GroupColumn| matches!(group, GroupColumn::Bin(bin) if Some(*bin) == aggregation.bin);
    let (key, bin) = (place(&|group| matches!(group, GroupColumn::Key)), place(&finest));
    match aggregation.by_key {
        true => LexOrdering::new(key.map_or(vec![], |key| [key].into_iter().chain(bin).collect())),
        false => LexOrdering::new(bin),
    }
}

impl DisplayAs for HotScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HotScanExec: {}", self.scan)
    }
}

impl ExecutionPlan for HotScanExec {
    fn name(&self) -> &'static str {
        "HotScanExec"
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

    /// Returns the operator with new metrics: a plan that is executed often would collect them without end.
    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self {
            number: self.number,
            scan: self.scan.clone(),
            projection: self.projection.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let bindings = context.session_config().get_extension::<Bindings>();
        let Some(bound) = bindings.and_then(|b| b.0.get(&self.number).cloned()) else {
            return internal_err!("the hot data of `{}` was not bound to a snapshot", self.scan.table);
        };
        let consumer = MemoryConsumer::new("HotScanExec");
        let batches = Batches {
            scan: self.scan.clone(),
            aggregator: Aggregator::new(self.scan.clone(), bound.clone()),
            bound,
            next: 0,
            rows: context.session_config().batch_size(),
            reservation: consumer.register(context.memory_pool()),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let projection = self.projection.clone();
        let batches = batches.map(move |batch| match &projection {
            None => batch,
            Some(columns) => Ok(batch?.project(columns)?),
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), futures::stream::iter(batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn partition_statistics(&self, _: Option<usize>) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Inexact(self.scan.rows_estimate());
        Ok(Arc::new(statistics))
    }
}

/// Batches of a result, each computed when it is asked for, so that a query can be stopped between two of them.
struct Batches {
    scan: Arc<HotScan>,
    bound: Arc<BoundScan>,
    aggregator: Aggregator,
    /// Number of batches returned.
    next: usize,
    rows: usize,
    reservation: MemoryReservation,
    metrics: BaselineMetrics,
}

impl Batches {
    fn compute(&mut self) -> Result<Option<RecordBatch>> {
        let at = self.next;
        self.next += 1;
        match &self.scan.result {
            ScanResult::Aggregates(aggregation) => {
                let reservation = &self.reservation;
                self.aggregator.next(aggregation, self.rows, |bytes| reservation.try_resize(bytes))
            }
            ScanResult::LatestRows if at == 0 => latest_rows(&self.scan, &self.bound).map(Some),
            ScanResult::LatestRows => Ok(None),
            ScanResult::Rows => {
                let Some(block) = self.bound.blocks.get(at) else { return Ok(None) };
                let columns = (0..self.scan.columns.len()).map(|c| block.column(c).values.clone()).collect();
                let options =
                    arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(block.layout.rows));
                Ok(Some(RecordBatch::try_new_with_options(self.scan.schema.clone(), columns, &options)?))
            }
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let timer = self.metrics.elapsed_compute().clone();
        let _timer = timer.timer();
        let batch = self.compute().transpose()?;
        if let Ok(batch) = &batch {
            self.metrics.record_output(batch.num_rows());
        }
        Some(batch)
    }
}
