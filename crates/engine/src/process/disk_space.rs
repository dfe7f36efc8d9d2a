//! Room on the disk of the data directory.
//!
//! A disk that the log has filled can be freed by a checkpoint, after which the log is cut, but the checkpoint needs
//! room itself. So some is kept back in a file: when the disk runs low, writes are refused, the file is given up, and
//! what it held is the checkpoint's.
//!
//! Data directories of a process may be on one disk. They count their writes together, and each keeps back room of its own.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use tidemill_types::{Error, Result};

use crate::process::private_files;

const RESERVE_FILE: &str = "reserve";
/// The reserve is at most this part of the disk.
const RESERVE_DISK_DIVISOR: u64 = 16;
/// Below this a start gives the reserve up before it writes anything.
const START_FREE_BYTES_MIN: u64 = 1 << 20;

/// Disks that the data directories of a process are on, by the number that the system gave each.
#[derive(Default)]
pub struct Disks(Mutex<BTreeMap<u64, Weak<DiskRoom>>>);

impl Disks {
    /// Returns the room on the disk of `dir`, for all that write to it.
    fn room(&self, dir: &Path) -> Arc<DiskRoom> {
        // a simulated disk has no such directory, and is shared with no other
        let Ok(found) = dir.metadata() else { return Arc::default() };
        let mut rooms = self.0.lock();
        rooms.retain(|_, room| room.strong_count() > 0);
        if let Some(room) = rooms.get(&found.dev()).and_then(Weak::upgrade) {
            return room;
        }
        let room = Arc::default();
        rooms.insert(found.dev(), Arc::downgrade(&room));
        room
    }
}

/// Room on one disk.
#[derive(Default)]
struct DiskRoom {
    /// Free bytes that may be written before the disk is looked at again, with what directories keep back.
    free: AtomicI64,
    /// By directory, bytes that are taken and may not be on the disk yet.
    waiting: Mutex<Vec<Weak<AtomicU64>>>,
}

impl DiskRoom {
    /// Adds a directory, and returns its count of bytes that wait.
    fn add(&self) -> Arc<AtomicU64> {
        let own = Arc::default();
        let mut waiting = self.waiting.lock();
        waiting.retain(|other| other.strong_count() > 0);
        waiting.push(Arc::downgrade(&own));
        own
    }

    /// Returns the bytes of all directories that wait.
    fn waiting(&self) -> u64 {
        let waiting = self.waiting.lock();
        waiting.iter().filter_map(Weak::upgrade).map(|own| own.load(Ordering::Relaxed)).sum()
    }
}

/// Watches the room on the disk of one data directory.
pub struct DiskSpace {
    dir: PathBuf,
    /// Bytes that are kept back, and that must be free beside them for writes to be taken.
    reserve_bytes: u64,
    /// Room on the disk, also for other directories.
    room: Arc<DiskRoom>,
    /// Bytes for this directory that are taken and may not be on the disk yet.
    waiting: Arc<AtomicU64>,
    reserved: AtomicBool,
    /// The file system did not take the reserve, which has been reported.
    reserve_failed: AtomicBool,
}

impl DiskSpace {
    /// Watches the disk that `dir` is on. `reserve_bytes` of 0 keeps nothing back and refuses nothing.
    pub fn new(dir: &Path, reserve_bytes: u64, disks: &Disks) -> Self {
        let most = disk(dir).map_or(reserve_bytes, |(_, total)| total / RESERVE_DISK_DIVISOR);
        let reserve_bytes = reserve_bytes.min(most);
        // one of another size is of another setting, or a crash came before it had its room
        let reserved = dir.join(RESERVE_FILE).metadata().ok().map(|file| file.blocks() * 512);
        let whole =
            reserve_bytes > 0 && reserved.is_some_and(|bytes| bytes.abs_diff(reserve_bytes) < 1 << 16);
        if reserved.is_some() && !whole {
            remove_reserve(dir);
        }
        let room = disks.room(dir);
        let space = Self {
            dir: dir.to_owned(),
            reserve_bytes,
            waiting: room.add(),
            room,
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
        let headroom = self.room.free.load(Ordering::Relaxed).saturating_sub_unsigned(self.reserve_bytes);
        if self.reserve_bytes == 0 || headroom > 0 || self.measure(waiting()) > 0 {
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
        self.room.free.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
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

    /// Looks at the disk and returns the room for more: what is free without what is kept back, and without the bytes that are taken
    /// and may not be on the disk yet, `waiting` for this directory.
    pub fn measure(&self, waiting: u64) -> i64 {
        // a disk that does not tell its room is taken for an empty one: its errors will tell
        self.waiting.store(waiting, Ordering::Relaxed);
        let free = disk(&self.dir).map_or(i64::MAX, |(free, _)| free as i64 - self.room.waiting() as i64);
        self.room.free.store(free, Ordering::Relaxed);
        match self.reserve_bytes {
            0 => i64::MAX,
            reserve_bytes => free.saturating_sub_unsigned(reserve_bytes),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_on_one_disk_count_their_writes_together() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let disks = Disks::default();
        let [one, other] = [0, 1].map(|dir: usize| DiskSpace::new(dirs[dir].path(), 1 << 20, &disks));
        let apart = DiskSpace::new(dirs[0].path(), 1 << 20, &Disks::default());
        let headroom = |space: &DiskSpace| space.room.free.load(Ordering::Relaxed);
        let before = headroom(&other);
        one.count_written(5 << 20);
        assert_eq!((headroom(&one), headroom(&other)), (before - (5 << 20), before - (5 << 20)));
        assert_ne!(headroom(&apart), headroom(&other), "another process counts by itself");
        // what waits for one directory is missing for the other
        let enough = i64::try_from(disk(dirs[0].path()).unwrap().0).unwrap() as u64;
        one.measure(2 * enough);
        assert!(other.measure(0) < 0);
        assert!(apart.measure(0) > 0);
        assert!(other.check(|| 0).unwrap_err().to_string().contains("disk full"));
        drop(one);
        assert!(other.measure(0) > 0);
    }
}
