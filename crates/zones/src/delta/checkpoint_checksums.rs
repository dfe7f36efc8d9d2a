//! Checksums of Delta checkpoints. Parquet does not notice every flipped bit, and a checkpoint with another bound or
//! offset in it would be believed.

use std::collections::BTreeMap;

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};

/// Checkpoints remembered; older ones were removed with the log entries before them.
const CHECKPOINTS_MAX: usize = 256;

/// CRC-32C of each checkpoint by its version. Kept beside the log in a file whose name other programs pass over.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CheckpointChecksums(BTreeMap<u64, u32>);

fn file_path(log: &Path) -> Path {
    log.clone().join("_tidemill_checkpoints.json")
}

impl CheckpointChecksums {
    /// Those of the log at `log`; none for checkpoints of other programs, or when the file cannot be read: the
    /// checkpoints are used without being compared then.
    pub async fn read(store: &dyn ObjectStore, log: &Path) -> Self {
        let path = file_path(log);
        let read = async { store.get(&path).await?.bytes().await };
        match read.await {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                tracing::warn!(%path, %error, "the checksums of Delta checkpoints cannot be read");
                Self::default()
            }),
            Err(StoreError::NotFound { .. }) => Self::default(),
            Err(error) => {
                tracing::warn!(%path, %error, "the checksums of Delta checkpoints cannot be read");
                Self::default()
            }
        }
    }

    /// Whether `bytes` are what the checkpoint of `version` was written with, as far as that is known.
    pub fn matches(&self, version: u64, bytes: &[u8]) -> bool {
        self.0.get(&version).is_none_or(|sum| *sum == crc32c::crc32c(bytes))
    }

    /// Reads the checkpoint of `version`, which was written just now, and remembers its checksum.
    pub async fn remember(store: &dyn ObjectStore, log: &Path, version: u64) -> object_store::Result<()> {
        let written = log.clone().join(format!("{version:020}.checkpoint.parquet"));
        let bytes = store.get(&written).await?.bytes().await?;
        let mut sums = Self::read(store, log).await;
        sums.0.insert(version, crc32c::crc32c(&bytes));
        while sums.0.len() > CHECKPOINTS_MAX {
            sums.0.pop_first();
        }
        let text = serde_json::to_vec(&sums)
            .map_err(|e| StoreError::Generic { store: "Delta log", source: e.into() })?;
        store.put(&file_path(log), PutPayload::from(text)).await.map(|_| ())
    }
}
