//! What a query asks of the hot data of one table.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use tidemill_zones::TableSnapshot;

use super::aggregate::Aggregation;
use super::column::ColumnExpr;
use super::{SMALL_TABLE_ROWS, column_width};

/// Indexes of the columns of a table that order its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    pub key: Option<usize>,
    pub time: usize,
    /// The declared time field. A block checks whether its values are those of `time`.
    pub time_field: Option<usize>,
}

impl Roles {
    pub fn of(snapshot: &TableSnapshot) -> Self {
        Self { key: snapshot.key, time: snapshot.time, time_field: snapshot.time_field }
    }
}

/// Times from `from` to `last`, both included, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeRange {
    pub from: i64,
    pub last: i64,
}

impl TimeRange {
    pub const ALL: Self = Self { from: i64::MIN, last: i64::MAX };
}

/// Rows of a table that a query reads.
#[derive(Debug, Clone)]
pub(crate) struct HotSelection {
    pub times: TimeRange,
    /// Condition on the key, evaluated on batches of distinct keys.
    pub keys: Option<Arc<dyn PhysicalExpr>>,
    /// True if the query names the declared time field, so that it must equal `_time` in every row.
    pub by_time_field: bool,
}

/// Read of the hot data of one table.
#[derive(Debug, Clone)]
pub(crate) struct HotScan {
    /// Name of the stream.
    pub table: Arc<str>,
    /// Columns of the table, as the query was planned.
    pub table_schema: SchemaRef,
    pub roles: Roles,
    pub selection: HotSelection,
    /// Columns of blocks that it needs.
    pub columns: Vec<ColumnExpr>,
    /// Columns that it returns.
    pub schema: SchemaRef,
    pub result: ScanResult,
}

/// Result of a [`HotScan`].
#[derive(Debug, Clone)]
pub(crate) enum ScanResult {
    /// Aggregates of groups.
    Aggregates(Aggregation),
    /// For each key the needed columns of its latest row.
    LatestRows,
    /// The needed columns of all rows.
    Rows,
}

impl HotScan {
    /// Returns about how many bytes the needed columns take per row, times and keys included.
    pub fn bytes_per_row(&self) -> usize {
        16 + self.columns.iter().map(|c| column_width(&c.ty)).sum::<usize>()
    }

    /// Returns the number of rows in memory up to which the scan is better than reading tablets.
    pub fn rows_max(&self) -> usize {
        match &self.result {
            ScanResult::Rows => SMALL_TABLE_ROWS,
            ScanResult::Aggregates(_) | ScanResult::LatestRows => usize::MAX,
        }
    }

    /// Returns whether it is answered from rows of all keys where there are no cells, in groups that are not the keys.
    pub fn needs_cells(&self) -> bool {
        match &self.result {
            ScanResult::Aggregates(aggregation) => !aggregation.by_key && self.selection.keys.is_none(),
            ScanResult::LatestRows | ScanResult::Rows => false,
        }
    }

    /// Returns about how many rows it returns.
    pub fn rows_estimate(&self) -> usize {
        match &self.result {
            ScanResult::LatestRows => 1_000,
            ScanResult::Aggregates(a) if a.bin.is_some() => 20_000,
            ScanResult::Aggregates(_) => 1_000,
            ScanResult::Rows => 2_000,
        }
    }
}

impl ScanResult {
    /// Returns what it is called in plans.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Aggregates(_) => "aggregates",
            Self::LatestRows => "latest rows",
            Self::Rows => "rows",
        }
    }
}

impl fmt::Display for HotScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.result.name())?;
        if let ScanResult::Aggregates(aggregation) = &self.result {
            write!(f, ", {aggregation}")?;
        }
        write!(f, ", table={}, columns=[", self.table)?;
        for (n, column) in self.columns.iter().enumerate() {
            write!(f, "{}{}", if n > 0 { ", " } else { "" }, column.expr)?;
        }
        write!(f, "]")?;
        if self.selection.times != TimeRange::ALL {
            write!(f, ", time bounds")?;
        }
        if let Some(keys) = &self.selection.keys {
            write!(f, ", keys={keys}")?;
        }
        Ok(())
    }
}
