//! `column['name']` and `column[0]` on JSON strings, as on structs and lists.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, lit};
use datafusion_functions_json::udfs::json_as_text_udf;

/// Planner of field access on JSON strings. Returns the member as a string, as `->>` does; positions count
/// from 0. A member of NULL is NULL. Other types are left to DataFusion.
#[derive(Debug)]
pub(super) struct JsonAccess;

impl ExprPlanner for JsonAccess {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
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
