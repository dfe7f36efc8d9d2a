//! Definitions.

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

    /// The name it defines.
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

    /// What stands before it. A function has none.
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
    /// The stream.
    pub id: StreamRef,
    /// Its attributes in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define table T (a int, …)`
#[derive(Debug, Clone, PartialEq)]
pub struct TableDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// The table.
    pub id: StreamRef,
    /// Its columns in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define window W (a int, …) length(5) output all events`
#[derive(Debug, Clone, PartialEq)]
pub struct WindowDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// The window.
    pub id: StreamRef,
    /// Its attributes in order, at least one in a tree without errors.
    pub attributes: Vec<Attribute>,
    /// What kind of window, and its parameters.
    pub window: Call,
    /// Which events its readers get; all when absent.
    pub output: Option<KindClause>,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define trigger T at every 5 sec`
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// The stream it writes.
    pub name: Ident,
    /// When it fires.
    pub at: TriggerAt,
    /// Source range of the whole definition.
    pub span: Span,
}

/// When a trigger fires.
#[derive(Debug, Clone, PartialEq)]
pub enum TriggerAt {
    /// `every 5 sec`
    Every(TimeLiteral),
    /// `'start'`, or a cron expression.
    Text(Text),
}

/// `define function f[javascript] return int { … }`
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionDefinition {
    /// The function.
    pub name: Ident,
    /// The language of its body.
    pub language: Ident,
    /// The type of its result.
    pub result: TypeName,
    /// What stands between the braces; `span` includes them.
    pub body: Text,
    /// Source range of the whole definition.
    pub span: Span,
}

/// `define aggregation A from S select … group by … aggregate by ts every sec ... year`
#[derive(Debug, Clone, PartialEq)]
pub struct AggregationDefinition {
    /// Annotations before the definition, in order.
    pub annotations: Vec<Annotation>,
    /// The aggregation.
    pub name: Ident,
    /// What it reads.
    pub input: StreamInput,
    /// The columns of its rows.
    pub items: SelectItems,
    /// What makes a group.
    pub group_by: Vec<AttributeRef>,
    /// The attribute that holds the event's time; its timestamp when absent.
    pub by: Option<AttributeRef>,
    /// The lengths of its buckets.
    pub every: Periods,
    /// Source range of the whole definition.
    pub span: Span,
}

/// The lengths of an aggregation's buckets.
#[derive(Debug, Clone, PartialEq)]
pub enum Periods {
    /// `sec ... year`: both and all between.
    Range(Period, Period),
    /// `sec, hour`; at least one.
    List(Vec<Period>),
}

/// A unit of time as the length of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The unit.
    pub unit: PeriodUnit,
    /// Source range.
    pub span: Span,
}

/// The units of time, from small to great.
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
    /// The attribute.
    pub name: Ident,
    /// Its type.
    pub ty: TypeName,
    /// Source range of both.
    pub span: Span,
}

/// The name of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    /// The type, never `Time`. An unknown name is an error in the diagnostics and `Object` here.
    pub ty: FieldType,
    /// Source range.
    pub span: Span,
}
