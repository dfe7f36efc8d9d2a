//! Disk interface of log and engine, so that tests can substitute a failing disk.
//!
//! Covers only the operations that these need: whole files by path, positional reads, vectored writes, and
//! the three operations that change durable state (file sync, directory sync, truncation).

use std::any::Any;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A file that is open for reading and writing.
///
/// There is one writer at a time; readers may run concurrently with it.
pub trait DiskFile: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads at `pos` and returns the number of bytes read. It may be less than `buf.len()`; it is 0 only at
    /// the end.
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes the slices consecutively from `pos` on and returns the number of bytes written, which may be
    /// less than given.
    fn write_at(&self, pos: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Truncates the file to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Waits until the content and the length are on the disk. After an error the durability of the written
    /// bytes is unknown, even if a second call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// The file system below the log's directory.
pub trait Disk: Send + Sync + 'static {
    /// Opens an existing file; one that may not be written is open for reading only.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates an empty file; replaces an existing one.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Renames a file; replaces an existing one.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a directory and its parents; succeeds if it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names of the entries of a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Waits until the entries of a directory are on the disk.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks the file `path` exclusively until the returned value is dropped.
    ///
    /// Errors: `WouldBlock` when another process holds the lock.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
}

/// Creates a directory and its parents, and syncs the directories that contain the new ones, so that they survive a power
/// failure.
pub fn create_dir_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    if disk.list(path).is_ok() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_dir_durably(disk, parent)?;
    disk.create_dir(path)?;
    disk.sync_dir(parent)
}

/// Reads a file from its beginning.
pub struct FileReader {
    file: Arc<dyn DiskFile>,
    pos: u64,
}

impl FileReader {
    /// Reads `file`.
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, pos: 0 }
    }
}

impl Read for FileReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(self.pos, buf)?;
        self.pos += n as u64;
        Ok(n)
    }
}

/// Writes a file from its beginning. `flush` does nothing: call [`DiskFile::sync`].
pub struct FileWriter {
    file: Arc<dyn DiskFile>,
    pos: u64,
}

impl FileWriter {
    /// Writes `file`.
    pub fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { file, pos: 0 }
    }

    /// Returns the file.
    pub fn into_file(self) -> Arc<dyn DiskFile> {
        self.file
    }
}

impl Write for FileWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.file.write_at(self.pos, &[IoSlice::new(buf)])?;
        self.pos += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Only the owner may access new files and directories, because events are confidential.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The file system of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsDisk;

struct OsFile(File);

impl DiskFile for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buf, pos)
    }

    fn write_at(&self, pos: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        // Only the single writer moves the cursor; reads are positional.
        let mut file = &self.0;
        file.seek(SeekFrom::Start(pos))?;
        file.write_vectored(bufs)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.or_else(|e| match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => File::open(path),
            _ => Err(e),
        })?;
        Ok(Arc::new(OsFile(file)))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(LockedFile(file))),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

/// A locked file, whose lock ends when this is dropped.
///
/// Closing the file is not enough: a program that another thread starts meanwhile has a copy of the descriptor between `fork`
/// and `exec`, and the lock lasts as long as any copy.
struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // if it fails, closing the file releases the lock as soon as no copy is left
        let _ = self.0.unlock();
    }
}

/// Writes all slices from `pos` on; repeats short writes.
///
/// Errors: those of [`DiskFile::write_at`]; `WriteZero` if the disk accepts no byte.
pub fn write_all(file: &dyn DiskFile, mut pos: u64, mut bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !bufs.is_empty() {
        match file.write_at(pos, bufs) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "the disk took no byte")),
            Ok(n) => {
                pos += n as u64;
                IoSlice::advance_slices(&mut bufs, n);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Fills `buf` from `pos` on, up to the end of the file; returns the number of bytes read.
pub(crate) fn read_full(file: &dyn DiskFile, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(pos + filled as u64, &mut buf[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_copy_of_its_descriptor_is_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let lock = OsDisk.lock(&path).expect("a lock");
        let locked = lock.downcast_ref::<LockedFile>().expect("a locked file");
        let _copy = locked.0.try_clone().expect("a copy, as a forked process has one");
        drop(lock);
        OsDisk.lock(&path).map(drop).expect("the lock is free again");
    }
}
