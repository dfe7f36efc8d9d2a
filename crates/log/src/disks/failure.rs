//! Conversion of failed disk operations to errors.

use std::io;
use std::path::Path;

use tidemill_types::{Error, ErrorKind};

/// A failed disk operation, cloneable so that all callers that waited for it get an equal error.
#[derive(Debug, Clone)]
pub(crate) struct IoFailure {
    kind: ErrorKind,
    message: String,
    disk_full: bool,
}

impl IoFailure {
    /// `doing` names the operation, as in `write` or `fsync of`.
    pub(crate) fn new(doing: &str, path: &Path, e: &io::Error) -> Self {
        let (kind, why) = match e.kind() {
            io::ErrorKind::StorageFull => (ErrorKind::Unavailable, "disk full: "),
            io::ErrorKind::QuotaExceeded => (ErrorKind::Unavailable, "disk quota used up: "),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                (ErrorKind::Invalid, "not allowed: ")
            }
            _ => (ErrorKind::Unavailable, ""),
        };
        let message = format!("{why}{doing} {} failed: {e}", path.display());
        Self { kind, message, disk_full: e.kind() == io::ErrorKind::StorageFull }
    }

    /// Returns whether the disk was full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    pub(crate) fn error(&self) -> Error {
        Error::new(self.kind, self.message.clone())
    }
}

/// Adds operation and path to an I/O result and converts it to the crate's public error.
pub(crate) trait IoResultExt<T> {
    /// Converts the error; `doing` and `path` as in [`IoFailure::new`].
    fn during(self, doing: &str, path: &Path) -> Result<T, Error>;
}

impl<T> IoResultExt<T> for io::Result<T> {
    fn during(self, doing: &str, path: &Path) -> Result<T, Error> {
        self.map_err(|e| IoFailure::new(doing, path, &e).error())
    }
}
