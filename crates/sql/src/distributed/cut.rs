//! Plans that are cut where other nodes can execute a part of them.
//!
//! ```text
//! AggregateExec: mode=Partial             parts:  AggregateExec: mode=Partial      AggregateExec: mode=Partial     …
//!   FilterExec                                      FilterExec                       FilterExec
//!     UnionExec                     ─▶                TabletScanExec                   DataSourceExec (own tablets)
//!       DataSourceExec (tablets)                    for the tablets of others
//!       DataSourceExec (tail)
//! ```
//!
//! An operator is repeated in each part if the rows of one of its partitions depend on the same partition of its input only. So a part is some
//! partitions of the result, in any order and number, which is why this ends where an operator needs certain partitions.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::physical_expr::Partitioning;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::expressions::{EXPRESSION_DEPTH_MAX, can_be_sent, is_known};
use super::scan::{Shares, TabletScan, TabletScanExec};

/// A part of a plan that was cut.
pub(super) struct Part {
    pub plan: Arc<dyn ExecutionPlan>,
    /// Files of the nodes that are to execute it; `None` for a part that this node executes.
    pub shares: Option<Arc<Shares>>,
    /// True if fewer rows come out of it than its files have.
    reduces: bool,
}

impl Part {
    fn here(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan, shares: None, reduces: true }
    }

    /// Returns the part with an operator above it.
    fn below(self, operator: &Arc<dyn ExecutionPlan>, reduces: bool) -> Result<Self> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let plan = operator.clone().replace_children(vec![self.plan], options)?;
        Ok(Self { plan, reduces: self.reduces || reduces, ..self })
    }
}

/// Cuts plans for a cluster.
pub(super) struct Cutter<'c> {
    /// Functions that each node has.
    pub functions: &'c SessionState,
    /// Names of all nodes.
    pub nodes: &'c [String],
    /// Name of this node.
    pub own: &'c str,
    /// Length of the files of a scan from which on it is distributed.
    pub bytes_min: u64,
}

impl Cutter<'_> {
    /// Cuts a plan; `None` if no part of it is for other nodes, or if a part would send as many rows as its files have.
    pub fn cut(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Vec<Part>>> {
        let parts = self.parts(plan)?;
        let elsewhere = |parts: &[Part]| parts.iter().any(|part| part.shares.is_some());
        Ok(parts.filter(|parts| elsewhere(parts) && parts.iter().all(|part| part.reduces)))
    }

    fn parts(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Vec<Part>>> {
        if let Some(scan) = TabletScan::of(plan, self.nodes)? {
            return Ok(self.of_scan(plan, &scan));
        }
        if plan.is::<UnionExec>() {
            let mut parts = Vec::new();
            for child in plan.children() {
                match self.parts(child)? {
                    Some(of_child) => parts.extend(of_child),
                    None => parts.push(Part::here(child.clone())),
                }
            }
            return Ok(Some(parts));
        }
        let Some(input) = plan.children().first().copied().filter(|_| plan.children().len() == 1) else {
            return Ok(None);
        };
        if plan.is::<CooperativeExec>() {
            return self.parts(input);
        }
        if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            return match repartition.partitioning() {
                Partitioning::RoundRobinBatch(count) => self.repartitioned(input, *count),
                _ => Ok(None),
            };
        }
        let Some(reduces) = self.treats_partitions_alone(plan)? else { return Ok(None) };
        let Some(parts) = self.parts(input)? else { return Ok(None) };
        parts.into_iter().map(|part| part.below(plan, reduces)).collect::<Result<_>>().map(Some)
    }

    /// Returns whether an operator that can be sent leaves rows out; `None` for one that cannot be sent, or whose partitions depend on each other.
    fn treats_partitions_alone(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<bool>> {
        let reduces = if plan.is::<ProjectionExec>() {
            false
        } else if plan.is::<FilterExec>() && plan.fetch().is_none() {
            true
        } else if let Some(sort) = plan.downcast_ref::<SortExec>() {
            // each partition keeps its first rows
            match sort.fetch().is_some() && sort.preserve_partitioning() {
                true => true,
                false => return Ok(None),
            }
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            match self.is_small_partial(aggregate) {
                true => true,
                false => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        Ok(can_be_sent(plan.as_ref(), self.functions)?.then_some(reduces))
    }

    /// Returns whether an aggregation makes intermediate results that stay small however many rows there are.
    fn is_small_partial(&self, aggregate: &AggregateExec) -> bool {
        let is_small = |ty: &DataType| !ty.is_nested();
        let known = |name: &str| self.functions.udaf(name);
        *aggregate.mode() == AggregateMode::Partial
            && aggregate.schema().fields().iter().all(|field| is_small(field.data_type()))
            && aggregate.aggr_expr().iter().all(|call| {
                let function = call.fun();
                // its intermediate result is the text of all rows
                function.name() != "string_agg"
                    && call.order_bys().is_empty()
                    && known(function.name()).is_ok_and(|known| known.as_ref() == function)
            })
    }

    fn of_scan(&self, plan: &Arc<dyn ExecutionPlan>, scan: &TabletScan<'_>) -> Option<Vec<Part>> {
        let TabletScan { spec, shares, .. } = scan;
        let is_sendable = |expr| is_known(expr, self.functions, EXPRESSION_DEPTH_MAX);
        let columns = spec.projection.iter().flat_map(|projection| projection.iter());
        let is_elsewhere = shares.nodes.keys().any(|node| node != self.own);
        let can = scan.refusal.is_none()
            && shares.all_bytes() >= self.bytes_min
            && is_elsewhere
            && spec.predicate.iter().all(is_sendable)
            && columns.map(|column| &column.expr).all(is_sendable);
        if !can {
            return None;
        }
        let reduces = scan.has_condition();
        let (table, mut nodes) = (shares.table.clone(), shares.nodes.clone());
        nodes.remove(self.own);
        let leaf = Arc::new(TabletScanExec::new(spec.clone(), plan));
        let others = Part { plan: leaf, shares: Some(Arc::new(Shares { table, nodes })), reduces };
        Some([others].into_iter().chain(scan.of_node(self.own).map(Part::here)).collect())
    }

    /// Returns the parts of an input whose rows are spread over more partitions: those of this node are, other nodes do so themselves.
    fn repartitioned(&self, input: &Arc<dyn ExecutionPlan>, count: usize) -> Result<Option<Vec<Part>>> {
        let Some(parts) = self.parts(input)? else { return Ok(None) };
        let spread = |part: Part| {
            if part.shares.is_some() || part.plan.output_partitioning().partition_count() >= count {
                return Ok(part);
            }
            let plan = RepartitionExec::try_new(part.plan.clone(), Partitioning::RoundRobinBatch(count))?;
            Ok(Part { plan: Arc::new(plan), ..part })
        };
        parts.into_iter().map(spread).collect::<Result<_>>().map(Some)
    }
}
