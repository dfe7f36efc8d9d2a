//! Documents of one partition, in this process or in another one, below partitions and the calls between nodes.

pub mod part;
pub mod place;

use tidemill_types::Error;

/// Returns the error of bytes that are no BSON document.
pub fn bad_bson(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("not a BSON document").with_source(e)
}
