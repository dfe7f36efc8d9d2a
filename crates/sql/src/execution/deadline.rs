//! Ends planning when its statement has to end.
//!
//! Planning is one long computation that nothing interrupts. It asks the statement's budget between any two optimizer rules.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::execution::work;

/// Checks the budget of the planning that runs on this thread.
///
/// Errors: the statement has to end.
pub(crate) fn check() -> Result<()> {
    work::check().map_err(work::stopped)
}

/// Optimizer rule that only checks the budget.
#[derive(Debug)]
struct DeadlineCheck;

impl OptimizerRule for DeadlineCheck {
    fn name(&self) -> &str {
        "deadline"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        check().map(|()| Transformed::no(plan))
    }
}

impl PhysicalOptimizerRule for DeadlineCheck {
    fn name(&self) -> &str {
        "deadline"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        check().map(|()| plan)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the logical rules with a check after each.
pub(crate) fn logical(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().flat_map(|rule| [rule, Arc::new(DeadlineCheck) as _]).collect()
}

/// Returns the physical rules with a check after each.
pub(crate) fn physical(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().flat_map(|rule| [rule, Arc::new(DeadlineCheck) as _]).collect()
}
