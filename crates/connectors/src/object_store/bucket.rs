//! A bucket: requests to it, and what their failures mean.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    RetryConfig, UpdateVersion,
};
use tidemill_types::{Error, Result};

use crate::shortened::shortened;

/// Timeout for an answer. The client retries only briefly, because the engine tries again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const RETRIES: usize = 2;
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A bucket that is connected.
#[derive(Clone)]
pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// `s3://name` or `gs://name`
    name: String,
}

/// Storage options of objects.
#[derive(Debug, Clone, Default)]
pub(super) struct Storage {
    pub class: Option<String>,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>, name: String) -> Self {
        Self { store, name }
    }

    /// Writes an object, instead of one with the same name.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn put(
        &self,
        key: &Path,
        content: Bytes,
        content_type: &str,
        storage: &Storage,
    ) -> Result<()> {
        let mut attributes = Attributes::new();
        attributes.insert(Attribute::ContentType, content_type.to_owned().into());
        if let Some(class) = &storage.class {
            attributes.insert(Attribute::StorageClass, class.clone().into());
        }
        let options = PutOptions { attributes, ..PutOptions::default() };
        let put = self.store.put_opts(key, content.into(), options).await;
        put.map(drop).map_err(|e| self.failed("cannot be written", key, &e))
    }

    /// Writes an object if it still has `version`; with `None`, if it does not exist. Returns its new version.
    ///
    /// Errors: `Unavailable`, also if it has another version.
    pub(super) async fn replace(
        &self,
        key: &Path,
        version: Option<&UpdateVersion>,
        content: Bytes,
    ) -> Result<UpdateVersion> {
        let mode = version.map_or(PutMode::Create, |version| PutMode::Update(version.clone()));
        let put = self.store.put_opts(key, content.into(), PutOptions::from(mode)).await;
        put.map(UpdateVersion::from).map_err(|e| self.failed("cannot be written", key, &e))
    }

    /// Returns the content of an object and its version, or `None` if the object does not exist.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn get(&self, key: &Path) -> Result<Option<(Bytes, UpdateVersion)>> {
        let failed = |e: object_store::Error| self.failed("cannot be read", key, &e);
        let found = match self.store.get(key).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let version = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        Ok(Some((found.bytes().await.map_err(failed)?, version)))
    }

    /// Returns whether there is an object.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn has(&self, key: &Path) -> Result<bool> {
        match self.store.head(key).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(self.failed("cannot be looked for", key, &e)),
        }
    }

    /// Deletes an object, if it is there.
    ///
    /// Errors: `Unavailable`.
    pub(super) async fn delete(&self, key: &Path) -> Result<()> {
        match self.store.delete(key).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("cannot be deleted", key, &e)),
        }
    }

    fn failed(&self, what: &str, key: &Path, e: &object_store::Error) -> Error {
        Error::unavailable(format!("{}/{}: {what}: {}", self.name, shortened(key.as_ref()), reason(e)))
    }
}

/// Returns why a request failed, without what the server says about keys and signatures.
pub(super) fn reason(e: &object_store::Error) -> String {
    match e {
        object_store::Error::NotFound { .. } => "there is no such bucket".to_owned(),
        object_store::Error::PermissionDenied { .. } => "the credentials do not allow it (403)".to_owned(),
        object_store::Error::Precondition { .. } | object_store::Error::AlreadyExists { .. } => {
            "another request has changed it".to_owned()
        }
        object_store::Error::Unauthenticated { .. } => "the credentials are not accepted (401)".to_owned(),
        e => {
            let mut cause: &dyn std::error::Error = e;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            shortened(cause.to_string().trim())
        }
    }
}

pub(super) fn client_options(allow_http: bool) -> ClientOptions {
    ClientOptions::new().with_allow_http(allow_http).with_timeout(ANSWER_TIMEOUT)
}

pub(super) fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: BACKOFF_MAX, ..BackoffConfig::default() },
        max_retries: RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}
