//! Files of other parts of the program in an object store.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload, WriteMultipart};
use tidemill_types::{Error, Result};
use url::Url;

use crate::ZonesOptions;
use crate::error::store_error;
use crate::stores::location::Location;
use crate::stores::retry::Retry;

/// Bytes of one part of a large upload.
const PART_BYTES: usize = 8 << 20;
/// Parts of a large upload that are on their way at once.
const PARTS_AT_ONCE: usize = 4;

/// A prefix of an object store. Names of files in it are relative paths with `/`.
#[derive(Debug, Clone)]
pub struct ObjectDirectory {
    place: Location,
    retry: Retry,
}

/// Content that is read in pieces, from its beginning. Returns an empty piece at the end.
pub type ReadPiece<'r> = &'r mut (dyn FnMut(usize) -> Result<Bytes> + Send);

impl ObjectDirectory {
    /// Names the directory at `location`; see [`crate::Zones::open`] for `location` and `store_options`.
    ///
    /// Errors: `Invalid` for an invalid location or option, and for a store without conditional writes; `Unavailable` when it
    /// cannot be used.
    pub async fn open(location: &str, store_options: &[(String, String)]) -> Result<Self> {
        Self::checked(Location::open(location, store_options)?).await
    }

    /// Names the directory at `url` in a store.
    ///
    /// Errors: as [`Self::open`].
    pub async fn at(store: Arc<dyn ObjectStore>, url: Url) -> Result<Self> {
        Self::checked(Location::at(store, url)?).await
    }

    async fn checked(place: Location) -> Result<Self> {
        let retry = Retry::new(&ZonesOptions::default());
        place.check_conditional_put(retry).await?;
        Ok(Self { place, retry })
    }

    /// Returns where a file is, for messages.
    pub fn display(&self, name: &str) -> String {
        self.place.display(&self.place.path(name))
    }

    /// Creates a small file. Returns false, and changes nothing, if there is one of that name.
    ///
    /// Errors: `Unavailable`.
    pub async fn create(&self, name: &str, content: &[u8]) -> Result<bool> {
        let path = self.place.path(name);
        let put = || {
            let payload = PutPayload::from(content.to_vec());
            async { self.place.store.put_opts(&path, payload, PutMode::Create.into()).await }
        };
        match self.retry.run(put).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
            Err(e) => Err(self.failed(name, "written", e)),
        }
    }

    /// Writes a file of any size, whose content `next` returns in pieces of at most so many bytes. The file is there when this returns, and not
    /// before.
    ///
    /// Errors: `Unavailable`; those of `next`.
    pub async fn upload(&self, name: &str, next: ReadPiece<'_>) -> Result<()> {
        self.upload_pieces(name, async |most| next(most)).await
    }

    /// Writes a file as [`Self::upload`] does, from pieces that another store tells.
    ///
    /// Errors: as [`Self::upload`].
    pub(crate) async fn upload_pieces(
        &self,
        name: &str,
        mut next: impl AsyncFnMut(usize) -> Result<Bytes>,
    ) -> Result<()> {
        let path = self.place.path(name);
        let first = next(PART_BYTES).await?;
        if first.len() < PART_BYTES {
            let put = || self.place.store.put(&path, PutPayload::from(first.clone()));
            return self.retry.run(put).await.map(drop).map_err(|e| self.failed(name, "written", e));
        }
        let failed = |e| self.failed(name, "written", e);
        let upload = self.place.store.put_multipart(&path).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        let mut piece = first;
        while !piece.is_empty() {
            upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(failed)?;
            upload.put(piece);
            piece = match next(PART_BYTES).await {
                Ok(piece) => piece,
                Err(e) => {
                    // parts that cannot be removed now are removed by the store's rules
                    let _ = upload.abort().await;
                    return Err(e);
                }
            };
        }
        upload.finish().await.map(drop).map_err(failed)
    }

    /// Returns the content of a small file, or `None` if it does not exist.
    ///
    /// Errors: `Unavailable`.
    pub async fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let path = self.place.path(name);
        match self.retry.run(|| async { self.place.store.get(&path).await?.bytes().await }).await {
            Ok(content) => Ok(Some(content)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(name, "read", e)),
        }
    }

    /// Returns a part of a file; `None` if the file does not exist.
    ///
    /// Errors: `Unavailable`.
    pub async fn read_range(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let path = self.place.path(name);
        match self.retry.run(|| self.place.store.get_range(&path, range.clone())).await {
            Ok(content) => Ok(Some(content)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(name, "read", e)),
        }
    }

    /// Hands the content of a file to `take`, piece by piece.
    ///
    /// Errors: `Corrupt` if it does not exist; `Unavailable`; those of `take`.
    pub async fn download(
        &self,
        name: &str,
        take: &mut (dyn FnMut(Bytes) -> Result<()> + Send),
    ) -> Result<()> {
        let path = self.place.path(name);
        let found = match self.retry.run(|| self.place.store.get(&path)).await {
            Ok(found) => found,
            Err(StoreError::NotFound { .. }) => {
                return Err(Error::corrupt(format!("{}: the file is missing", self.display(name))));
            }
            Err(e) => return Err(self.failed(name, "read", e)),
        };
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.next().await {
            take(piece.map_err(|e| self.failed(name, "read", e))?)?;
        }
        Ok(())
    }

    /// Returns the names of the files below `directory`, in order.
    ///
    /// Errors: `Unavailable`.
    pub async fn list(&self, directory: &str) -> Result<Vec<String>> {
        Ok(self.sizes(directory).await?.into_keys().collect())
    }

    /// Returns the files below `directory` with their bytes, by name.
    ///
    /// Errors: `Unavailable`.
    pub async fn sizes(&self, directory: &str) -> Result<BTreeMap<String, u64>> {
        let path = self.place.path(directory);
        let list = || async { self.place.store.list(Some(&path)).try_collect::<Vec<_>>().await };
        let found = self.retry.run(list).await.map_err(|e| self.failed(directory, "listed", e))?;
        let name = |location: &Path| {
            let parts = location.prefix_match(&self.place.prefix)?;
            Some(parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
        };
        Ok(found.iter().filter_map(|object| Some((name(&object.location)?, object.size))).collect())
    }

    /// Removes a file. One that does not exist is not an error.
    ///
    /// Errors: `Unavailable`.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let path = self.place.path(name);
        self.place.delete(self.retry, &path).await.map_err(|e| self.failed(name, "removed", e))
    }

    fn failed(&self, name: &str, what: &str, e: StoreError) -> Error {
        store_error(format!("{} cannot be {what}", self.display(name)), e)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn files_are_created_once_uploaded_listed_read_and_removed() {
        let url = Url::parse("memory:///state").unwrap();
        let directory = ObjectDirectory::at(Arc::new(InMemory::new()), url).await.unwrap();
        assert!(directory.create("epochs/1.json", b"one").await.unwrap());
        assert!(!directory.create("epochs/1.json", b"two").await.unwrap());
        assert_eq!(directory.read("epochs/1.json").await.unwrap().unwrap(), "one");
        assert_eq!(directory.read("epochs/2.json").await.unwrap(), None);

        // three parts, the last one small
        let content: Vec<u8> = (0..PART_BYTES * 2 + 10).map(|i| (i % 251) as u8).collect();
        let mut left = Bytes::from(content.clone());
        let mut next = |most: usize| Ok(left.split_to(most.min(left.len())));
        directory.upload("files/big", &mut next).await.unwrap();
        let mut found = Vec::new();
        let mut take = |piece: Bytes| {
            found.extend_from_slice(&piece);
            Ok(())
        };
        directory.download("files/big", &mut take).await.unwrap();
        assert_eq!(found, content);
        let part = directory.read_range("files/big", 5..260).await.unwrap().unwrap();
        assert_eq!(part, content[5..260]);
        assert_eq!(directory.read_range("files/other", 0..1).await.unwrap(), None);

        assert_eq!(directory.list("files").await.unwrap(), ["files/big"]);
        directory.remove("files/big").await.unwrap();
        directory.remove("files/big").await.unwrap();
        assert_eq!(directory.list("files").await.unwrap(), [""; 0]);
        assert!(directory.download("files/big", &mut |_| Ok(())).await.is_err());
    }
}
