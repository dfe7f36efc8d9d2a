//! An object store that reads tablets through the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::{BLOCK_BYTES, CachedBlock, TabletCache, key};
use crate::tablets::tablet_name::tablet_id;

/// Blocks that one request reads at most.
const REQUEST_BLOCKS: u64 = 8;
/// Blocks that are looked up, and requests that are sent, at once.
const CONCURRENCY: usize = 8;

/// A view of a remote store whose tablets are read through the cache. Everything else goes to the store.
#[derive(Debug)]
pub struct CachedStore {
    inner: Arc<dyn ObjectStore>,
    cache: Arc<TabletCache>,
    /// Scheme and host of the store, with a slash.
    name: String,
}

impl CachedStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, cache: Arc<TabletCache>, name: String) -> Self {
        Self { inner, cache, name }
    }

    /// Returns the blocks `wanted` of a tablet.
    async fn blocks(&self, path: &Path, wanted: &BTreeSet<u64>) -> Result<BTreeMap<u64, CachedBlock>> {
        let look_up = |block: u64| async move {
            let found = self.cache.get(&key(&self.name, path, block)).await;
            (block, found)
        };
        let found: Vec<(u64, Option<CachedBlock>)> =
            stream::iter(wanted.iter().copied()).map(look_up).buffered(CONCURRENCY).collect().await;
        let missing = runs(found.iter().filter(|(_, block)| block.is_none()).map(|(number, _)| *number));
        let read: Vec<Vec<(u64, CachedBlock)>> =
            stream::iter(missing).map(|run| self.read(path, run)).buffered(CONCURRENCY).try_collect().await?;
        let found = found.into_iter().filter_map(|(number, block)| Some((number, block?)));
        Ok(found.chain(read.into_iter().flatten()).collect())
    }

    /// Reads a run of blocks from the store in one request, and adds them to the cache.
    async fn read(&self, path: &Path, run: Range<u64>) -> Result<Vec<(u64, CachedBlock)>> {
        let range = run.start * BLOCK_BYTES..run.end * BLOCK_BYTES;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let found = self.inner.get_opts(path, options).await?;
        let (file_bytes, modified_ms) = (found.meta.size, found.meta.last_modified.timestamp_millis());
        let bytes = found.bytes().await?;
        let block = |number: u64| {
            let start = ((number - run.start) * BLOCK_BYTES) as usize;
            let end = bytes.len().min(start + BLOCK_BYTES as usize);
            // A copy, so that a block that stays does not keep the others of its request in memory.
            let bytes = Bytes::copy_from_slice(bytes.get(start..end)?);
            let block = CachedBlock { file_bytes, modified_ms, bytes };
            self.cache.insert(key(&self.name, path, number), block.clone());
            Some((number, block))
        };
        Ok(run.clone().filter_map(block).collect())
    }

    async fn ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<(Vec<Bytes>, Option<CachedBlock>)> {
        let wanted: BTreeSet<u64> = ranges.iter().flat_map(numbers).collect();
        let blocks = self.blocks(path, &wanted).await?;
        let parts = ranges.iter().map(|range| assemble(path, &blocks, range)).collect::<Result<_>>()?;
        Ok((parts, blocks.into_values().next()))
    }
}

/// Returns the numbers of the blocks of a range.
fn numbers(range: &Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES),
    }
}

/// Joins numbers that follow each other, up to what one request reads.
fn runs(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number && run.end - run.start < REQUEST_BLOCKS => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// Returns the bytes of a range out of its blocks.
fn assemble(path: &Path, blocks: &BTreeMap<u64, CachedBlock>, range: &Range<u64>) -> Result<Bytes> {
    let part = |number: u64| {
        let start = number * BLOCK_BYTES;
        let block = blocks.get(&number)?;
        let from = range.start.saturating_sub(start) as usize;
        let to = (range.end - start).min(BLOCK_BYTES) as usize;
        block.bytes.get(from..to)?;
        Some(block.bytes.slice(from..to))
    };
    let parts: Option<Vec<Bytes>> = numbers(range).map(part).collect();
    match parts.as_deref() {
        Some([]) => Ok(Bytes::new()),
        Some([one]) => Ok(one.clone()),
        Some(several) => {
            let mut joined = BytesMut::with_capacity((range.end - range.start) as usize);
            several.iter().for_each(|part| joined.extend_from_slice(part));
            Ok(joined.freeze())
        }
        None => Err(StoreError::Generic {
            store: "tablet cache",
            source: format!("{path} ends before byte {}", range.end).into(),
        }),
    }
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with a cache", self.inner)
    }
}

/// Returns the range of a request that the cache can answer: bytes of a tablet, without conditions.
fn cached_range<'o>(path: &Path, options: &'o GetOptions) -> Option<&'o Range<u64>> {
    let is_plain = !options.head
        && options.version.is_none()
        && options.if_match.is_none()
        && options.if_none_match.is_none()
        && options.if_modified_since.is_none()
        && options.if_unmodified_since.is_none();
    match &options.range {
        Some(GetRange::Bounded(range)) if is_plain && is_tablet(path) && !range.is_empty() => Some(range),
        _ => None,
    }
}

fn is_tablet(path: &Path) -> bool {
    path.as_ref().rfind("/tablets/").is_some_and(|at| tablet_id(&path.as_ref()[at + 1..]).is_some())
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(range) = cached_range(location, &options).cloned() else {
            return self.inner.get_opts(location, options).await;
        };
        let (mut parts, block) = self.ranges(location, std::slice::from_ref(&range)).await?;
        let (Some(bytes), Some(block)) = (parts.pop(), block) else {
            return self.inner.get_opts(location, options).await;
        };
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: DateTime::<Utc>::from_timestamp_millis(block.modified_ms).unwrap_or_default(),
            size: block.file_bytes,
            e_tag: None,
            version: None,
        };
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed());
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match is_tablet(location) {
            true => Ok(self.ranges(location, ranges).await?.0),
            false => self.inner.get_ranges(location, ranges).await,
        }
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
