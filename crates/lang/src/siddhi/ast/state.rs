//! Syntax tree of patterns and sequences.

use super::{Handler, Ident, StreamRef, TimeLiteral};
use crate::source::Span;

/// `every e1=A -> e2=B within 1 min`, `e1=A, e2=B+`
#[derive(Debug, Clone, PartialEq)]
pub struct StateInput {
    /// Pattern or sequence.
    pub kind: StateKind,
    /// Step groups in order, at least one.
    pub groups: Vec<StepGroup>,
    /// Maximum duration of a match.
    pub within: Option<TimeLiteral>,
    /// Parts with a maximum duration of their own, inner ones first.
    pub parts: Vec<TimedPart>,
    /// Source range of the whole input.
    pub span: Span,
}

impl StateInput {
    /// Returns all steps in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.groups.iter().flat_map(|g| &g.steps)
    }

    /// Returns the positions of the first and the last step of a part.
    pub fn steps_of(&self, part: &TimedPart) -> Option<(usize, usize)> {
        let is_in = |step: &Step| part.span.start <= step.span().start && step.span().end <= part.span.end;
        let mut of_part = self.steps().enumerate().filter(|(_, step)| is_in(step)).map(|(i, _)| i);
        let first = of_part.next()?;
        Some((first, of_part.last().unwrap_or(first)))
    }
}

/// `(e1=A -> e2=B within 10 sec)`, `(e1=A -> e2=B) within 10 sec`
#[derive(Debug, Clone, PartialEq)]
pub struct TimedPart {
    /// Maximum duration from the first event of the part to the last one.
    pub within: TimeLiteral,
    /// Source range from the bracket that opens the part to the one that closes it.
    pub span: Span,
}

/// Contiguity of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// `->`: other events may occur between two steps. Also the kind of a single step.
    Pattern,
    /// `,`: no other event may occur between two steps.
    Sequence,
}

/// A single step, or the steps that an `every` repeats: `every A`, `every (A -> B)`.
///
/// Parentheses without `every` and without `within` have no meaning and are not represented in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct StepGroup {
    /// Source range of `every`. In sequences without errors, only the first step has it.
    pub every: Option<Span>,
    /// Steps in order: exactly one without `every` and in sequences, otherwise at least one.
    pub steps: Vec<Step>,
    /// Source range of the whole group.
    pub span: Span,
}

/// A step of a pattern or sequence.
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
    /// Name by which the rest of the query refers to the step's event.
    pub reference: Option<Ident>,
    /// Stream whose events the step matches.
    pub stream: StreamRef,
    /// Filters and functions in order; no window.
    pub handlers: Vec<Handler>,
    /// Number of events that the step collects; `None` means exactly one, and always inside a logical step.
    pub count: Option<Count>,
    /// Source range of the whole step.
    pub span: Span,
}

/// `<2:5>`, `+`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// Minimum number of events.
    pub min: u32,
    /// Maximum number of events; `None` if unbounded.
    pub max: Option<u32>,
    /// Notation used in the source.
    pub form: CountForm,
    /// Source range.
    pub span: Span,
}

/// Notation of a count.
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
    /// Operator: both sides must match, or one.
    pub op: LogicalOp,
    /// First operand.
    pub left: LogicalSide,
    /// Second operand.
    pub right: LogicalSide,
    /// Source range of the whole step.
    pub span: Span,
}

/// Operator that combines two sides into a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogicalOp {
    /// Both sides must match, in either order.
    And,
    /// One of the sides must match.
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

/// An operand of a logical step.
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
    /// Stream from which no event may arrive.
    pub stream: StreamRef,
    /// Filters and functions in order; no window.
    pub handlers: Vec<Handler>,
    /// Duration of the absence; `None` only as an operand of `and` with a stream as the other one.
    pub wait: Option<TimeLiteral>,
    /// Source range of the whole step.
    pub span: Span,
}
