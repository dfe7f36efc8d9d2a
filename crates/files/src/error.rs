//! Errors of reading and writing files.

use tidemill_types::{Error, ErrorKind};

pub(crate) fn unreadable(e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        // Decompressors report damage with these kinds.
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        std::io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "cannot be read").with_source(e)
}

pub(crate) fn unwritable(e: std::io::Error) -> Error {
    Error::unavailable("cannot be written").with_source(e)
}
