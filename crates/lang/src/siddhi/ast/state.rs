//! Patterns and sequences.

use super::{Handler, Ident, StreamRef, TimeLiteral};
use crate::source::Span;

/// `every e1=A -> e2=B within 1 min`, `e1=A, e2=B+`
#[derive(Debug, Clone, PartialEq)]
pub struct StateInput {
    /// Pattern or sequence.
    pub kind: StateKind,
    /// Its steps in order, at least one.
    pub groups: Vec<StepGroup>,
    /// How long a match may take.
    pub within: Option<TimeLiteral>,
    /// Source range of the whole input.
    pub span: Span,
}

impl StateInput {
    /// All steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.groups.iter().flat_map(|g| &g.steps)
    }
}

/// What may come between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// `->`: anything. Also the kind of a single step.
    Pattern,
    /// `,`: nothing.
    Sequence,
}

/// One step, or the steps that an `every` repeats: `every A`, `every (A -> B)`.
///
/// Parentheses without `every` mean nothing and are not in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct StepGroup {
    /// Where `every` stands. In a tree without errors no step of a sequence but the first has it.
    pub every: Option<Span>,
    /// The steps in order: one without `every` and in sequences, else at least one.
    pub steps: Vec<Step>,
    /// Source range of the whole group.
    pub span: Span,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// `e=A[…]<2:5>`
    Stream(StreamStep),
    /// `a=A and b=B`, `a=A or b=B`
    Logical(LogicalStep),
    /// `not A for 5 sec`
    Absent(AbsentStep),
}

impl Step {
    /// Returns the source range.
    pub fn span(&self) -> Span {
        match self {
            Self::Stream(s) => s.span,
            Self::Logical(s) => s.span,
            Self::Absent(s) => s.span,
        }
    }
}

/// `e=A[…]<2:5>`
#[derive(Debug, Clone, PartialEq)]
pub struct StreamStep {
    /// The name of its event in the rest of the query.
    pub reference: Option<Ident>,
    /// What it waits for.
    pub stream: StreamRef,
    /// Filters and functions in order; no window.
    pub handlers: Vec<Handler>,
    /// How many events it collects; exactly one when absent, always inside a logical step.
    pub count: Option<Count>,
    /// Source range of the whole step.
    pub span: Span,
}

/// `<2:5>`, `+`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Fewest events.
    pub min: u32,
    /// Most events, if there is a bound.
    pub max: Option<u32>,
    /// How it was written.
    pub form: CountForm,
    /// Source range.
    pub span: Span,
}

/// How a count was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CountForm {
    /// `<n>`, `<n:m>`, `<n:>`, `<:m>`
    Range,
    /// `*`, in sequences only.
    Star,
    /// `+`, in sequences only.
    Plus,
    /// `?`, in sequences only.
    Question,
}

/// `left and right`, `left or right`
#[derive(Debug, Clone, PartialEq)]
pub struct LogicalStep {
    /// Whether both or one must happen.
    pub op: LogicalOp,
    /// The side named first.
    pub left: LogicalSide,
    /// The side named second.
    pub right: LogicalSide,
    /// Source range of the whole step.
    pub span: Span,
}

/// How two sides make a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogicalOp {
    /// Both, in either order.
    And,
    /// One of them.
    Or,
}

impl LogicalOp {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
        }
    }
}

/// One side of a logical step.
#[derive(Debug, Clone, PartialEq)]
pub enum LogicalSide {
    /// `e=A[…]`, without a count.
    Stream(StreamStep),
    /// `not A`, `not A for 5 sec`
    Absent(AbsentStep),
}

impl LogicalSide {
    /// Returns the source range.
    pub fn span(&self) -> Span {
        match self {
            Self::Stream(s) => s.span,
            Self::Absent(s) => s.span,
        }
    }
}

/// `not A[…] for 5 sec`
#[derive(Debug, Clone, PartialEq)]
pub struct AbsentStep {
    /// What must not come.
    pub stream: StreamRef,
    /// Filters and functions in order; no window.
    pub handlers: Vec<Handler>,
    /// How long; absent only beside `and` with a stream on the other side.
    pub wait: Option<TimeLiteral>,
    /// Source range of the whole step.
    pub span: Span,
}
