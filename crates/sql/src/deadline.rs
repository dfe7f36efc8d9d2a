//! Ends planning at the query's deadline, or when its caller has gone away.
//!
//! Planning is one long computation that no timeout interrupts. It runs on its own thread, so that the caller
//! gets its answer in time, and checks the deadline between any two optimizer rules.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use tidemill_types::Error;
use tokio::time::Instant;

tokio::task_local! {
    static CURRENT: Deadline;
}

/// Time at which planning has to end, and whether its caller has gone away.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    at: Instant,
    abandoned: Arc<AtomicBool>,
}

/// Guard of the caller that waits for a plan. Dropping it abandons the planning.
#[derive(Debug)]
pub(crate) struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Deadline {
    pub fn at(at: Instant) -> (Self, AbandonOnDrop) {
        let abandoned = Arc::new(AtomicBool::new(false));
        (Self { at, abandoned: abandoned.clone() }, AbandonOnDrop(abandoned))
    }

    /// Runs `planning` with this deadline.
    pub fn scope<F: Future>(self, planning: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, planning)
    }
}

/// Checks the deadline of the planning that runs on this thread.
///
/// Errors: `LimitReached` when it has passed, or when the caller has gone away.
pub(crate) fn check() -> Result<()> {
    let over = CURRENT.try_with(|d| d.abandoned.load(Ordering::Acquire) || Instant::now() >= d.at);
    match over.unwrap_or(false) {
        true => Err(DataFusionError::External(Box::new(Error::limit(
            "planning the query took longer than `sql.query_timeout`: ask for less in one query",
        )))),
        false => Ok(()),
    }
}

/// Optimizer rule that only checks the deadline.
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

/// Returns the logical rules with a deadline check after each.
pub(crate) fn logical(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().flat_map(|rule| [rule, Arc::new(DeadlineCheck) as _]).collect()
}

/// Returns the physical rules with a deadline check after each.
pub(crate) fn physical(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().flat_map(|rule| [rule, Arc::new(DeadlineCheck) as _]).collect()
}
