//! Compressed input.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tidemill_types::Result;

use crate::error::unreadable;
use crate::options::READ_BYTES;

/// First bytes of gzip and of a frame of zstd.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// See [`GZIP`].
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens a text file; one whose name ends in `.gz` or `.zst` is decompressed.
///
/// Errors: `NotFound` or `Unavailable`, without the path.
pub(crate) fn open_text(path: &Path) -> Result<Box<dyn Read + Send>> {
    let file = File::open(path).map_err(unreadable)?;
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Ok(gunzip(file)),
        Some("zst") => unzstd(file).map_err(unreadable),
        _ => Ok(Box::new(file)),
    }
}

/// Decompresses what begins like gzip or zstd; all else is returned as it is.
///
/// Errors: `Unavailable` when the input cannot be read.
pub fn decompressed(mut input: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let mut first = Vec::new();
    (&mut input).take(ZSTD.len() as u64).read_to_end(&mut first).map_err(unreadable)?;
    let (gzip, zstd) = (first.starts_with(&GZIP), first.starts_with(&ZSTD));
    let whole = Cursor::new(first).chain(input);
    match (gzip, zstd) {
        (true, _) => Ok(gunzip(whole)),
        (_, true) => unzstd(whole).map_err(unreadable),
        _ => Ok(Box::new(whole)),
    }
}

fn gunzip(input: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, input)))
}

fn unzstd(input: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    Ok(Box::new(zstd::Decoder::new(input)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn text_of(bytes: Vec<u8>) -> String {
        let mut text = String::new();
        decompressed(Box::new(Cursor::new(bytes))).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn input_is_known_by_its_first_bytes() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"a,b\n1,2\n").unwrap();
        assert_eq!(text_of(gzip.finish().unwrap()), "a,b\n1,2\n");
        assert_eq!(text_of(zstd::encode_all(&b"a,b\n"[..], 1).unwrap()), "a,b\n");
        for plain in ["a,b\n", "a", ""] {
            assert_eq!(text_of(plain.into()), plain);
        }
    }
}
