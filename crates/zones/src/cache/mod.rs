//! A cache of tablets of a remote object store: in memory, then on the local disk.
//!
//! Tablets never change, so a block of one is valid for as long as there is the tablet. Blocks are aligned: a small tablet
//! is one block, with its footer. Memory keeps blocks by S3-FIFO, under which a scan of data that are read once displaces
//! little of what is read again and again. The disk takes all blocks until it is full, and from then on those that are
//! read from the store a second time.

mod admission;
mod block;
mod store;

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    RecoverMode, S3FifoConfig, Source, StorageFilter,
};
use object_store::path::Path;
use tidemill_types::{Error, Result};

use admission::AdmitWhileRoomThenSecondRead;
pub(crate) use block::{BLOCK_BYTES, CachedBlock};
pub use store::CachedStore;

/// Memory of one shard, and the largest number of shards.
const SHARD_BYTES: u64 = 16 << 20;
const SHARDS_MAX: u64 = 8;
/// Size of a file of the cache, which is also what is dropped at once.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Memory of a block besides its bytes.
const BLOCK_OVERHEAD: usize = 128;

/// Limits of the cache, and the directory of its files.
#[derive(Debug, Clone)]
pub(crate) struct CacheOptions {
    pub memory_bytes: u64,
    /// 0 for a cache in memory only.
    pub disk_bytes: u64,
    /// Directory of the files; without one the cache is in memory only.
    pub dir: Option<PathBuf>,
}

/// Counters of a cache since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks found in memory.
    pub memory_hits: u64,
    /// Blocks found on the disk.
    pub disk_hits: u64,
    /// Blocks that had to be read from the object store.
    pub misses: u64,
    /// Bytes that had to be read from the object store.
    pub missed_bytes: u64,
    /// Blocks that could not be read from the cache, because its disk failed or its file is damaged.
    pub errors: u64,
    /// Memory of the blocks, in bytes.
    pub memory_bytes: u64,
}

/// Blocks of tablets by path and number.
#[derive(Debug)]
pub struct TabletCache {
    blocks: HybridCache<String, CachedBlock>,
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Name of a block. `store` tells buckets apart that have used the same directory.
fn key(store: &str, path: &Path, block: u64) -> String {
    format!("{store}{path}#{block}")
}

impl TabletCache {
    /// Opens the cache with what its files contain. Must be called in a tokio runtime, which then does its work.
    ///
    /// Errors: `Unavailable` when its directory cannot be used.
    pub(crate) async fn open(options: &CacheOptions) -> Result<Arc<Self>> {
        let shards = (options.memory_bytes / SHARD_BYTES).clamp(1, SHARDS_MAX);
        let memory = HybridCacheBuilder::new()
            .with_name("tablets")
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .with_flush_on_close(false)
            .memory(usize::try_from(options.memory_bytes).unwrap_or(usize::MAX))
            .with_shards(shards as usize)
            .with_eviction_config(S3FifoConfig::default())
            .with_weighter(|key: &String, block: &CachedBlock| {
                key.len() + block.bytes.len() + BLOCK_OVERHEAD
            });
        let builder = memory.storage();
        let opened = match (&options.dir, options.disk_bytes) {
            (Some(dir), disk_bytes) if disk_bytes > 0 => {
                create_private_dir(dir).map_err(|e| unusable(dir, e))?;
                let capacity = usize::try_from(disk_bytes).unwrap_or(usize::MAX);
                let device = FsDeviceBuilder::new(dir).with_capacity(capacity).build();
                let device = device.map_err(|e| unusable(dir, e))?;
                let file_bytes = (disk_bytes / 8).clamp(4 * BLOCK_BYTES, FILE_BYTES_MAX);
                let filter =
                    StorageFilter::new().with_condition(AdmitWhileRoomThenSecondRead::new(disk_bytes));
                let engine = BlockEngineConfig::new(device)
                    .with_block_size(file_bytes as usize)
                    .with_admission_filter(filter);
                let builder = builder.with_engine_config(engine).with_recover_mode(RecoverMode::Quiet);
                builder.build().await.map_err(|e| unusable(dir, e))?
            }
            _ => builder
                .build()
                .await
                .map_err(|e| Error::unavailable("the cache of tablets cannot be started").with_source(e))?,
        };
        Ok(Arc::new(Self {
            blocks: opened,
            memory_hits: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            missed_bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }))
    }

    /// Returns a block, if it is in the cache. A cache that cannot be read has nothing.
    async fn get(&self, key: &String) -> Option<CachedBlock> {
        match self.blocks.get(key).await {
            Ok(Some(entry)) => {
                let hits = if entry.source() == Source::Disk { &self.disk_hits } else { &self.memory_hits };
                hits.fetch_add(1, Ordering::Relaxed);
                Some(entry.value().clone())
            }
            Ok(None) => None,
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(key, %error, "a block of the cache cannot be read; it is read from the object store");
                None
            }
        }
    }

    fn insert(&self, key: String, block: CachedBlock) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.missed_bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        self.blocks.insert(key, block);
    }

    /// Drops the blocks of a file of `size` bytes.
    pub(crate) fn remove(&self, store: &str, path: &Path, size: u64) {
        for block in 0..size.div_ceil(BLOCK_BYTES) {
            self.blocks.remove(&key(store, path, block));
        }
    }

    /// Writes what is on its way to the disk. The cache must not be used afterwards.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.blocks.close().await {
            tracing::warn!(%error, "the cache of tablets could not be written to its end");
        }
    }

    /// Returns what the cache has done so far.
    pub fn stats(&self) -> CacheStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStats {
            memory_hits: count(&self.memory_hits),
            disk_hits: count(&self.disk_hits),
            misses: count(&self.misses),
            missed_bytes: count(&self.missed_bytes),
            errors: count(&self.errors),
            memory_bytes: self.blocks.memory().usage() as u64,
        }
    }
}

/// Creates a directory that only its owner may read.
fn create_private_dir(dir: &FsPath) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

fn unusable(dir: &FsPath, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let error: Box<dyn std::error::Error + Send + Sync> = error.into();
    Error::unavailable(format!(
        "the cache of tablets cannot use the directory {} ({error}): make it writable, or set zones.cache_disk_bytes = 0",
        dir.display()
    ))
}
