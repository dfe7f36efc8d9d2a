//! Compiled aggregation.

use tidemill_lang::Span;
use tidemill_lang::siddhi::ast::PeriodUnit;
use tidemill_types::FieldType;

use super::{Attributes, CatalogTable};
use crate::expr::Expr;
use crate::processor::Handler;

/// Name of the column with the start of a row's bucket.
pub const AGG_TIMESTAMP: &str = "AGG_TIMESTAMP";

/// Slot of a bucket's row in [`AggregationPlan::items`]: the values of its group, then those of its
/// accumulators.
pub const ROW: usize = 0;

/// Compiled definition of an aggregation.
#[derive(Debug, Clone)]
pub struct AggregationPlan {
    /// Name of the aggregation.
    pub name: String,
    /// Source range of the name.
    pub span: Span,
    /// Index of the input stream in the catalog.
    pub stream: usize,
    /// Filters and functions applied to the input events.
    pub handlers: Vec<Handler>,
    /// Columns of `group by` with their types.
    pub group_by: Vec<(usize, FieldType)>,
    /// Column with the time of an event, a long or a string; `None` to use the event's timestamp.
    pub time_column: Option<usize>,
    /// Granularities, from the finest to the coarsest; at least one.
    pub units: Vec<PeriodUnit>,
    /// Arguments of the accumulators, evaluated on each event.
    pub args: Vec<Expr>,
    /// Accumulators of each row.
    pub accumulators: Vec<AccumulatorSpec>,
    /// Selected columns, after the bucket's start.
    pub items: Vec<(String, Expr)>,
    /// Retention of rows; `None` to keep them forever.
    pub purge: Option<RetentionPolicy>,
    /// Store of closed buckets; `None` if all buckets are in memory.
    pub store: Option<AggregationStore>,
}

/// Store of the closed buckets of an aggregation: a table for each granularity, all with the same columns.
#[derive(Debug, Clone)]
pub struct AggregationStore {
    /// Tables, as [`AggregationPlan::units`].
    pub tables: Vec<CatalogTable>,
    /// Contents of the columns of each table. The bucket's start is the first column, the group follows.
    pub columns: Vec<StoredColumn>,
    /// Columns of each accumulator; equal accumulators share theirs.
    pub accumulators: Vec<AccumulatorColumns>,
    /// Column with the time of the latest event, which accumulators of the latest value need.
    pub last_event_time: Option<usize>,
}

/// Columns that hold the state of an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccumulatorColumns {
    /// Column of the sum, number, extreme, set or latest value.
    pub value: usize,
    /// Column with the number of values of a sum.
    pub count: Option<usize>,
}

/// Content of a column of a stored row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredColumn {
    /// Start of the bucket, milliseconds.
    BucketStart,
    /// Value of the group with this index.
    Group(usize),
    /// Selected column with this index.
    Item(usize),
    /// State of the accumulator with this index.
    Accumulator(usize),
    /// Number of values in the sum of the accumulator with this index.
    ValueCount(usize),
    /// Time of the latest event, milliseconds, which is that of the accumulator with this index.
    LastEventTime(usize),
}

/// Accumulator of one argument.
#[derive(Debug, Clone)]
pub struct AccumulatorSpec {
    /// Kind of accumulator.
    pub kind: AccumulatorKind,
    /// Index of the argument; `None` for the number of events.
    pub arg: Option<usize>,
    /// Type of the aggregate value.
    pub ty: FieldType,
}

impl AggregationPlan {
    /// Returns the columns of the rows: the start of the bucket, then the selected columns.
    pub fn attributes(&self) -> Attributes {
        let items = self.items.iter().map(|(name, expr)| (name.clone(), expr.ty));
        std::iter::once((AGG_TIMESTAMP.to_owned(), FieldType::Long)).chain(items).collect()
    }
}

/// Kind of accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccumulatorKind {
    /// Number of events, including nulls.
    Count,
    /// Sum of whole numbers; wraps around.
    IntegerSum,
    /// Sum of numbers as doubles.
    FloatSum,
    /// Mean of numbers as doubles.
    Avg,
    /// Least number.
    Min,
    /// Greatest number.
    Max,
    /// Number of distinct values, including null.
    DistinctCount,
    /// Value of the latest event.
    Last,
}

/// Schedule and age limits for the eviction of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Interval between purges, in milliseconds; the first one is due an interval after the start.
    pub interval_ms: i64,
    /// Retention of buckets from their start, in milliseconds, for each granularity; `None` is forever.
    pub retention_ms: Vec<Option<i64>>,
}
