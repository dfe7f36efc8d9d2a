//! A small file beside the tables that all nodes with these tables share.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use tidemill_types::Result;

use crate::ZonesOptions;
use crate::error::store_error;
use crate::stores::location::{Location, SHARED_DIR};
use crate::stores::retry::Retry;

/// A small file beside the tables at a location.
pub struct SharedFile {
    place: Location,
    path: Path,
    retry: Retry,
}

impl SharedFile {
    /// Names the file `name` beside the tables at `location`; see [`crate::Zones::open`] for `location` and `store_options`.
    ///
    /// Errors: `Invalid` for an invalid location or option; `Unavailable` when the location cannot be used.
    pub fn at(location: &str, store_options: &[(String, String)], name: &str) -> Result<Self> {
        let place = Location::open(location, store_options)?;
        let path = place.path(&format!("{SHARED_DIR}/{name}"));
        Ok(Self { place, path, retry: Retry::new(&ZonesOptions::default()) })
    }

    /// Returns where the file is, for messages.
    pub fn display(&self) -> String {
        self.place.display(&self.path)
    }

    /// Returns the content and its version, or `None` if the file does not exist.
    ///
    /// Errors: `Unavailable`.
    pub async fn read(&self) -> Result<Option<(Bytes, UpdateVersion)>> {
        let read = || async {
            let found = self.place.store.get(&self.path).await?;
            let version =
                UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
            Ok((found.bytes().await?, version))
        };
        match self.retry.run(read).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(store_error(format!("{} cannot be read", self.display()), e)),
        }
    }

    /// Writes the file if it is still as it was read: of that version, or not there. Returns whether it was.
    ///
    /// Errors: `Unavailable`.
    pub async fn write(&self, content: &[u8], read: Option<UpdateVersion>) -> Result<bool> {
        let mode = match (&read, self.place.url.scheme()) {
            (None, _) => PutMode::Create,
            // A local directory has one node, and its store no conditions of this kind.
            (Some(_), "file") => PutMode::Overwrite,
            (Some(version), _) => PutMode::Update(version.clone()),
        };
        let payload = PutPayload::from(content.to_vec());
        match self.place.store.put_opts(&self.path, payload, mode.into()).await {
            Ok(_) => Ok(true),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
            Err(e) => Err(store_error(format!("{} cannot be written", self.display()), e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_has_changed_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let file = SharedFile::at(dir.path().to_str().unwrap(), &[], "keys.json").unwrap();
        assert!(file.read().await.unwrap().is_none());
        assert!(file.write(b"one", None).await.unwrap());
        assert!(!file.write(b"two", None).await.unwrap());
        let (content, version) = file.read().await.unwrap().unwrap();
        assert_eq!(&content[..], b"one");
        assert!(file.write(b"two", Some(version)).await.unwrap());
        assert_eq!(&file.read().await.unwrap().unwrap().0[..], b"two");
        assert!(file.display().ends_with("/_tidemill/keys.json"));
    }
}
