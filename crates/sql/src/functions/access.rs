//! `column['name']` and `column[0]` on JSON strings, as on structs and lists.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::functions_nested::expr_fn::array_element;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::sqlparser::ast::BinaryOperator;
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, lit};
use datafusion_functions_json::udfs::json_as_text_udf;

use crate::pg_catalog::is_vector;
use crate::subqueries::refuse;

/// Planner of field access on JSON strings. Returns the member as a string, as `->>` does; positions count
/// from 0. A member of NULL is NULL. Other types are left to DataFusion.
#[derive(Debug)]
pub(super) struct JsonAccess;

impl ExprPlanner for JsonAccess {
    /// Refuses `@>` and `<@` of texts, which are operators of lists.
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_contained = matches!(expr.op, BinaryOperator::AtArrow | BinaryOperator::ArrowAt);
        let is_text = |side: &Expr| {
            matches!(side.get_type(schema), Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View))
        };
        if is_contained && (is_text(&expr.left) || is_text(&expr.right)) {
            let message = format!(
                "the operator {} is not supported of JSON: compare the members, as in json ->> 'a' = '1'",
                expr.op
            );
            return refuse(&[expr.left, expr.right], &message);
        }
        Ok(PlannerResult::Original(expr))
    }

    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        if let GetFieldAccess::ListIndex { key } = &access.field_access
            && access.expr.to_field(schema).is_ok_and(|(_, field)| is_vector(&field))
        {
            // PostgreSQL counts the elements of its vectors from 0
            let key = key.as_ref().clone() + lit(1_i64);
            return Ok(PlannerResult::Planned(array_element(access.expr, key)));
        }
        match access.expr.get_type(schema) {
            Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {}
            Ok(DataType::Null) => return Ok(PlannerResult::Planned(access.expr)),
            _ => return Ok(PlannerResult::Original(access)),
        }
        let key: Expr = match &access.field_access {
            GetFieldAccess::NamedStructField { name } => lit(name.clone()),
            GetFieldAccess::ListIndex { key } => key.as_ref().clone(),
            GetFieldAccess::ListRange { .. } => return Ok(PlannerResult::Original(access)),
        };
        Ok(PlannerResult::Planned(json_as_text_udf().call(vec![access.expr, key])))
    }
}
