//! Writing of a backup: under a temporary name, every file on the disk, the manifest last.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::{IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_log::disk::{Disk, DiskFile, FileReader, OsDisk, create_dir_durably, write_all};
use tidemill_types::{Error, ErrorKind, Result};

use super::content::{BackupContent, BackupFile, FileContent};
use super::manifest::{FileEntry, Manifest, checksum_text};
use crate::directory::partition_store::PublishedFile;
use crate::process::disk_files::unreadable;
use crate::process::disk_space;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;
/// End of the name of a directory that is being written.
const INCOMPLETE: &str = ".incomplete";
/// File in such a directory, locked by the program that writes it.
pub const LOCK: &str = "lock";

/// Takes a part of a file.
pub type TakePart<'t> = &'t mut dyn FnMut(&[u8]) -> Result<()>;

/// Reads files that are in object stores, in parts.
pub trait StoreReader {
    /// Reads a tablet.
    ///
    /// Errors: `NotFound`; `Unavailable`; those of `take`.
    fn read_tablet(&self, path: &object_store::path::Path, take: TakePart<'_>) -> Result<()>;

    /// Reads a file of the state of a partition, see [`PartitionStore::read_published`](crate::directory::partition_store::PartitionStore::read_published).
    ///
    /// Errors: `NotFound`; `Corrupt`; `Unavailable`; those of `take`.
    fn read_published(&self, file: &PublishedFile, take: TakePart<'_>) -> Result<()>;
}

/// A directory that gets its name when it is complete.
pub struct NewDirectory {
    path: PathBuf,
    incomplete: PathBuf,
    lock: Option<Box<dyn Any + Send + Sync>>,
}

impl NewDirectory {
    /// Creates a directory that [`Self::finish`] will call `path`. What an interrupted attempt has left is removed.
    ///
    /// Errors: `Invalid` when `path` is taken; `Conflict` when another program is writing it; `Unavailable`.
    pub fn create(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).map_err(|e| unusable(path, e))?;
        check_free(&path)?;
        let Some(name) = path.file_name() else {
            return Err(Error::invalid(format!("{}: is no name of a new directory", path.display())));
        };
        let incomplete = path.with_file_name(format!("{}{INCOMPLETE}", name.to_string_lossy()));
        if incomplete.exists() {
            // an attempt that was interrupted has its lock no more
            drop(lock(&incomplete, &path)?);
            std::fs::remove_dir_all(&incomplete).map_err(|e| unusable(&incomplete, e))?;
        }
        create_dir_durably(&OsDisk, &incomplete).map_err(|e| unusable(&incomplete, e))?;
        let lock = Some(lock(&incomplete, &path)?);
        Ok(Self { path, incomplete, lock })
    }

    /// Returns the directory to write to.
    pub fn dir(&self) -> &Path {
        &self.incomplete
    }

    /// Gives the directory its name, durably.
    ///
    /// Errors: `Unavailable`; the directory is removed.
    pub fn finish(mut self) -> Result<PathBuf> {
        let parent = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let (from, to) = (self.incomplete.clone(), self.path.clone());
        std::fs::remove_file(from.join(LOCK))
            .and_then(|()| OsDisk.sync_dir(&from))
            // replaces an empty directory
            .and_then(|()| std::fs::rename(&from, &to))
            .and_then(|()| OsDisk.sync_dir(&parent))
            .map_err(|e| unusable(&to, e))?;
        self.lock = None;
        self.incomplete.clear();
        Ok(to)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.incomplete.as_os_str().is_empty() {
            // what cannot be removed now is removed by the next attempt
            let _ = std::fs::remove_dir_all(&self.incomplete);
        }
    }
}

/// Refuses a directory that has content.
fn check_free(path: &Path) -> Result<()> {
    let first = match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unusable(path, e)),
    };
    match first {
        None => Ok(()),
        Some(entry) => Err(Error::invalid(format!(
            "{}: is not empty: it contains `{}`. Name a new or an empty directory",
            path.display(),
            entry.map_err(|e| unusable(path, e))?.file_name().to_string_lossy()
        ))),
    }
}

fn lock(incomplete: &Path, path: &Path) -> Result<Box<dyn Any + Send + Sync>> {
    OsDisk.lock(&incomplete.join(LOCK)).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::conflict(format!(
            "{}: another program is writing it at the moment. Wait until it ends, or name another directory",
            path.display()
        )),
        _ => unusable(incomplete, e),
    })
}

fn unusable(path: &Path, e: std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    // another attempt at the same place fails in the same way
    let kind = match e.kind() {
        Io::NotADirectory
        | Io::AlreadyExists
        | Io::IsADirectory
        | Io::PermissionDenied
        | Io::ReadOnlyFilesystem
        | Io::InvalidFilename
        | Io::InvalidInput => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("{}: cannot be used", path.display())).with_source(e)
}

/// Refuses to begin what the disk of `dir` has no room for.
///
/// Errors: `Unavailable` with how much is free and needed.
pub fn check_room(dir: &Path, bytes: u64) -> Result<()> {
    let Some(free) = disk_space::free_bytes(dir).filter(|free| *free < bytes) else { return Ok(()) };
    Err(Error::unavailable(format!(
        "{}: {} MiB are free there, and {} MiB are needed: make room or name a directory on another disk",
        dir.display(),
        free >> 20,
        bytes.div_ceil(1 << 20)
    )))
}

/// Writes all files and then the manifest to `dir`. `goes_on` is asked now and then.
///
/// Errors: those of reading and writing; `Unavailable` when it must not go on.
pub fn write(
    source: &dyn Disk,
    content: &BackupContent,
    mut manifest: Manifest,
    (target, dir): (&dyn Disk, &Path),
    stores: &dyn StoreReader,
    goes_on: &dyn Fn() -> bool,
) -> Result<Manifest> {
    let mut directories = BTreeSet::new();
    for file in &content.files {
        let path = dir.join(&file.name);
        create_parents(target, dir, &path, &mut directories)?;
        let mut copy = FileCopy::create(target, path, goes_on)?;
        copy_content(source, file, &mut copy, stores).map_err(|e| e.context(&file.name))?;
        manifest.files.push(copy.finish(&file.name)?);
    }
    for directory in &directories {
        target.sync_dir(directory).map_err(|e| unusable(directory, e))?;
    }
    manifest.partitions.clone_from(&content.partitions);
    manifest.tables.clone_from(&content.tables);
    manifest.write(target, dir)?;
    Ok(manifest)
}

/// Creates the directories between `dir` and a file below it, and notes them for a sync.
pub fn create_parents(disk: &dyn Disk, dir: &Path, file: &Path, known: &mut BTreeSet<PathBuf>) -> Result<()> {
    let parents = file.ancestors().skip(1).take_while(|parent| parent.starts_with(dir));
    let new: Vec<&Path> = parents.take_while(|parent| !known.contains(*parent)).collect();
    for parent in new.into_iter().rev() {
        disk.create_dir(parent).map_err(|e| unusable(parent, e))?;
        known.insert(parent.to_owned());
    }
    Ok(())
}

fn copy_content(
    source: &dyn Disk,
    file: &BackupFile,
    copy: &mut FileCopy<'_>,
    stores: &dyn StoreReader,
) -> Result<()> {
    match &file.content {
        FileContent::Written(bytes) => copy.write(bytes),
        FileContent::Open { file, bytes } => copy.write_from(file, *bytes),
        FileContent::Path(path) => {
            let file = source.open(path).map_err(|e| unreadable(path, e))?;
            let bytes = file.len().map_err(|e| unreadable(path, e))?;
            copy.write_from(&file, bytes)
        }
        FileContent::Published(file) => stores.read_published(file, &mut |part| copy.write(part)),
        FileContent::Tablet(path, size) => {
            stores.read_tablet(path, &mut |part| copy.write(part))?;
            match copy.bytes == *size {
                true => Ok(()),
                false => Err(Error::corrupt(format!(
                    "it has {} bytes, and {size} in the Delta log; `tidemill verify` names everything that is damaged",
                    copy.bytes
                ))),
            }
        }
    }
}

/// A file that is being written.
pub struct FileCopy<'g> {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    crc: u32,
    goes_on: &'g dyn Fn() -> bool,
}

impl<'g> FileCopy<'g> {
    /// Creates the file at `path`.
    ///
    /// Errors: `Unavailable`.
    pub fn create(disk: &dyn Disk, path: PathBuf, goes_on: &'g dyn Fn() -> bool) -> Result<Self> {
        let file = disk.create(&path).map_err(|e| unusable(&path, e))?;
        Ok(Self { path, file, bytes: 0, crc: 0, goes_on })
    }

    /// Appends bytes.
    ///
    /// Errors: `Unavailable`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if !(self.goes_on)() {
            return Err(Error::unavailable("Tidemill is stopping; what was begun is removed"));
        }
        write_all(&*self.file, self.bytes, &mut [IoSlice::new(bytes)]).map_err(|e| {
            Error::unavailable(format!("{}: cannot be written", self.path.display())).with_source(e)
        })?;
        self.bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(())
    }

    /// Appends the first `bytes` bytes of a file.
    ///
    /// Errors: `Corrupt` when it has fewer; `Unavailable`.
    pub fn write_from(&mut self, file: &Arc<dyn DiskFile>, bytes: u64) -> Result<()> {
        let mut input = FileReader::new(file.clone()).take(bytes);
        let mut buffer = vec![0; COPY_BYTES];
        let mut left = bytes;
        while left > 0 {
            let n =
                input.read(&mut buffer).map_err(|e| Error::unavailable("cannot be read").with_source(e))?;
            if n == 0 {
                return Err(Error::corrupt(format!("the file ends {left} bytes too early")));
            }
            self.write(&buffer[..n])?;
            left -= n as u64;
        }
        Ok(())
    }

    /// Waits until the file is on the disk. Returns its entry in a manifest, under the path `name`.
    ///
    /// Errors: `Unavailable`.
    pub fn finish(self, name: &str) -> Result<FileEntry> {
        self.file.sync().map_err(|e| unusable(&self.path, e))?;
        Ok(FileEntry { path: name.to_owned(), bytes: self.bytes, crc32c: checksum_text(self.crc) })
    }
}
