//! `x = ANY($1)`, `x <> ALL($1)`, `x LIKE ANY($1)`: comparisons with the values of a parameter that is a list.
//!
//! ```text
//! flight = ANY($1)    __any_of('=', flight, $1)    with [7, 8]    flight IN (7, 8)
//! flight > ALL($1)    __all_of('>', flight, $1)    with [7, 8]    flight > 7 AND flight > 8
//! ```
//!
//! The parser's tree gets a call of a function that only marks the place: the planner would take `= ANY` for `array_has`, which does
//! not know null from false. Once the parameter has its value, the call becomes `IN` or comparisons, which have the meaning of SQL and
//! which scans understand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err, plan_datafusion_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};
use tidemill_types::{Error, Result};

use crate::error::from_datafusion;

/// Function that marks a comparison with any value of a list.
pub(crate) const ANY_OF: &str = "__any_of";
/// Function that marks a comparison with all values of a list.
pub(crate) const ALL_OF: &str = "__all_of";

/// Maximum values of a list that is compared by `=`; each is an expression of the plan.
const EQUAL_VALUES_MAX: usize = 100_000;
/// Maximum values of a list that is compared by another operator.
const VALUES_MAX: usize = 2_000;

/// Operators that may stand before `ANY` and `ALL`.
const OPERATORS: [(&str, Operator); 11] = [
    ("=", Operator::Eq),
    ("<>", Operator::NotEq),
    ("<", Operator::Lt),
    ("<=", Operator::LtEq),
    (">", Operator::Gt),
    (">=", Operator::GtEq),
    ("~", Operator::RegexMatch),
    ("LIKE", Operator::LikeMatch),
    ("NOT LIKE", Operator::NotLikeMatch),
    ("ILIKE", Operator::ILikeMatch),
    ("NOT ILIKE", Operator::NotILikeMatch),
];

/// Returns whether an operator may stand before `ANY` and `ALL` of a parameter.
pub(crate) fn is_operator(name: &str) -> bool {
    OPERATORS.iter().any(|(known, _)| *known == name)
}

/// Returns the functions that mark comparisons.
pub(crate) fn marker_functions() -> [Arc<ScalarUDF>; 2] {
    [ANY_OF, ALL_OF]
        .map(|name| Arc::new(Marker { name, signature: Signature::any(3, Volatility::Immutable) }.into()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Marker {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: datafusion::logical_expr::ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        exec_err!("a comparison with ANY or ALL of a parameter was planned without its value")
    }
}

/// A marked comparison.
struct Comparison<'e> {
    is_all: bool,
    operator: Operator,
    left: &'e Expr,
    list: &'e Expr,
}

impl<'e> Comparison<'e> {
    fn of(expr: &'e Expr) -> Option<Self> {
        let Expr::ScalarFunction(call) = expr else { return None };
        let is_all = match call.func.name() {
            ANY_OF => false,
            ALL_OF => true,
            _ => return None,
        };
        let [Expr::Literal(ScalarValue::Utf8(Some(name)), _), left, list] = call.args.as_slice() else {
            return None;
        };
        let operator = OPERATORS.iter().find(|(known, _)| known == name)?.1;
        Some(Self { is_all, operator, left, list })
    }
}

/// Returns the types of parameters that are compared with, by name: lists of what stands on the left.
pub(crate) fn list_types(plan: &LogicalPlan) -> BTreeMap<String, DataType> {
    let mut found = BTreeMap::new();
    // the closures do not fail
    let _ = plan.apply_with_subqueries(|node| {
        let schema = inputs_of(node);
        node.apply_expressions(|expression| {
            expression.apply(|inner| {
                if let Some(Comparison { left, list: Expr::Placeholder(placeholder), .. }) =
                    Comparison::of(inner)
                    && let Ok(ty) = left.get_type(&schema)
                    && ty != DataType::Null
                {
                    let item = Arc::new(Field::new_list_field(plain(ty), true));
                    found.insert(placeholder.id.clone(), DataType::List(item));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    found
}

/// Returns the columns that the expressions of a node may name.
fn inputs_of(node: &LogicalPlan) -> DFSchema {
    match node {
        LogicalPlan::TableScan(scan) => scan.projected_schema.as_ref().clone(),
        node => merge_schema(&node.inputs()),
    }
}

fn plain(ty: DataType) -> DataType {
    match ty {
        DataType::Dictionary(_, value) => *value,
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        other => other,
    }
}

/// Replaces marked comparisons of a plan whose parameters have their values.
///
/// Errors: `Invalid` for a list that is not constant, or whose values are not comparable; `LimitReached` for one with too many values.
pub(crate) fn with_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut failed = None;
    let replaced = plan.transform_down_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(|inner| {
                let Some(comparison) = Comparison::of(&inner) else { return Ok(Transformed::no(inner)) };
                match comparison.with_values() {
                    Ok(replaced) => Ok(Transformed::yes(replaced)),
                    Err(error) => {
                        failed.get_or_insert(error);
                        Err(plan_datafusion_err!("a comparison with a list"))
                    }
                }
            })?;
            Ok(replaced.update_data(|expression| name.restore(expression)))
        })
    });
    match failed {
        Some(error) => Err(error),
        None => replaced.map(|plan| plan.data).map_err(|e| from_datafusion(&e, None)),
    }
}

impl Comparison<'_> {
    fn with_values(&self) -> Result<Expr> {
        let values = match constant(self.list)? {
            ScalarValue::List(list) => list.value(0),
            list if list.is_null() => return Ok(lit(ScalarValue::Boolean(None))),
            other => {
                return Err(Error::invalid(format!(
                    "ANY and ALL compare with the values of a list, found {other}: send a list, or write IN ($1)"
                )));
            }
        };
        let is_list = matches!((self.operator, self.is_all), (Operator::Eq, false) | (Operator::NotEq, true));
        let most = if is_list { EQUAL_VALUES_MAX } else { VALUES_MAX };
        if values.len() > most {
            return Err(Error::limit(format!(
                "a list of {} values behind ANY or ALL: the limit is {most} with this operator. Send the values in parts, or join with \
                 unnest($1)",
                values.len()
            )));
        }
        let items = (0..values.len()).map(|at| ScalarValue::try_from_array(&values, at).map(lit));
        let items = items.collect::<PlanResult<Vec<Expr>>>().map_err(|e| from_datafusion(&e, None))?;
        Ok(match (is_list && !items.is_empty(), self.is_all) {
            (true, negated) => self.left.clone().in_list(items, negated),
            (false, is_all) => self.each(items, is_all),
        })
    }

    /// Returns a balanced tree of comparisons with each value; true for all of none, and false for any of none.
    fn each(&self, items: Vec<Expr>, is_all: bool) -> Expr {
        let compared = |item| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(self.left.clone()), self.operator, Box::new(item)))
        };
        let mut terms: Vec<Expr> = items.into_iter().map(compared).collect();
        while terms.len() > 1 {
            let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
            let mut rest = terms.into_iter();
            while let Some(first) = rest.next() {
                pairs.push(match rest.next() {
                    Some(second) if is_all => first.and(second),
                    Some(second) => first.or(second),
                    None => first,
                });
            }
            terms = pairs;
        }
        terms.pop().unwrap_or_else(|| lit(is_all))
    }
}

/// Returns the value of a list, which may be in a cast.
fn constant(list: &Expr) -> Result<ScalarValue> {
    match list {
        Expr::Literal(value, _) => Ok(value.clone()),
        Expr::Alias(alias) => constant(&alias.expr),
        Expr::Cast(cast) => {
            let value = constant(&cast.expr)?;
            value.cast_to(cast.field.data_type()).map_err(|e| from_datafusion(&e, None))
        }
        _ => Err(Error::invalid("ANY and ALL of a parameter: expected the parameter, or a cast of it")),
    }
}
