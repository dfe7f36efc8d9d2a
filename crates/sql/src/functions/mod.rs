//! Functions in addition to DataFusion's own, under the names that users know.

mod access;
mod aggregation;
mod bounded;
mod chain;
mod first_last;
mod from_char;
mod history;
mod latest;
mod like_pattern;
mod to_char;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{Column, Result};
use datafusion::execution::{FunctionRegistry, SessionState, SessionStateDefaults};
use datafusion::functions_aggregate::percentile_cont::percentile_cont_udaf;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion_functions_json::{register_all, udfs};

use crate::asof::marker_function;
use crate::gap_fill::marker_functions;
use crate::plans::quantified;
use crate::times;

pub(crate) use aggregation::{AGGREGATION, AggregationFunction};
pub(crate) use bounded::{BoundFunctions, bounded, bounds_of};
pub(crate) use chain::CHAIN;
pub(crate) use history::{AS_OF, AsOfFunction, VERSIONS, VersionsFunction};
pub(crate) use latest::LatestFunction;
pub(crate) use like_pattern::LIKE_PATTERN;

/// Returns the planners that turn operators into functions. Ours come before DataFusion's, which would treat
/// JSON strings as structs.
pub(crate) fn planners() -> Vec<Arc<dyn ExprPlanner>> {
    let mut planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(access::JsonAccess)];
    planners.extend(SessionStateDefaults::default_expr_planners());
    planners
}

/// Adds the functions to a session:
///
/// - `time_bucket(interval, time [, origin])`: `date_bin` under TimescaleDB's name
/// - `percentile(x, p)`: `percentile_cont`, exact
/// - `first(x, time)`, `last(x, time)`: the value at the smallest, the largest time
/// - `operators('+-', a, b, c)`: replaces long chains of operators
/// - `__like_pattern(pattern, escape)`: the pattern of `LIKE … ESCAPE` that is not constant
/// - `__any_of`, `__all_of`: marks for [`crate::plans::quantified`]
/// - `asof_match(condition)`: mark for [`crate::asof`]
/// - `time_bucket_gapfill`, `date_bin_gapfill`, `locf`, `interpolate`: marks for [`crate::gap_fill`]
/// - `json_get(text, path…)` and its typed forms, `->`, `->>`, `text['name']`
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    state.register_udf(times::date_bin())?;
    state.register_udf(times::date_trunc())?;
    state.register_udf(to_char::to_char())?;
    from_char::register(state)?;
    for name in ["generate_series", "range"] {
        if let Some(series) = state.table_functions().get(name).cloned() {
            state.register_udtf(name, Arc::new(times::TimeSeries(series)));
        }
    }
    state.register_udaf(Arc::new(percentile_cont_udaf().as_ref().clone().with_aliases(["percentile"])))?;
    state.register_udf(Arc::new(chain::OperatorChain::default().into()))?;
    state.register_udaf(Arc::new(first_last::first()))?;
    state.register_udaf(Arc::new(first_last::last()))?;
    state.register_udf(like_pattern::like_pattern())?;
    state.register_udf(marker_function())?;
    for marker in quantified::marker_functions() {
        state.register_udf(marker)?;
    }
    for marker in marker_functions() {
        state.register_udf(marker)?;
    }
    register_all(state)
}

/// Converts result columns of union type (`json_get` without a type) to JSON strings, because clients have no
/// union type.
pub(crate) fn unions_to_text(plan: LogicalPlan) -> Result<LogicalPlan> {
    let is_union = |ty: &DataType| matches!(ty, DataType::Union(..));
    if !plan.schema().fields().iter().any(|f| is_union(f.data_type())) {
        return Ok(plan);
    }
    let columns = plan.schema().iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        match is_union(field.data_type()) {
            true => udfs::json_union_to_text_udf().call(vec![column]).alias(field.name()),
            false => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
