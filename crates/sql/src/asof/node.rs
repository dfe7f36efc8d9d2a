//! The join as a node of plans.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::compute::SortOptions;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{Column, DFSchema, DFSchemaRef, JoinType, Result, internal_err};
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::exec::{AsofJoinExec, JoinInput};

/// Choice of the nearest row of the right side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Nearest {
    /// The last one before; else the first one after.
    pub is_before: bool,
    /// True if it may have the same time.
    pub may_equal: bool,
}

impl Nearest {
    /// Returns the order of times towards the match.
    pub fn times(self) -> SortOptions {
        SortOptions { descending: !self.is_before, nulls_first: true }
    }

    /// Returns the comparison of a left time with that of its match.
    pub fn operator(self) -> &'static str {
        match (self.is_before, self.may_equal) {
            (true, true) => ">=",
            (true, false) => ">",
            (false, true) => "<=",
            (false, false) => "<",
        }
    }
}

/// Node that joins each left row with the nearest right row of its key.
///
/// Shape: the columns of the left side, then those of the right side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct AsofJoin {
    inputs: [LogicalPlan; 2],
    on: Vec<(Expr, Expr)>,
    times: (Expr, Expr),
    nearest: Nearest,
    /// True if left rows without a match are kept.
    is_outer: bool,
    schema: DFSchemaRef,
}

impl AsofJoin {
    pub fn new(
        inputs: [LogicalPlan; 2],
        on: Vec<(Expr, Expr)>,
        times: (Expr, Expr),
        nearest: Nearest,
        is_outer: bool,
    ) -> Result<Self> {
        let join_type = if is_outer { JoinType::Left } else { JoinType::Inner };
        let schema = build_join_schema(inputs[0].schema(), inputs[1].schema(), &join_type)?;
        Ok(Self { inputs, on, times, nearest, is_outer, schema: Arc::new(schema) })
    }

    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    /// Returns the indexes of the columns of one side that its expressions need.
    fn columns_of<'e>(schema: &DFSchema, exprs: impl Iterator<Item = &'e Expr>) -> Vec<usize> {
        let columns: Vec<&Column> = exprs.flat_map(Expr::column_refs).collect();
        columns.into_iter().filter_map(|column| schema.maybe_index_of_column(column)).collect()
    }
}

impl PartialOrd for AsofJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for AsofJoin {
    fn name(&self) -> &'static str {
        "AsofJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    /// Returns the two times, then the pairs of keys.
    fn expressions(&self) -> Vec<Expr> {
        let keys = self.on.iter().flat_map(|(left, right)| [left, right]);
        [&self.times.0, &self.times.1].into_iter().chain(keys).cloned().collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_outer { "Left" } else { "Inner" };
        write!(f, "AsofJoin: {kind}, {} {} {}", self.times.0, self.nearest.operator(), self.times.1)?;
        self.on.iter().try_for_each(|(left, right)| write!(f, ", {left} = {right}"))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let (Ok(inputs), Some(left), Some(right)) =
            (<[LogicalPlan; 2]>::try_from(inputs), exprs.next(), exprs.next())
        else {
            return internal_err!("an ASOF JOIN has two inputs and two times");
        };
        let mut on = Vec::with_capacity(self.on.len());
        while let (Some(left), Some(right)) = (exprs.next(), exprs.next()) {
            on.push((left, right));
        }
        Self::new(inputs, on, (left, right), self.nearest, self.is_outer)
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let [left, right] = self.inputs.each_ref().map(|input| input.schema().clone());
        let width = left.fields().len();
        let mut needed = [
            Self::columns_of(&left, self.on.iter().map(|(left, _)| left).chain([&self.times.0])),
            Self::columns_of(&right, self.on.iter().map(|(_, right)| right).chain([&self.times.1])),
        ];
        for column in output_columns {
            match column.checked_sub(width) {
                None => needed[0].push(*column),
                Some(of_right) => needed[1].push(of_right),
            }
        }
        for side in &mut needed {
            side.sort_unstable();
            side.dedup();
        }
        Some(needed.into())
    }
}

/// Planner of the node.
pub(crate) struct AsofPlanner;

#[async_trait]
impl ExtensionPlanner for AsofPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<AsofJoin>() else { return Ok(None) };
        let [left, right] = inputs else { return internal_err!("an ASOF JOIN has two inputs") };
        let physical = |expr: &Expr, schema: &DFSchema| -> Result<Arc<dyn PhysicalExpr>> {
            planner.create_physical_expr(expr, schema, session, context)
        };
        let [left_schema, right_schema] = node.inputs.each_ref().map(|input| input.schema().clone());
        let mut sides = [(left, vec![]), (right, vec![])];
        for (of_left, of_right) in node.on.iter().chain([&node.times]) {
            sides[0].1.push(physical(of_left, &left_schema)?);
            sides[1].1.push(physical(of_right, &right_schema)?);
        }
        let [left, right] = sides.map(|(input, order)| JoinInput { input: input.clone(), order });
        let schema = Arc::new(node.schema.as_arrow().clone());
        let join = AsofJoinExec::new(left, right, node.nearest, node.is_outer, schema)?;
        Ok(Some(Arc::new(join)))
    }
}
