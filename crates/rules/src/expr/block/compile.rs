//! From typed expressions to their vectorised form, where they have one.

use super::{BoolOp, FloatOp, IntOp, StrOp};
use crate::expr::ops::{Arith, Cmp};
use crate::expr::ty::Ty;
use crate::expr::{Const, Expr, Func, Kind};

impl BoolOp {
    /// The vectorised form of a condition over the event alone.
    pub fn compile(expr: &Expr) -> Self {
        Self::vectorised(expr).unwrap_or_else(|| Self::Rows(Box::new(expr.clone())))
    }

    fn vectorised(expr: &Expr) -> Option<Self> {
        Some(match &expr.kind {
            Kind::Const(Const::Bool(b)) => Self::Const(*b),
            Kind::Event { column, json: false, .. } if expr.ty == Ty::Bool => Self::Column(*column),
            Kind::Not(x) => Self::Not(Box::new(Self::compile(x))),
            Kind::And(parts) => Self::And(parts.iter().map(Self::compile).collect()),
            Kind::Or(parts) => Self::Or(parts.iter().map(Self::compile).collect()),
            Kind::IsNull(x, negated) => {
                let present = Self::Present(plain_column(x)?);
                if *negated { present } else { Self::Not(Box::new(present)) }
            }
            Kind::Exists(x) => Self::Present(plain_column(x)?),
            Kind::Compare(op, a, b) => Self::compare(*op, a, b)?,
            Kind::In(x, list) => Self::in_list(x, list)?,
            _ => return None,
        })
    }

    fn compare(op: Cmp, a: &Expr, b: &Expr) -> Option<Self> {
        if a.ty == Ty::Str && b.ty == Ty::Str {
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
        if a.ty == b.ty && is_whole(a.ty) {
            return Some(Self::CompareInt(op, IntOp::compile(a)?, IntOp::compile(b)?));
        }
        if a.ty.is_number() && b.ty.is_number() {
            return Some(Self::CompareFloat(op, FloatOp::exact(a)?, FloatOp::exact(b)?));
        }
        None
    }

    fn in_list(x: &Expr, list: &[Expr]) -> Option<Self> {
        match x.ty {
            Ty::Str => {
                let column = plain_column(x)?;
                let items = list.iter().map(|i| match i.as_const() {
                    Some(Const::Str(s)) => Some(Box::from(s.as_ref())),
                    _ => None,
                });
                let mut items: Vec<Box<str>> = items.collect::<Option<_>>()?;
                items.sort_unstable();
                Some(Self::InStr(column, items))
            }
            ty if is_whole(ty) => {
                let op = IntOp::compile(x)?;
                let mut items: Vec<i64> = list.iter().map(|i| whole_const(i, ty)).collect::<Option<_>>()?;
                items.sort_unstable();
                Some(Self::InInt(op, items))
            }
            _ => None,
        }
    }
}

impl IntOp {
    fn compile(expr: &Expr) -> Option<Self> {
        if !is_whole(expr.ty) {
            return None;
        }
        Some(match &expr.kind {
            Kind::Const(_) => Self::Const(whole_const(expr, expr.ty)?),
            Kind::Event { .. } => Self::Column(plain_column(expr)?),
            Kind::Neg(x) => Self::Neg(Box::new(Self::compile(x)?)),
            // a span times or over a fraction is computed row by row
            Kind::Arith(op, a, b) if *op != Arith::Div => {
                Self::Arith(*op, Box::new((Self::compile(a)?, Self::compile(b)?)))
            }
            Kind::Call(Func::Truncate, args) => {
                let span = whole_const(&args[1], Ty::Span).filter(|s| *s > 0)?;
                Self::Truncate(Box::new(Self::compile(&args[0])?), span)
            }
            Kind::Call(Func::Hour, args) => {
                Self::Within(Box::new(Self::compile(&args[0])?), 86_400_000_000, 3_600_000_000)
            }
            Kind::Call(Func::Minute, args) => {
                Self::Within(Box::new(Self::compile(&args[0])?), 3_600_000_000, 60_000_000)
            }
            _ => return None,
        })
    }
}

impl FloatOp {
    /// For arithmetic: whole numbers are rounded to floats, as the row-wise operators do.
    fn compile(expr: &Expr) -> Option<Self> {
        if expr.ty == Ty::Int {
            return IntOp::compile(expr).map(Self::Int);
        }
        if expr.ty != Ty::Float {
            return None;
        }
        Some(match &expr.kind {
            Kind::Const(Const::Float(x)) => Self::Const(*x),
            Kind::Event { .. } => Self::Column(plain_column(expr)?),
            Kind::Neg(x) => Self::Neg(Box::new(Self::compile(x)?)),
            Kind::Arith(Arith::Div, a, b) if a.ty == Ty::Span && b.ty == Ty::Span => Self::Arith(
                Arith::Div,
                Box::new((Self::Int(IntOp::compile(a)?), Self::Int(IntOp::compile(b)?))),
            ),
            Kind::Arith(op, a, b) if *op != Arith::Rem => {
                Self::Arith(*op, Box::new((Self::compile(a)?, Self::compile(b)?)))
            }
            _ => return None,
        })
    }

    /// For comparisons, which are exact: whole numbers only where a float holds each of them.
    fn exact(expr: &Expr) -> Option<Self> {
        if expr.ty != Ty::Int {
            return Self::compile(expr);
        }
        match (&expr.kind, expr.as_const()) {
            (_, Some(Const::Int(n))) if n.unsigned_abs() <= 1 << 53 => Some(Self::Const(*n as f64)),
            _ => None,
        }
    }
}

/// Types whose values are 64-bit integers inside.
fn is_whole(ty: Ty) -> bool {
    matches!(ty, Ty::Int | Ty::Time | Ty::Span)
}

/// The column of a field that is not JSON.
pub fn plain_column(expr: &Expr) -> Option<usize> {
    match &expr.kind {
        Kind::Event { column, json: false, .. } => Some(*column),
        _ => None,
    }
}

/// The integer inside a constant of type `ty`.
pub fn whole_const(expr: &Expr, ty: Ty) -> Option<i64> {
    match (expr.as_const()?, ty) {
        (Const::Int(n), Ty::Int) | (Const::Time(n), Ty::Time) | (Const::Span(n), Ty::Span) => Some(*n),
        _ => None,
    }
}
