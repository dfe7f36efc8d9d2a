//! An in-memory disk for tests that loses unsynced data, fails on demand and stops at any operation.
//!
//! Behind the feature `sim`.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::disks::disk::{Disk, DiskFile};

const SECTOR: usize = 512;

/// Content of a file: as readers see it, as the medium holds it, and the sectors that the next sync will
/// write.
#[derive(Default, Clone)]
struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
    len_dirty: bool,
}

#[derive(Clone)]
enum DirOp {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Default)]
struct State {
    inodes: Vec<Inode>,
    visible: BTreeMap<PathBuf, usize>,
    durable: BTreeMap<PathBuf, usize>,
    dir_ops: Vec<DirOp>,
    ops: u64,
    /// Operation at which the power fails; a write at that operation is done partially.
    stop_at: Option<(u64, StdRng)>,
    /// Maximum size of all files together, in bytes.
    room: Option<usize>,
    /// Number of upcoming syncs that will fail.
    bad_syncs: u32,
    /// Maximum number of bytes that one write accepts.
    write_max: Option<usize>,
    fsyncs: u64,
}

/// Kind of a simulated crash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crash {
    /// The process dies: everything handed to the system survives.
    Kill,
    /// The power fails: of the unsynced sectors, any subset survives.
    Power,
}

/// The simulated disk; clones share its content.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl SimDisk {
    /// Returns the number of operations so far that change the disk: writes, truncations, syncs, directory
    /// changes.
    pub fn ops(&self) -> u64 {
        self.state.lock().ops
    }

    /// Returns whether the power has failed; see [`Self::stop_at`].
    pub fn is_stopped(&self) -> bool {
        let state = self.state.lock();
        state.stop_at.as_ref().is_some_and(|(stop, _)| state.ops > *stop)
    }

    /// Returns the number of file syncs so far.
    pub fn fsyncs(&self) -> u64 {
        self.state.lock().fsyncs
    }

    /// Fails the power at operation `op`, counted as in [`Self::ops`]: a write is done partially, and every
    /// later operation fails.
    pub fn stop_at(&self, op: u64, rng: StdRng) {
        self.state.lock().stop_at = Some((op, rng));
    }

    /// Limits the size of all files together; `None` for no limit. Writes beyond it fail as on a full disk.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.state.lock().room = bytes;
    }

    /// Returns the size of all files together, in bytes.
    pub fn used(&self) -> usize {
        let state = self.state.lock();
        state.visible.values().map(|i| state.inodes[*i].visible.len()).sum()
    }

    /// Makes the next `n` file syncs fail.
    pub fn fail_syncs(&self, n: u32) {
        self.state.lock().bad_syncs = n;
    }

    /// Limits the bytes that one write accepts; `None` for no limit.
    pub fn set_write_max(&self, bytes: Option<usize>) {
        self.state.lock().write_max = bytes;
    }

    /// Changes a file's content without the log's knowledge, on the medium too.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.lock();
        let i = state.visible[path];
        edit(&mut state.inodes[i].visible);
        state.inodes[i].durable = state.inodes[i].visible.clone();
    }

    /// Returns the paths of all files.
    pub fn names(&self) -> Vec<PathBuf> {
        self.state.lock().visible.keys().cloned().collect()
    }

    /// Returns a new disk with the content that survives a crash.
    pub fn after_crash(&self, crash: Crash, rng: &mut StdRng) -> SimDisk {
        let state = self.state.lock();
        let mut entries = match crash {
            Crash::Kill => state.visible.clone(),
            Crash::Power => state.durable.clone(),
        };
        if crash == Crash::Power {
            // Directory changes reach the medium in order.
            let n = rng.random_range(0..=state.dir_ops.len());
            state.dir_ops[..n].iter().for_each(|op| apply(&mut entries, op));
        }
        let mut after = State::default();
        for (path, i) in entries {
            let bytes = match crash {
                Crash::Kill => state.inodes[i].visible.clone(),
                Crash::Power => state.inodes[i].after_power_loss(rng),
            };
            after.visible.insert(path.clone(), after.inodes.len());
            after.durable.insert(path, after.inodes.len());
            // After a kill the system still buffers unsynced content.
            let inode = match crash {
                Crash::Kill => Inode { visible: bytes, ..state.inodes[i].clone() },
                Crash::Power => Inode { durable: bytes.clone(), visible: bytes, ..Inode::default() },
            };
            after.inodes.push(inode);
        }
        if crash == Crash::Kill {
            // Simplification: a directory change that the system knows of counts as durable.
            after.dir_ops.clear();
        }
        SimDisk { state: Arc::new(Mutex::new(after)), locked: Arc::default() }
    }
}

fn apply(entries: &mut BTreeMap<PathBuf, usize>, op: &DirOp) {
    match op {
        DirOp::Link(path, i) => {
            entries.insert(path.clone(), *i);
        }
        DirOp::Unlink(path) => {
            entries.remove(path);
        }
        DirOp::Rename(from, to) => {
            if let Some(i) = entries.remove(from) {
                entries.insert(to.clone(), i);
            }
        }
    }
}

impl Inode {
    fn write(&mut self, pos: usize, bytes: &[u8]) {
        let end = pos + bytes.len();
        if self.visible.len() < end {
            self.dirty.extend(self.visible.len() / SECTOR..=end / SECTOR);
            self.visible.resize(end, 0);
        }
        self.visible[pos..end].copy_from_slice(bytes);
        self.dirty.extend(pos / SECTOR..=end.saturating_sub(1) / SECTOR);
    }

    fn sync(&mut self) {
        self.durable.resize(self.visible.len(), 0);
        for s in std::mem::take(&mut self.dirty) {
            let (from, to) = (s * SECTOR, ((s + 1) * SECTOR).min(self.visible.len()));
            if from < to {
                self.durable[from..to].copy_from_slice(&self.visible[from..to]);
            }
        }
        self.len_dirty = false;
    }

    fn after_power_loss(&self, rng: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        if self.len_dirty && rng.random_bool(0.5) {
            bytes.truncate(self.visible.len());
        }
        // Sometimes nearly all sectors survive, sometimes hardly any.
        let share = [0.0, 0.1, 0.5, 0.9, 1.0][rng.random_range(0..5)];
        for s in &self.dirty {
            let (from, to) = (s * SECTOR, ((s + 1) * SECTOR).min(self.visible.len()));
            if from < to && rng.random_bool(share) {
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(&self.visible[from..to]);
            }
        }
        if rng.random_bool(0.3) {
            bytes.resize(bytes.len().max(self.visible.len()), 0);
        }
        bytes
    }
}

impl State {
    /// Counts an operation; fails after the power has failed. `Some` requests a partial write.
    fn step(&mut self) -> io::Result<Option<&mut StdRng>> {
        self.ops += 1;
        match &mut self.stop_at {
            Some((at, _)) if self.ops > *at => Err(io::Error::other("the power is gone")),
            Some((at, rng)) if self.ops == *at => Ok(Some(rng)),
            _ => Ok(None),
        }
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: usize,
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().inodes[self.inode].visible.len() as u64)
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let state = self.state.lock();
        let bytes = &state.inodes[self.inode].visible;
        let from = (pos as usize).min(bytes.len());
        let n = buf.len().min(bytes.len() - from);
        buf[..n].copy_from_slice(&bytes[from..from + n]);
        Ok(n)
    }

    fn write_at(&self, pos: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state.lock();
        let mut bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        if let Some(rng) = state.step()? {
            bytes.truncate(rng.random_range(0..=bytes.len()));
        }
        if let Some(max) = state.write_max {
            bytes.truncate(max);
        }
        if let Some(room) = state.room {
            let used: usize = state.visible.values().map(|i| state.inodes[*i].visible.len()).sum();
            let len = state.inodes[self.inode].visible.len();
            let free = room.saturating_sub(used) + len.saturating_sub(pos as usize);
            if free == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            bytes.truncate(free);
        }
        state.inodes[self.inode].write(pos as usize, &bytes);
        Ok(bytes.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step()?;
        let inode = &mut state.inodes[self.inode];
        inode.visible.resize(len as usize, 0);
        inode.len_dirty = true;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step()?;
        state.fsyncs += 1;
        if state.bad_syncs > 0 {
            state.bad_syncs -= 1;
            // As on Linux: the pages count as clean although the medium does not have them.
            state.inodes[self.inode].dirty.clear();
            return Err(io::Error::from_raw_os_error(5));
        }
        state.inodes[self.inode].sync();
        Ok(())
    }
}

impl SimDisk {
    fn file(&self, inode: usize) -> Arc<dyn DiskFile> {
        Arc::new(SimFile { state: Arc::clone(&self.state), inode })
    }

    fn change(&self, op: DirOp) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step()?;
        apply(&mut state.visible, &op);
        state.dir_ops.push(op);
        Ok(())
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inode = self.state.lock().visible.get(path).copied();
        inode.map(|i| self.file(i)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let inode = {
            let mut state = self.state.lock();
            state.inodes.push(Inode::default());
            state.inodes.len() - 1
        };
        self.change(DirOp::Link(path.to_owned(), inode))?;
        Ok(self.file(inode))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(DirOp::Unlink(path.to_owned()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(DirOp::Rename(from.to_owned(), to.to_owned()))
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let names = state.visible.keys().filter_map(|p| p.strip_prefix(dir).ok()?.iter().next()?.to_str());
        Ok(names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.step()?;
        let (done, rest) = std::mem::take(&mut state.dir_ops).into_iter().partition(|op| {
            let (DirOp::Link(path, _) | DirOp::Unlink(path) | DirOp::Rename(path, _)) = op;
            path.parent() == Some(dir)
        });
        let done: Vec<DirOp> = done;
        state.dir_ops = rest;
        done.iter().for_each(|op| apply(&mut state.durable, op));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>> {
        if !self.locked.lock().insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Unlock { locked: Arc::clone(&self.locked), path: path.to_owned() }))
    }
}

struct Unlock {
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
    path: PathBuf,
}

impl Drop for Unlock {
    fn drop(&mut self) {
        self.locked.lock().remove(&self.path);
    }
}
