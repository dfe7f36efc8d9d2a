//! Structural text of expressions.

use super::super::ast::{
    Args, AttributeRef, Call, EventIndex, Expr, ExprKind, Ident, IndexKind, Literal, NullOperand, SourceRef,
};
use crate::lexer::is_word;
use crate::lexer::text::quote;

pub(super) fn name(name: &Ident) -> String {
    if is_word(&name.name) { name.name.clone() } else { format!("`{}`", name.name) }
}

pub(super) fn text(text: &str) -> String {
    quote(text)
}

pub(super) fn expr(e: &Expr) -> String {
    match &e.kind {
        ExprKind::Literal(Literal::Bool(b)) => b.to_string(),
        ExprKind::Literal(Literal::Int(n)) => n.to_string(),
        ExprKind::Literal(Literal::Long(n)) => format!("{n}L"),
        ExprKind::Literal(Literal::Float(x)) => format!("{x:?}f"),
        ExprKind::Literal(Literal::Double(x)) => format!("{x:?}d"),
        ExprKind::Literal(Literal::Text(s)) => quote(s),
        ExprKind::Time(time) => format!("{}ms", time.ms),
        ExprKind::Attribute(a) => attribute(a),
        ExprKind::Call(c) => call(c),
        ExprKind::IsNull(NullOperand::Value(value)) => format!("(null {})", expr(value)),
        ExprKind::IsNull(NullOperand::Step(step)) => format!("(null step {})", source(step)),
        ExprKind::Not(operand) => format!("(not {})", expr(operand)),
        ExprKind::Binary { op, left, right } => format!("({} {} {})", op.text(), expr(left), expr(right)),
        ExprKind::In { condition, table } => format!("(in {} {})", expr(condition), name(table)),
    }
}

pub(super) fn attribute(attribute: &AttributeRef) -> String {
    let source = attribute.source.as_ref().map_or(String::new(), |s| source(s) + ".");
    source + &name(&attribute.name)
}

fn source(source: &SourceRef) -> String {
    let inner =
        source.inner.as_ref().map_or(String::new(), |i| format!("#{}{}", name(&i.name), index(i.index)));
    format!("{}{}{}{inner}", source.stream.scope.mark(), name(&source.stream.name), index(source.index))
}

fn index(index: Option<EventIndex>) -> String {
    match index.map(|i| i.kind) {
        None => String::new(),
        Some(IndexKind::First(n)) => format!("[{n}]"),
        Some(IndexKind::Last(n)) => format!("[last-{n}]"),
    }
}

pub(super) fn call(call: &Call) -> String {
    let namespace = call.namespace.as_ref().map_or(String::new(), |n| name(n) + ":");
    let args = match &call.args {
        Args::All(_) => "*".to_owned(),
        Args::List(args) => args.iter().map(expr).collect::<Vec<_>>().join(" "),
    };
    format!("({namespace}{}[{args}])", name(&call.name))
}
