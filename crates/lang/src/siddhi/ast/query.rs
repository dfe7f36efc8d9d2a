//! Queries, partitions, on-demand queries.

use super::{
    Annotation, Call, Expr, Ident, KindClause, Output, RateLimit, Selection, StateInput, StreamRef, Text,
};
use crate::source::Span;

/// `from … select … output … insert into …`
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// What it reads.
    pub input: Input,
    /// What it computes; everything as it came when absent.
    pub select: Option<Selection>,
    /// How often its output goes out.
    pub rate: Option<RateLimit>,
    /// Where its output goes.
    pub output: Output,
    /// Source range of the whole query, annotations included.
    pub span: Span,
}

/// What a query reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// One stream.
    Stream(StreamInput),
    /// Two streams side by side.
    Join(Box<JoinInput>),
    /// A pattern or a sequence.
    State(StateInput),
    /// `from … return`: known to the grammar, not to be run.
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

/// `(from … select … return)` in the place of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct NestedQuery {
    /// What it reads.
    pub input: Input,
    /// What it computes.
    pub select: Option<Selection>,
    /// How often its output goes out.
    pub rate: Option<RateLimit>,
    /// Which events it returns.
    pub kind: Option<KindClause>,
    /// Source range of the whole query, brackets included.
    pub span: Span,
}

/// `S[…]#f(…)#window.length(5)[…]`
#[derive(Debug, Clone, PartialEq)]
pub struct StreamInput {
    /// What is read.
    pub stream: StreamRef,
    /// Filters and functions before the window, in order.
    pub handlers: Vec<Handler>,
    /// The window.
    pub window: Option<Window>,
    /// Filters and functions behind the window, in order; none without one, and none in joins.
    pub after: Vec<Handler>,
    /// Source range of the whole input.
    pub span: Span,
}

/// `[…]`, `#f(…)`
#[derive(Debug, Clone, PartialEq)]
pub struct Handler {
    /// What it is.
    pub kind: HandlerKind,
    /// Source range, from the `#` or `[` to the end.
    pub span: Span,
}

/// What works on a stream's events.
#[derive(Debug, Clone, PartialEq)]
pub enum HandlerKind {
    /// `[…]`, `#[…]`: lets through what satisfies the condition.
    Filter(Expr),
    /// `#f(…)`
    Function(Call),
}

/// `#window.length(5)`
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// What kind of window, and its parameters.
    pub call: Call,
    /// Source range, from the `#` to the end.
    pub span: Span,
}

/// `left join right on … within … per …`
#[derive(Debug, Clone, PartialEq)]
pub struct JoinInput {
    /// The side named first.
    pub left: JoinSide,
    /// Which events come out without a match.
    pub kind: JoinKind,
    /// The side named second.
    pub right: JoinSide,
    /// What a match must satisfy; everything matches when absent.
    pub on: Option<Expr>,
    /// Which rows of an aggregation.
    pub within: Option<Within>,
    /// Source range of the whole input.
    pub span: Span,
}

/// One side of a join.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinSide {
    /// What is read; nothing stands behind its window.
    pub input: StreamInput,
    /// The side's name in the rest of the query.
    pub alias: Option<Ident>,
    /// Where `unidirectional` stands: only this side triggers. Never on both sides in a tree without errors.
    pub unidirectional: Option<Span>,
    /// Source range of the whole side.
    pub span: Span,
}

/// Which events of a join come out without a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// `join`, `inner join`: none.
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

/// `within from, to per p`: which rows of an aggregation.
#[derive(Debug, Clone, PartialEq)]
pub struct Within {
    /// The first instant, or with no second a text that names a stretch of time.
    pub from: Expr,
    /// The end.
    pub to: Option<Expr>,
    /// The length of the buckets.
    pub per: Expr,
    /// Source range, from `within` to the end.
    pub span: Span,
}

/// `partition with (…) begin … end`
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// What makes the keys, at least one in a tree without errors.
    pub keys: Vec<PartitionKey>,
    /// The queries in order, at least one in a tree without errors.
    pub queries: Vec<Query>,
    /// Source range of the whole partition, annotations included.
    pub span: Span,
}

/// `expr of S`, `cond as 'low' or cond as 'high' of S`
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionKey {
    /// The key of an event.
    pub kind: PartitionKeyKind,
    /// The stream.
    pub stream: Ident,
    /// Source range.
    pub span: Span,
}

/// How an event's key is found.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionKeyKind {
    /// The value.
    Value(Expr),
    /// The names of the ranges it lies in; at least one range.
    Ranges(Vec<PartitionRange>),
}

/// `cond as 'name'`
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionRange {
    /// What an event in it satisfies.
    pub condition: Expr,
    /// The key.
    pub name: Text,
    /// Source range of both.
    pub span: Span,
}

/// A query that is run once, on what tables, windows and aggregations hold.
#[derive(Debug, Clone, PartialEq)]
pub enum OnDemandQuery {
    /// `from T on … select …`: gives rows.
    Find(Box<FindQuery>),
    /// `select … update T …`: changes rows.
    Change(Box<ChangeQuery>),
}

/// `from T as t on … within … per … select …`
#[derive(Debug, Clone, PartialEq)]
pub struct FindQuery {
    /// The table, window or aggregation.
    pub store: Ident,
    /// Another name for it.
    pub alias: Option<Ident>,
    /// What a row must satisfy.
    pub on: Option<Expr>,
    /// Which rows of an aggregation.
    pub within: Option<Within>,
    /// What is computed; all columns when absent.
    pub select: Option<Selection>,
    /// Source range of the whole query.
    pub span: Span,
}

/// `select … insert into T`, `update T set … on …`
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeQuery {
    /// The values; absent only before `delete` and `update`.
    pub select: Option<Selection>,
    /// What is done; never `return`, never with a kind.
    pub output: Output,
    /// Source range of the whole query.
    pub span: Span,
}
