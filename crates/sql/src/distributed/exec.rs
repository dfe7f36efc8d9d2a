//! Operator whose rows come from other nodes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::ReplaceChildrenOptions;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use prost::Message;
use tidemill_types::{Error, ErrorKind};

use super::message::{FragmentMessage, FragmentReply, decode_reply, encode_plan, versions};
use super::rule::Distribution;
use super::scan::{Shares, TabletScanExec};
use crate::error::{NodeLost, to_datafusion};
use crate::execution::work::Work;

/// Time in which a node has to begin a fragment, if the statement has that much.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Operator that has other nodes execute a fragment. Shape: a partition for each of them, with the columns of the fragment.
///
/// Errors: [`NodeLost`] if a node cannot be asked or is lost; those of the node, with its name.
#[derive(Debug)]
pub(super) struct DistributedExec {
    to: Arc<Distribution>,
    fragment: Arc<dyn ExecutionPlan>,
    shares: Arc<Shares>,
    /// Plans by node, in the order of partitions.
    plans: Vec<(String, Bytes)>,
    batch_rows: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DistributedExec {
    /// Creates the operator. The leaf of `fragment` is a [`TabletScanExec`].
    ///
    /// Errors: those of DataFusion, for a fragment that cannot be encoded.
    pub fn new(
        to: Arc<Distribution>,
        fragment: Arc<dyn ExecutionPlan>,
        shares: Arc<Shares>,
        batch_rows: usize,
    ) -> Result<Self> {
        let plans = shares.nodes.iter().map(|(node, files)| {
            let with_files = fragment.clone().transform_down(|plan| {
                Ok(match plan.downcast_ref::<TabletScanExec>() {
                    Some(scan) => Transformed::yes(Arc::new(scan.with_files(files.clone())) as _),
                    None => Transformed::no(plan),
                })
            })?;
            Ok((node.clone(), encode_plan(&with_files.data)?))
        });
        let plans = plans.collect::<Result<Vec<_>>>()?;
        let properties = PlanProperties::new(
            fragment.equivalence_properties().clone(),
            Partitioning::UnknownPartitioning(plans.len()),
            fragment.pipeline_behavior(),
            fragment.boundedness(),
        );
        let (properties, metrics) = (Arc::new(properties), ExecutionPlanMetricsSet::new());
        Ok(Self { to, fragment, shares, plans, batch_rows, properties, metrics })
    }
}

/// Returns whether other nodes execute parts of a plan.
pub(crate) fn is_distributed(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<DistributedExec>() || plan.children().into_iter().any(is_distributed)
}

impl DisplayAs for DistributedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.shares.nodes.keys().map(|node| self.shares.describe(node)).collect();
        let mut operators = Vec::new();
        let mut next = Some(&self.fragment);
        while let Some(plan) = next {
            operators
                .push(DisplayableExecutionPlan::new(plan.as_ref()).one_line().to_string().trim().to_owned());
            next = plan.children().first().copied();
        }
        write!(f, "DistributedExec: nodes=[{}], fragment=[{}]", nodes.join("; "), operators.join(" <- "))
    }
}

impl ExecutionPlan for DistributedExec {
    fn name(&self) -> &str {
        "DistributedExec"
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

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some((node, plan)) = self.plans.get(partition).cloned() else {
            return Err(to_datafusion(Error::internal(format!(
                "there is no node for partition {partition}"
            ))));
        };
        let work = context.session_config().get_extension::<Work>();
        let time_left = work.as_ref().and_then(|work| work.budget().time_left());
        let time_left = time_left.unwrap_or(self.to.shared.options.query_timeout);
        let message = FragmentMessage {
            versions: versions(),
            node: self.to.own.clone(),
            statement: self.to.statement.to_string(),
            batch_rows: self.batch_rows as u64,
            time_left_ms: u64::try_from(time_left.as_millis()).unwrap_or(u64::MAX),
            plan,
        };
        let replies = self.to.nodes.run(&node, message.encode_to_vec().into(), time_left.min(BEGIN_TIMEOUT));
        let counter = |name: String| MetricBuilder::new(&self.metrics).counter(name, partition);
        let schema = self.schema();
        let reading = NodeRows {
            replies,
            schema: schema.clone(),
            rows: 0,
            all: BaselineMetrics::new(&self.metrics, partition),
            of_node: counter(format!("rows_of_{node}")),
            bytes: counter(format!("bytes_of_{node}")),
            node,
        };
        let batches = stream::unfold(Some(reading), |reading| async move {
            let mut reading = reading?;
            match reading.next().await {
                Ok(Some(batch)) => Some((Ok(batch), Some(reading))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

/// The replies of a node that are read.
struct NodeRows {
    replies: BoxStream<'static, tidemill_types::Result<Bytes>>,
    schema: SchemaRef,
    node: String,
    /// Rows that have come.
    rows: u64,
    all: BaselineMetrics,
    of_node: Count,
    bytes: Count,
}

impl NodeRows {
    /// Returns the next rows; `None` after all that the node has.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(reply) = self.replies.next().await else {
            let cut_off = Error::unavailable("its rows end before it has said that these are all");
            return Err(NodeLost::of(&self.node, &cut_off).into());
        };
        let reply = reply.map_err(|error| self.failed(&error))?;
        self.bytes.add(reply.len());
        match decode_reply(reply, &self.schema).map_err(|error| self.failed(&error))? {
            FragmentReply::Rows(batch) => {
                self.rows += batch.num_rows() as u64;
                self.all.record_output(batch.num_rows());
                self.of_node.add(batch.num_rows());
                Ok(Some(batch))
            }
            FragmentReply::End { rows } if rows == self.rows => {
                self.all.done();
                Ok(None)
            }
            FragmentReply::End { rows } => Err(self.failed(&Error::internal(format!(
                "it has sent {rows} rows of a statement, and {} have come",
                self.rows
            )))),
        }
    }

    /// Returns the error of the node as one of the statement. One that is unavailable may be replaced by this node.
    fn failed(&self, error: &Error) -> DataFusionError {
        match error.kind() {
            ErrorKind::Unavailable => NodeLost::of(&self.node, error).into(),
            kind => to_datafusion(Error::new(kind, format!("node {}: {error}", self.node))),
        }
    }
}
