//! The type `TIMESTAMP` has at most microseconds, as in PostgreSQL; the planner would take nanoseconds.

use datafusion::logical_expr::sqlparser::ast::{ArrayElemTypeDef, DataType, Expr, TypedString};

/// Digits of a second that times have.
const DIGITS: u64 = 6;

/// Gives a `TIMESTAMP` without precision, or with a finer one, at `expr` the precision of times; also in a list of them.
pub(super) fn to_micros(expr: &mut Expr) {
    if let Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) = expr {
        coarsen(data_type);
    }
}

fn coarsen(ty: &mut DataType) {
    match ty {
        DataType::Timestamp(precision, _) if precision.is_none_or(|digits| digits > DIGITS) => {
            *precision = Some(DIGITS);
        }
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => coarsen(item),
        _ => {}
    }
}
