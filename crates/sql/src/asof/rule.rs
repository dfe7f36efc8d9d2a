//! Analyzer rule that replaces marked joins by [`AsofJoin`].

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, JoinType, Result, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::{split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Join, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

use super::node::{AsofJoin, Nearest};
use super::refused;

/// Name of the function that marks the comparison of times.
pub(super) const MARKER: &str = "asof_match";

/// Returns the marking function. Planning replaces it; it is never evaluated.
pub(crate) fn marker_function() -> Arc<ScalarUDF> {
    Arc::new(Marker { signature: Signature::exact(vec![DataType::Boolean], Volatility::Immutable) }.into())
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        MARKER
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(refused("`asof_match` marks the condition of an ASOF JOIN"))
    }
}

/// The rule. Runs after types are coerced.
#[derive(Debug)]
pub(crate) struct PlanAsofJoins;

impl AnalyzerRule for PlanAsofJoins {
    fn name(&self) -> &str {
        "plan_asof_joins"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let planned = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) => match comparison(&join) {
                None => Ok(Transformed::no(LogicalPlan::Join(join))),
                Some(comparison) => replaced(join, comparison).map(Transformed::yes),
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(planned.data)
    }
}

/// Returns the marked comparison of a join.
fn comparison(join: &Join) -> Option<Expr> {
    split_conjunction(join.filter.as_ref()?).into_iter().find_map(marked)
}

fn marked(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.inner().is::<Marker>() => {
            args.first().cloned()
        }
        _ => None,
    }
}

fn replaced(join: Join, comparison: Expr) -> Result<LogicalPlan> {
    let is_outer = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        other => return internal_err!("an ASOF JOIN is no {other} join"),
    };
    let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
    let mut on = join.on;
    let conditions = join.filter.map(split_conjunction_owned).unwrap_or_default();
    for condition in conditions.into_iter().filter(|condition| marked(condition).is_none()) {
        let Expr::BinaryExpr(BinaryExpr { left: a, op: Operator::Eq, right: b }) = condition else {
            return Err(refused("beside the times an ASOF JOIN compares keys by = and AND"));
        };
        on.push(match sides(&a, &b, &left, &right) {
            Some(false) => (*a, *b),
            Some(true) => (*b, *a),
            None => return Err(refused("each equality of an ASOF JOIN has the left table on one side and the right one on the other")),
        });
    }
    let Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) = comparison else {
        return Err(refused("an ASOF JOIN compares times by >=, >, <= or <"));
    };
    let (a, op, b) = match (sides(&a, &b, &left, &right), op.swap()) {
        (Some(false), _) => (a, op, b),
        (Some(true), Some(swapped)) => (b, swapped, a),
        _ => {
            return Err(refused(
                "the comparison of an ASOF JOIN has the left table on one side and the right one on the other",
            ));
        }
    };
    let nearest = match op {
        Operator::GtEq => Nearest { is_before: true, may_equal: true },
        Operator::Gt => Nearest { is_before: true, may_equal: false },
        Operator::LtEq => Nearest { is_before: false, may_equal: true },
        Operator::Lt => Nearest { is_before: false, may_equal: false },
        _ => return Err(refused("an ASOF JOIN compares times by >=, >, <= or <")),
    };
    Ok(AsofJoin::new(
        [join.left.as_ref().clone(), join.right.as_ref().clone()],
        on,
        (*a, *b),
        nearest,
        is_outer,
    )?
    .into_plan())
}

/// Returns whether `a` is over the right table and `b` over the left one; `None` unless each is over one of them.
fn sides(a: &Expr, b: &Expr, left: &DFSchema, right: &DFSchema) -> Option<bool> {
    let of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.into_iter().all(|column| schema.has_column(column))
    };
    match (of(a, left) && of(b, right), of(a, right) && of(b, left)) {
        (true, _) => Some(false),
        (_, true) => Some(true),
        _ => None,
    }
}
