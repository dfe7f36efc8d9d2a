//! Conversion of errors of the lower layers to errors of this crate.

use std::error::Error as StdError;
use std::{fmt, io};

use object_store::Error as StoreError;
use tidemill_types::{Error, ErrorKind};

/// Returns whether a retry may succeed: the store did not answer, or reported a fault of its own. A request
/// rejected for a reason stays rejected, and a full disk stays full until the user frees space.
pub(crate) fn is_transient(error: &StoreError) -> bool {
    matches!(error, StoreError::Generic { .. } | StoreError::JoinError { .. })
        && !is_full(error)
        && !is_damage(error)
}

/// Returns whether bytes were read that differ from what was written.
fn is_damage(error: &StoreError) -> bool {
    let StoreError::Generic { source, .. } = error else { return false };
    source.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::Corrupt)
}

fn is_full(error: &StoreError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return matches!(io.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        }
        cause = error.source();
    }
    false
}

/// Wraps `error`, which occurred during `what`.
pub(crate) fn store_error(what: impl fmt::Display, error: StoreError) -> Error {
    let (kind, hint) = match &error {
        StoreError::NotFound { .. } => (ErrorKind::NotFound, ""),
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => (ErrorKind::Conflict, ""),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            (ErrorKind::Unavailable, " (check the credentials and the rights of this node on the store)")
        }
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => {
            (ErrorKind::Invalid, " (the store must support conditional PUT; choose another store)")
        }
        StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
            (ErrorKind::Invalid, "")
        }
        error if is_damage(error) => (ErrorKind::Corrupt, ""),
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("{what}{hint}")).with_source(error)
}

/// Wraps a failure of Arrow or Parquet on data that this crate has checked: a defect of this crate.
pub(crate) fn internal(
    what: impl fmt::Display,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    Error::internal(what.to_string()).with_source(error)
}
