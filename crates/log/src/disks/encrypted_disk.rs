//! A disk that encrypts what is written below some directories.
//!
//! Files that are created there are encrypted page by page ([`tidemill_encryption::PageCipher`]); what an existing file is
//! shows its first bytes, so that files from before are read as they are. Everything else goes to the disk beneath.

use std::any::Any;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use tidemill_encryption::{
    DataKeys, FILE_HEADER_BYTES, FileHeader, PAGE_BYTES, PageCipher, STORED_PAGE_BYTES,
};
use tidemill_types::Error;

use crate::disks::disk::{Disk, DiskFile, read_full, write_all};

/// Pages that one call reads or writes at most.
const PAGES_PER_CALL: usize = 64;
/// Bytes that encryption adds to a page.
const ADDED_BYTES: usize = STORED_PAGE_BYTES - PAGE_BYTES;

/// A disk that encrypts what is written below some directories.
pub struct EncryptedDisk {
    inner: Arc<dyn Disk>,
    keys: DataKeys,
    directories: Vec<PathBuf>,
}

impl EncryptedDisk {
    /// Encrypts the files that are created below `directories` of `inner`, and decrypts them when they are read.
    pub fn new(inner: Arc<dyn Disk>, keys: DataKeys, directories: Vec<PathBuf>) -> Self {
        Self { inner, keys, directories }
    }

    fn covers(&self, path: &Path) -> bool {
        self.directories.iter().any(|directory| path.starts_with(directory))
    }
}

impl Disk for EncryptedDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.inner.open(path)?;
        if !self.covers(path) {
            return Ok(file);
        }
        let mut header = [0; FILE_HEADER_BYTES];
        let read = read_full(&*file, 0, &mut header)?;
        match FileHeader::decode(&header[..read]) {
            Some(header) => {
                let pages = header.cipher(&self.keys).map_err(other)?;
                Ok(Arc::new(EncryptedFile { inner: file, pages, content: RwLock::default() }))
            }
            None => Ok(file),
        }
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.inner.create(path)?;
        if !self.covers(path) {
            return Ok(file);
        }
        let header = FileHeader::new(&self.keys).map_err(other)?;
        write_all(&*file, 0, &mut [IoSlice::new(&header.encode())])?;
        let pages = header.cipher(&self.keys).map_err(other)?;
        Ok(Arc::new(EncryptedFile { inner: file, pages, content: RwLock::default() }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock(path)
    }
}

fn other(e: Error) -> io::Error {
    io::Error::other(e)
}

/// An encrypted file. Positions and lengths are those of its content.
struct EncryptedFile {
    inner: Arc<dyn DiskFile>,
    pages: PageCipher,
    /// Held for writing while a page is replaced, so that no reader sees a part of it.
    content: RwLock<()>,
}

fn stored_at(page: u64) -> u64 {
    FILE_HEADER_BYTES as u64 + page * STORED_PAGE_BYTES as u64
}

impl EncryptedFile {
    /// Decrypts up to `count` pages from `first` on, up to the end of the file.
    fn read_pages(&self, first: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut stored = vec![0; count * STORED_PAGE_BYTES];
        let read = read_full(&*self.inner, stored_at(first), &mut stored)?;
        let mut content = Vec::with_capacity(count * PAGE_BYTES);
        for (number, page) in (first..).zip(stored[..read].chunks_mut(STORED_PAGE_BYTES)) {
            let page = self.pages.open(number, page).map_err(|e| {
                let at = stored_at(number);
                let what = format!("byte {at}, page {number} of the encrypted file: {e}");
                io::Error::new(io::ErrorKind::InvalidData, what)
            })?;
            content.extend_from_slice(page);
        }
        Ok(content)
    }

    /// Replaces the pages from `first` on by `content`, whose last page may be short.
    fn write_pages(&self, first: u64, content: &[u8]) -> io::Result<()> {
        let mut stored = Vec::with_capacity(content.len().div_ceil(PAGE_BYTES) * STORED_PAGE_BYTES);
        for (number, page) in (first..).zip(content.chunks(PAGE_BYTES)) {
            self.pages.seal(number, page, &mut stored).map_err(other)?;
        }
        write_all(&*self.inner, stored_at(first), &mut [IoSlice::new(&stored)])
    }

    fn content_len(&self) -> io::Result<u64> {
        let stored = self.inner.len()?.saturating_sub(FILE_HEADER_BYTES as u64);
        let (pages, rest) = (stored / STORED_PAGE_BYTES as u64, stored % STORED_PAGE_BYTES as u64);
        Ok(pages * PAGE_BYTES as u64 + rest.saturating_sub(ADDED_BYTES as u64))
    }
}

impl DiskFile for EncryptedFile {
    fn len(&self) -> io::Result<u64> {
        let _whole = self.content.read();
        self.content_len()
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let _whole = self.content.read();
        let (first, skip) = (pos / PAGE_BYTES as u64, (pos % PAGE_BYTES as u64) as usize);
        let count = (skip + buf.len()).div_ceil(PAGE_BYTES).min(PAGES_PER_CALL);
        let content = self.read_pages(first, count)?;
        let wanted = content.get(skip..).unwrap_or_default();
        let n = wanted.len().min(buf.len());
        buf[..n].copy_from_slice(&wanted[..n]);
        Ok(n)
    }

    fn write_at(&self, pos: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let _alone = self.content.write();
        let len = self.content_len()?;
        if pos > len {
            let what = format!("a write at {pos} behind the end of an encrypted file of {len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (first, skip) = (pos / PAGE_BYTES as u64, (pos % PAGE_BYTES as u64) as usize);
        let most = PAGES_PER_CALL * PAGE_BYTES - skip;
        let new: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(most).collect();
        if new.is_empty() {
            return Ok(0);
        }
        // what the first and the last page have beside the new bytes stays
        let end = skip + new.len();
        let known = ((len - first * PAGE_BYTES as u64).div_ceil(PAGE_BYTES as u64) as usize)
            .min(end.div_ceil(PAGE_BYTES));
        let mut content = match skip > 0 || end as u64 + first * (PAGE_BYTES as u64) < len {
            true => self.read_pages(first, known)?,
            false => Vec::new(),
        };
        content.resize(content.len().max(end), 0);
        content[skip..end].copy_from_slice(&new);
        self.write_pages(first, &content)?;
        Ok(new.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _alone = self.content.write();
        let now = self.content_len()?;
        if len > now {
            let what = format!("an encrypted file of {now} bytes cannot be extended to {len}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let (page, rest) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
        if rest == 0 {
            return self.inner.set_len(stored_at(page));
        }
        let mut content = self.read_pages(page, 1)?;
        content.truncate(rest);
        self.write_pages(page, &content)?;
        self.inner.set_len(stored_at(page) + (rest + ADDED_BYTES) as u64)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::disks::sim_disk::SimDisk;

    const FILE: &str = "/data/checkpoints/a";

    fn encrypted(disk: &SimDisk, keys: &DataKeys) -> EncryptedDisk {
        disk.create_dir(Path::new("/data/checkpoints")).unwrap();
        disk.create_dir(Path::new("/data/log")).unwrap();
        EncryptedDisk::new(Arc::new(disk.clone()), keys.clone(), vec!["/data/checkpoints".into()])
    }

    fn content(file: &dyn DiskFile) -> Vec<u8> {
        let mut bytes = vec![0; file.len().unwrap() as usize + 10];
        let n = read_full(file, 0, &mut bytes).unwrap();
        bytes.truncate(n);
        bytes
    }

    #[test]
    fn random_writes_and_reads_are_those_of_a_plain_file() {
        let (disk, keys) = (SimDisk::default(), DataKeys::random().unwrap());
        let disk = encrypted(&disk, &keys);
        let mut rng = StdRng::seed_from_u64(1);
        let (file, mut plain) = (disk.create(Path::new(FILE)).unwrap(), Vec::<u8>::new());
        for turn in 0..200_u8 {
            if rng.random_bool(0.1) {
                plain.truncate(rng.random_range(0..=plain.len()));
                file.set_len(plain.len() as u64).unwrap();
            }
            let at = rng.random_range(0..=plain.len());
            let size = [1, 100, PAGE_BYTES, 3 * PAGE_BYTES + 5, 70 * PAGE_BYTES][rng.random_range(0..5)];
            let part = vec![turn; size];
            write_all(&*file, at as u64, &mut [IoSlice::new(&part)]).unwrap();
            plain.resize(plain.len().max(at + size), 0);
            plain[at..at + size].copy_from_slice(&part);
            assert_eq!(file.len().unwrap(), plain.len() as u64, "turn {turn}");
            let from = rng.random_range(0..=plain.len());
            let mut buf = vec![0; rng.random_range(0..10_000)];
            let n = read_full(&*file, from as u64, &mut buf).unwrap();
            assert_eq!(buf[..n], plain[from..(from + buf.len()).min(plain.len())], "turn {turn}");
        }
        assert!(content(&*disk.open(Path::new(FILE)).unwrap()) == plain);
        assert!(file.write_at(plain.len() as u64 + 1, &[IoSlice::new(b"x")]).is_err());
    }

    #[test]
    fn files_are_encrypted_below_the_directories_only_and_plain_ones_are_read() {
        let (sim, keys) = (SimDisk::default(), DataKeys::random().unwrap());
        let disk = encrypted(&sim, &keys);
        let write = |disk: &dyn Disk, path: &str| {
            let file = disk.create(Path::new(path)).unwrap();
            write_all(&*file, 0, &mut [IoSlice::new(b"a marker in a file")]).unwrap();
        };
        let raw = |path: &str| content(&*sim.open(Path::new(path)).unwrap());
        write(&disk, FILE);
        write(&disk, "/data/log/b");
        write(&sim, "/data/checkpoints/before");
        assert!(!raw(FILE).windows(6).any(|part| part == b"marker"));
        assert_eq!(raw("/data/log/b"), b"a marker in a file");
        for path in [FILE, "/data/checkpoints/before"] {
            assert_eq!(content(&*disk.open(Path::new(path)).unwrap()), b"a marker in a file");
        }
    }

    #[test]
    fn every_flipped_byte_and_other_keys_are_found() {
        let (sim, keys) = (SimDisk::default(), DataKeys::random().unwrap());
        let disk = encrypted(&sim, &keys);
        let file = disk.create(Path::new(FILE)).unwrap();
        write_all(&*file, 0, &mut [IoSlice::new(&[5; 50])]).unwrap();
        let stored = content(&*sim.open(Path::new(FILE)).unwrap()).len();
        for at in 0..stored {
            sim.edit(Path::new(FILE), |bytes| bytes[at] ^= 1);
            let read =
                disk.open(Path::new(FILE)).and_then(|file| file.read_at(0, &mut [0; 50]).map(|_| file));
            // a file whose mark is damaged is taken for a plain one, whose content has its own checks
            let is_plain = at < 8 && read.is_ok_and(|file| content(&*file)[32..] != [5; 50]);
            let read = disk.open(Path::new(FILE)).and_then(|file| file.read_at(0, &mut [0; 50]));
            assert!(is_plain || read.is_err(), "byte {at}");
            sim.edit(Path::new(FILE), |bytes| bytes[at] ^= 1);
        }
        let others = encrypted(&sim, &DataKeys::random().unwrap());
        let error = others.open(Path::new(FILE)).map(drop).unwrap_err();
        assert!(error.to_string().contains("key ring"), "{error}");
    }
}
