//! Expressions: resolves names to columns and slots, and checks types.

use std::sync::Arc;

use regex::RegexBuilder;
use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{self, BinaryOp, ExprKind, Ident, Literal, UnaryOp};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::Timestamp;

use super::codes;
use super::names::{Binding, NameScope, chain, is_field_name};
use crate::expr::ops::{self, TypeMismatch};
use crate::expr::{
    AggFunc, ArithmeticOp, Bindings, CompareOp, Const, Expr, ExprNode, ExprType, Func, JsonPath,
    RegexPattern, Row, eval, funcs,
};

/// Limit on the nodes of an expression after its `let`s are inlined.
pub(crate) const NODES_MAX: usize = 10_000;
/// Limit on the depth of an expression after its `let`s are inlined.
pub(crate) const DEPTH_MAX: usize = 512;
/// Limit on the bytes of a compiled regular expression.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// Resolves `expr`. Returns `None` if there was an error, which has been reported.
pub(crate) fn value(expr: &ast::Expr, names: &NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Expr> {
    let resolved = resolve(expr, names, sink)?;
    let (nodes, depth) = resolved.size();
    if nodes > NODES_MAX || depth > DEPTH_MAX {
        let message = format!(
            "this expression is too large: {nodes} parts and {depth} levels after its `let`s are expanded"
        );
        let help = format!(
            "the limit is {NODES_MAX} parts and {DEPTH_MAX} levels: split the rule, or use fewer `let`s"
        );
        sink.push(Diagnostic::error(codes::TOO_LARGE, expr.span, message).help(help));
        return None;
    }
    Some(resolved)
}

/// Resolves an expression that must be a condition.
pub(crate) fn condition(expr: &ast::Expr, names: &NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Expr> {
    let resolved = value(expr, names, sink)?;
    expect_type(&resolved, ExprType::Bool, "a condition (true or false)", sink)?;
    Some(resolved)
}

fn expect_type(expr: &Expr, ty: ExprType, expected: &str, sink: &mut DiagnosticSink) -> Option<()> {
    if expr.ty.may_be(ty) {
        return Some(());
    }
    report_mismatch(expr, expected, sink);
    None
}

/// Reports that `expr` has another type than expected.
pub(crate) fn report_mismatch(expr: &Expr, expected: &str, sink: &mut DiagnosticSink) {
    let mut diagnostic =
        Diagnostic::error(codes::TYPE, expr.span, format!("expected {expected}, found {}", expr.ty))
            .expected([expected]);
    if let (Some(Const::Str(text)), true) = (expr.as_const(), expected.starts_with("a time"))
        && Timestamp::parse(text).is_ok()
    {
        diagnostic = diagnostic.help(format!("write `time({text:?})`"));
    }
    sink.push(diagnostic);
}

fn resolve(expr: &ast::Expr, names: &NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Expr> {
    let span = expr.span;
    let (kind, ty) = match &expr.kind {
        ExprKind::Literal(literal) => return Some(Expr::constant(constant(literal), span)),
        ExprKind::Span(s) => return Some(Expr::constant(Const::Span(s.micros), span)),
        ExprKind::Now => return now(span, names, sink),
        ExprKind::Name(_) | ExprKind::Field { .. } | ExprKind::MethodCall { .. } => {
            return match chain(expr) {
                Some((root, fields)) => names.path(root, &fields, span, sink),
                None => {
                    let message = "only events, documents and their fields have fields";
                    sink.push(
                        Diagnostic::error(codes::NOT_A_VALUE, span, message)
                            .help("name the value first: `let v = …;`"),
                    );
                    None
                }
            };
        }
        ExprKind::Call { function, args } => return call(function, args, span, names, sink),
        ExprKind::Unary { op: UnaryOp::Not, operand } => {
            let x = resolve(operand, names, sink)?;
            expect_type(&x, ExprType::Bool, "a condition (true or false)", sink)?;
            (ExprNode::Not(Box::new(x)), ExprType::Bool)
        }
        ExprKind::Unary { op: UnaryOp::Neg, operand } => {
            let x = resolve(operand, names, sink)?;
            if !x.ty.is_number() && !matches!(x.ty, ExprType::Span | ExprType::Any) {
                report_mismatch(&x, "a number or a span of time", sink);
                return None;
            }
            let ty = x.ty;
            (ExprNode::Neg(Box::new(x)), ty)
        }
        ExprKind::Binary { op, left, right } => return binary(*op, left, right, span, names, sink),
        ExprKind::In { value, list } => return is_in(value, list, span, names, sink),
        ExprKind::Object(fields) => (ExprNode::Object(object(fields, names, sink)?), ExprType::Object),
        ExprKind::Array(items) => {
            let items = all(items, names, sink)?;
            (ExprNode::Array(items), ExprType::Array)
        }
    };
    Some(fold(Expr { kind, ty, span }))
}

fn constant(literal: &Literal) -> Const {
    match literal {
        Literal::Null => Const::Null,
        Literal::Bool(b) => Const::Bool(*b),
        Literal::Int(n) => Const::Int(*n),
        Literal::Float(x) => Const::Float(*x),
        Literal::Str(s) => Const::Str(Arc::from(s.as_str())),
    }
}

/// Resolves `now`, the event's time: the column after the declared ones.
fn now(span: Span, names: &NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Expr> {
    let stream = names.bindings.iter().find_map(|(_, b)| match b {
        Binding::Event(s) => Some(*s),
        _ => None,
    });
    let stream = stream.or(match names.filter_target {
        Some(Binding::Event(s)) => Some(s),
        _ => None,
    });
    let Some(stream) = stream else {
        let message = "`now` is the time of the event, but there is no event here";
        sink.push(Diagnostic::error(codes::NOT_A_VALUE, span, message));
        return None;
    };
    let column = names.catalog.streams[stream].fields.len();
    Some(Expr {
        kind: ExprNode::Event { column, json: false, path: JsonPath::from([]) },
        ty: ExprType::Time,
        span,
    })
}

/// Resolves all expressions before giving up, so that each error is reported.
fn all(exprs: &[ast::Expr], names: &NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Vec<Expr>> {
    let resolved: Vec<Option<Expr>> = exprs.iter().map(|x| resolve(x, names, sink)).collect();
    resolved.into_iter().collect()
}

/// Resolves the fields of an object.
pub(crate) fn object(
    fields: &[ast::ObjectField],
    names: &NameScope<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Vec<(Arc<str>, Expr)>> {
    let mut out = Vec::with_capacity(fields.len());
    let mut whole = true;
    for field in fields {
        if !is_field_name(&field.name.name) {
            let message = format!(
                "{:?} cannot be the name of a field: expected no `.`, NUL or leading `$`",
                field.name.name
            );
            sink.push(Diagnostic::error(codes::RESERVED, field.name.span, message));
            whole = false;
        }
        match resolve(&field.value, names, sink) {
            Some(x) => out.push((Arc::from(field.name.name.as_str()), x)),
            None => whole = false,
        }
    }
    whole.then_some(out)
}

fn binary(
    op: BinaryOp,
    left: &ast::Expr,
    right: &ast::Expr,
    span: Span,
    names: &NameScope<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Expr> {
    // resolve both sides before giving up, so that errors in both are reported
    let (a, b) = (resolve(left, names, sink), resolve(right, names, sink));
    let (a, b) = (a?, b?);
    let (kind, ty) = match op {
        BinaryOp::And | BinaryOp::Or => {
            expect_type(&a, ExprType::Bool, "a condition (true or false)", sink)?;
            expect_type(&b, ExprType::Bool, "a condition (true or false)", sink)?;
            let mut parts = Vec::new();
            for side in [a, b] {
                match side.kind {
                    ExprNode::And(inner) if op == BinaryOp::And => parts.extend(inner),
                    ExprNode::Or(inner) if op == BinaryOp::Or => parts.extend(inner),
                    _ => parts.push(side),
                }
            }
            (if op == BinaryOp::And { ExprNode::And(parts) } else { ExprNode::Or(parts) }, ExprType::Bool)
        }
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => {
            let op = match op {
                BinaryOp::Add => ArithmeticOp::Add,
                BinaryOp::Sub => ArithmeticOp::Sub,
                BinaryOp::Mul => ArithmeticOp::Mul,
                BinaryOp::Div => ArithmeticOp::Div,
                _ => ArithmeticOp::Rem,
            };
            match ops::arith_type(op, a.ty, b.ty) {
                Ok(ty) => (ExprNode::Arith(op, Box::new(a), Box::new(b)), ty),
                Err(TypeMismatch { expected, right }) => {
                    report_mismatch(if right { &b } else { &a }, &expected, sink);
                    return None;
                }
            }
        }
        _ => {
            let op = match op {
                BinaryOp::Eq => CompareOp::Eq,
                BinaryOp::Ne => CompareOp::Ne,
                BinaryOp::Lt => CompareOp::Lt,
                BinaryOp::Le => CompareOp::Le,
                BinaryOp::Gt => CompareOp::Gt,
                _ => CompareOp::Ge,
            };
            (comparison(op, a, b, sink)?, ExprType::Bool)
        }
    };
    Some(fold(Expr { kind, ty, span }))
}

fn comparison(op: CompareOp, a: Expr, b: Expr, sink: &mut DiagnosticSink) -> Option<ExprNode> {
    if let CompareOp::Eq | CompareOp::Ne = op {
        match (a.ty, b.ty) {
            (_, ExprType::Null) => return Some(ExprNode::IsNull(Box::new(a), op == CompareOp::Ne)),
            (ExprType::Null, _) => return Some(ExprNode::IsNull(Box::new(b), op == CompareOp::Ne)),
            _ => {}
        }
    }
    // users rather mistype a constant: report it as the side that does not fit
    let swap = a.as_const().is_some() && b.as_const().is_none();
    let checked =
        if swap { ops::compare_type(op.flip(), b.ty, a.ty) } else { ops::compare_type(op, a.ty, b.ty) };
    if let Err(TypeMismatch { expected, right }) = checked {
        let expected = if swap { expected.replace("the left side", "the other side") } else { expected };
        report_mismatch(if right != swap { &b } else { &a }, &expected, sink);
        return None;
    }
    Some(ExprNode::Compare(op, Box::new(a), Box::new(b)))
}

fn is_in(
    value: &ast::Expr,
    list: &ast::Expr,
    span: Span,
    names: &NameScope<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Expr> {
    let x = resolve(value, names, sink)?;
    let kind = match &list.kind {
        ExprKind::Array(items) => {
            let items = all(items, names, sink)?;
            for item in &items {
                if ops::compare_type(CompareOp::Eq, x.ty, item.ty).is_err() || item.ty == ExprType::Null {
                    report_mismatch(item, &format!("{}, as the value before `in`", x.ty), sink);
                    return None;
                }
            }
            ExprNode::In(Box::new(x), items)
        }
        _ => {
            let array = resolve(list, names, sink)?;
            expect_type(&array, ExprType::Array, "an array, for example `[1, 2]`", sink)?;
            ExprNode::InArray(Box::new(x), Box::new(array))
        }
    };
    Some(fold(Expr { kind, ty: ExprType::Bool, span }))
}

fn call(
    function: &Ident,
    args: &[ast::Expr],
    span: Span,
    names: &NameScope<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Expr> {
    let name = function.name.as_str();
    let aggregate = AggFunc::parse(name).filter(|f| {
        // with several arguments, min and max are plain functions
        !matches!(f, AggFunc::Min | AggFunc::Max) || args.len() == 1
    });
    if let Some(func) = aggregate
        && (names.aggregates || Func::parse(name).is_none())
    {
        return super::aggregate::call(func, function, args, span, names, sink);
    }
    let special = matches!(name, "if" | "coalesce" | "exists" | "matches");
    let func = Func::parse(name);
    if !special && func.is_none() {
        report_unknown_function(function, names, sink);
        return None;
    }
    let args = all(args, names, sink)?;
    let Some(func) = func else { return special_call(name, args, span, sink).map(fold) };
    let types: Vec<ExprType> = args.iter().map(|a| a.ty).collect();
    match func.check(&types) {
        Ok(ty) => {
            check_constants(func, &args, sink)?;
            Some(fold(Expr { kind: ExprNode::Call(func, args), ty, span }))
        }
        Err(misuse) => {
            match misuse.argument {
                Some(i) => {
                    report_mismatch(&args[i], &format!("{} in `{}`", misuse.expected, func.usage()), sink)
                }
                None => report_argument_count(func.usage(), args.len(), span, sink),
            }
            None
        }
    }
}

fn report_unknown_function(function: &Ident, names: &NameScope<'_>, sink: &mut DiagnosticSink) {
    let mut known: Vec<&str> = Func::names().collect();
    if names.aggregates {
        known.extend(AggFunc::NAMES);
    }
    let hint = match tidemill_types::nearest(&function.name, known.iter().copied()) {
        Some(best) => format!(". Did you mean `{best}`?"),
        None => String::new(),
    };
    let mut diagnostic = Diagnostic::error(
        codes::UNKNOWN_FUNCTION,
        function.span,
        format!("there is no function `{}`{hint}", function.name),
    );
    if hint.is_empty() {
        diagnostic = diagnostic.note(format!("the functions are {}", known.join(", ")));
    }
    if names.catalog.entity(&function.name).is_some() {
        diagnostic = diagnostic.help(format!("to look for a document, bind it: `d: {}(…);`", function.name));
    }
    sink.push(diagnostic);
}

pub(crate) fn report_argument_count(usage: &str, found: usize, span: Span, sink: &mut DiagnosticSink) {
    let arguments = if found == 1 { "1 argument".to_owned() } else { format!("{found} arguments") };
    sink.push(
        Diagnostic::error(codes::ARGUMENTS, span, format!("expected `{usage}`, found {arguments}"))
            .expected([usage]),
    );
}

/// Resolves `if`, `coalesce`, `exists` and `matches`.
fn special_call(name: &str, args: Vec<Expr>, span: Span, sink: &mut DiagnosticSink) -> Option<Expr> {
    let count = args.len();
    let (kind, ty) = match name {
        "if" => {
            let Ok([c, a, b]) = <[Expr; 3]>::try_from(args) else {
                report_argument_count("if(condition, a, b)", count, span, sink);
                return None;
            };
            expect_type(&c, ExprType::Bool, "a condition (true or false)", sink)?;
            let ty = common_type(&a, &b, sink)?;
            (ExprNode::If(Box::new((c, a, b))), ty)
        }
        "coalesce" => {
            let Some(first) = args.first() else {
                report_argument_count("coalesce(a, …)", count, span, sink);
                return None;
            };
            let mut ty = first.ty;
            for other in &args[1..] {
                let Some(both) = ty.join(other.ty) else {
                    report_mismatch(other, &format!("{ty}, as the arguments before it"), sink);
                    return None;
                };
                ty = both;
            }
            (ExprNode::Coalesce(args), ty)
        }
        "exists" => {
            let Ok([x]) = <[Expr; 1]>::try_from(args) else {
                report_argument_count("exists(x)", count, span, sink);
                return None;
            };
            (ExprNode::Exists(Box::new(x)), ExprType::Bool)
        }
        _ => {
            let Ok([x, pattern]) = <[Expr; 2]>::try_from(args) else {
                report_argument_count("matches(text, \"pattern\")", count, span, sink);
                return None;
            };
            expect_type(&x, ExprType::Str, "text", sink)?;
            let Some(Const::Str(text)) = pattern.as_const() else {
                let message = "expected the pattern as constant text in quotes";
                sink.push(Diagnostic::error(codes::CONSTANT, pattern.span, message));
                return None;
            };
            match RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build() {
                Ok(regex) => (ExprNode::Matches(Box::new(x), RegexPattern(regex)), ExprType::Bool),
                Err(error) => {
                    let last = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                    let message =
                        format!("not a valid regular expression: {}", last.trim_start_matches("error: "));
                    sink.push(Diagnostic::error(codes::CONSTANT, pattern.span, message));
                    return None;
                }
            }
        }
    };
    Some(Expr { kind, ty, span })
}

fn common_type(a: &Expr, b: &Expr, sink: &mut DiagnosticSink) -> Option<ExprType> {
    let ty = a.ty.join(b.ty);
    if ty.is_none() {
        report_mismatch(b, &format!("{}, as in the other branch", a.ty), sink);
    }
    ty
}

/// Reports constant arguments that the function could not process at run time.
fn check_constants(func: Func, args: &[Expr], sink: &mut DiagnosticSink) -> Option<()> {
    let wrong = match (func, args) {
        (Func::Time, [x]) => match x.as_const() {
            Some(Const::Str(text)) => Timestamp::parse(text).err().map(|e| (x.span, e.message().to_owned())),
            _ => None,
        },
        (Func::Format, [_, f]) => match f.as_const() {
            Some(Const::Str(text)) => funcs::check_format(text).err().map(|e| (f.span, e)),
            _ => None,
        },
        (Func::Truncate, [_, s]) => match s.as_const() {
            Some(Const::Span(d)) if *d <= 0 => {
                Some((s.span, "expected a span of time longer than zero".to_owned()))
            }
            _ => None,
        },
        _ => None,
    };
    match wrong {
        Some((span, message)) => {
            sink.push(Diagnostic::error(codes::CONSTANT, span, message));
            None
        }
        None => Some(()),
    }
}

/// Replaces an expression by its value if all operands are constant.
fn fold(expr: Expr) -> Expr {
    let children = expr.children();
    if children.is_empty() || !children.iter().all(|c| matches!(c.kind, ExprNode::Const(_))) {
        return expr;
    }
    let folded = match expr.kind {
        ExprNode::Object(_) | ExprNode::Array(_) | ExprNode::Aggregate(..) => None,
        _ => Const::of(&eval::eval(&expr, &Bindings::new(Row::Cells(&[], 0)))),
    };
    match folded {
        Some(value) => Expr { kind: ExprNode::Const(value), ..expr },
        None => expr,
    }
}
