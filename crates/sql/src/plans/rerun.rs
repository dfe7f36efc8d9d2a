//! Plan inputs that can be executed more than once.
//!
//! A nested loop join whose left side does not fit in memory executes it a second time, to spill it. Most
//! operators allow that, but a repartition hands out each of its outputs once and panics the second time. A
//! [`RerunExec`] between the two executes its input as planned the first time and a reset copy afterwards.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, ReplaceChildrenOptions, reset_plan_states,
};
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, SendableRecordBatchStream,
};

/// Optimizer rule that inserts a [`RerunExec`] above the left input of every nested loop join. Runs last.
#[derive(Debug)]
pub(crate) struct AllowRerun;

impl PhysicalOptimizerRule for AllowRerun {
    fn name(&self) -> &str {
        "allow_rerun"
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let done = plan.transform_up(|plan| {
            if !plan.is::<NestedLoopJoinExec>() {
                return Ok(Transformed::no(plan));
            }
            let mut children: Vec<Arc<dyn ExecutionPlan>> = plan.children().into_iter().cloned().collect();
            if let Some(left) = children.first_mut() {
                *left = Arc::new(RerunExec { input: left.clone(), used: AtomicBool::new(false) });
            }
            plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
                .map(Transformed::yes)
        })?;
        Ok(done.data)
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Operator that executes its input the first time and reset copies of it afterwards. Shape: that of the
/// input, which has one partition.
#[derive(Debug)]
struct RerunExec {
    input: Arc<dyn ExecutionPlan>,
    used: AtomicBool,
}

impl DisplayAs for RerunExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RerunExec")
    }
}

impl ExecutionPlan for RerunExec {
    fn name(&self) -> &str {
        "RerunExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.pop() {
            Some(input) => Ok(Arc::new(Self { input, used: AtomicBool::new(false) })),
            None => Ok(self),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if !self.used.swap(true, Ordering::AcqRel) {
            return self.input.execute(partition, context);
        }
        reset_plan_states(self.input.clone())?.execute(partition, context)
    }
}
