//! Operators of PostgreSQL on JSON that would be taken for others.

use datafusion::logical_expr::sqlparser::ast::{BinaryOperator, Expr};
use datafusion::logical_expr::sqlparser::tokenizer::Location;

use super::first_place;

/// Checks the operator at `expr`.
///
/// Errors: what to write instead, with its place. DataFusion takes the path of `#>` for the name of a member.
pub(super) fn check(expr: &Expr) -> Result<(), (Location, String)> {
    let Expr::BinaryOp { left, op, .. } = expr else { return Ok(()) };
    let instead = match op {
        BinaryOperator::HashArrow => "json -> 'a' -> 'b'",
        BinaryOperator::HashLongArrow => "json -> 'a' ->> 'b'",
        BinaryOperator::Question | BinaryOperator::QuestionAnd | BinaryOperator::QuestionPipe => {
            "json_contains(json, 'a')"
        }
        BinaryOperator::HashMinus | BinaryOperator::AtQuestion | BinaryOperator::AtAt => {
            "the functions of JSON, as json_get"
        }
        _ => return Ok(()),
    };
    Err((first_place(left), format!("the operator {op} is not supported: write {instead}")))
}
