//! Compiles typed expressions to their vectorized form, where they have one.

use super::{BoolOp, FloatOp, IntOp, StrOp};
use crate::expr::ops::{ArithmeticOp, CompareOp};
use crate::expr::ty::ExprType;
use crate::expr::{Const, Expr, ExprNode, Func};

impl BoolOp {
    /// Compiles a condition that needs the event alone.
    pub fn compile(expr: &Expr) -> Self {
        Self::vectorize(expr).unwrap_or_else(|| Self::Rows(Box::new(expr.clone())))
    }

    fn vectorize(expr: &Expr) -> Option<Self> {
        Some(match &expr.kind {
            ExprNode::Const(Const::Bool(b)) => Self::Const(*b),
            ExprNode::Event { column, json: false, .. } if expr.ty == ExprType::Bool => Self::Column(*column),
            ExprNode::Not(x) => Self::Not(Box::new(Self::compile(x))),
            ExprNode::And(parts) => Self::And(parts.iter().map(Self::compile).collect()),
            ExprNode::Or(parts) => Self::Or(parts.iter().map(Self::compile).collect()),
            ExprNode::IsNull(x, negated) => {
                let present = Self::Present(plain_column(x)?);
                if *negated { present } else { Self::Not(Box::new(present)) }
            }
            ExprNode::Exists(x) => Self::Present(plain_column(x)?),
            ExprNode::Compare(op, a, b) => Self::compare(*op, a, b)?,
            ExprNode::In(x, list) => Self::in_list(x, list)?,
            _ => return None,
        })
    }

    fn compare(op: CompareOp, a: &Expr, b: &Expr) -> Option<Self> {
        if a.ty == ExprType::Str && b.ty == ExprType::Str {
            return match (plain_column(a), a.as_const(), plain_column(b), b.as_const()) {
                (Some(a), _, _, Some(Const::Str(b))) => {
                    Some(Self::CompareStr(op, a, StrOp::Const(b.as_ref().into())))
                }
                (Some(a), _, Some(b), _) => Some(Self::CompareStr(op, a, StrOp::Column(b))),
                (_, Some(Const::Str(a)), Some(b), _) => {
                    Some(Self::CompareStr(op.flip(), b, StrOp::Const(a.as_ref().into())))
                }
                _ => None,
            };
        }
        if a.ty == b.ty && is_integer_like(a.ty) {
            return Some(Self::CompareInt(op, IntOp::compile(a)?, IntOp::compile(b)?));
        }
        if a.ty.is_number() && b.ty.is_number() {
            return Some(Self::CompareFloat(op, FloatOp::exact(a)?, FloatOp::exact(b)?));
        }
        None
    }

    fn in_list(x: &Expr, list: &[Expr]) -> Option<Self> {
        match x.ty {
            ExprType::Str => {
                let column = plain_column(x)?;
                let items = list.iter().map(|i| match i.as_const() {
                    Some(Const::Str(s)) => Some(Box::from(s.as_ref())),
                    _ => None,
                });
                let mut items: Vec<Box<str>> = items.collect::<Option<_>>()?;
                items.sort_unstable();
                Some(Self::InStr(column, items))
            }
            ty if is_integer_like(ty) => {
                let op = IntOp::compile(x)?;
                let mut items: Vec<i64> = list.iter().map(|i| integer_const(i, ty)).collect::<Option<_>>()?;
                items.sort_unstable();
                Some(Self::InInt(op, items))
            }
            _ => None,
        }
    }
}

impl IntOp {
    fn compile(expr: &Expr) -> Option<Self> {
        if !is_integer_like(expr.ty) {
            return None;
        }
        Some(match &expr.kind {
            ExprNode::Const(_) => Self::Const(integer_const(expr, expr.ty)?),
            ExprNode::Event { .. } => Self::Column(plain_column(expr)?),
            ExprNode::Neg(x) => Self::Neg(Box::new(Self::compile(x)?)),
            // a span times or over a fraction is computed row at a time
            ExprNode::Arith(op, a, b) if *op != ArithmeticOp::Div => {
                Self::Arith(*op, Box::new((Self::compile(a)?, Self::compile(b)?)))
            }
            ExprNode::Call(Func::Truncate, args) => {
                let span = integer_const(&args[1], ExprType::Span).filter(|s| *s > 0)?;
                Self::Truncate(Box::new(Self::compile(&args[0])?), span)
            }
            ExprNode::Call(Func::Hour, args) => {
                Self::Within(Box::new(Self::compile(&args[0])?), 86_400_000_000, 3_600_000_000)
            }
            ExprNode::Call(Func::Minute, args) => {
                Self::Within(Box::new(Self::compile(&args[0])?), 3_600_000_000, 60_000_000)
            }
            _ => return None,
        })
    }
}

impl FloatOp {
    /// Compiles an operand of arithmetic: integers are rounded to floats, as the row-at-a-time operators do.
    fn compile(expr: &Expr) -> Option<Self> {
        if expr.ty == ExprType::Int {
            return IntOp::compile(expr).map(Self::Int);
        }
        if expr.ty != ExprType::Float {
            return None;
        }
        Some(match &expr.kind {
            ExprNode::Const(Const::Float(x)) => Self::Const(*x),
            ExprNode::Event { .. } => Self::Column(plain_column(expr)?),
            ExprNode::Neg(x) => Self::Neg(Box::new(Self::compile(x)?)),
            ExprNode::Arith(ArithmeticOp::Div, a, b) if a.ty == ExprType::Span && b.ty == ExprType::Span => {
                Self::Arith(
                    ArithmeticOp::Div,
                    Box::new((Self::Int(IntOp::compile(a)?), Self::Int(IntOp::compile(b)?))),
                )
            }
            ExprNode::Arith(op, a, b) if *op != ArithmeticOp::Rem => {
                Self::Arith(*op, Box::new((Self::compile(a)?, Self::compile(b)?)))
            }
            _ => return None,
        })
    }

    /// Compiles an operand of a comparison, which is exact: integer constants only if a float represents
    /// them.
    fn exact(expr: &Expr) -> Option<Self> {
        if expr.ty != ExprType::Int {
            return Self::compile(expr);
        }
        match (&expr.kind, expr.as_const()) {
            (_, Some(Const::Int(n))) if n.unsigned_abs() <= 1 << 53 => Some(Self::Const(*n as f64)),
            _ => None,
        }
    }
}

/// Returns whether values of the type are represented as 64-bit integers.
fn is_integer_like(ty: ExprType) -> bool {
    matches!(ty, ExprType::Int | ExprType::Time | ExprType::Span)
}

/// Returns the column of an event field that is not JSON.
pub fn plain_column(expr: &Expr) -> Option<usize> {
    match &expr.kind {
        ExprNode::Event { column, json: false, .. } => Some(*column),
        _ => None,
    }
}

/// Returns the integer that represents a constant of type `ty`.
pub fn integer_const(expr: &Expr, ty: ExprType) -> Option<i64> {
    match (expr.as_const()?, ty) {
        (Const::Int(n), ExprType::Int)
        | (Const::Time(n), ExprType::Time)
        | (Const::Span(n), ExprType::Span) => Some(*n),
        _ => None,
    }
}
