//! What a compiled aggregation is.

use tidemill_lang::Span;
use tidemill_lang::siddhi::ast::PeriodUnit;
use tidemill_types::FieldType;

use super::accumulators::AccumulatorKind;
use super::purge::RetentionPolicy;
use crate::catalog::Attributes;
use crate::expr::Expr;
use crate::query::Handler;

/// The column that holds the start of a row's bucket.
pub const AGG_TIMESTAMP: &str = "AGG_TIMESTAMP";

/// The slot of a bucket's row in [`AggregationPlan::items`]: first the values of its group, then what its cells show.
pub const ROW: usize = 0;

/// A compiled aggregation.
#[derive(Debug, Clone)]
pub struct AggregationPlan {
    /// Its name.
    pub name: String,
    /// Where it is named first.
    pub span: Span,
    /// The stream that it reads.
    pub stream: usize,
    /// What is done to the stream's events first.
    pub handlers: Vec<Handler>,
    /// The columns that make a group, and their types.
    pub group_by: Vec<(usize, FieldType)>,
    /// The column with the event's time, a long or a text; else it is that of the event.
    pub time_column: Option<usize>,
    /// The lengths of its buckets, from small to great, at least one.
    pub units: Vec<PeriodUnit>,
    /// What is computed of each event, for the cells.
    pub args: Vec<Expr>,
    /// What is kept in each row of a bucket.
    pub accumulators: Vec<AccumulatorSpec>,
    /// What a row shows behind the start of its bucket.
    pub items: Vec<(String, Expr)>,
    /// Which rows are forgotten, and when; nothing is without it.
    pub purge: Option<RetentionPolicy>,
}

/// What is kept of one argument in each row.
#[derive(Debug, Clone)]
pub struct AccumulatorSpec {
    /// What is kept.
    pub kind: AccumulatorKind,
    /// Of which argument; the number of events has none.
    pub arg: Option<usize>,
    /// The type of what it shows.
    pub ty: FieldType,
}

impl AggregationPlan {
    /// The columns of its rows: the start of the bucket, then what is selected.
    pub fn attributes(&self) -> Attributes {
        let items = self.items.iter().map(|(name, expr)| (name.clone(), expr.ty));
        std::iter::once((AGG_TIMESTAMP.to_owned(), FieldType::Long)).chain(items).collect()
    }
}
