//! Join filters that ask the budget of the statement.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::{JoinType, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};

use crate::execution::deadline;

/// Returns a join whose filter is wrapped; any other operator as it is.
pub(super) fn with_interruptible_filter(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let Some(filter) = join.filter() else { return Ok(plan) };
        let join = NestedLoopJoinExecBuilder::from(join).with_filter(Some(wrapped(filter))).build()?;
        return Ok(Arc::new(join));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let filter = match join.filter() {
            Some(filter) => filter.clone(),
            None if join.null_aware || !emits_at_most_once(*join.join_type()) => return Ok(plan),
            None => JoinFilter::new(lit(true), vec![], Arc::new(Schema::empty())),
        };
        let filter = &filter;
        return Ok(Arc::new(join.builder().with_filter(Some(wrapped(filter))).build()?));
    }
    if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>() {
        let Some(filter) = join.filter() else { return Ok(plan) };
        let join = SortMergeJoinExec::try_new(
            join.left().clone(),
            join.right().clone(),
            join.on().to_vec(),
            Some(wrapped(filter)),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Arc::new(join));
    }
    Ok(plan)
}

/// Returns whether a join may look at many pairs of rows without a row as the result.
fn emits_at_most_once(join: JoinType) -> bool {
    use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    matches!(join, LeftSemi | LeftAnti | LeftMark | RightSemi | RightAnti | RightMark)
}

fn wrapped(filter: &JoinFilter) -> JoinFilter {
    let expression = Arc::new(InterruptibleExpr(filter.expression().clone()));
    JoinFilter::new(expression, filter.column_indices().to_vec(), filter.schema().clone())
}

/// Expression that is not evaluated when its statement has to end. Shows itself as the expression that it wraps.
#[derive(Debug)]
struct InterruptibleExpr(Arc<dyn PhysicalExpr>);

impl PartialEq for InterruptibleExpr {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl Eq for InterruptibleExpr {}

impl Hash for InterruptibleExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for InterruptibleExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PhysicalExpr for InterruptibleExpr {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.0.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.0.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        deadline::check()?;
        self.0.evaluate(batch)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.0.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(inner) => Ok(Arc::new(Self(inner))),
            None => Ok(self),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_sql(f)
    }
}
