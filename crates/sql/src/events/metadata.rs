//! Metadata of the files of tables.

use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::ObjectStoreFetch;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadataCache};
use object_store::{ObjectMeta, ObjectStore};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use tidemill_zones::TabletKeys;

/// Reads the metadata of one file, decrypted, through the cache of metadata.
///
/// DataFusion could read it as well. But it does not cache metadata that it decrypts, and then reads the footer and the key of
/// each file in each query; and it makes text of the error of a store that cannot be reached, so that the file seems to be damaged.
/// Metadata has what decrypts the pages of its file.
pub(super) struct MetadataReader {
    /// Keys of tablets, if they may be encrypted.
    pub keys: Option<TabletKeys>,
    pub file: ObjectMeta,
    pub store: Arc<dyn ObjectStore>,
    pub cache: Arc<FileMetadataCache>,
    /// Number of bytes at the end of the file that probably hold the metadata.
    pub size_hint: Option<usize>,
}

impl MetadataReader {
    /// Returns the metadata with the page index.
    pub async fn fetch(&self) -> Result<Arc<ParquetMetaData>> {
        let path = &self.file.location;
        if let Some(cached) = self.cache.get(path).filter(|cached| cached.is_valid_for(&self.file))
            && let Some(cached) = cached.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()
            && cached.parquet_metadata().offset_index().is_some()
        {
            return Ok(cached.parquet_metadata().clone());
        }
        let keys = self.keys.as_ref().map(TabletKeys::for_reading).transpose();
        let keys = keys.map_err(|e| ParquetError::External(Box::new(e)))?;
        let bytes = ObjectStoreFetch::new(&*self.store, &self.file);
        let metadata = ParquetMetaDataReader::new()
            .with_decryption_properties(keys)
            .with_prefetch_hint(self.size_hint)
            .with_page_index_policy(PageIndexPolicy::Optional)
            .load_and_finish(bytes, self.file.size)
            .await?;
        let metadata = Arc::new(metadata);
        let entry = Arc::new(CachedParquetMetaData::new(metadata.clone()));
        self.cache.put(path, CachedFileMetadataEntry::new(self.file.clone(), entry));
        Ok(metadata)
    }
}
