//! Optimizer rule that gives parts of a plan to other nodes.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::cut::{Cutter, Part};
use super::exec::DistributedExec;
use super::scan::{Shares, TabletScan};
use crate::catalog::QuerySnapshots;
use crate::events::{RowWidth, ScanReports, file_bytes};
use crate::execution::statements::kept_text;
use crate::execution::work::PAGE_UNIT;
use crate::query::QueryRequest;
use crate::session::Shared;
use crate::tables::Nodes;

/// Nodes that may execute a statement together.
pub(crate) struct Distribution {
    pub nodes: Arc<dyn Nodes>,
    /// Name of this node.
    pub own: String,
    /// Names of all nodes, in order.
    pub names: Vec<String>,
    /// Length of the files of a scan from which on it is distributed.
    pub bytes_min: u64,
    /// Reason for which the whole statement stays at this node.
    pub refusal: Option<&'static str>,
    /// The statement, as much of it as other nodes show.
    pub statement: Arc<str>,
    /// Lines of `EXPLAIN` about scans.
    pub reports: Arc<ScanReports>,
    pub shared: Arc<Shared>,
    /// True if the tables have so many bytes that a scan may be distributed; else they are looked at for `EXPLAIN` only.
    is_large: bool,
}

impl Distribution {
    /// Returns the nodes that may execute a query together; `None` if its tables have too few bytes, or if there is one node.
    pub fn of(
        shared: &Arc<Shared>,
        request: &QueryRequest,
        plan: &LogicalPlan,
        snapshots: &QuerySnapshots,
        width: RowWidth,
    ) -> Result<Option<Arc<Self>>> {
        let bytes_min = shared.options.distributed_bytes;
        let Some(nodes) = shared.tables.nodes().filter(|_| bytes_min > 0) else { return Ok(None) };
        let bytes = file_bytes(plan)?;
        let is_large = bytes >= bytes_min;
        let reports = snapshots.reports().clone();
        let is_explained = reports.are_collected() && bytes > 0;
        if !is_large && !is_explained {
            return Ok(None);
        }
        let own = nodes.own_name();
        let mut names = nodes.other_names();
        names.retain(|name| *name != own);
        if names.is_empty() {
            return Ok(None);
        }
        names.push(own.clone());
        names.sort_unstable();
        let refusal = if request.pages.is_some() {
            Some("its rows are fetched in pages")
        } else if shared.tables.tablet_keys().is_some() {
            Some("tables are encrypted")
        } else if width.page_bytes >= PAGE_UNIT {
            Some("it reads long texts")
        } else {
            None
        };
        let (statement, shared) = (kept_text(&request.text), shared.clone());
        Ok(Some(Arc::new(Self {
            nodes,
            own,
            names,
            bytes_min,
            refusal,
            statement,
            reports,
            shared,
            is_large,
        })))
    }

    /// Plans a query for the nodes.
    pub async fn plan(
        self: Arc<Self>,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_large = self.is_large;
        let state = SessionStateBuilder::new_from_existing(state.clone());
        let mut state = state.with_physical_optimizer_rule(Arc::new(DistributeScans(self))).build();
        if is_large {
            // with one partition, an aggregation has no part that other nodes could execute
            let options = state.config_mut().options_mut();
            options.execution.target_partitions = options.execution.target_partitions.max(2);
        }
        state.query_planner().create_physical_plan(plan, &state).await
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distribution").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Optimizer rule that cuts plans and gives the parts to nodes. It runs last.
#[derive(Debug)]
struct DistributeScans(Arc<Distribution>);

impl PhysicalOptimizerRule for DistributeScans {
    fn name(&self) -> &str {
        "distribute_scans"
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.distributed(plan, config.execution.batch_size.get())
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl DistributeScans {
    fn distributed(&self, plan: Arc<dyn ExecutionPlan>, batch_rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let to = &self.0;
        let cutter =
            Cutter { functions: &to.shared.state, nodes: &to.names, own: &to.own, bytes_min: to.bytes_min };
        let parts = match to.refusal {
            None => cutter.cut(&plan)?,
            Some(_) => None,
        };
        if let Some(parts) = parts
            && let Some(plan) = self.joined(&plan, parts, batch_rows)
        {
            return Ok(plan);
        }
        if let Some(scan) = TabletScan::of(&plan, &to.names)? {
            // neither it nor what is above it leaves rows out
            self.report(&scan.shares, || self.reason(&scan));
            return Ok(plan);
        }
        let before: Vec<_> = plan.children().into_iter().cloned().collect();
        let after = before.iter().map(|child| self.distributed(child.clone(), batch_rows));
        let after = after.collect::<Result<Vec<_>>>()?;
        match before.iter().zip(&after).all(|(before, after)| Arc::ptr_eq(before, after)) {
            true => Ok(plan),
            false => {
                plan.replace_children(after, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
            }
        }
    }

    /// Returns the parts of `plan` as one operator; `None` if one of them cannot be sent.
    fn joined(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        parts: Vec<Part>,
        batch_rows: usize,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let mut inputs: Vec<Arc<dyn ExecutionPlan>> = Vec::with_capacity(parts.len());
        let mut elsewhere = Vec::new();
        for Part { plan, shares, .. } in parts {
            inputs.push(match shares {
                None => plan,
                Some(shares) => {
                    elsewhere.push(shares.clone());
                    match DistributedExec::new(self.0.clone(), plan, shares.clone(), batch_rows) {
                        Ok(exec) => Arc::new(exec),
                        Err(error) => {
                            let why = || format!("at this node, because its plan cannot be sent: {error}");
                            self.report(&shares, why);
                            return None;
                        }
                    }
                }
            });
        }
        let all = match inputs.len() {
            1 => inputs.remove(0),
            _ => UnionExec::try_new(inputs).ok()?,
        };
        for shares in elsewhere {
            self.report(&shares, || {
                let nodes = shares.nodes.keys().map(|node| shares.describe(node));
                format!("at other nodes: {}", nodes.collect::<Vec<_>>().join("; "))
            });
        }
        // one partition is what an operator may need
        let partitions = |plan: &Arc<dyn ExecutionPlan>| plan.output_partitioning().partition_count();
        if partitions(plan) > 1 || partitions(&all) == 1 {
            return Some(all);
        }
        Some(match plan.output_ordering() {
            Some(order) => Arc::new(SortPreservingMergeExec::new(order.clone(), all)),
            None => Arc::new(CoalescePartitionsExec::new(all)),
        })
    }

    fn report(&self, shares: &Shares, line: impl FnOnce() -> String) {
        let (schema, table) = &shares.table;
        self.0.reports.push(*schema, table, line);
    }

    /// Returns why a scan stays at this node.
    fn reason(&self, scan: &TabletScan<'_>) -> String {
        let Distribution { own, bytes_min, refusal, .. } = &*self.0;
        let (shares, bytes) = (&scan.shares, scan.shares.all_bytes());
        if let Some(refusal) = refusal.or(scan.refusal) {
            return format!("at this node, because {refusal}");
        }
        if bytes < *bytes_min {
            return format!(
                "at this node, because its files have {bytes} bytes, fewer than {bytes_min} (`sql.distributed_bytes`)"
            );
        }
        if shares.nodes.keys().all(|node| node == own) {
            return "at this node, to which all of its files belong".to_owned();
        }
        "at this node, because nothing that other nodes could execute leaves rows out".to_owned()
    }
}
