//! Syntax tree of expressions.

use super::{Ident, Scope, StreamRef};
pub use crate::operator::BinaryOp;
use crate::source::Span;

/// An expression.
///
/// No tree is deeper than [`EXPR_DEPTH_MAX`](crate::siddhi::EXPR_DEPTH_MAX), so recursive traversal is safe.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Kind of the expression, with its operands.
    pub kind: ExprKind,
    /// Source range, including enclosing parentheses.
    pub span: Span,
}

/// Kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A constant other than a time.
    Literal(Literal),
    /// `1 hour 30 min`: a constant of type long.
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
        /// Operator.
        op: BinaryOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// `(condition) in Table`
    In {
        /// Condition that a row of the table must satisfy.
        condition: Box<Expr>,
        /// Table that is searched.
        table: Ident,
    },
}

/// A constant, including its sign.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `true`, `false`
    Bool(bool),
    /// `5`
    Int(i32),
    /// `5L`
    Long(i64),
    /// `5.5f`; a number beyond the range is infinite.
    Float(f32),
    /// `5.5`, `5d`, `1e3`; a number beyond the range is infinite.
    Double(f64),
    /// `'x'`
    Text(String),
}

/// `1 hour 30 min`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeLiteral {
    /// Duration in milliseconds; a year has 365 days, a month 30. Never negative.
    pub ms: i64,
    /// Source text with single spaces between numbers and units, units in lower case.
    pub text: String,
    /// Source range.
    pub span: Span,
}

/// `a`, `S.a`, `#S.a`, `e[last - 1].a`
///
/// A bare name may also refer to a step, as an operand of a function or of `is null` (`e1 is null`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeRef {
    /// Qualifier before the dot.
    pub source: Option<Box<SourceRef>>,
    /// Attribute name.
    pub name: Ident,
    /// Source range of the whole reference.
    pub span: Span,
}

/// Qualifier of an attribute: a stream, alias, table or step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRef {
    /// Name and scope.
    pub stream: StreamRef,
    /// Index of an event among those that a step collected.
    pub index: Option<EventIndex>,
    /// `#name` after the source.
    pub inner: Option<InnerRef>,
    /// Source range of the whole reference.
    pub span: Span,
}

impl SourceRef {
    /// Returns the name if the reference has no scope mark, index or inner reference.
    pub fn as_name(&self) -> Option<&Ident> {
        let plain = self.stream.scope == Scope::App && self.index.is_none() && self.inner.is_none();
        plain.then_some(&self.stream.name)
    }
}

/// `#name`, `#name[0]` after a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerRef {
    /// Name after the `#`.
    pub name: Ident,
    /// Index of an event among those that a step collected.
    pub index: Option<EventIndex>,
}

/// `[0]`, `[last]`, `[last - 1]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventIndex {
    /// Event that the index selects.
    pub kind: IndexKind,
    /// Source range, brackets included.
    pub span: Span,
}

/// Event selected among those that a step collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// `n`: counted from the first event, which is 0.
    First(u32),
    /// `last - n`: counted back from the last event, which is 0.
    Last(u32),
}

/// `f(a, b)`, `ns:f(a)`, `count(*)`
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Namespace before the colon.
    pub namespace: Option<Ident>,
    /// Name of the function, window or stream processor.
    pub name: Ident,
    /// Arguments in brackets.
    pub args: Args,
    /// Source range of the whole call.
    pub span: Span,
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Args {
    /// `(a, b)`, `()`
    List(Vec<Expr>),
    /// `(*)`, with the source range of the star.
    All(Span),
}

impl Args {
    /// Returns the listed arguments; empty for `(*)`.
    pub fn list(&self) -> &[Expr] {
        match self {
            Self::List(list) => list,
            Self::All(_) => &[],
        }
    }
}

/// Operand of `is null`.
#[derive(Debug, Clone, PartialEq)]
pub enum NullOperand {
    /// An attribute or a function call. A bare name may also refer to a step: see [`AttributeRef`].
    Value(Box<Expr>),
    /// An operand that can only be a stream or step: `e1[2]`, `#S`.
    Step(Box<SourceRef>),
}
