//! Bounds of functions whose result may be larger than their arguments.
//!
//! DataFusion's memory pool tracks sorts, joins and aggregations, but not the results of functions:
//! `repeat('x', 2000000000)` is allocated without a check. Therefore every such function is wrapped. Before a
//! call, the size of its result is computed from the arguments ([`growth`]), and a call that would exceed
//! `sql.function_bytes` fails instead. Constant folding calls the wrapped function, so the bound also holds
//! during planning.

mod growth;
mod join;
mod sizes;
mod window;

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Documentation, Expr, ExpressionPlacement, LogicalPlan, Operator,
    ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping,
    WindowFunctionDefinition,
};
use datafusion::optimizer::AnalyzerRule;
use tidemill_types::Error;

use growth::Growth;
use window::WindowedAggregate;

use crate::execution::deadline;

/// Analyzer rule that wraps every function of a plan whose result may be larger than its arguments. Runs last
/// of the analyzer rules, before any expression is evaluated.
#[derive(Debug)]
pub(crate) struct BoundFunctions {
    /// Maximum result of one call, in bytes.
    pub bytes_max: usize,
}

impl AnalyzerRule for BoundFunctions {
    fn name(&self) -> &str {
        "bound_functions"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let bounded = plan.transform_up_with_subqueries(|plan| {
            // a window's column is found by the name of its expression
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|e| Ok(bound(e, self.bytes_max)))?;
                Ok(if expr.transformed { expr.update_data(|expr| name.restore(expr)) } else { expr })
            })
        })?;
        Ok(bounded.data)
    }
}

/// Returns the name of the type that a cast produces.
fn cast_type(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Alias(alias) => cast_type(&alias.expr),
        Expr::Cast(cast) => Some(cast.field.data_type().to_string()),
        Expr::TryCast(cast) => Some(cast.field.data_type().to_string()),
        _ => None,
    }
}

fn bound(expr: Expr, bytes_max: usize) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(call) => match Growth::of(call.func.name()) {
            Some(growth) if !call.func.inner().is::<BoundedFunction>() => {
                let func = BoundedFunction { inner: call.func, growth, bytes_max };
                Transformed::yes(Expr::ScalarFunction(ScalarFunction {
                    func: Arc::new(func.into()),
                    args: call.args,
                }))
            }
            _ => Transformed::no(Expr::ScalarFunction(call)),
        },
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::StringConcat, right }) => {
            let inner = Arc::new(ScalarUDF::from(join::ConcatOperator::default()));
            let func = BoundedFunction { inner, growth: Growth::Sum, bytes_max };
            Transformed::yes(Expr::ScalarFunction(ScalarFunction {
                func: Arc::new(func.into()),
                args: vec![*left, *right],
            }))
        }
        Expr::WindowFunction(mut call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(inner) if !inner.inner().is::<WindowedAggregate>() => {
                let windowed = WindowedAggregate { inner: inner.clone(), bytes_max };
                call.fun = WindowFunctionDefinition::AggregateUDF(Arc::new(windowed.into()));
                Transformed::yes(Expr::WindowFunction(call))
            }
            _ => Transformed::no(Expr::WindowFunction(call)),
        },
        other => Transformed::no(other),
    }
}

/// Function that checks the size of its result before the call and otherwise delegates to `inner`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BoundedFunction {
    inner: Arc<ScalarUDF>,
    growth: Growth,
    bytes_max: usize,
}

/// Returns the function inside of a bounded one, and its bound in bytes; `None` for any other.
pub(crate) fn bounds_of(function: &ScalarUDF) -> Option<(&ScalarUDF, usize)> {
    let bounded = function.inner().downcast_ref::<BoundedFunction>()?;
    Some((bounded.inner.as_ref(), bounded.bytes_max))
}

/// Returns a function whose results have at most `bytes_max` bytes; `None` if its results are never larger than their arguments.
pub(crate) fn bounded(inner: Arc<ScalarUDF>, bytes_max: usize) -> Option<ScalarUDF> {
    let growth = Growth::of(inner.name())?;
    Some(BoundedFunction { inner, growth, bytes_max }.into())
}

impl BoundedFunction {
    fn check(&self, args: &ScalarFunctionArgs) -> Result<()> {
        deadline::check()?;
        let bytes = self.growth.bytes(&args.args, args.number_rows, self.bytes_max)?;
        self.check_bytes(bytes, args.number_rows)
    }

    fn check_bytes(&self, bytes: u128, rows: usize) -> Result<()> {
        if bytes <= self.bytes_max as u128 {
            return Ok(());
        }
        let (name, most) = (self.inner.name(), self.bytes_max);
        Err(DataFusionError::External(Box::new(Error::limit(match self.growth {
            Growth::Work => format!(
                "`{name}` would take too long for texts of this length: the limit is {most} (`sql.function_bytes`) times \
                 {} comparisons in one call. Cut the texts with left(text, n)",
                growth::WORK_PER_BYTE
            ),
            _ => format!(
                "`{name}` would make up to {bytes} bytes in one call for {rows} rows, the limit is {most} \
                 (`sql.function_bytes`): make shorter values, or fewer",
            ),
        }))))
    }
}

impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.inner.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arg_types)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let inner = Arc::new(self.inner.inner().with_updated_config(config)?);
        Some(Self { inner, ..self.clone() }.into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn is_strict(&self) -> bool {
        self.inner.inner().is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.check(&args)?;
        self.inner.invoke_with_args(args)
    }

    /// Simplifies the inner function and bounds the functions in the result as well.
    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        Ok(match self.inner.simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => {
                if self.growth == Growth::Type {
                    // the result is a cast, which has no bound of its own
                    self.check_bytes(growth::width(&cast_type(&expr).unwrap_or_default()), 1)?;
                }
                let bounded = expr.transform_up(|e| Ok(bound(e, self.bytes_max)))?;
                ExprSimplifyResult::Simplified(bounded.data)
            }
            original => original,
        })
    }

    fn preimage(&self, args: &[Expr], literal: &Expr, info: &SimplifyContext) -> Result<PreimageResult> {
        self.inner.preimage(args, literal, info)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.inner.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.inner.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.inner.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.inner.inner().strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn struct_field_mapping(&self, literals: &[Option<ScalarValue>]) -> Option<StructFieldMapping> {
        self.inner.struct_field_mapping(literals)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.inner.placement(args)
    }
}

#[cfg(test)]
mod tests;
