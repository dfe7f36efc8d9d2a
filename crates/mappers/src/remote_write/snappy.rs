//! Snappy in its block format, whose first bytes say how large the content is.

use tidemill_types::{Error, Result};

/// Returns the size that a block says it has once it is decompressed.
///
/// Errors: `Invalid` for bytes that are not a block.
pub fn decompressed_bytes(block: &[u8]) -> Result<usize> {
    snap::raw::decompress_len(block).map_err(|e| wrong(&e))
}

/// Decompresses a block, whose size the caller has looked at.
///
/// Errors: `Invalid` for bytes that are not a block.
pub fn decompress(block: &[u8]) -> Result<Vec<u8>> {
    snap::raw::Decoder::new().decompress_vec(block).map_err(|e| wrong(&e))
}

fn wrong(error: &snap::Error) -> Error {
    Error::invalid(format!("the body is not whole snappy data in the block format: {error}"))
}
