//! Parquet readers whose errors name the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::parquet::DefaultParquetFileReaderFactory;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use tidemill_types::{Error, ErrorKind};
use tidemill_zones::TabletKeys;

use super::metadata::MetadataReader;

/// Time limit of the search for a damaged file.
const SEARCH: Duration = Duration::from_secs(10);

/// Files that a query has opened. When decoding fails, one of them is damaged.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Mutex<BTreeMap<Path, OpenFile>>,
    /// Keys of tablets, if they may be encrypted.
    keys: Option<TabletKeys>,
}

/// Object store of a file, and the file's size in bytes.
type OpenFile = (Arc<dyn ObjectStore>, u64);

impl OpenFiles {
    /// Creates the files of a query, which are decrypted with `keys`.
    pub fn new(keys: Option<TabletKeys>) -> Self {
        Self { keys, ..Self::default() }
    }

    /// Adds the name of the damaged file to a `Corrupt` error that does not name it yet.
    ///
    /// Decoders do not know their file, so the files are read again, one after the other, until one fails.
    pub async fn name_damaged(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let files = self.files.lock().clone();
        if files.keys().any(|path| error.message().contains(path.as_ref())) {
            return error;
        }
        match tokio::time::timeout(SEARCH, first_damaged(&files, self.keys.as_ref())).await {
            Ok(Some(path)) => error.context(path),
            _ => error.context(format!("one of {} files", files.len())),
        }
    }
}

async fn first_damaged<'f>(
    files: &'f BTreeMap<Path, (Arc<dyn ObjectStore>, u64)>,
    keys: Option<&TabletKeys>,
) -> Option<&'f Path> {
    let options = match keys.map(TabletKeys::for_reading) {
        Some(properties) => ArrowReaderOptions::new().with_file_decryption_properties(properties.ok()?),
        None => ArrowReaderOptions::new(),
    };
    for (path, (store, size)) in files {
        let mut file = PartitionedFile::new("", *size);
        file.object_meta.location = path.clone();
        let readers = DefaultParquetFileReaderFactory::new(store.clone());
        let metrics = ExecutionPlanMetricsSet::new();
        let read = async {
            let failed = |e| ParquetError::External(Box::new(e));
            let reader: Box<dyn AsyncFileReader> =
                readers.create_reader(0, file, None, &metrics).map_err(failed)?;
            let mut batches =
                ParquetRecordBatchStreamBuilder::new_with_options(reader, options.clone()).await?.build()?;
            while let Some(RecordBatch { .. }) = batches.try_next().await? {}
            Ok::<(), ParquetError>(())
        };
        if read.await.is_err() {
            return Some(path);
        }
    }
    None
}

/// Factory of readers with cached metadata whose errors name the file.
#[derive(Debug)]
pub(crate) struct NamedReaders {
    inner: DefaultParquetFileReaderFactory,
    store: Arc<dyn ObjectStore>,
    cache: Arc<FileMetadataCache>,
    files: Arc<OpenFiles>,
}

impl NamedReaders {
    pub fn new(store: Arc<dyn ObjectStore>, cache: Arc<FileMetadataCache>, files: Arc<OpenFiles>) -> Self {
        let inner = DefaultParquetFileReaderFactory::new(store.clone());
        Self { inner, store, cache, files }
    }
}

impl ParquetFileReaderFactory for NamedReaders {
    fn create_reader(
        &self,
        partition_index: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let path = file.object_meta.location.clone();
        let size = file.object_meta.size;
        let metadata = MetadataReader {
            keys: self.files.keys.clone(),
            file: file.object_meta.clone(),
            store: self.store.clone(),
            cache: self.cache.clone(),
            size_hint: metadata_size_hint,
        };
        let inner = self.inner.create_reader(partition_index, file, metadata_size_hint, metrics)?;
        self.files.files.lock().entry(path.clone()).or_insert_with(|| (self.store.clone(), size));
        Ok(Box::new(NamedReader { inner, path, metadata }))
    }
}

struct NamedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    path: Path,
    metadata: MetadataReader,
}

/// Adds the path to an error. Errors of the object store already name the file.
fn named(path: &Path, error: ParquetError) -> ParquetError {
    match error {
        ParquetError::External(_) => error,
        other => ParquetError::External(Box::new(Error::corrupt(format!("{path}: {other}")))),
    }
}

impl AsyncFileReader for NamedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        let path = &self.path;
        self.inner.get_bytes(range).map(move |r| r.map_err(|e| named(path, e))).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        let path = &self.path;
        self.inner.get_byte_ranges(ranges).map(move |r| r.map_err(|e| named(path, e))).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        let path = &self.path;
        self.metadata.fetch().map(move |r| r.map_err(|e| named(path, e))).boxed()
    }
}
