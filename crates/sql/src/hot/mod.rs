//! Hot data: rows of event tables, decoded and sorted in memory, from which frequent queries are answered.
//!
//! ```text
//! snapshot = tablets + tail
//!    └ block      one tablet, or batches of the tail: rows by key and time, columns decoded when first needed
//!        ├ cells      runs of rows of one key and one time bucket
//!        └ synopsis   count, sum, minimum and maximum of each column and cell
//! ```
//!
//! An optimizer rule ([`ServeFromHotData`]) replaces aggregates by key and time bin, and reads of the latest row of each
//! key, by a [`HotScanExec`]. It holds no rows: each execution binds it to the blocks of its snapshot. Aggregates take
//! whole cells from the synopsis and the rest from rows, so the answer is always that of the snapshot. An expression
//! over several columns, or a condition, is evaluated once per block and then is a column like any other.

mod address;
mod aggregate;
mod block;
mod column;
mod exec;
mod groups;
mod keys;
mod latest;
mod layout;
mod parts;
mod reader;
mod rows;
mod rule;
mod scan;
mod stats;
mod store;
mod table;

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{Column, Statistics};
use datafusion::logical_expr::Expr;
use object_store::path::Path;
use tidemill_zones::{TableSnapshot, Tablet};

use block::{Block, may_contain};
use column::ColumnExpr;
use scan::{HotSelection, Roles, ScanResult, TimeRange};

pub(crate) use column::array_bytes;
pub(crate) use exec::{Bindings, HotScanExec, HotScanTable};
pub(crate) use reader::TabletReader;
pub(crate) use rows::{HotRowsExec, copy_rows};
pub(crate) use rule::ServeFromHotData;
pub(crate) use scan::HotScan;
pub(crate) use store::HotStore;

/// Rows up to which all columns of a table are kept decoded, so that a plain scan is served from memory.
const SMALL_TABLE_ROWS: usize = 65_536;

/// Returns about how many bytes a value of a decoded column takes.
fn column_width(ty: &DataType) -> usize {
    match ty {
        DataType::Boolean => 1,
        DataType::Int32 | DataType::Float32 => 5,
        DataType::Utf8 => 24,
        _ => 9,
    }
}

/// Hot data with which a query is planned.
#[derive(Debug, Clone)]
pub(crate) struct HotAccess {
    store: Arc<HotStore>,
    /// True if aggregates and latest rows may be answered by a [`HotScanExec`].
    scans: bool,
}

impl HotAccess {
    /// Allows everything that hot data can answer.
    pub fn all(store: &Arc<HotStore>) -> Self {
        Self { store: store.clone(), scans: true }
    }

    /// Allows rows only: for a query some of whose aggregates hot data could not answer.
    pub fn rows(store: &Arc<HotStore>) -> Self {
        Self { store: store.clone(), scans: false }
    }
}

/// Event table whose hot data queries may use.
#[derive(Debug)]
pub(crate) struct HotSource {
    pub table: Arc<str>,
    pub schema: SchemaRef,
    pub roles: Roles,
    snapshot: TableSnapshot,
    access: HotAccess,
}

impl HotSource {
    /// Returns the hot data of the table of a stream; `None` for a table whose key has no exact order.
    pub fn new(table: &str, snapshot: &TableSnapshot, access: HotAccess) -> Option<Arc<Self>> {
        let roles = Roles::of(snapshot);
        // zeros of either sign are one group and have different bytes
        let key = roles.key.map(|key| snapshot.schema.field(key).data_type());
        if matches!(key, Some(DataType::Float32 | DataType::Float64)) {
            return None;
        }
        let (table, schema) = (Arc::from(table), snapshot.schema.clone());
        Some(Arc::new(Self { table, schema, roles, snapshot: snapshot.clone(), access }))
    }

    /// Returns the snapshot that queries planned with this source see.
    pub fn snapshot(&self) -> &TableSnapshot {
        &self.snapshot
    }

    /// Returns the bytes of text up to which a block's columns are decoded.
    pub fn column_bytes_max(&self) -> usize {
        self.access.store.column_bytes_max()
    }

    /// Returns whether aggregates and latest rows may be answered by a [`HotScanExec`].
    pub fn allows_scans(&self) -> bool {
        self.access.scans
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows_in(TimeRange::ALL)
    }

    /// Returns a scan; `None` if its columns would need more than all memory for hot data.
    fn scan(
        &self,
        selection: HotSelection,
        columns: Vec<ColumnExpr>,
        schema: SchemaRef,
        result: ScanResult,
    ) -> Option<HotScan> {
        let (table, table_schema) = (self.table.clone(), self.schema.clone());
        let rows = self.rows_in(selection.times);
        let scan = HotScan { table, table_schema, roles: self.roles, selection, columns, schema, result };
        (rows.saturating_mul(scan.bytes_per_row()) <= self.access.store.bytes_max()).then_some(scan)
    }

    /// Returns a scan of all rows, if the table is small. `measured` is the size of a row's texts, in bytes.
    pub fn scan_rows(&self, projection: Option<&Vec<usize>>, measured: usize) -> Option<HotScan> {
        let rows = self.rows();
        if rows > SMALL_TABLE_ROWS || rows.saturating_mul(measured) > self.access.store.column_bytes_max() {
            return None;
        }
        let indexes: Vec<usize> =
            projection.map_or_else(|| (0..self.schema.fields().len()).collect(), Clone::clone);
        let column = |index: &usize| {
            let name = self.schema.field(*index).name();
            ColumnExpr::new(Expr::Column(Column::new_unqualified(name)), &self.schema)
        };
        let columns = indexes.iter().map(column).collect::<Option<Vec<_>>>()?;
        let schema = Arc::new(self.schema.project(&indexes).ok()?);
        let selection = HotSelection { times: TimeRange::ALL, keys: None, by_time_field: false };
        self.scan(selection, columns, schema, ScanResult::Rows)
    }

    /// Returns the scan of the columns `projection` of all rows of `tablets`, which are some of the snapshot's; `None` if they
    /// are better read from their files, because they would fill more than half of the memory for hot data, or because no
    /// query has asked for these columns before. `statistics` are those of the tablets and all columns, `measured` is the size of a
    /// row's texts, in bytes.
    pub fn scan_tablets(
        &self,
        tablets: &[&Tablet],
        projection: Option<&Vec<usize>>,
        statistics: Statistics,
        reader: TabletReader,
        threads: usize,
        measured: usize,
    ) -> Option<HotRowsExec> {
        let columns: Arc<[usize]> =
            projection.map_or_else(|| (0..self.schema.fields().len()).collect(), |p| p.as_slice().into());
        let table = self.access.store.table(&self.table);
        let blocks = table.blocks(&self.schema, self.roles, &self.snapshot)?;
        let wanted: HashSet<&Path> = tablets.iter().map(|tablet| &tablet.path).collect();
        let of_tablets = self.snapshot.tablets.iter().zip(blocks.iter());
        let blocks: Vec<Arc<Block>> = of_tablets
            .filter(|(tablet, _)| wanted.contains(&tablet.path))
            .map(|(_, block)| block.clone())
            .collect();
        let schema = Arc::new(self.schema.project(&columns).ok()?);
        let rows: usize = blocks.iter().map(|block| block.rows()).fold(0, usize::saturating_add);
        let row_bytes: usize = schema.fields().iter().map(|field| column_width(field.data_type())).sum();
        let row_bytes = row_bytes.saturating_add(measured);
        let fits = rows.saturating_mul(row_bytes) <= self.access.store.bytes_max() / 2;
        // a scan that is not repeated would cost memory and drop what others use
        if !fits || !table.was_asked_for(&columns) {
            return None;
        }
        let statistics = statistics.project(Some(&columns));
        let sources = (self.access.store.clone(), reader);
        Some(HotRowsExec::new(self.table.clone(), &blocks, (columns, schema), statistics, sources, threads))
    }

    fn rows_in(&self, times: TimeRange) -> usize {
        let tail: usize = self.snapshot.tail.iter().map(RecordBatch::num_rows).sum();
        let in_range = self.snapshot.tablets.iter().filter(|t| may_contain(t, self.roles.time, times));
        let rows = in_range.map(|tablet| usize::try_from(tablet.rows).unwrap_or(usize::MAX));
        rows.fold(tail, usize::saturating_add)
    }
}
