//! Syntax tree of SiddhiQL.
//!
//! Every node carries its [`Span`]. The parser goes by syntax alone: whether a name is a stream, table or
//! step is decided by the crate that compiles the tree. Names are case-sensitive, keywords and types are not.

mod definition;
mod expr;
mod output;
mod query;
mod searches;
mod state;

pub use definition::{
    AggregationDefinition, Attribute, Definition, FunctionDefinition, Period, PeriodUnit, Periods,
    StreamDefinition, TableDefinition, TriggerAt, TriggerDefinition, TypeName, WindowDefinition,
};
pub use expr::{
    Args, AttributeRef, BinaryOp, Call, EventIndex, Expr, ExprKind, IndexKind, InnerRef, Literal,
    NullOperand, SourceRef, TimeLiteral,
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
    StepGroup, StreamStep, TimedPart,
};

pub use crate::source::Ident;
use crate::source::Span;

/// A SiddhiQL app.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct App {
    /// Annotations `@app:…`, in source order.
    pub annotations: Vec<AppAnnotation>,
    /// Definitions in source order; at least one in a tree without errors.
    pub definitions: Vec<Definition>,
    /// Queries and partitions in source order.
    pub elements: Vec<ExecutionElement>,
}

impl App {
    /// Returns the first annotation `@app:name`, compared without case.
    pub fn annotation(&self, name: &str) -> Option<&AppAnnotation> {
        self.annotations.iter().find(|a| a.name.name.eq_ignore_ascii_case(name))
    }
}

/// An execution element: a query or a partition.
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

    /// Returns the annotations before the element, in order.
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
    /// Name after `@app:`.
    pub name: Ident,
    /// Elements in order.
    pub elements: Vec<AnnotationEntry>,
    /// Source range, from `@` to the end.
    pub span: Span,
}

impl AppAnnotation {
    /// Returns the first element with the key `key`, compared without case.
    pub fn element(&self, key: &str) -> Option<&AnnotationEntry> {
        self.elements.iter().find(|e| e.has_key(key))
    }
}

/// `@name(key='value', @nested(…), …)`
#[derive(Debug, Clone, PartialEq)]
pub struct Annotation {
    /// Name after `@`.
    pub name: Ident,
    /// Arguments in brackets, in order.
    pub args: Vec<AnnotationArg>,
    /// Source range, from `@` to the end.
    pub span: Span,
}

impl Annotation {
    /// Returns whether this is the annotation `@name`, compared without case.
    pub fn is(&self, name: &str) -> bool {
        self.name.name.eq_ignore_ascii_case(name)
    }

    /// Returns the elements in order, without nested annotations.
    pub fn elements(&self) -> impl Iterator<Item = &AnnotationEntry> {
        self.args.iter().filter_map(|arg| match arg {
            AnnotationArg::Element(element) => Some(element),
            AnnotationArg::Annotation(_) => None,
        })
    }

    /// Returns the first element with the key `key`, compared without case.
    pub fn element(&self, key: &str) -> Option<&AnnotationEntry> {
        self.elements().find(|e| e.has_key(key))
    }

    /// Returns the nested annotations, in order.
    pub fn nested(&self) -> impl Iterator<Item = &Annotation> {
        self.args.iter().filter_map(|arg| match arg {
            AnnotationArg::Annotation(annotation) => Some(annotation),
            AnnotationArg::Element(_) => None,
        })
    }
}

/// An argument of an annotation.
#[derive(Debug, Clone, PartialEq)]
pub enum AnnotationArg {
    /// `key='value'`, `'value'`
    Element(AnnotationEntry),
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

/// `key='value'`, or only `'value'`.
#[derive(Debug, Clone, PartialEq)]
pub struct AnnotationEntry {
    /// Key: names joined by `.`, `-` or `:`, or a string; `None` if only a value is written.
    pub key: Option<Text>,
    /// Value, without quotes.
    pub value: Text,
    /// Source range of key and value.
    pub span: Span,
}

impl AnnotationEntry {
    /// Returns whether the key is `key`, compared without case.
    pub fn has_key(&self, key: &str) -> bool {
        self.key.as_ref().is_some_and(|k| k.value.eq_ignore_ascii_case(key))
    }
}

/// A string literal where the grammar requires one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text {
    /// Content of the string, without quotes.
    pub value: String,
    /// Source range, quotes included.
    pub span: Span,
}

/// A reference to a stream, table or window that is read, written or defined: `S`, `#S`, `!S`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamRef {
    /// Name without the mark.
    pub name: Ident,
    /// Scope given by the mark before the name.
    pub scope: Scope,
    /// Source range of the mark and the name.
    pub span: Span,
}

/// Scope in which a stream name is resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `S`: a name without a mark, such as that of a stream of the app.
    App,
    /// `#S`: a stream inside a partition.
    Inner,
    /// `!S`: the fault stream of `S`, which receives its failed events.
    Fault,
}

impl Scope {
    /// Returns the mark before the name; empty for [`Scope::App`].
    pub fn mark(self) -> &'static str {
        match self {
            Self::App => "",
            Self::Inner => "#",
            Self::Fault => "!",
        }
    }
}
