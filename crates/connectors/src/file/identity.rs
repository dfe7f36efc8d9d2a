//! Which file it is, whatever its name.
//!
//! A file is recognised by its inode and the time at which it was created, so that renaming it makes no
//! difference, and a new file of the same name is another one. The content that was read under a position is
//! recognised by its first bytes, so that a file that was truncated and rewritten is read from the start.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes at the beginning by which a content is recognised.
const FINGERPRINT_BYTES: usize = 256;

/// A file, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct FileKey {
    inode: u64,
    /// Nanoseconds since 1970; 0 if the file system does not know it.
    created: u64,
}

impl FileKey {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let created = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self { inode: metadata.ino(), created: created.map_or(0, |since| since.as_nanos() as u64) }
    }

    /// Returns what the names of all contents of the file begin with.
    pub(super) fn prefix(self) -> String {
        format!("{:x}-{:x}-", self.inode, self.created)
    }
}

/// A content of a file, which only grows. Its name is that of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub key: FileKey,
    /// Number of the content: how often the file was truncated while it was watched.
    pub generation: u32,
    /// First bytes that are hashed.
    length: usize,
    hash: u64,
}

impl Content {
    /// Returns the content that begins with `bytes`, whose first record ends at `record_end`. Only that record is used,
    /// because it does not change when the file grows.
    pub(super) fn new(key: FileKey, generation: u32, bytes: &[u8], record_end: usize) -> Self {
        let start = bytes.get(..record_end.min(FINGERPRINT_BYTES)).unwrap_or(bytes);
        Self { key, generation, length: start.len(), hash: xxh3_64(start) }
    }

    /// Reads the name of a split. Returns `None` if it is another's.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let mut number = |radix| u64::from_str_radix(parts.next()?, radix).ok();
        let key = FileKey { inode: number(16)?, created: number(16)? };
        let generation = number(10)?.try_into().ok()?;
        let length = number(10)? as usize;
        let hash = number(16)?;
        (length <= FINGERPRINT_BYTES && parts.next().is_none()).then_some(Self {
            key,
            generation,
            length,
            hash,
        })
    }

    /// Returns whether a file begins with this content.
    pub(super) fn is_in(&self, file: &File) -> io::Result<bool> {
        let mut start = vec![0; self.length];
        match file.read_exact_at(&mut start, 0) {
            Ok(()) => Ok(xxh3_64(&start) == self.hash),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Returns the name of the split.
    pub(super) fn name(&self) -> String {
        format!("{}{}-{}-{:x}", self.key.prefix(), self.generation, self.length, self.hash)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn contents_have_names() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"first line\nsecond").unwrap();
        let key = FileKey::of(&file.metadata().unwrap());
        let content = Content::new(key, 3, b"first line\nsecond", 11);
        assert_eq!(Content::parse(&content.name()), Some(content.clone()));
        assert!(content.name().starts_with(&key.prefix()));
        assert!(content.is_in(&file).unwrap());
        file.set_len(5).unwrap();
        assert!(!content.is_in(&file).unwrap());
        for other in ["", "events", "1-2-3-4", "1-2-3-4-5-6", "1-2-3-999-5", "x-2-3-4-5"] {
            assert_eq!(Content::parse(other), None, "{other}");
        }
    }
}
