//! The runs of one stream in one partition: all ids that are not in memory any more.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tidemill_log::disk::{Disk, create_dir_durably};
use tidemill_types::{Error, Result};

use super::run::{IdRun, RunInfo, TimeRange};

/// Runs of one level that are merged into one of the next.
const MERGED_RUNS: usize = 8;
const SUFFIX: &str = ".ids";

/// The runs, which the owner of the partition adds and reads, and a background job merges.
pub struct IdRuns {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    runs: RwLock<Vec<Arc<IdRun>>>,
    /// Number in the name of the next file.
    next: AtomicU64,
    /// Held by the merge, so that no run is merged twice. False once others have the files.
    may_merge: Mutex<bool>,
    /// Held while a file is written that is not a run yet.
    adding: Mutex<()>,
    /// Files that each of the last checkpoints names, oldest first.
    checkpointed: Mutex<VecDeque<BTreeSet<String>>>,
}

impl IdRuns {
    /// Opens the runs that a checkpoint names, in `dir`.
    ///
    /// Errors: those of [`IdRun::open`].
    pub fn open(disk: Arc<dyn Disk>, dir: PathBuf, named: &[RunInfo]) -> Result<Self> {
        let runs = named.iter().map(|info| IdRun::open(&*disk, &dir, info.clone()).map(Arc::new));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        // A file that no checkpoint names must not be overwritten either: an older checkpoint may name it.
        let names = disk.list(&dir).unwrap_or_default();
        let numbers = names.iter().filter_map(|name| name.strip_suffix(SUFFIX)?.parse::<u64>().ok());
        let next = numbers.max().map_or(0, |last| last + 1);
        Ok(Self {
            disk,
            dir,
            runs: RwLock::new(runs),
            next: AtomicU64::new(next),
            may_merge: Mutex::new(true),
            adding: Mutex::default(),
            checkpointed: Mutex::default(),
        })
    }

    /// Returns whether a run has the id. `time`: that of the event, if it is part of the id.
    ///
    /// Errors: those of [`IdRun::contains`].
    pub fn contains(&self, id: u128, time: Option<i64>) -> Result<bool> {
        let runs = self.runs.read();
        for run in runs.iter().filter(|run| run.may_cover(time)) {
            if run.contains(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a run of the given ids.
    ///
    /// Errors: `Unavailable` when it cannot be written; nothing is added then.
    pub fn add(&self, mut ids: Vec<u128>, times: Option<TimeRange>) -> Result<()> {
        let _adding = self.adding.lock();
        ids.sort_unstable();
        ids.dedup();
        let info = RunInfo { file: self.next_file(), level: 0, ids: ids.len() as u64, times };
        self.create_dir()?;
        let run = IdRun::write(&*self.disk, &self.dir, info, ids.into_iter().map(Ok))?;
        self.runs.write().push(Arc::new(run));
        Ok(())
    }

    /// Merges runs of one level, if there are enough. Returns whether it did.
    ///
    /// Errors: those of reading and writing runs; the runs stay as they are.
    pub fn merge(&self) -> Result<bool> {
        let alone = self.may_merge.lock();
        let Some(inputs) = self.mergeable().filter(|_| *alone) else { return Ok(false) };
        let level = inputs.iter().map(|run| run.info.level).max().unwrap_or_default() + 1;
        let times = inputs.iter().map(|run| run.info.times).reduce(|a, b| Some(a?.union(b?))).flatten();
        // An id is in one run only: it is added once.
        let ids = inputs.iter().map(|run| run.info.ids).sum();
        let info = RunInfo { file: self.next_file(), level, ids, times };
        let merged = IdRun::write(&*self.disk, &self.dir, info, MergedIds::new(&inputs)?)?;
        let mut runs = self.runs.write();
        runs.retain(|run| !inputs.iter().any(|input| Arc::ptr_eq(run, input)));
        runs.insert(0, Arc::new(merged));
        Ok(true)
    }

    /// Waits for a merge and ends merges: the partition is opened again with the same files.
    pub fn retire(&self) {
        *self.may_merge.lock() = false;
    }

    fn mergeable(&self) -> Option<Vec<Arc<IdRun>>> {
        let runs = self.runs.read();
        let levels: BTreeSet<u32> = runs.iter().map(|run| run.info.level).collect();
        levels.into_iter().find_map(|level| {
            let of_level = runs.iter().filter(|run| run.info.level == level).take(MERGED_RUNS);
            let of_level: Vec<Arc<IdRun>> = of_level.cloned().collect();
            (of_level.len() == MERGED_RUNS).then_some(of_level)
        })
    }

    /// Returns what a checkpoint must say of the runs.
    pub fn infos(&self) -> Vec<RunInfo> {
        self.runs.read().iter().map(|run| run.info.clone()).collect()
    }

    /// Notes that a checkpoint has been published that names these runs, and that the last `kept` checkpoints
    /// remain. `copy`: it is a copy of the last one and takes the place of the one before.
    pub fn note_checkpoint(&self, named: &[RunInfo], kept: usize, copy: bool) {
        let mut noted = self.checkpointed.lock();
        let place = noted.len().saturating_sub(usize::from(copy));
        noted.insert(place, named.iter().map(|run| run.file.clone()).collect());
        while noted.len() > kept {
            noted.pop_front();
        }
    }

    /// Deletes the files that none of the last `kept` checkpoints names, once that many have been published since the
    /// start: those of before may name others.
    ///
    /// Errors: `Unavailable`; a later checkpoint tries again.
    pub fn remove_unnamed(&self, kept: usize) -> Result<()> {
        let noted = self.checkpointed.lock();
        if noted.len() < kept {
            return Ok(());
        }
        self.remove_unused(&noted.iter().flatten().cloned().collect())
    }

    /// Deletes files that are neither in `named` nor in use.
    ///
    /// Errors: `Unavailable`.
    pub fn remove_unused(&self, named: &BTreeSet<String>) -> Result<()> {
        let _alone = (self.may_merge.lock(), self.adding.lock());
        let used: BTreeSet<String> = self.infos().into_iter().map(|info| info.file).collect();
        for name in self.disk.list(&self.dir).unwrap_or_default() {
            if name.ends_with(SUFFIX) && !named.contains(&name) && !used.contains(&name) {
                let path = self.dir.join(&name);
                self.disk.remove(&path).map_err(|e| {
                    Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e)
                })?;
            }
        }
        Ok(())
    }

    fn next_file(&self) -> String {
        format!("{:012}{SUFFIX}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn create_dir(&self) -> Result<()> {
        create_dir_durably(&*self.disk, &self.dir).map_err(|e| {
            Error::unavailable(format!("{}: cannot be created", self.dir.display())).with_source(e)
        })
    }
}

/// The ids of several runs in order.
struct MergedIds<'r> {
    cursors: Vec<IdCursor<'r>>,
}

struct IdCursor<'r> {
    run: &'r IdRun,
    next_block: usize,
    ids: std::vec::IntoIter<u128>,
    head: Option<u128>,
}

impl IdCursor<'_> {
    fn advance(&mut self) -> Result<()> {
        self.head = self.ids.next();
        if self.head.is_none() && self.next_block < self.run.blocks() {
            self.ids = self.run.block(self.next_block)?.into_iter();
            self.next_block += 1;
            self.head = self.ids.next();
        }
        Ok(())
    }
}

impl<'r> MergedIds<'r> {
    fn new(runs: &'r [Arc<IdRun>]) -> Result<Self> {
        let mut cursors = Vec::new();
        for run in runs {
            let mut cursor = IdCursor { run, next_block: 0, ids: Vec::new().into_iter(), head: None };
            cursor.advance()?;
            cursors.push(cursor);
        }
        Ok(Self { cursors })
    }
}

impl Iterator for MergedIds<'_> {
    type Item = Result<u128>;

    fn next(&mut self) -> Option<Self::Item> {
        let least = self.cursors.iter_mut().filter(|cursor| cursor.head.is_some());
        let least = least.min_by_key(|cursor| cursor.head)?;
        let id = least.head?;
        Some(least.advance().map(|()| id))
    }
}
