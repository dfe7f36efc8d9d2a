//! Expressions that another node evaluates to the same values.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::FunctionRegistry;
use datafusion::logical_expr::Volatility;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr,
    LikeExpr, Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;

use crate::functions::bounds_of;

/// Deepest expression that is sent. A decoder of Protocol Buffers refuses messages in more than 100 others, and each expression is two or three.
pub(super) const EXPRESSION_DEPTH_MAX: usize = 24;

/// Returns whether all expressions of an operator can be sent: those of known kinds whose functions the session has by their names.
pub(super) fn can_be_sent(plan: &dyn ExecutionPlan, functions: &dyn FunctionRegistry) -> Result<bool> {
    let mut can = true;
    plan.apply_expressions(&mut |expr| {
        can &= is_known(expr, functions, EXPRESSION_DEPTH_MAX);
        Ok(if can { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(can)
}

/// Returns whether an expression can be sent.
pub(super) fn is_known(expr: &Arc<dyn PhysicalExpr>, functions: &dyn FunctionRegistry, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    let is_plain = expr.is::<Column>()
        || expr.is::<Literal>()
        || expr.is::<BinaryExpr>()
        || expr.is::<CaseExpr>()
        || expr.is::<CastExpr>()
        || expr.is::<TryCastExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<LikeExpr>()
        || expr.is::<NegativeExpr>()
        || expr.is::<NotExpr>()
        // what it is at present is sent
        || expr.is::<DynamicFilterPhysicalExpr>();
    let is_function = || {
        let Some(call) = expr.downcast_ref::<ScalarFunctionExpr>() else { return false };
        let function = bounds_of(call.fun()).map_or_else(|| call.fun(), |(inner, _)| inner);
        let same = functions.udf(function.name()).is_ok_and(|known| known.as_ref() == function);
        same && function.signature().volatility != Volatility::Volatile
    };
    (is_plain || is_function()) && expr.children().iter().all(|child| is_known(child, functions, depth - 1))
}
