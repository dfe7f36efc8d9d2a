//! An object store that verifies its reads of tablets.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tidemill_types::Error;

use crate::tablets::checksum::Checksums;
use crate::tablets::tablet::Tablet;

/// A read-only object store that reads whole blocks of its tablets and verifies their checksums before it
/// returns any byte of them. Other files, and tablets without checksums from earlier releases, are read
/// unverified.
#[derive(Debug)]
pub struct CheckedStore {
    inner: Arc<dyn ObjectStore>,
    tablets: HashMap<Path, Arc<Checksums>>,
}

impl CheckedStore {
    /// Creates a view of `inner` in which `tablets` are verified.
    pub fn new<'t>(inner: Arc<dyn ObjectStore>, tablets: impl IntoIterator<Item = &'t Tablet>) -> Self {
        let known = tablets.into_iter().filter_map(|t| Some((t.path.clone(), t.checksums.clone()?)));
        Self { inner, tablets: known.collect() }
    }

    /// Creates a view of `inner` in which the files with these checksums are verified.
    pub fn with_checksums(
        inner: Arc<dyn ObjectStore>,
        files: impl IntoIterator<Item = (Path, Arc<Checksums>)>,
    ) -> Self {
        Self { inner, tablets: files.into_iter().collect() }
    }
}

impl fmt::Display for CheckedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with checksums", self.inner)
    }
}

fn damaged(path: &Path, at: &Range<u64>) -> StoreError {
    let error = Error::corrupt(format!(
        "{path}: bytes {} to {} are not what was written (their checksum in the Delta log differs): restore the file from \
         a copy of the table",
        at.start, at.end
    ));
    StoreError::Generic { store: "tablet", source: Box::new(error) }
}

/// Returns the part `range` of `bytes`, which begin at position `start` of the file.
fn slice_range(path: &Path, bytes: &Bytes, start: u64, range: &Range<u64>) -> Result<Bytes> {
    let place = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
    let wanted = place(range.start)..place(range.end);
    match bytes.get(wanted.clone()) {
        Some(_) => Ok(bytes.slice(wanted)),
        None => Err(damaged(path, range)),
    }
}

/// Sorts the ranges and merges those that touch or overlap.
fn merge_ranges(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|r| r.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

#[async_trait]
impl ObjectStore for CheckedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(sums) = self.tablets.get(location).filter(|_| !options.head) else {
            return self.inner.get_opts(location, options).await;
        };
        let size = sums.size();
        let range = match &options.range {
            None => 0..size,
            Some(GetRange::Bounded(range)) => range.start..range.end.min(size),
            Some(GetRange::Offset(start)) => *start..size,
            Some(GetRange::Suffix(length)) => size.saturating_sub(*length)..size,
        };
        let blocks = sums.blocks(&range);
        let whole = GetOptions { range: Some(GetRange::Bounded(blocks.clone())), ..options };
        let found = self.inner.get_opts(location, whole).await?;
        let (meta, attributes) = (found.meta.clone(), found.attributes.clone());
        let bytes = found.bytes().await?;
        sums.check(blocks.start, &bytes).map_err(|at| damaged(location, &at))?;
        let wanted = slice_range(location, &bytes, blocks.start, &range)?;
        let payload = GetResultPayload::Stream(stream::once(async move { Ok(wanted) }).boxed());
        Ok(GetResult { payload, meta, range, attributes })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let Some(sums) = self.tablets.get(location) else {
            return self.inner.get_ranges(location, ranges).await;
        };
        let blocks = merge_ranges(ranges.iter().map(|r| sums.blocks(r)).collect());
        let found = self.inner.get_ranges(location, &blocks).await?;
        for (block, bytes) in blocks.iter().zip(&found) {
            sums.check(block.start, bytes).map_err(|at| damaged(location, &at))?;
        }
        let wanted = ranges.iter().map(|range| {
            let holder =
                blocks.iter().zip(&found).find(|(b, _)| b.start <= range.start && range.end <= b.end);
            let (block, bytes) = holder.ok_or_else(|| damaged(location, range))?;
            slice_range(location, bytes, block.start, range)
        });
        wanted.collect()
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(StoreError::NotImplemented { operation: "put".into(), implementer: self.to_string() })
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(StoreError::NotImplemented { operation: "put".into(), implementer: self.to_string() })
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let refused =
            StoreError::NotImplemented { operation: "delete".into(), implementer: self.to_string() };
        stream::once(async move { Err(refused) }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(StoreError::NotImplemented { operation: "copy".into(), implementer: self.to_string() })
    }
}
