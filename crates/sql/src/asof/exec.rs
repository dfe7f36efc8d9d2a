//! The join as an operator.

use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::{
    Distribution, EquivalenceProperties, LexOrdering, OrderingRequirements, Partitioning, PhysicalExpr,
    PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements,
    PlanProperties, SendableRecordBatchStream,
};

use super::merge::{Merge, Rows};
use super::node::Nearest;

/// One input of the join.
#[derive(Debug, Clone)]
pub(super) struct JoinInput {
    pub input: Arc<dyn ExecutionPlan>,
    /// Keys, then the time: the order in which the rows have to come.
    pub order: Vec<Arc<dyn PhysicalExpr>>,
}

/// Operator that joins each left row with the nearest right row of its key.
///
/// Shape: both inputs sorted by key and time, partitioned by key; each left row at most once, in their order.
/// Bounds: holds one batch of each side, and the right batches of the matches that it is about to return.
#[derive(Debug)]
pub(super) struct AsofJoinExec {
    sides: [JoinInput; 2],
    nearest: Nearest,
    is_outer: bool,
    orders: [LexOrdering; 2],
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl AsofJoinExec {
    pub fn new(
        left: JoinInput,
        right: JoinInput,
        nearest: Nearest,
        is_outer: bool,
        schema: SchemaRef,
    ) -> Result<Self> {
        let mut orders = Vec::with_capacity(2);
        for side in [&left, &right] {
            let options = options(side.order.len(), nearest.times());
            let exprs = side.order.iter().cloned().zip(options);
            match LexOrdering::new(exprs.map(|(expr, options)| PhysicalSortExpr::new(expr, options))) {
                Some(order) => orders.push(order),
                None => return internal_err!("an ASOF JOIN compares times"),
            }
        }
        let Ok(orders) = <[LexOrdering; 2]>::try_from(orders) else {
            return internal_err!("a join has two sides");
        };
        let partitions = match left.order.len() {
            1 => 1,
            _ => left.input.output_partitioning().partition_count(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { sides: [left, right], nearest, is_outer, orders, properties, metrics })
    }

    /// Returns the keys of a side.
    fn keys(side: &JoinInput) -> Vec<Arc<dyn PhysicalExpr>> {
        side.order.iter().take(side.order.len().saturating_sub(1)).cloned().collect()
    }
}

/// Returns the order of each column of the keys and the time.
pub(super) fn options(columns: usize, times: SortOptions) -> impl Iterator<Item = SortOptions> {
    let keys = SortOptions { descending: false, nulls_first: true };
    (0..columns).map(move |column| if column + 1 == columns { times } else { keys })
}

impl DisplayAs for AsofJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_outer { "Left" } else { "Inner" };
        let nearest = self.nearest.operator();
        write!(f, "AsofJoinExec: {kind}")?;
        let pairs = self.sides[0].order.iter().zip(&self.sides[1].order);
        for (index, (left, right)) in pairs.enumerate() {
            let operator = if index + 1 == self.sides[0].order.len() { nearest } else { "=" };
            write!(f, ", {left} {operator} {right}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for AsofJoinExec {
    fn name(&self) -> &'static str {
        "AsofJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.sides.iter().map(|side| &side.input).collect()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        let keys = self.sides.each_ref().map(Self::keys);
        match keys[0].is_empty() {
            true => InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2]),
            false => {
                InputDistributionRequirements::co_partitioned(keys.map(Distribution::KeyPartitioned).into())
            }
        }
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.orders.iter().map(|order| Some(OrderingRequirements::from(order.clone()))).collect()
    }

    /// The order of the left rows is kept and not declared: a sort of the result must not become one of the left side.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for expr in self.sides.iter().flat_map(|side| &side.order) {
            if f(expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [left, right] = self.sides.clone();
        let Ok([left_input, right_input]) = <[Arc<dyn ExecutionPlan>; 2]>::try_from(children) else {
            return internal_err!("an ASOF JOIN has two inputs");
        };
        let (left, right) =
            (JoinInput { input: left_input, ..left }, JoinInput { input: right_input, ..right });
        Ok(Arc::new(Self::new(left, right, self.nearest, self.is_outer, self.schema())?))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reservation =
            MemoryConsumer::new(format!("AsofJoinExec[{partition}]")).register(context.memory_pool());
        let mut rows = Vec::with_capacity(2);
        for side in &self.sides {
            let stream = side.input.execute(partition, context.clone())?;
            let options = options(side.order.len(), self.nearest.times());
            rows.push(Rows::new(stream, side.order.clone(), options)?);
        }
        let Ok([left, right]) = <[Rows; 2]>::try_from(rows) else {
            return internal_err!("a join has two sides");
        };
        let merge =
            Merge::new(left, right, self.nearest.may_equal, self.is_outer, self.schema(), reservation);
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let batches = futures::stream::try_unfold((merge, metrics), |(mut merge, metrics)| async move {
            let batch = merge.next().await?;
            Ok(batch.map(|batch| {
                metrics.record_output(batch.num_rows());
                (batch, (merge, metrics))
            }))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
