//! Operator of gap filling.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch};
use arrow::compute::{SortOptions, concat_batches, partition};
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, LexRequirement, OrderingRequirements, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties, SendableRecordBatchStream,
};
use futures::StreamExt;
use tidemill_types::Timestamp;

use super::buckets::{Buckets, Step};
use super::node::FillKind;
use super::planner::too_many;
use super::series::Series;

/// Specification of the filling by a [`GapFillExec`].
#[derive(Debug)]
pub(super) struct FillSpec {
    /// Column of the buckets.
    pub bucket: usize,
    /// Columns that identify a group.
    pub keys: Vec<usize>,
    /// Fill method of each of the last columns.
    pub fills: Vec<FillKind>,
    pub buckets: Buckets,
    /// Maximum number of rows that are added to all groups.
    pub rows_max: usize,
}

/// Operator that adds rows for the buckets that a group does not have.
///
/// Shape: each partition has whole groups, sorted by keys and bucket; so has the output. Memory: the rows of one group
/// and partition. Without keys there is one group, even if there are no rows.
#[derive(Debug)]
pub(super) struct GapFillExec {
    input: Arc<dyn ExecutionPlan>,
    spec: Arc<FillSpec>,
    order: LexOrdering,
    added: Arc<AtomicUsize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl GapFillExec {
    pub fn new(input: Arc<dyn ExecutionPlan>, spec: Arc<FillSpec>) -> Result<Self> {
        let schema = output_schema(&input.schema(), &spec);
        let sorted = |index: &usize| {
            let column = Arc::new(Column::new(schema.field(*index).name(), *index)) as Arc<dyn PhysicalExpr>;
            PhysicalSortExpr::new(column, SortOptions { descending: false, nulls_first: true })
        };
        let Some(order) = LexOrdering::new(spec.keys.iter().chain([&spec.bucket]).map(sorted)) else {
            return internal_err!("gaps are filled in the order of buckets");
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new_with_orderings(schema, [order.clone()]),
            input.output_partitioning().clone(),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (added, metrics) = (Arc::default(), ExecutionPlanMetricsSet::new());
        Ok(Self { input, spec, order, added, properties: Arc::new(properties), metrics })
    }

    fn columns(&self, indexes: &[usize]) -> Vec<Arc<dyn PhysicalExpr>> {
        let schema = self.input.schema();
        indexes.iter().map(|i| Arc::new(Column::new(schema.field(*i).name(), *i)) as _).collect()
    }
}

/// Returns the schema of the input, in which added rows may have nulls.
fn output_schema(input: &SchemaRef, spec: &FillSpec) -> SchemaRef {
    let fields = input.fields().iter().enumerate().map(|(index, field)| {
        let given = index == spec.bucket || spec.keys.contains(&index);
        field.as_ref().clone().with_nullable(field.is_nullable() || !given)
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), input.metadata().clone()))
}

impl DisplayAs for GapFillExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Buckets { first, last, step } = self.spec.buckets;
        match step {
            Step::Fixed(width) => write!(f, "GapFillExec: every {}s", width as f64 / 1e6)?,
            Step::Months(months) => write!(f, "GapFillExec: every {months} months")?,
        }
        match first <= last {
            true => write!(f, " from {} to {}", Timestamp(first), Timestamp(last)),
            false => write!(f, ", no buckets"),
        }
    }
}

impl ExecutionPlan for GapFillExec {
    fn name(&self) -> &'static str {
        "GapFillExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![match self.spec.keys.as_slice() {
            [] => Distribution::SinglePartition,
            keys => Distribution::KeyPartitioned(self.columns(keys)),
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::new(LexRequirement::from(self.order.clone())))]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<datafusion::common::tree_node::TreeNodeRecursion>,
    ) -> Result<datafusion::common::tree_node::TreeNodeRecursion> {
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    }

    /// Returns the operator with new metrics and a new count of rows, as a plan that is executed again needs.
    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self::new(input, self.spec.clone())?)),
            None => internal_err!("gap filling has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, index: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let consumer = MemoryConsumer::new(format!("GapFillExec[{index}]"));
        let filling = Filling {
            input: self.input.execute(index, context.clone())?,
            spec: self.spec.clone(),
            schema: self.schema(),
            slices: VecDeque::new(),
            group: vec![],
            group_bytes: 0,
            began: false,
            series: None,
            ended: false,
            batch_size: context.session_config().batch_size(),
            reservation: consumer.register(context.memory_pool()),
            added: self.added.clone(),
            rows_added: MetricBuilder::new(&self.metrics).counter("rows_added", index),
            metrics: BaselineMetrics::new(&self.metrics, index),
        };
        let batches = futures::stream::try_unfold(filling, |mut filling| async move {
            Ok(filling.next().await?.map(|batch| (batch, filling)))
        });
        // without this, the rows of a long range would be made without a pause
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// State of the filling of a partition.
struct Filling {
    input: SendableRecordBatchStream,
    spec: Arc<FillSpec>,
    schema: SchemaRef,
    /// Rows of the input that were read, in one batch for each group.
    slices: VecDeque<RecordBatch>,
    /// Rows of the group that is being read.
    group: Vec<RecordBatch>,
    group_bytes: usize,
    /// Set once the filling of a group has started.
    began: bool,
    /// The group that is being filled.
    series: Option<Series>,
    ended: bool,
    batch_size: usize,
    reservation: MemoryReservation,
    added: Arc<AtomicUsize>,
    rows_added: Count,
    metrics: BaselineMetrics,
}

impl Filling {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.fill()? {
                return Ok(Some(batch));
            }
            if let Some(slice) = self.slices.pop_front() {
                if !self.continues(&slice)? {
                    self.begin()?;
                }
                let bytes = slice_bytes(&slice)?;
                self.reservation.try_grow(bytes)?;
                self.group_bytes += bytes;
                self.group.push(slice);
            } else if self.ended {
                let without_rows = self.spec.keys.is_empty() && !self.began;
                if self.group.is_empty() && !without_rows {
                    return Ok(None);
                }
                self.begin()?;
            } else {
                self.read().await?;
            }
        }
    }

    /// Reads a batch of the input and cuts it into groups.
    async fn read(&mut self) -> Result<()> {
        let Some(batch) = self.input.next().await.transpose()? else {
            self.ended = true;
            return Ok(());
        };
        let keys: Vec<_> = self.spec.keys.iter().map(|key| batch.column(*key).clone()).collect();
        if batch.num_rows() == 0 {
            return Ok(());
        }
        if keys.is_empty() {
            self.slices.push_back(batch);
            return Ok(());
        }
        let groups = partition(&keys)?.ranges();
        self.slices.extend(groups.into_iter().map(|range| batch.slice(range.start, range.len())));
        Ok(())
    }

    /// Returns whether the rows belong to the group that is being read.
    fn continues(&self, slice: &RecordBatch) -> Result<bool> {
        let Some(first) = self.group.first() else { return Ok(true) };
        for key in &self.spec.keys {
            let same = ScalarValue::try_from_array(first.column(*key), 0)?
                == ScalarValue::try_from_array(slice.column(*key), 0)?;
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Begins to fill the group that was read.
    fn begin(&mut self) -> Result<()> {
        let rows = match self.group.as_slice() {
            [one] => one.clone(),
            several => {
                self.reservation.try_grow(self.group_bytes)?;
                concat_batches(&self.input.schema(), several)?
            }
        };
        self.group.clear();
        self.group_bytes = 0;
        self.began = true;
        self.series = Some(Series::new(rows, &self.spec)?);
        Ok(())
    }

    /// Returns the next rows of the group that is being filled.
    fn fill(&mut self) -> Result<Option<RecordBatch>> {
        let Some(series) = &mut self.series else { return Ok(None) };
        let timer = self.metrics.elapsed_compute().clone();
        let _timer = timer.timer();
        let Some(filled) = series.next(&self.spec, &self.schema, self.batch_size)? else {
            self.series = None;
            self.reservation.try_resize(self.group_bytes)?;
            return Ok(None);
        };
        let before = self.added.fetch_add(filled.added, Ordering::Relaxed);
        if before.saturating_add(filled.added) > self.spec.rows_max {
            return Err(too_many("more rows", self.spec.rows_max));
        }
        self.rows_added.add(filled.added);
        self.metrics.record_output(filled.batch.num_rows());
        Ok(Some(filled.batch))
    }
}

/// Returns the bytes of the rows alone, without the rest of the batch that they are a part of.
fn slice_bytes(batch: &RecordBatch) -> Result<usize> {
    let mut bytes = 0;
    for column in batch.columns() {
        bytes += column.to_data().get_slice_memory_size()?;
    }
    Ok(bytes)
}
