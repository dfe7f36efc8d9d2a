//! Syntax tree of queries, partitions and on-demand queries.

use super::{
    Annotation, Call, Expr, Ident, KindClause, Output, RateLimit, Selection, StateInput, StreamRef, Text,
};
use crate::source::Span;

/// `from … select … output … insert into …`
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Annotations before the query, in order.
    pub annotations: Vec<Annotation>,
    /// Input of the query.
    pub input: Input,
    /// Projection, grouping and ordering; `None` passes all attributes through.
    pub select: Option<Selection>,
    /// Output rate limit.
    pub rate: Option<RateLimit>,
    /// Action and target of the output.
    pub output: Output,
    /// Source range of the whole query, annotations included.
    pub span: Span,
}

/// Input of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A single stream.
    Stream(StreamInput),
    /// A join of two streams.
    Join(Box<JoinInput>),
    /// A pattern or a sequence.
    State(StateInput),
    /// `from … return`: accepted by the grammar, but not executable.
    Nested(Box<NestedQuery>),
}

impl Input {
    /// Returns the source range.
    pub fn span(&self) -> Span {
        match self {
            Self::Stream(i) => i.span,
            Self::Join(i) => i.span,
            Self::State(i) => i.span,
            Self::Nested(i) => i.span,
        }
    }
}

/// `(from … select … return)` in the position of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct NestedQuery {
    /// Input of the nested query.
    pub input: Input,
    /// Projection, grouping and ordering.
    pub select: Option<Selection>,
    /// Output rate limit.
    pub rate: Option<RateLimit>,
    /// Kinds of events that the query returns.
    pub kind: Option<KindClause>,
    /// Source range of the whole query, brackets included.
    pub span: Span,
}

/// `S[…]#f(…)#window.length(5)[…]`
#[derive(Debug, Clone, PartialEq)]
pub struct StreamInput {
    /// Stream, table, window or aggregation that is read.
    pub stream: StreamRef,
    /// Filters and functions before the window, in order.
    pub handlers: Vec<Handler>,
    /// Window.
    pub window: Option<Window>,
    /// Filters and functions after the window, in order; empty without a window and in joins.
    pub after: Vec<Handler>,
    /// Source range of the whole input.
    pub span: Span,
}

/// `[…]`, `#f(…)`: a filter or stream function.
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    /// Filter or function.
    pub kind: HandlerKind,
    /// Source range, from the `#` or `[` to the end.
    pub span: Span,
}

/// Kind of a handler.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerKind {
    /// `[…]`, `#[…]`: drops events that do not satisfy the condition.
    Filter(Expr),
    /// `#f(…)`
    Function(Call),
}

/// `#window.length(5)`
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Window type and its parameters.
    pub call: Call,
    /// Source range, from the `#` to the end.
    pub span: Span,
}

/// `left join right on … within … per …`
#[derive(Debug, Clone, PartialEq)]
pub struct JoinInput {
    /// First input.
    pub left: JoinSide,
    /// Kind of join.
    pub kind: JoinKind,
    /// Second input.
    pub right: JoinSide,
    /// Join condition; `None` means that all pairs match.
    pub on: Option<Expr>,
    /// Time range and bucket duration if an aggregation is joined.
    pub within: Option<Within>,
    /// Source range of the whole input.
    pub span: Span,
}

/// An input of a join.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinSide {
    /// Stream with its handlers and window; no handlers follow the window.
    pub input: StreamInput,
    /// Name by which the rest of the query refers to the side.
    pub alias: Option<Ident>,
    /// Source range of `unidirectional`: only events of this side trigger output. Never on both sides in a
    /// tree without errors.
    pub unidirectional: Option<Span>,
    /// Source range of the whole side.
    pub span: Span,
}

/// Kind of join: which sides emit events without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// `join`, `inner join`: neither side.
    Inner,
    /// `left outer join`
    LeftOuter,
    /// `right outer join`
    RightOuter,
    /// `full outer join`
    FullOuter,
}

impl JoinKind {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Inner => "join",
            Self::LeftOuter => "left outer join",
            Self::RightOuter => "right outer join",
            Self::FullOuter => "full outer join",
        }
    }
}

/// `within from, to per p`: time range and bucket duration of the rows read from an aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Within {
    /// Start of the range, or without `to` a string that denotes a whole period.
    pub from: Expr,
    /// End of the range.
    pub to: Option<Expr>,
    /// Bucket duration.
    pub per: Expr,
    /// Source range, from `within` to the end.
    pub span: Span,
}

/// `partition with (…) begin … end`
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Annotations before the partition, in order.
    pub annotations: Vec<Annotation>,
    /// Partition keys, at least one in a tree without errors.
    pub keys: Vec<PartitionKey>,
    /// Queries in order, at least one in a tree without errors.
    pub queries: Vec<Query>,
    /// Source range of the whole partition, annotations included.
    pub span: Span,
}

/// `expr of S`, `cond as 'low' or cond as 'high' of S`
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionKey {
    /// Value or ranges that determine the key of an event.
    pub kind: PartitionKeyKind,
    /// Stream that is partitioned.
    pub stream: Ident,
    /// Source range.
    pub span: Span,
}

/// Computation of the key of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionKeyKind {
    /// The value of the expression.
    Value(Expr),
    /// The names of the ranges whose conditions the event satisfies; at least one range.
    Ranges(Vec<PartitionRange>),
}

/// `cond as 'name'`
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionRange {
    /// Condition on the events of the range.
    pub condition: Expr,
    /// Key of the range.
    pub name: Text,
    /// Source range of condition and name.
    pub span: Span,
}

/// A query that runs once, over the stored rows of a table, window or aggregation.
#[derive(Debug, Clone, PartialEq)]
pub enum OnDemandQuery {
    /// `from T on … select …`: returns rows.
    Find(Box<FindQuery>),
    /// `select … update T …`: changes rows.
    Change(Box<ChangeQuery>),
}

/// `from T as t on … within … per … select …`
#[derive(Debug, Clone, PartialEq)]
pub struct FindQuery {
    /// Table, window or aggregation that is read.
    pub store: Ident,
    /// Alias of the store.
    pub alias: Option<Ident>,
    /// Condition that selects the rows.
    pub on: Option<Expr>,
    /// Time range and bucket duration if the store is an aggregation.
    pub within: Option<Within>,
    /// Projection, grouping and ordering; `None` returns all columns.
    pub select: Option<Selection>,
    /// Source range of the whole query.
    pub span: Span,
}

/// `select … insert into T`, `update T set … on …`
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeQuery {
    /// Values to write; `None` only before `delete` and `update`.
    pub select: Option<Selection>,
    /// Action on the table; never `return`, never with kinds of events.
    pub output: Output,
    /// Source range of the whole query.
    pub span: Span,
}
