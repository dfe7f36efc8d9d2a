//! Series: results of statements.

use std::sync::Arc;

use jiff::tz::TimeZone;

use crate::rows::Reservation;
use crate::value::InfluxValue;

/// Series of a result.
#[derive(Debug, Clone)]
pub struct ResultSeries {
    /// Name of the measurement; empty for results without one.
    pub name: String,
    /// Values of the tags of `GROUP BY`, sorted by their names.
    pub tags: Vec<(String, String)>,
    /// Names of the columns; the first one is the time if rows have one.
    pub columns: Vec<String>,
    /// Rows in order.
    pub rows: Vec<SeriesRow>,
    /// Zone of the times.
    pub zone: TimeZone,
}

/// Row of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesRow {
    /// Nanoseconds since 1970; `None` if the first column is not a time.
    pub time: Option<i64>,
    /// Values of the other columns.
    pub values: Vec<Option<InfluxValue>>,
}

impl ResultSeries {
    /// Creates a series without times.
    pub(crate) fn listing(
        name: &str,
        columns: &[&str],
        rows: impl IntoIterator<Item = Vec<Option<InfluxValue>>>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            tags: vec![],
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: rows.into_iter().map(|values| SeriesRow { time: None, values }).collect(),
            zone: TimeZone::UTC,
        }
    }
}

/// Result of a statement.
#[derive(Debug, Clone)]
pub struct StatementResult {
    /// Number of the statement, from 0.
    pub id: usize,
    /// Series in order.
    pub series: Vec<ResultSeries>,
    /// Error of the statement, which has no series then.
    pub error: Option<String>,
    /// Memory of the rows.
    #[expect(dead_code, reason = "gives the memory back when it is dropped")]
    pub(crate) memory: Option<Arc<Reservation>>,
}

impl StatementResult {
    /// Creates the result of a statement that has failed.
    pub fn failed(id: usize, error: impl Into<String>) -> Self {
        Self { id, series: vec![], error: Some(error.into()), memory: None }
    }
}
