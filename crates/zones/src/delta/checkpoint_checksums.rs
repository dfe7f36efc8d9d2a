//! Checksums of Delta checkpoints. Parquet does not detect every flipped bit, and a checkpoint with a wrong
//! bound or offset would be accepted.

use std::collections::BTreeMap;

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};

/// Maximum number of stored checksums; older checkpoints were removed with the log entries before them.
const CHECKPOINTS_MAX: usize = 256;

/// CRC-32C of each checkpoint by version, stored next to the log in a file whose name other programs ignore.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CheckpointChecksums(BTreeMap<u64, u32>);

impl CheckpointChecksums {
    /// Returns the path of the file of the log at `log`.
    pub fn path(log: &Path) -> Path {
        log.clone().join("_tidemill_checkpoints.json")
    }

    /// Parses the content of the file.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(bytes)
    }

    /// Reads the checksums of the log at `log`. Checkpoints without a checksum are used unverified: those of
    /// other programs, or all of them when the file is damaged.
    ///
    /// Errors: those of the store, so that a store that fails for a moment costs no checksum.
    pub async fn read(store: &dyn ObjectStore, log: &Path) -> object_store::Result<Self> {
        let path = Self::path(log);
        let read = async { store.get(&path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Self::parse(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%path, %error, "the checksums of Delta checkpoints are damaged");
                Self::default()
            })),
            Err(StoreError::NotFound { .. }) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns whether `bytes` match the checksum of the checkpoint of `version`; true if there is no
    /// checksum.
    pub fn matches(&self, version: u64, bytes: &[u8]) -> bool {
        self.0.get(&version).is_none_or(|sum| *sum == crc32c::crc32c(bytes))
    }

    /// Reads the checkpoint of `version`, which was just written, and stores its checksum.
    pub async fn remember(store: &dyn ObjectStore, log: &Path, version: u64) -> object_store::Result<()> {
        let written = log.clone().join(format!("{version:020}.checkpoint.parquet"));
        let bytes = store.get(&written).await?.bytes().await?;
        let mut sums = Self::read(store, log).await?;
        sums.0.insert(version, crc32c::crc32c(&bytes));
        while sums.0.len() > CHECKPOINTS_MAX {
            sums.0.pop_first();
        }
        let text = serde_json::to_vec(&sums)
            .map_err(|e| StoreError::Generic { store: "Delta log", source: e.into() })?;
        store.put(&Self::path(log), PutPayload::from(text)).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    use object_store::memory::InMemory;

    use super::*;
    use crate::stores::sim_store::FaultyStore;

    #[tokio::test]
    async fn a_store_that_fails_costs_no_checksum() {
        let faults = FaultyStore::over(Arc::new(InMemory::new()));
        let store: Arc<dyn ObjectStore> = faults.clone();
        let log = Path::from("T/_delta_log");
        for version in 1..3u64 {
            let checkpoint = log.clone().join(format!("{version:020}.checkpoint.parquet"));
            store.put(&checkpoint, PutPayload::from_static(b"rows")).await.unwrap();
            CheckpointChecksums::remember(&*store, &log, version).await.unwrap();
        }
        faults.down.store(true, SeqCst);
        assert!(CheckpointChecksums::read(&*store, &log).await.is_err());
        faults.recover();
        let sums = CheckpointChecksums::read(&*store, &log).await.unwrap();
        assert!(!sums.matches(1, b"else") && !sums.matches(2, b"else") && sums.matches(2, b"rows"));
    }
}
