//! Expressions over the values of one row.
//!
//! `price * volume > 100` becomes a tree whose nodes know their types: both operands are read as doubles and compared as
//! doubles, and no value is boxed on the way. The results are those of the evaluation over columns.

use bumpalo::Bump;
use tidemill_types::FieldType;

use super::ops;
use super::{AGGREGATES, Arithmetic, Comparison, Expr, INPUT, Node, OUTPUT};
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;

/// A compiled expression that calls no function and searches no table, so that it cannot fail.
#[derive(Debug, Clone)]
pub(crate) enum RowExpr {
    Const(Value),
    Input(usize),
    Aggregate(usize),
    Output(usize),
    /// Arithmetic on operands that are widened to the type.
    Arithmetic(Arithmetic, FieldType, Box<[Self; 2]>),
    Compare(Comparison, CompareAs, Box<[Self; 2]>),
    And(Box<[Self; 2]>),
    Or(Box<[Self; 2]>),
    Not(Box<Self>),
    IsNull(Box<Self>),
}

/// Type as which two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareAs {
    Long,
    Double,
    /// Decided by the values.
    Values,
}

/// Source of the values of an input row.
pub(crate) trait RowSource<'a> {
    /// Returns the value of a column.
    fn get(&self, column: usize) -> ValueRef<'a>;
}

impl<'a> RowSource<'a> for &'a [ValueRef<'a>] {
    #[inline]
    fn get(&self, column: usize) -> ValueRef<'a> {
        self[column]
    }
}

/// Values that an expression reads.
pub(crate) struct RowFrame<'f, 'a, S> {
    pub(crate) input: &'f S,
    pub(crate) aggregates: &'f [ValueRef<'a>],
    pub(crate) output: &'f [ValueRef<'a>],
}

impl<'f, 'a, S: RowSource<'a>> RowFrame<'f, 'a, S> {
    /// Creates a frame without aggregates and output.
    pub(crate) fn of_input(input: &'f S) -> Self {
        Self { input, aggregates: &[], output: &[] }
    }
}

impl RowExpr {
    /// Compiles an expression; `None` if it calls functions, searches tables or reads other rows.
    pub(crate) fn of(expr: &Expr) -> Option<Self> {
        let pair = |a: &Expr, b: &Expr| Some(Box::new([Self::of(a)?, Self::of(b)?]));
        Some(match &expr.node {
            Node::Const(value) => Self::Const(value.clone()),
            Node::Column { slot: INPUT, column } => Self::Input(*column),
            Node::Column { slot: AGGREGATES, column } => Self::Aggregate(*column),
            Node::Column { slot: OUTPUT, column } => Self::Output(*column),
            Node::Column { .. } | Node::Call(..) | Node::In { .. } => return None,
            Node::Arithmetic(op, a, b) => Self::Arithmetic(*op, expr.ty, pair(a, b)?),
            Node::Compare(op, a, b) => Self::Compare(*op, CompareAs::of(*op, a.ty, b.ty), pair(a, b)?),
            Node::And(a, b) => Self::And(pair(a, b)?),
            Node::Or(a, b) => Self::Or(pair(a, b)?),
            Node::Not(x) => Self::Not(Box::new(Self::of(x)?)),
            Node::IsNull(x) => Self::IsNull(Box::new(Self::of(x)?)),
        })
    }

    /// Evaluates the expression.
    #[inline(always)]
    pub(crate) fn value<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> ValueRef<'a> {
        match self {
            Self::Const(value) => value.borrowed(),
            Self::Input(column) => frame.input.get(*column),
            Self::Aggregate(column) => frame.aggregates[*column],
            Self::Output(column) => frame.output[*column],
            _ => self.compute(frame),
        }
    }

    #[inline(never)]
    fn compute<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> ValueRef<'a> {
        let Self::Arithmetic(_, ty, _) = self else { return ValueRef::Bool(self.is_true(frame)) };
        match ty {
            FieldType::Int => self.int(frame).map_or(ValueRef::Null, ValueRef::Int),
            FieldType::Long => self.long(frame).map_or(ValueRef::Null, ValueRef::Long),
            FieldType::Float => self.float(frame).map_or(ValueRef::Null, ValueRef::Float),
            _ => self.double(frame).map_or(ValueRef::Null, ValueRef::Double),
        }
    }

    fn int<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> Option<i32> {
        match self {
            Self::Arithmetic(op, FieldType::Int, of) => {
                let [a, b] = &**of;
                ops::int(*op, a.int(frame)?, b.int(frame)?)
            }
            _ => match self.value(frame) {
                ValueRef::Int(n) => Some(n),
                _ => None,
            },
        }
    }

    pub(crate) fn long<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> Option<i64> {
        match self {
            Self::Arithmetic(op, FieldType::Long, of) => {
                let [a, b] = &**of;
                ops::long(*op, a.long(frame)?, b.long(frame)?)
            }
            Self::Input(column) => frame.input.get(*column).as_i64(),
            _ => self.value(frame).as_i64(),
        }
    }

    fn float<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> Option<f32> {
        match self {
            Self::Arithmetic(op, FieldType::Float, of) => {
                let [a, b] = &**of;
                ops::float(*op, a.float(frame)?, b.float(frame)?)
            }
            Self::Input(column) => frame.input.get(*column).as_f32(),
            _ => self.value(frame).as_f32(),
        }
    }

    pub(crate) fn double<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> Option<f64> {
        match self {
            Self::Arithmetic(op, FieldType::Double, of) => {
                let [a, b] = &**of;
                ops::double(*op, a.double(frame)?, b.double(frame)?)
            }
            Self::Input(column) => frame.input.get(*column).as_f64(),
            _ => self.value(frame).as_f64(),
        }
    }

    /// Returns whether the value is true; null is not.
    pub(crate) fn is_true<'a, S: RowSource<'a>>(&'a self, frame: &RowFrame<'_, 'a, S>) -> bool {
        match self {
            Self::Compare(op, domain, of) => {
                let [a, b] = &**of;
                match domain {
                    CompareAs::Long => match (a.long(frame), b.long(frame)) {
                        (Some(a), Some(b)) => op.holds(Some(a.cmp(&b))),
                        _ => *op == Comparison::Ne,
                    },
                    CompareAs::Double => match (a.double(frame), b.double(frame)) {
                        (Some(a), Some(b)) => op.holds(a.partial_cmp(&b)),
                        _ => *op == Comparison::Ne,
                    },
                    CompareAs::Values => ops::compare_refs(*op, a.value(frame), b.value(frame)),
                }
            }
            Self::And(of) => of[0].is_true(frame) && of[1].is_true(frame),
            Self::Or(of) => of[0].is_true(frame) || of[1].is_true(frame),
            Self::Not(x) => !x.is_true(frame),
            Self::IsNull(x) => x.value(frame).is_null(),
            _ => self.value(frame).is_true(),
        }
    }
}

impl CompareAs {
    fn of(op: Comparison, a: FieldType, b: FieldType) -> Self {
        use FieldType::{Double, Float, Int, Long, Time};
        let equality = matches!(op, Comparison::Eq | Comparison::Ne);
        let whole = |ty| matches!(ty, Int | Long | Time);
        match (a, b) {
            _ if whole(a) && whole(b) => Self::Long,
            // a float and a whole number are ordered with the precision of floats
            (Float, other) | (other, Float) if whole(other) && !equality => Self::Values,
            _ if (whole(a) || matches!(a, Float | Double)) && (whole(b) || matches!(b, Float | Double)) => {
                Self::Double
            }
            _ => Self::Values,
        }
    }
}

/// Copies the string of a value into the arena of the event, so that it outlives the state that it was read from.
#[inline]
pub(crate) fn keep<'a>(value: &ValueRef<'_>, arena: &'a Bump) -> ValueRef<'a> {
    match *value {
        ValueRef::Null | ValueRef::Object(_) => ValueRef::Null,
        ValueRef::Bool(x) => ValueRef::Bool(x),
        ValueRef::Int(x) => ValueRef::Int(x),
        ValueRef::Long(x) => ValueRef::Long(x),
        ValueRef::Float(x) => ValueRef::Float(x),
        ValueRef::Double(x) => ValueRef::Double(x),
        ValueRef::Str(text) => ValueRef::Str(arena.alloc_str(text)),
    }
}
