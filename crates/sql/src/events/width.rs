//! Width of rows: how many bytes a row of text takes, before any is read.
//!
//! A batch of 8,192 rows of 50 KB would take 400 MB in each operator that holds one. The footers of files say how many
//! bytes the texts of a row group have, so that a query can use batches of fewer rows, and reserve memory for the largest
//! piece of a file that a reader has to hold at once.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::{StreamExt, stream};
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::file::metadata::ParquetMetaData;
use tidemill_zones::{CheckedStore, Tablet};

use super::EventsTable;
use super::reader::NamedReaders;
use crate::hot::array_bytes;

/// Tablets whose widths are kept.
const KEPT_MAX: usize = 65_536;
/// Footers that are read at the same time.
const READS: usize = 16;
/// Rows that a page of a file has at least, as files are written.
const PAGE_ROWS: u64 = 1_024;

/// Bytes of text in one file.
#[derive(Debug, Clone, Default)]
struct TabletWidth {
    /// By column: the bytes of a row, and of a page, in the row group in which they are the largest.
    columns: HashMap<String, (u64, u64)>,
}

/// Widths of the tablets that queries have asked for.
#[derive(Debug, Default)]
pub(crate) struct TabletWidths(Mutex<HashMap<Path, Arc<TabletWidth>>>);

/// Width of the rows of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowWidth {
    /// Bytes of the texts of a row, on average where they are the most.
    pub row_bytes: usize,
    /// Bytes that a reader of a file holds at once, beside batches.
    pub page_bytes: usize,
}

impl RowWidth {
    pub fn max(self, other: Self) -> Self {
        Self {
            row_bytes: self.row_bytes.max(other.row_bytes),
            // several scans may read at the same time
            page_bytes: self.page_bytes.saturating_add(other.page_bytes),
        }
    }
}

fn is_text(ty: &DataType) -> bool {
    matches!(
        ty,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::LargeBinary
    )
}

/// Returns the bytes of text that decoding these columns of a file makes.
pub(crate) fn text_bytes(metadata: &ParquetMetaData, wanted: impl Fn(&str) -> bool) -> u64 {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let of_wanted = columns.filter(|column| wanted(column.column_descr().name()));
    of_wanted.map(unencoded).fold(0, u64::saturating_add)
}

/// Returns the bytes of a column's values: of the texts themselves, where the writer has counted them, because a dictionary
/// has each only once.
fn unencoded(column: &parquet::file::metadata::ColumnChunkMetaData) -> u64 {
    let counted = column.unencoded_byte_array_data_bytes().unwrap_or_default();
    u64::try_from(counted.max(column.uncompressed_size())).unwrap_or_default()
}

impl TabletWidth {
    fn of(metadata: &ParquetMetaData) -> Self {
        let mut columns: HashMap<String, (u64, u64)> = HashMap::new();
        for group in metadata.row_groups() {
            let rows = u64::try_from(group.num_rows()).unwrap_or_default().max(1);
            for column in group.columns() {
                let bytes = unencoded(column);
                let row = bytes / rows;
                let page = bytes.min(row.saturating_mul(2 * PAGE_ROWS));
                let width = columns.entry(column.column_descr().name().to_owned()).or_default();
                *width = (width.0.max(row), width.1.max(page));
            }
        }
        Self { columns }
    }
}

fn as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl EventsTable {
    /// Measures the rows of a scan, and keeps the width for its plan.
    ///
    /// Files whose footers cannot be read are left out: the scan says what is wrong with them.
    pub async fn measure(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        known: &TabletWidths,
    ) -> Result<RowWidth> {
        let fields = self.schema.fields();
        let indexes: Vec<usize> = projection.map_or_else(|| (0..fields.len()).collect(), Clone::clone);
        let texts: Vec<usize> = indexes.into_iter().filter(|i| is_text(fields[*i].data_type())).collect();
        if texts.is_empty() {
            return Ok(RowWidth::default());
        }
        let row_bytes = self.tail.iter().map(|batch| tail_width(batch, &texts)).max().unwrap_or_default();
        let mut width = RowWidth { row_bytes, page_bytes: 0 };
        let tablets = self.matching_tablets(state, filters)?;
        for tablet in self.widths(state, &tablets, known).await? {
            let of = |index: &usize| tablet.columns.get(fields[*index].name()).copied().unwrap_or_default();
            let (row, page) = texts.iter().map(of).fold((0_u64, 0_u64), |sum, (row, page)| {
                (sum.0.saturating_add(row), sum.1.saturating_add(page))
            });
            width.row_bytes = width.row_bytes.max(as_usize(row));
            width.page_bytes = width.page_bytes.max(as_usize(page));
        }
        // of several measures in one plan the widest counts
        self.row_bytes.fetch_max(width.row_bytes, std::sync::atomic::Ordering::Relaxed);
        Ok(width)
    }

    async fn widths(
        &self,
        state: &dyn Session,
        tablets: &[&Tablet],
        known: &TabletWidths,
    ) -> Result<Vec<Arc<TabletWidth>>> {
        let mut found = Vec::with_capacity(tablets.len());
        let mut missing = Vec::new();
        {
            let kept = known.0.lock();
            for tablet in tablets {
                match kept.get(&tablet.path) {
                    Some(width) => found.push(width.clone()),
                    None => missing.push(*tablet),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let environment = state.runtime_env();
        let url = ObjectStoreUrl::parse(&self.context.store[..url::Position::BeforePath])?;
        let store = Arc::new(CheckedStore::new(environment.object_store(&url)?, missing.iter().copied()));
        let cache = environment.cache_manager.get_file_metadata_cache();
        let readers = NamedReaders::new(store, cache, self.context.files.clone());
        let metrics = ExecutionPlanMetricsSet::new();
        let mut readings = Vec::with_capacity(missing.len());
        for tablet in missing {
            let mut file = PartitionedFile::new("", tablet.size);
            file.object_meta.location = tablet.path.clone();
            let mut reader = readers.create_reader(0, file, None, &metrics)?;
            let path = tablet.path.clone();
            readings.push(async move {
                let metadata = reader.get_metadata(None).await.ok()?;
                Some((path, Arc::new(TabletWidth::of(&metadata))))
            });
        }
        let mut readings = stream::iter(readings).buffer_unordered(READS);
        while let Some(read) = readings.next().await {
            let Some((path, width)) = read else { continue };
            found.push(width.clone());
            let mut kept = known.0.lock();
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.insert(path, width);
        }
        Ok(found)
    }
}

fn tail_width(batch: &RecordBatch, texts: &[usize]) -> usize {
    let columns = texts.iter().filter_map(|index| batch.columns().get(*index));
    columns.map(array_bytes).sum::<usize>() / batch.num_rows().max(1)
}
