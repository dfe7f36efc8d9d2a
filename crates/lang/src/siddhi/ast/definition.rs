//! Syntax tree of definitions.

use tidemill_types::FieldType;

use super::{
    Annotation, AttributeRef, Call, Ident, KindClause, SelectItems, StreamInput, StreamRef, Text, TimeLiteral,
};
use crate::source::Span;

/// `define …`
#[derive(Debug, Clone, PartialEq)]
pub enum Definition {
    /// `define stream S (…)`
    Stream(StreamDefinition),
    /// `define table T (…)`
    Table(TableDefinition),
    /// `define window W (…) length(5)`
    Window(WindowDefinition),
    /// `define trigger T at …`
    Trigger(TriggerDefinition),
    /// `define function f[…] return … {…}`
    Function(FunctionDefinition),
    /// `define aggregation A from … aggregate every …`
    Aggregation(Box<AggregationDefinition>),
}

impl Definition {
    /// Returns the source range, annotations included.
    pub fn span(&self) -> Span {
        match self {
            Self::Stream(d) => d.span,
            Self::Table(d) => d.span,
            Self::Window(d) => d.span,
            Self::Trigger(d) => d.span,
            Self::Function(d) => d.span,
            Self::Aggregation(d) => d.span,
        }
    }

    /// Returns the defined name.
    pub fn name(&self) -> &Ident {
        match self {
            Self::Stream(d) => &d.id.name,
            Self::Table(d) => &d.id.name,
            Self::Window(d) => &d.id.name,
            Self::Trigger(d) => &d.name,
            Self::Function(d) => &d.name,
            Self::Aggregation(d) => &d.name,
        }
    }

    /// Returns the annotations before the definition, in order. Empty for a function.
    pub fn annotations(&self) -> &[Annotation] {
        match self {
            Self::Stream(d) => &d.annotations,
            Self::Table(d) => &d.annotations,
            Self::Window(d) => &d.annotations,
            Self::Trigger(d) => &d.annotations,
            Self::Function(_) => &[],
            Self::Aggregation(d) => &d.annotations,
        }
    }
}

/// `define stream S (a int, …)`
#[derive(Debug, Clone, PartialEq)]
pub struct StreamDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// Stream name.
    pub id: StreamRef,
    /// Attributes in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define table T (a int, …)`
#[derive(Debug, Clone, PartialEq)]
pub struct TableDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// Table name.
    pub id: StreamRef,
    /// Columns in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define window W (a int, …) length(5) output all events`
#[derive(Debug, Clone, PartialEq)]
pub struct WindowDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// Window name.
    pub id: StreamRef,
    /// Attributes in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// Window type and its parameters.
    pub window: Call,
    /// Kinds of events that the window emits to its readers; `None` means all.
    pub output: Option<KindClause>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define trigger T at every 5 sec`
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// Name of the trigger and of the stream it writes.
    pub name: Ident,
    /// Schedule.
    pub at: TriggerAt,
    /// Source range of the whole definition.
    pub span: Span,
}

/// Schedule of a trigger.
#[derive(Debug, Clone, PartialEq)]
pub enum TriggerAt {
    /// `every 5 sec`
    Every(TimeLiteral),
    /// `'start'`, or a cron expression in quotes.
    Text(Text),
}

/// `define function f[javascript] return int { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDefinition {
    /// Function name.
    pub name: Ident,
    /// Language of the body.
    pub language: Ident,
    /// Return type.
    pub result: TypeName,
    /// Source text between the braces; its `span` includes them.
    pub body: Text,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define aggregation A from S select … group by … aggregate by ts every sec ... year`
#[derive(Debug, Clone, PartialEq)]
pub struct AggregationDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// Aggregation name.
    pub name: Ident,
    /// Stream that is aggregated.
    pub input: StreamInput,
    /// Projected columns.
    pub items: SelectItems,
    /// Grouping attributes; empty without `group by`.
    pub group_by: Vec<AttributeRef>,
    /// Attribute that contains the event time; `None` means the event's timestamp.
    pub by: Option<AttributeRef>,
    /// Bucket durations.
    pub every: Periods,
    /// Source range of the whole definition.
    pub span: Span,
}

/// Bucket durations of an aggregation.
#[derive(Debug, Clone, PartialEq)]
pub enum Periods {
    /// `sec ... year`: both ends and all durations between them.
    Range(Period, Period),
    /// `sec, hour`; at least one.
    List(Vec<Period>),
}

/// A time unit as a bucket duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// Time unit.
    pub unit: PeriodUnit,
    /// Source range.
    pub span: Span,
}

/// Time units, from shortest to longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeriodUnit {
    /// `sec`
    Second,
    /// `min`
    Minute,
    /// `hour`
    Hour,
    /// `day`
    Day,
    /// `week`
    Week,
    /// `month`
    Month,
    /// `year`
    Year,
}

impl PeriodUnit {
    /// Returns the spelling in source text.
    pub fn text(self) -> &'static str {
        match self {
            Self::Second => "sec",
            Self::Minute => "min",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

/// `name type`
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Attribute name.
    pub name: Ident,
    /// Attribute type.
    pub ty: TypeName,
    /// Source range of name and type.
    pub span: Span,
}

/// A type name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    /// The type, never `Time`. `Object` for an unknown name, which is reported in the diagnostics.
    pub ty: FieldType,
    /// Source range.
    pub span: Span,
}
