//! Operators that end when their statement does, and that share processors with other statements.
//!
//! DataFusion's operators look at nothing while they loop, and a task can be ended only where it waits. So every operator of
//! a plan is wrapped: before each batch the wrapper asks the statement's budget, and lets other tasks go first when its time
//! slice is over. Loops inside of one operator are ended where they evaluate an expression: the filters of joins, which run
//! for each pair of rows and may let none through, ask the budget, too. A nested loop join gets the rows of its right side in
//! pieces that make no more than [`PAIRS_MAX`] pairs each, so that it waits for input often enough to be put aside.
//!
//! The wrappers show the operator that they wrap (`EXPLAIN`, metrics), and are added after planning.

mod exec;
mod filter;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::windows::WindowAggExec;

use exec::{InterruptibleExec, Rows};

/// Pairs of rows that a nested loop join makes of one piece of its right side.
const PAIRS_MAX: usize = 1 << 20;

/// Returns the plan with every operator wrapped.
pub(crate) fn interruptible(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let wrapped = plan.transform_up(|plan| {
        let plan = filter::with_interruptible_filter(plan)?;
        let plan = match plan.is::<NestedLoopJoinExec>() {
            true => with_small_pieces(plan)?,
            false => plan,
        };
        let plan = match plan.is::<WindowAggExec>() {
            true => with_held_rows(plan)?,
            false => plan,
        };
        let rows = if plan.children().is_empty() { Rows::Cut } else { Rows::All };
        Ok(Transformed::yes(Arc::new(InterruptibleExec::new(plan, rows)) as Arc<dyn ExecutionPlan>))
    })?;
    Ok(wrapped.data)
}

/// Returns a nested loop join whose right side comes in pieces, the smaller the more rows its left side has.
fn with_small_pieces(join: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let count = Arc::new(AtomicUsize::new(0));
    with_inputs(join, [Rows::Counted(count.clone()), Rows::InPieces(count)])
}

/// Returns a window operator that reserves memory for its input, which it collects without a question.
fn with_held_rows(window: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    with_inputs(window, [Rows::Held])
}

/// Returns an operator with these roles of its inputs.
fn with_inputs(
    plan: Arc<dyn ExecutionPlan>,
    roles: impl IntoIterator<Item = Rows>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children().into_iter().cloned().zip(roles);
    let children =
        children.map(|(child, rows)| Arc::new(InterruptibleExec::new(child, rows)) as Arc<dyn ExecutionPlan>);
    let children = children.collect();
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
}

/// Returns whether a plan hands work to tasks, which need processors beside the thread of its statement.
pub(crate) fn starts_tasks(plan: &Arc<dyn ExecutionPlan>) -> bool {
    use datafusion::physical_plan::ExecutionPlanProperties;
    use datafusion::physical_plan::analyze::AnalyzeExec;
    plan.is::<AnalyzeExec>()
        || plan.output_partitioning().partition_count() > 1
        || plan.children().into_iter().any(starts_tasks)
}
