//! Keeps constants on the right of comparisons, where DataFusion's push-down of filters expects them.
//!
//! ```sql
//! SELECT * FROM (SELECT 2 AS y, x FROM t WHERE x = 2) AS v WHERE y = x
//! ```
//!
//! While DataFusion pushes a filter down, it puts `2` in the place of `y` and finds `2 = x AND x = 2`. It merges the conditions
//! on a column as if they were texts: two equalities that are not written alike become false, and of `x >= 2 AND 2 < x`
//! it keeps `x >= 2`.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, lit};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// DataFusion's rule `push_down_filter`, for filters whose comparisons have their constant on the right.
#[derive(Debug)]
struct PushDownOrderedFilter(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for PushDownOrderedFilter {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(filter) if terms(&filter).into_iter().any(begins_with_constant) => {
                let terms = split_conjunction_owned(filter.predicate).into_iter().map(constant_last);
                let predicate = conjunction(terms).unwrap_or_else(|| lit(true));
                let ordered = LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?);
                let pushed = self.0.rewrite(ordered, config)?;
                Ok(Transformed { transformed: true, ..pushed })
            }
            plan => self.0.rewrite(plan, config),
        }
    }
}

/// Returns the rules with the one that pushes filters replaced.
pub(crate) fn ordered(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let rules = rules.into_iter().map(|rule| match rule.name() {
        "push_down_filter" => Arc::new(PushDownOrderedFilter(rule)) as _,
        _ => rule,
    });
    rules.collect()
}

fn terms(filter: &Filter) -> Vec<&Expr> {
    split_conjunction(&filter.predicate)
}

fn begins_with_constant(term: &Expr) -> bool {
    matches!(term, Expr::BinaryExpr(BinaryExpr { left, op, right })
        if op.swap().is_some() && left.as_literal().is_some() && right.as_literal().is_none())
}

fn constant_last(term: Expr) -> Expr {
    if !begins_with_constant(&term) {
        return term;
    }
    match term {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            Expr::BinaryExpr(BinaryExpr { left: right, op: op.swap().unwrap_or(op), right: left })
        }
        term => term,
    }
}
