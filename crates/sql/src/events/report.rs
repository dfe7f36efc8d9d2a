//! What the scans of a query read, zone by zone, for `EXPLAIN`.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use parking_lot::Mutex;
use tidemill_zones::Tablet;

use crate::schema_name::SchemaName;

/// Value of `plan_type` in the row that `EXPLAIN` gets.
const ROW: &str = "zones";

/// The scans with which an `EXPLAIN` was planned, one line each. Other queries collect none.
#[derive(Debug, Default)]
pub(crate) struct ScanReports(Mutex<Option<Vec<String>>>);

impl ScanReports {
    /// Begins to collect.
    pub fn collect(&self) {
        self.0.lock().get_or_insert_default();
    }

    /// Returns whether the query is an `EXPLAIN`.
    pub fn are_collected(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Adds the scan of a table, if scans are collected.
    pub fn push(&self, schema: SchemaName, table: &str, scan: impl FnOnce() -> String) {
        let mut lines = self.0.lock();
        let Some(lines) = lines.as_mut() else { return };
        let line = format!("{}.{table}: {}", schema.name(), scan());
        // a plan may ask for one scan several times
        if !lines.contains(&line) {
            lines.push(line);
        }
    }

    /// Returns the scans as a row of the result of `EXPLAIN`; `None` without scans, or if the result has
    /// other columns.
    pub fn row(&self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let lines = self.0.lock();
        let lines = lines.as_deref().unwrap_or_default();
        let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        if lines.is_empty() || columns != ["plan_type", "plan"] {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from(vec![ROW])), Arc::new(StringArray::from(vec![lines.join("\n")]))];
        Ok(Some(RecordBatch::try_new(schema.clone(), columns)?))
    }
}

/// Describes the scan of a table's tail and of those of its tablets that may have wanted rows.
pub(super) fn of_zones(all: &[Arc<Tablet>], selected: &[&Tablet], tail_rows: usize, source: &str) -> String {
    let zone = |name: &str, is_in: fn(&Tablet) -> bool| {
        let of = all.iter().filter(|tablet| is_in(tablet)).count();
        let chosen = || selected.iter().filter(|tablet| is_in(tablet));
        let (files, rows, bytes) =
            (chosen().count(), chosen().map(|t| t.rows).sum::<u64>(), chosen().map(|t| t.size).sum::<u64>());
        format!("{name} {files} of {of} files, {rows} rows, {bytes} bytes")
    };
    let flushed = zone("flushed", |tablet| tablet.level == 0);
    let merged = zone("merged", |tablet| tablet.level > 0);
    format!("tail {tail_rows} rows; {flushed}; {merged}; {source}")
}
