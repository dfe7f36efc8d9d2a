//! Rows of measurements, and where they come from.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;

use crate::catalog::Measurement;
use crate::error::{Outcome, refuse};
use crate::syntax::Expr;
use crate::time::{Intervals, TimeBounds};
use crate::value::InfluxValue;

/// Row: a point, with the values of the columns that were asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Nanoseconds since 1970.
    pub time: i64,
    pub values: Box<[Option<InfluxValue>]>,
}

impl Row {
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self
                .values
                .iter()
                .map(|v| v.as_ref().map_or(size_of::<Option<InfluxValue>>(), InfluxValue::bytes))
                .sum::<usize>()
    }
}

/// Rows of a measurement that a statement reads.
#[derive(Debug, Clone)]
pub(crate) struct RowScan<'a> {
    pub measurement: &'a Measurement,
    /// Indexes of the columns that are returned.
    pub columns: Vec<usize>,
    /// Condition without time.
    pub condition: Option<&'a Expr>,
    pub range: TimeBounds,
    /// Indexes of columns; at least one of them has a value in each row. All rows if it is empty.
    pub any_of: Vec<usize>,
    pub is_descending: bool,
    /// Number of rows from the first on.
    pub limit: Option<u64>,
}

/// Aggregates of the rows of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct AggregateScan<'a> {
    pub measurement: &'a Measurement,
    pub condition: Option<&'a Expr>,
    pub range: TimeBounds,
    /// Indexes of the columns that say the group; `None` for one that the measurement does not have.
    pub dimensions: Vec<Option<usize>>,
    pub intervals: Option<&'a Intervals>,
    pub aggregates: Vec<AggregateColumn>,
}

/// Aggregate of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AggregateColumn {
    pub function: AggregateFunction,
    pub column: usize,
    /// True if the time of the point that was selected is returned as well.
    pub has_time: bool,
}

/// Functions that SQL calculates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregateFunction {
    Count,
    CountDistinct,
    Sum,
    Mean,
    Median,
    Spread,
    Stddev,
    Min,
    Max,
    First,
    Last,
}

/// Group with its aggregates.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AggregatedRow {
    /// Values of the dimensions.
    pub key: Vec<String>,
    /// Start of the interval; 0 without intervals.
    pub start: i64,
    /// Value of each aggregate, and the time of its point. A group without values has none; a NaN is a point without a value.
    pub values: Vec<(Option<InfluxValue>, Option<i64>)>,
}

/// Rows of streams.
pub(crate) trait RowSource: Send + Sync {
    /// Returns rows in the order of time; rows of one time are in the order of their tags.
    fn scan<'a>(&'a self, scan: RowScan<'a>, memory: &'a Reservation) -> BoxFuture<'a, Outcome<Vec<Row>>>;

    /// Returns aggregates, or `None` if the source has only rows.
    fn aggregate<'a>(
        &'a self,
        aggregation: AggregateScan<'a>,
        memory: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Option<Vec<AggregatedRow>>>>;

    /// Returns the different combinations of values of columns, in order. Missing tags are empty texts.
    fn distinct<'a>(
        &'a self,
        scan: RowScan<'a>,
        memory: &'a Reservation,
    ) -> BoxFuture<'a, Outcome<Vec<Vec<String>>>>;
}

/// Memory that rows of all statements share.
#[derive(Debug, Clone)]
pub struct MemoryPool {
    used: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl MemoryPool {
    /// Creates a pool of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { used: Arc::default(), bytes_max }
    }

    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { pool: self.clone(), own: AtomicUsize::new(0) }
    }
}

/// Memory that a query has taken; it is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: MemoryPool,
    own: AtomicUsize,
}

impl Reservation {
    /// Takes more memory.
    ///
    /// Errors: when the pool has not so much.
    pub fn take(&self, bytes: usize) -> Outcome<()> {
        let used = self.pool.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.own.fetch_add(bytes, Ordering::Relaxed);
        if used > self.pool.bytes_max {
            return refuse(format!(
                "the rows of the statement need more than the {} MiB that queries of InfluxQL share: choose a shorter time range, \
                 fewer fields, a longer interval, or LIMIT, or ask in SQL",
                self.pool.bytes_max >> 20
            ));
        }
        Ok(())
    }

    /// Gives back memory that was taken.
    pub fn give_back(&self, bytes: usize) {
        self.pool.used.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.used.fetch_sub(self.own.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
