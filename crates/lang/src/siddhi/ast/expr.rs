//! Expressions.

use super::{Ident, Scope, StreamRef};
pub use crate::operator::BinaryOp;
use crate::source::Span;

/// An expression.
///
/// No tree is deeper than [`EXPR_DEPTH_MAX`](crate::siddhi::EXPR_DEPTH_MAX), so walking it by recursion is safe.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Source range, including enclosing parentheses.
    pub span: Span,
}

/// The kinds of expression.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A constant that is not a time.
    Literal(Literal),
    /// `1 hour 30 min`: a long.
    Time(TimeLiteral),
    /// `a`, `S.a`, `e[0].a`
    Attribute(AttributeRef),
    /// `f(a, b)`, `ns:f(a)`
    Call(Box<Call>),
    /// `x is null`
    IsNull(NullOperand),
    /// `not x`
    Not(Box<Expr>),
    /// `left op right`
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left of it.
        left: Box<Expr>,
        /// Right of it.
        right: Box<Expr>,
    },
    /// `(condition) in Table`
    In {
        /// What a row of the table must satisfy.
        condition: Box<Expr>,
        /// The table.
        table: Ident,
    },
}

/// A constant; signs are part of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `true`, `false`
    Bool(bool),
    /// `5`
    Int(i32),
    /// `5L`
    Long(i64),
    /// `5.5f`; too large a number is infinite.
    Float(f32),
    /// `5.5`, `5d`, `1e3`; too large a number is infinite.
    Double(f64),
    /// `'x'`
    Text(String),
}

/// `1 hour 30 min`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeLiteral {
    /// Milliseconds: a year has 365 days, a month 30. Never negative.
    pub ms: i64,
    /// As written, with single spaces between numbers and units, units in lower case.
    pub text: String,
    /// Source range.
    pub span: Span,
}

/// `a`, `S.a`, `#S.a`, `e[last - 1].a`
///
/// A bare name may also be the reference of a step where a function or `is null` takes one (`e1 is null`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeRef {
    /// What stands before the dot.
    pub source: Option<Box<SourceRef>>,
    /// The attribute.
    pub name: Ident,
    /// Source range of the whole reference.
    pub span: Span,
}

/// What an attribute is taken from: a stream, an alias, a table, a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRef {
    /// Its name.
    pub stream: StreamRef,
    /// Which of the events that a step collected.
    pub index: Option<Index>,
    /// `#name` behind it.
    pub inner: Option<InnerRef>,
    /// Source range of the whole reference.
    pub span: Span,
}

impl SourceRef {
    /// Its name, where it is nothing but a name.
    pub fn as_name(&self) -> Option<&Ident> {
        let plain = self.stream.scope == Scope::App && self.index.is_none() && self.inner.is_none();
        plain.then_some(&self.stream.name)
    }
}

/// `#name`, `#name[0]` behind a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerRef {
    /// The name.
    pub name: Ident,
    /// Which of the events.
    pub index: Option<Index>,
}

/// `[0]`, `[last]`, `[last - 1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Which event.
    pub kind: IndexKind,
    /// Source range, brackets included.
    pub span: Span,
}

/// Which event of those that a step collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// `n`: from the first, which is 0.
    First(u32),
    /// `last - n`: from the last, which is 0.
    Last(u32),
}

/// `f(a, b)`, `ns:f(a)`, `count(*)`
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// What stands before the colon.
    pub namespace: Option<Ident>,
    /// The function, window or stream processor.
    pub name: Ident,
    /// Its arguments.
    pub args: Args,
    /// Source range of the whole call.
    pub span: Span,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Args {
    /// `(a, b)`, `()`
    List(Vec<Expr>),
    /// `(*)`, with the place of the star.
    All(Span),
}

impl Args {
    /// The arguments written out.
    pub fn list(&self) -> &[Expr] {
        match self {
            Self::List(list) => list,
            Self::All(_) => &[],
        }
    }
}

/// What `is null` is asked of.
#[derive(Debug, Clone, PartialEq)]
pub enum NullOperand {
    /// An attribute or a function's result. A bare name may be a step too: see [`AttributeRef`].
    Value(Box<Expr>),
    /// What can only be a stream or step: `e1[2]`, `#S`.
    Step(Box<SourceRef>),
}
