//! Access paths: which rows of a store an expression asks its context for.

use super::Expr;

/// Compiled search of a table.
#[derive(Debug, Clone)]
pub struct TableSearch {
    pub(crate) condition: Option<Expr>,
    pub(crate) slot: usize,
    pub(crate) access: AccessPath,
}

/// Access path to the rows that may satisfy a condition.
#[derive(Debug, Clone)]
pub(crate) enum AccessPath {
    /// All rows.
    Scan,
    /// Rows with these key values. `exact` if this is the whole condition, so that it need not be checked
    /// again.
    Key { values: Vec<Expr>, exact: bool },
    /// Rows whose single numeric key is within bounds.
    KeyRange(ColumnBounds),
    /// Rows whose indexed column is within bounds.
    Index(usize, ColumnBounds),
}

/// Values with which a column is compared.
#[derive(Debug, Clone)]
pub(crate) enum ColumnBounds {
    Equal(Expr),
    Range { low: Option<Expr>, high: Option<Expr> },
}

/// Selection of buckets: time range and granularity.
#[derive(Debug, Clone)]
pub struct BucketQuery {
    pub(crate) within: QueriedRange,
    pub(crate) per: QueriedGranularity,
}

#[derive(Debug, Clone)]
pub(crate) enum QueriedRange {
    /// Constant range of bucket starts: from the first instant to before the second.
    Known(i64, i64),
    /// Expression for a string that names a time range.
    Pattern(Expr),
    /// Expressions for the two instants.
    Between(Expr, Expr),
}

#[derive(Debug, Clone)]
pub(crate) enum QueriedGranularity {
    /// Index among the granularities of the aggregation.
    Known(usize),
    /// Expression for the name of a granularity.
    Name(Expr),
}
