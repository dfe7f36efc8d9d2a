//! The syntax tree of SiddhiQL.
//!
//! Every node carries its [`Span`]. The parser decides by form alone: which names are streams, tables or steps is for
//! the crate that compiles the tree. Names keep their case, keywords and types do not.

mod definition;
mod expr;
mod output;
mod query;
mod state;

pub use definition::{
    AggregationDefinition, Attribute, Definition, FunctionDefinition, Period, PeriodUnit, Periods,
    StreamDefinition, TableDefinition, TriggerAt, TriggerDefinition, TypeName, WindowDefinition,
};
pub use expr::{
    Args, AttributeRef, BinaryOp, Call, Expr, ExprKind, Index, IndexKind, InnerRef, Literal, NullOperand,
    SourceRef, TimeLiteral,
};
pub use output::{
    Assignment, Direction, EventKind, KindClause, OrderItem, Output, OutputAction, RateEvents, RateKind,
    RateLimit, SelectItem, SelectItems, Selection,
};
pub use query::{
    ChangeQuery, FindQuery, Handler, HandlerKind, Input, JoinInput, JoinKind, JoinSide, NestedQuery,
    OnDemandQuery, Partition, PartitionKey, PartitionKeyKind, PartitionRange, Query, StreamInput, Window,
    Within,
};
pub use state::{
    AbsentStep, Count, CountForm, LogicalOp, LogicalSide, LogicalStep, StateInput, StateKind, Step,
    StepGroup, StreamStep,
};

pub use crate::source::Ident;
use crate::source::Span;

/// A SiddhiQL app.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct App {
    /// `@app:…` in order.
    pub annotations: Vec<AppAnnotation>,
    /// Definitions in order; at least one in a tree without errors.
    pub definitions: Vec<Definition>,
    /// Queries and partitions in order.
    pub elements: Vec<ExecutionElement>,
}

impl App {
    /// The first `@app:name`, in any case.
    pub fn annotation(&self, name: &str) -> Option<&AppAnnotation> {
        self.annotations.iter().find(|a| a.name.name.eq_ignore_ascii_case(name))
    }
}

/// What runs: a query or a partition.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionElement {
    /// `from …`
    Query(Box<Query>),
    /// `partition with (…) begin … end`
    Partition(Partition),
}

impl ExecutionElement {
    /// Returns the source range, annotations included.
    pub fn span(&self) -> Span {
        match self {
            Self::Query(query) => query.span,
            Self::Partition(partition) => partition.span,
        }
    }

    /// What stands before it.
    pub fn annotations(&self) -> &[Annotation] {
        match self {
            Self::Query(query) => &query.annotations,
            Self::Partition(partition) => &partition.annotations,
        }
    }
}

/// `@app:name(key='value', …)`
#[derive(Debug, Clone, PartialEq)]
pub struct AppAnnotation {
    /// What follows `@app:`.
    pub name: Ident,
    /// Its elements in order.
    pub elements: Vec<Element>,
    /// Source range, from `@` to the end.
    pub span: Span,
}

impl AppAnnotation {
    /// The element `key`, in any case.
    pub fn element(&self, key: &str) -> Option<&Element> {
        self.elements.iter().find(|e| e.has_key(key))
    }
}

/// `@name(key='value', @nested(…), …)`
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// What follows `@`.
    pub name: Ident,
    /// What stands in its brackets, in order.
    pub args: Vec<AnnotationArg>,
    /// Source range, from `@` to the end.
    pub span: Span,
}

impl Annotation {
    /// Whether it is `@name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.name.eq_ignore_ascii_case(name)
    }

    /// Its elements in order.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.args.iter().filter_map(|arg| match arg {
            AnnotationArg::Element(element) => Some(element),
            AnnotationArg::Annotation(_) => None,
        })
    }

    /// The element `key`, in any case.
    pub fn element(&self, key: &str) -> Option<&Element> {
        self.elements().find(|e| e.has_key(key))
    }

    /// The annotations in its brackets, in order.
    pub fn nested(&self) -> impl Iterator<Item = &Annotation> {
        self.args.iter().filter_map(|arg| match arg {
            AnnotationArg::Annotation(annotation) => Some(annotation),
            AnnotationArg::Element(_) => None,
        })
    }
}

/// What stands in the brackets of an annotation.
#[derive(Debug, Clone, PartialEq)]
pub enum AnnotationArg {
    /// `key='value'`, `'value'`
    Element(Element),
    /// `@map(…)`
    Annotation(Annotation),
}

impl AnnotationArg {
    /// Returns the source range.
    pub fn span(&self) -> Span {
        match self {
            Self::Element(element) => element.span,
            Self::Annotation(annotation) => annotation.span,
        }
    }
}

/// `key='value'`, or `'value'` alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Its key: names with `.`, `-` or `:` between them, or any text.
    pub key: Option<Text>,
    /// Its value.
    pub value: Text,
    /// Source range of both.
    pub span: Span,
}

impl Element {
    /// Whether its key is `key`, in any case.
    pub fn has_key(&self, key: &str) -> bool {
        self.key.as_ref().is_some_and(|k| k.value.eq_ignore_ascii_case(key))
    }
}

/// A text where the grammar wants one, quotes removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text {
    /// What it says.
    pub value: String,
    /// Source range, quotes included.
    pub span: Span,
}

/// A stream, table or window where it is read, written or defined: `S`, `#S`, `!S`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamRef {
    /// Its name.
    pub name: Ident,
    /// What stands before the name.
    pub scope: Scope,
    /// Source range of the mark and the name.
    pub span: Span,
}

/// Which stream a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `S`
    App,
    /// `#S`: a stream inside a partition.
    Inner,
    /// `!S`: the events of `S` that failed.
    Fault,
}

impl Scope {
    /// What is written before the name.
    pub fn mark(self) -> &'static str {
        match self {
            Self::App => "",
            Self::Inner => "#",
            Self::Fault => "!",
        }
    }
}
