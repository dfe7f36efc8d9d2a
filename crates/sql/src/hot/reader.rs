//! Reads columns of a tablet from its Parquet file.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::TryStreamExt;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, ProjectionMask};
use tidemill_types::Error;
use tidemill_zones::{CheckedStore, Tablet};
use url::Url;

use super::block::{conform, join};
use crate::events::{NamedReaders, OpenFiles, text_bytes};

/// Rows that are decoded between two looks at the query's deadline.
const ROWS_PER_BATCH: usize = 65_536;

/// Reader of tablets, for the decoded columns of one query.
#[derive(Debug, Clone)]
pub(crate) struct TabletReader {
    pub environment: Arc<RuntimeEnv>,
    /// URL under which the tablets' object store is registered.
    pub store: Url,
    pub files: Arc<OpenFiles>,
    /// Bytes of text up to which a tablet's columns are decoded.
    pub text_bytes_max: usize,
}

impl TabletReader {
    /// Returns the columns `indexes` of `schema`; those that the file lacks are null. `None` if their texts are too large.
    ///
    /// Errors: those of the object store; `Corrupt`, with the file's name, for a file that cannot be decoded.
    pub async fn read(
        &self,
        tablet: &Arc<Tablet>,
        schema: &SchemaRef,
        indexes: &[usize],
    ) -> Result<Option<Vec<ArrayRef>>> {
        if indexes.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let url = ObjectStoreUrl::parse(&self.store[..url::Position::BeforePath])?;
        let store = self.environment.object_store(&url)?;
        let store = Arc::new(CheckedStore::new(store, [tablet.as_ref()]));
        let cache = self.environment.cache_manager.get_file_metadata_cache();
        let readers = NamedReaders::new(store, cache, self.files.clone());
        let mut file = PartitionedFile::new("", tablet.size);
        file.object_meta.location = tablet.path.clone();
        let metrics = ExecutionPlanMetricsSet::new();
        let reader: Box<dyn AsyncFileReader> = readers.create_reader(0, file, None, &metrics)?;
        let builder = ParquetRecordBatchStreamBuilder::new(reader).await?;
        let stored = builder.schema().clone();
        let is_wanted = |name: &str| indexes.iter().any(|index| schema.field(*index).name() == name);
        let is_text = |name: &str| {
            is_wanted(name)
                && stored.field_with_name(name).is_ok_and(|f| matches!(f.data_type(), DataType::Utf8))
        };
        if text_bytes(builder.metadata(), is_text) > self.text_bytes_max as u64 {
            return Ok(None);
        }
        let wanted = indexes.iter().filter_map(|i| stored.index_of(schema.field(*i).name()).ok());
        let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
        let stream = builder.with_projection(mask).with_batch_size(ROWS_PER_BATCH).build()?;
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if u64::try_from(rows) != Ok(tablet.rows) {
            return Err(DataFusionError::External(Box::new(Error::corrupt(format!(
                "{}: expected {} rows, as the Delta log says, found {rows}",
                tablet.path, tablet.rows
            )))));
        }
        let columns = indexes.iter().map(|index| {
            let field = schema.field(*index);
            let pieces: Option<Vec<&ArrayRef>> =
                batches.iter().map(|batch| batch.column_by_name(field.name())).collect();
            match pieces.filter(|pieces| !pieces.is_empty()) {
                None => Ok(new_null_array(field.data_type(), rows)),
                Some(pieces) => {
                    let pieces = pieces.into_iter().map(|piece| conform(piece, field.data_type()));
                    join(&pieces.collect::<Result<Vec<_>>>()?, field.data_type())
                }
            }
        });
        columns.collect::<Result<_>>().map(Some)
    }
}
