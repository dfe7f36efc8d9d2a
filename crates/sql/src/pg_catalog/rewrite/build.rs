//! Pieces of trees.

use datafusion::logical_expr::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Query, Select, SetExpr, Value,
};

/// Returns a call of a function.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Takes an expression out of the tree.
pub(super) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, null())
}

pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

pub(super) fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

pub(super) fn number(value: i64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

pub(super) fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

/// Returns a null of type text.
pub(super) fn null_text() -> Expr {
    as_text(null())
}

pub(super) fn null_number() -> Expr {
    cast(null(), DataType::BigInt(None))
}

/// Returns a cast to text.
pub(super) fn as_text(expr: Expr) -> Expr {
    cast(expr, DataType::Text)
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Returns the only `SELECT` of a query.
pub(super) fn select_of(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => select_of(inner),
        _ => None,
    }
}

/// Returns the name of the function that an expression calls, in lower case, without its schema.
pub(super) fn called(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Function(call) => call.name.0.last()?.as_ident().map(|name| name.value.to_lowercase()),
        _ => None,
    }
}

/// Returns the arguments of a call that are plain expressions.
pub(super) fn arguments(expr: &Expr) -> Vec<&Expr> {
    let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = expr else { return vec![] };
    let args = list.args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    args.collect()
}
