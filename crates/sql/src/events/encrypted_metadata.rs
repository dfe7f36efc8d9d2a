//! Metadata of Parquet files that may be encrypted.

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
/// DataFusion does not cache metadata that it decrypts, and then reads the footer and the key of each file in each query.
/// Metadata has what decrypts the pages of its file.
pub(super) struct EncryptedMetadata {
    pub keys: TabletKeys,
    pub file: ObjectMeta,
    pub store: Arc<dyn ObjectStore>,
    pub cache: Arc<FileMetadataCache>,
}

impl EncryptedMetadata {
    /// Returns the metadata with the page index.
    pub async fn fetch(&self) -> Result<Arc<ParquetMetaData>> {
        let path = &self.file.location;
        if let Some(cached) = self.cache.get(path).filter(|cached| cached.is_valid_for(&self.file))
            && let Some(cached) = cached.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()
            && cached.parquet_metadata().offset_index().is_some()
        {
            return Ok(cached.parquet_metadata().clone());
        }
        let keys = self.keys.for_reading().map_err(|e| ParquetError::External(Box::new(e)))?;
        let bytes = ObjectStoreFetch::new(&*self.store, &self.file);
        let metadata = ParquetMetaDataReader::new()
            .with_decryption_properties(Some(keys))
            .with_page_index_policy(PageIndexPolicy::Optional)
            .load_and_finish(bytes, self.file.size)
            .await?;
        let metadata = Arc::new(metadata);
        let entry = Arc::new(CachedParquetMetaData::new(metadata.clone()));
        self.cache.put(path, CachedFileMetadataEntry::new(self.file.clone(), entry));
        Ok(metadata)
    }
}
