//! `a ^ b` is the power of numbers, as in PostgreSQL; the parser takes it for a bitwise operator.

use std::mem;

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Value,
};

use super::chains::call;

/// Replaces `a ^ b` at `expr` by a call of `power`.
pub(super) fn replace(expr: &mut Expr) {
    if !matches!(expr, Expr::BinaryOp { op: BinaryOperator::BitwiseXor, .. }) {
        return;
    }
    let null = || Expr::Value(Value::Null.with_empty_span());
    if let Expr::BinaryOp { left, right, .. } = mem::replace(expr, null()) {
        *expr = call("power", [double(left), double(right)].into_iter());
    }
}

fn double(expr: Box<Expr>) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr,
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    }
}
