//! Keeps conditions above aggregates without groups.
//!
//! ```sql
//! SELECT count(*) FROM t HAVING count(*) = 1 AND count(*) = 4
//! ```
//!
//! DataFusion pushes a condition that names no column through every aggregate, and simplifies this one to `false`. Below
//! an aggregate without groups it removes rows instead of the result, which has one row even if it has no input: the
//! query would return a row with 0. A limit of one row changes nothing there, and no condition passes it.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRewriter};
use datafusion::logical_expr::{Aggregate, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use crate::subqueries::is_correlated;

/// Analyzer rule that limits aggregates without groups to their one row if a filter or a join is above them.
#[derive(Debug)]
pub(crate) struct GuardGlobalAggregates;

impl AnalyzerRule for GuardGlobalAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.rewrite_with_subqueries(&mut Guard::default()).data()
    }

    fn name(&self) -> &str {
        "guard_global_aggregates"
    }
}

#[derive(Default)]
struct Guard {
    /// Number of filters and joins above the current node.
    conditions: usize,
}

impl TreeNodeRewriter for Guard {
    type Node = LogicalPlan;

    fn f_down(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.conditions += usize::from(has_condition(&node));
        Ok(Transformed::no(node))
    }

    fn f_up(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        self.conditions -= usize::from(has_condition(&node));
        match node {
            // an aggregate of rows that depend on the outer row gets groups when it is joined
            LogicalPlan::Aggregate(Aggregate { ref group_expr, .. })
                if self.conditions > 0 && group_expr.is_empty() && !is_correlated(&node) =>
            {
                Ok(Transformed::yes(LogicalPlanBuilder::from(node).limit(0, Some(1))?.build()?))
            }
            node => Ok(Transformed::no(node)),
        }
    }
}

fn has_condition(node: &LogicalPlan) -> bool {
    matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_))
}
