//! Room on the disk of the data directory.
//!
//! A disk that the log has filled can be freed by a checkpoint, after which the log is cut, but the checkpoint needs
//! room itself. So some is kept back in a file: when the disk runs low, writes are refused, the file is given up, and
//! what it held is the checkpoint's.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use rustix::fs::FallocateFlags;
use tidemill_types::{Error, Result};

use crate::process::private_files;

const RESERVE_FILE: &str = "reserve";
/// The reserve is at most this part of the disk.
const RESERVE_DISK_DIVISOR: u64 = 16;
/// Below this a start gives the reserve up before it writes anything.
const START_FREE_BYTES_MIN: u64 = 1 << 20;

/// Watches the room on one disk.
pub struct DiskSpace {
    dir: PathBuf,
    /// Bytes that are kept back, and that must be free beside them for writes to be taken.
    reserve_bytes: u64,
    /// Bytes that may be written before the disk is looked at again; negative when it runs low.
    headroom: AtomicI64,
    reserved: AtomicBool,
    /// The file system did not take the reserve, which has been reported.
    reserve_failed: AtomicBool,
}

impl DiskSpace {
    /// Watches the disk that `dir` is on. `reserve_bytes` of 0 keeps nothing back and refuses nothing.
    pub fn new(dir: &Path, reserve_bytes: u64) -> Self {
        let most = disk(dir).map_or(reserve_bytes, |(_, total)| total / RESERVE_DISK_DIVISOR);
        let reserve_bytes = reserve_bytes.min(most);
        // one of another size is of another setting, or a crash came before it had its room
        let reserved = dir.join(RESERVE_FILE).metadata().ok().map(|file| file.blocks() * 512);
        let whole =
            reserve_bytes > 0 && reserved.is_some_and(|bytes| bytes.abs_diff(reserve_bytes) < 1 << 16);
        if reserved.is_some() && !whole {
            remove_reserve(dir);
        }
        let space = Self {
            dir: dir.to_owned(),
            reserve_bytes,
            headroom: AtomicI64::new(i64::MAX),
            reserved: AtomicBool::new(whole),
            reserve_failed: AtomicBool::new(false),
        };
        space.measure(0);
        space
    }

    /// Refuses while the disk runs low. `waiting` are bytes that are taken and may not be on the disk yet.
    ///
    /// Errors: `Unavailable`, which says how much is free and what would help.
    pub fn check(&self, waiting: impl Fn() -> u64) -> Result<()> {
        if self.headroom.load(Ordering::Relaxed) > 0 || self.measure(waiting()) > 0 {
            return Ok(());
        }
        let free = disk(&self.dir).map_or(0, |(free, _)| free);
        Err(Error::unavailable(format!(
            "disk full: {} KiB are free on the disk of {}, and {} KiB must be (reserve_bytes), so that checkpoints can be \
             taken; nothing more is written until there is room: remove other files or enlarge the disk",
            free >> 10,
            self.dir.display(),
            self.reserve_bytes >> 10
        )))
    }

    /// Counts bytes that go to the log.
    pub fn count_written(&self, bytes: usize) {
        self.headroom.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Keeps room back when there is enough of it.
    pub fn reserve(&self) {
        let enough = disk(&self.dir).is_some_and(|(free, _)| free / 2 > self.reserve_bytes);
        let done = self.reserved.load(Ordering::Relaxed) || self.reserve_failed.load(Ordering::Relaxed);
        if self.reserve_bytes == 0 || done || !enough {
            return;
        }
        match allocate(&self.dir.join(RESERVE_FILE), self.reserve_bytes) {
            Ok(()) => self.reserved.store(true, Ordering::Relaxed),
            Err(e) => {
                if !self.reserve_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %e, "no room can be kept back for checkpoints");
                }
                self.release();
            }
        }
    }

    /// Gives up what was kept back.
    pub fn release(&self) {
        remove_reserve(&self.dir);
        self.reserved.store(false, Ordering::Relaxed);
    }

    /// Looks at the disk and returns the room for more: what is free without what is kept back, and without `waiting`, the
    /// bytes that are taken and may not be on the disk yet.
    pub fn measure(&self, waiting: u64) -> i64 {
        // a disk that does not tell its room is taken for an empty one: its errors will tell
        let room = match disk(&self.dir) {
            Some((free, _)) if self.reserve_bytes > 0 => free as i64 - (self.reserve_bytes + waiting) as i64,
            _ => i64::MAX,
        };
        self.headroom.store(room, Ordering::Relaxed);
        room
    }
}

/// Makes room for the first writes of a start on a disk that is full.
pub fn free_reserve_for_start(dir: &Path) {
    if disk(dir).is_some_and(|(free, _)| free < START_FREE_BYTES_MIN) {
        remove_reserve(dir);
    }
}

/// Free and total bytes of the disk that `dir` is on.
fn disk(dir: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
}

/// Returns the free bytes of the disk that `dir` is on, if it tells them.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    disk(dir).map(|(free, _)| free)
}

fn allocate(path: &Path, bytes: u64) -> std::io::Result<()> {
    let file = private_files::create_file(path)?;
    Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?)
}

fn remove_reserve(dir: &Path) {
    match std::fs::remove_file(dir.join(RESERVE_FILE)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(error = %e, "the reserve cannot be given up");
        }
        _ => {}
    }
}
