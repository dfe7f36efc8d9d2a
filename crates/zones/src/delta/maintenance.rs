//! Maintenance through deltalake: Delta checkpoints, log cleanup, vacuum.

use std::sync::Arc;
use std::time::Duration;

use deltalake_core::logstore::{LogStoreRef, StorageConfig, default_logstore};
use deltalake_core::operations::vacuum::VacuumMode;
use deltalake_core::protocol::checkpoints;
use deltalake_core::{DeltaTable, DeltaTableError};
use object_store::prefix::PrefixStore;
use tidemill_types::{Error, Result};

use super::checkpoint_checksums::CheckpointChecksums;
use crate::error::store_error;
use crate::stores::location::Location;

fn log_store(place: &Location) -> LogStoreRef {
    let prefixed = PrefixStore::new(place.store.clone(), place.prefix.clone());
    default_logstore(Arc::new(prefixed), place.store.clone(), &place.url, &StorageConfig::default())
}

fn delta_error(what: String, error: DeltaTableError) -> Error {
    match error {
        DeltaTableError::ObjectStore { source } => store_error(what, source),
        other => Error::unavailable(what).with_source(other),
    }
}

async fn load(place: &Location, table: &str) -> Result<DeltaTable> {
    let mut loaded = DeltaTable::new(log_store(place));
    loaded.load().await.map_err(|e| delta_error(format!("table `{table}` cannot be read"), e))?;
    Ok(loaded)
}

/// Writes a Delta checkpoint of the newest version, then removes log entries that it made obsolete and that
/// are older than the table's `delta.logRetentionDuration`. Returns the version.
pub(crate) async fn checkpoint(place: &Location, table: &str) -> Result<u64> {
    let loaded = load(place, table).await?;
    let failed = |e| delta_error(format!("the Delta checkpoint of table `{table}` cannot be written"), e);
    checkpoints::create_checkpoint(&loaded, None).await.map_err(failed)?;
    let version = loaded.version().unwrap_or_default();
    CheckpointChecksums::remember(place.store.as_ref(), &place.path("_delta_log"), version)
        .await
        .map_err(|e| store_error(format!("the checksum of the Delta checkpoint of table `{table}`"), e))?;
    let cleaned = checkpoints::cleanup_metadata(&loaded, None)
        .await
        .map_err(|e| delta_error(format!("the Delta log of table `{table}` cannot be cleaned"), e))?;
    tracing::debug!(table, version, cleaned, "wrote a Delta checkpoint");
    Ok(version)
}

/// Removes files that no version younger than `retention` refers to, and returns their paths. Also removes
/// files of that age that no version ever referred to.
pub(crate) async fn vacuum(
    place: &Location,
    table: &str,
    retention: Duration,
    dry_run: bool,
) -> Result<Vec<String>> {
    let loaded = load(place, table).await?;
    let retention = chrono::TimeDelta::from_std(retention)
        .map_err(|e| Error::invalid(format!("a retention of {retention:?} is too long")).with_source(e))?;
    let (_, metrics) = loaded
        .vacuum()
        .with_retention_period(retention)
        .with_enforce_retention_duration(false)
        .with_mode(VacuumMode::Full)
        .with_dry_run(dry_run)
        .await
        .map_err(|e| delta_error(format!("table `{table}` cannot be vacuumed"), e))?;
    Ok(metrics.files_deleted)
}
