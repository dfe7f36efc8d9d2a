//! Functions of PostgreSQL that DataFusion has under another name, or as an operator.

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
};

use super::chains::take;

/// Replaces a call of `mod` by `%`, and of `sign` by `signum`.
pub(super) fn replace(expr: &mut Expr) {
    let Expr::Function(call) = &mut *expr else { return };
    let [name] = call.name.0.as_slice() else { return };
    let Some(name) = name.as_ident() else { return };
    if name.value.eq_ignore_ascii_case("sign") {
        call.name = ObjectName::from(vec![Ident::with_span(name.span, "signum")]);
        return;
    }
    if !name.value.eq_ignore_ascii_case("mod") || call.over.is_some() || call.filter.is_some() {
        return;
    }
    let FunctionArguments::List(list) = &mut call.args else { return };
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(left)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(right)),
    ] = list.args.as_mut_slice()
    else {
        return;
    };
    let nested = |expr: &mut Expr| Box::new(Expr::Nested(Box::new(take(expr))));
    let (left, right) = (nested(left), nested(right));
    *expr = Expr::Nested(Box::new(Expr::BinaryOp { left, op: BinaryOperator::Modulo, right }));
}
