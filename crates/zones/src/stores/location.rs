//! Locations of tables: a directory, or a prefix of an object store.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutPayload,
};
use tidemill_types::{Error, Result};
use url::Url;

use crate::cache::{CachedStore, TabletCache};
use crate::error::store_error;
use crate::stores::durable::{DurableLocal, create_dir_durably};
use crate::stores::retry::Retry;
use crate::stores::store_options::open_remote;
use crate::tablets::encryption::TabletKeys;

/// Object by which a start finds out whether the store honours conditional puts.
const CONDITIONAL_PUT_PROBE: &str = "_tidemill/conditional_put.json";
/// Directory of files beside the tables that belong to no table.
pub(crate) const SHARED_DIR: &str = "_tidemill";

/// An object store and a path in it.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    /// The whole store: rooted at `/` for local files, the bucket otherwise.
    pub store: Arc<dyn ObjectStore>,
    /// The location as a URL; ends with `/`.
    pub url: Url,
    /// The location as a path in the store.
    pub prefix: Path,
    /// Cache of the tablets that queries read, for a remote store.
    pub cache: Option<Arc<TabletCache>>,
    /// Keys of tablets, if they are encrypted.
    pub keys: Option<TabletKeys>,
}

impl Location {
    /// Opens `location`: a local directory (created if it does not exist), or a URL of the schemes `file`,
    /// `memory`, `s3`, `gs`, `az`.
    ///
    /// Errors: `Invalid` for an invalid location and for options that the store does not know; `Unavailable`
    /// when the directory cannot be created.
    pub fn open(location: &str, store_options: &[(String, String)]) -> Result<Self> {
        if !location.contains("://") {
            return Self::local(FsPath::new(location));
        }
        let url = Url::parse(location).map_err(|e| {
            Error::invalid(format!(
                "`{location}` is not a location: expected a directory or a URL such as s3://bucket/prefix"
            ))
            .with_source(e)
        })?;
        match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| {
                    Error::invalid(format!(
                        "`{location}` names no local directory: expected file:///absolute/path"
                    ))
                })?;
                Self::local(&path)
            }
            "memory" => Self::at(Arc::new(InMemory::new()), url),
            _ => Self::remote(url, store_options),
        }
    }

    /// Creates the location `url` in the given store.
    pub fn at(store: Arc<dyn ObjectStore>, mut url: Url) -> Result<Self> {
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let prefix = match ObjectStoreScheme::parse(&url) {
            Ok((_, path)) => path,
            Err(e) => return Err(Error::invalid(format!("`{url}` is not a location in a store: {e}"))),
        };
        Ok(Self { store, url, prefix, cache: None, keys: None })
    }

    fn local(path: &FsPath) -> Result<Self> {
        let failed = |e: std::io::Error| {
            Error::unavailable(format!("the table directory {} cannot be used", path.display()))
                .with_source(e)
        };
        let absolute = std::path::absolute(path).map_err(failed)?;
        create_dir_durably(&absolute).map_err(failed)?;
        let dir: PathBuf = absolute.canonicalize().map_err(failed)?;
        let store = DurableLocal::open(dir.join(".staging")).map_err(failed)?;
        let url = Url::from_directory_path(&dir).map_err(|()| {
            Error::invalid(format!("the table directory {} is not a valid path", dir.display()))
        })?;
        Self::at(Arc::new(store), url)
    }

    fn remote(url: Url, store_options: &[(String, String)]) -> Result<Self> {
        let store = open_remote(&url, store_options)?;
        Self::at(store, url)
    }

    /// Checks that the store refuses to create an object that exists. On one that overwrites it, two owners would
    /// replace each other's commits without noticing.
    ///
    /// Errors: `Invalid` for a store that overwrites objects; `Unavailable`.
    pub async fn check_conditional_put(&self, retry: Retry) -> Result<()> {
        let path = self.path(CONDITIONAL_PUT_PROBE);
        let put = || self.store.put_opts(&path, PutPayload::from_static(b"{}"), PutMode::Create.into());
        // The first put finds the object of an earlier start, or creates it.
        for _ in 0..2 {
            match retry.run(put).await {
                Ok(_) => {}
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => return Ok(()),
                Err(e) => {
                    return Err(store_error(format!("the object store of {} cannot be used", self.url), e));
                }
            }
        }
        Err(Error::invalid(format!(
            "the object store of {} overwrote {} although the request said not to (If-None-Match: *): tables need a store \
             with conditional writes, otherwise two writers would destroy each other's commits",
            self.url,
            self.display(&path)
        )))
    }

    /// Returns the location of the table `name` below this one. `name` was checked to be a plain path
    /// segment.
    pub fn table(&self, name: &str) -> Self {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{name}/", url.path()));
        let prefix = self.prefix.clone().join(name);
        Self { store: self.store.clone(), url, prefix, cache: self.cache.clone(), keys: self.keys.clone() }
    }

    /// Returns the name of the store: scheme and host, with a slash.
    pub fn store_name(&self) -> String {
        format!("{}://{}/", self.url.scheme(), self.url.host_str().unwrap_or_default())
    }

    /// Returns the store for queries, which read tablets through the cache if there is one.
    pub fn query_store(&self) -> Arc<dyn ObjectStore> {
        match &self.cache {
            None => self.store.clone(),
            Some(cache) => Arc::new(CachedStore::new(self.store.clone(), cache.clone(), self.store_name())),
        }
    }

    /// Deletes a file and its cached content. A missing file is not an error.
    pub async fn delete(&self, retry: Retry, path: &Path) -> object_store::Result<()> {
        if let Some(cache) = &self.cache {
            match retry.run(|| self.store.head(path)).await {
                Ok(meta) => cache.remove(&self.store_name(), path, meta.size),
                Err(StoreError::NotFound { .. }) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        match retry.run(|| self.store.delete(path)).await {
            Err(StoreError::NotFound { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Formats a store path for messages: `/data/tables/…`, `s3://bucket/tables/…`.
    pub fn display(&self, path: &Path) -> String {
        match (self.url.scheme(), self.url.host_str()) {
            ("file", _) => format!("/{path}"),
            (scheme, host) => format!("{scheme}://{}/{path}", host.unwrap_or_default()),
        }
    }

    /// Returns the store path of `relative`, a path below this location.
    pub fn path(&self, relative: &str) -> Path {
        relative
            .split('/')
            .filter(|s| !s.is_empty())
            .fold(self.prefix.clone(), |path, segment| path.join(segment))
    }

    /// Writes a file of the table `table`.
    ///
    /// Errors: those of the store, after the attempts of `retry`.
    pub async fn put(&self, retry: Retry, table: &str, path: &Path, bytes: &Bytes) -> Result<()> {
        retry
            .run(|| self.store.put(path, PutPayload::from(bytes.clone())))
            .await
            .map(|_| ())
            .map_err(|e| store_error(format!("table `{table}`: {} cannot be written", self.display(path)), e))
    }

    /// Deletes files of commits that were given up. One that cannot be deleted is swept as an orphan later.
    pub async fn discard(&self, table: &str, paths: impl Iterator<Item = &Path>) {
        for path in paths {
            if let Err(error) = self.store.delete(path).await {
                let path = self.display(path);
                tracing::warn!(table, path, %error, "a file of a commit that was given up stays for now");
            }
        }
    }

    /// Returns the path below this location of a store path; `None` when it lies elsewhere.
    pub fn relative(&self, path: &Path) -> Option<String> {
        let parts = path.prefix_match(&self.prefix)?;
        Some(parts.map(|part| part.as_ref().to_owned()).collect::<Vec<_>>().join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_paths() {
        let memory = Location::open("memory:///a/b", &[]).unwrap();
        assert_eq!((memory.url.as_str(), memory.prefix.as_ref()), ("memory:///a/b/", "a/b"));
        let table = memory.table("T");
        assert_eq!((table.url.as_str(), table.prefix.as_ref()), ("memory:///a/b/T/", "a/b/T"));
        assert_eq!(table.path("tablets/0/x.parquet").as_ref(), "a/b/T/tablets/0/x.parquet");
        assert_eq!(table.display(&table.path("tablets")), "memory:///a/b/T/tablets");
        let dir = tempfile::tempdir().unwrap();
        let local = Location::open(dir.path().to_str().unwrap(), &[]).unwrap();
        let expected = dir.path().canonicalize().unwrap().join("x");
        assert_eq!(local.display(&local.path("x")), expected.to_str().unwrap());
    }

    #[test]
    fn bad_places_say_what_to_write() {
        let refuse = |location: &str, options: &[(&str, &str)]| {
            let options: Vec<_> = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            Location::open(location, &options).unwrap_err().to_string()
        };
        assert!(refuse("ftp://host/x", &[]).contains("s3://"));
        assert!(refuse("s3://bucket/x", &[("acess_key_id", "k")]).contains("Did you mean `access_key_id`"));
    }

    #[test]
    fn a_directory_with_spaces_is_created_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let place = Location::open(dir.path().join("my tables").to_str().unwrap(), &[]).unwrap();
        assert!(place.url.as_str().ends_with("/my%20tables/"));
        assert!(place.prefix.as_ref().ends_with("/my tables"));
        assert!(dir.path().join("my tables").is_dir());
    }
}
