//! The logs of this crate pass the suite that every log must pass.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use tempfile::TempDir;
use tidemill_log::contract::{self, LogFixture};
use tidemill_log::sim_disk::SimDisk;
use tidemill_log::{Durability, LocalLog, Log, LogClock, LogOptions, MemoryLog};
use tidemill_types::{Offset, Timestamp};

use crate::basics::{P, options};

struct InMemory;

impl LogFixture for InMemory {
    fn create(&mut self, partitions: u32) -> Arc<dyn Log> {
        Arc::new(MemoryLog::new(partitions))
    }

    fn reopen(&mut self, _: Arc<dyn Log>) -> Option<Arc<dyn Log>> {
        None
    }
}

/// A fresh directory for each log.
#[derive(Default)]
struct InDirectory(Option<TempDir>);

fn open(dir: &Path, partitions: u32) -> Arc<dyn Log> {
    let options = LogOptions { background_sync_ms: 100, partitions, ..options() };
    Arc::new(LocalLog::open(dir, options).unwrap().0)
}

impl LogFixture for InDirectory {
    fn create(&mut self, partitions: u32) -> Arc<dyn Log> {
        open(self.0.insert(tempfile::tempdir().unwrap()).path(), partitions)
    }

    fn reopen(&mut self, log: Arc<dyn Log>) -> Option<Arc<dyn Log>> {
        let partitions = log.partitions();
        drop(log);
        Some(open(self.0.as_ref()?.path(), partitions))
    }
}

#[derive(Default)]
struct OnSimDisk(SimDisk);

impl OnSimDisk {
    fn open(&self, partitions: u32) -> Arc<dyn Log> {
        let options = LogOptions { partitions, ..options() };
        Arc::new(LocalLog::open_on(Arc::new(self.0.clone()), "/log", options).unwrap().0)
    }
}

impl LogFixture for OnSimDisk {
    fn create(&mut self, partitions: u32) -> Arc<dyn Log> {
        self.0 = SimDisk::default();
        self.open(partitions)
    }

    fn reopen(&mut self, log: Arc<dyn Log>) -> Option<Arc<dyn Log>> {
        let partitions = log.partitions();
        drop(log);
        Some(self.open(partitions))
    }
}

#[test]
fn memory_log_passes() {
    contract::check(&mut InMemory);
}

#[test]
fn local_log_passes() {
    contract::check(&mut InDirectory::default());
}

#[test]
fn log_on_a_simulated_disk_passes() {
    contract::check(&mut OnSimDisk::default());
}

#[test]
fn times_do_not_go_back_with_the_clock_nor_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(100));
    let clock = Arc::clone(&now);
    let clock = LogClock::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    let options = LogOptions { clock, ..options() };
    let append = |log: &LocalLog| {
        log.append(P, Bytes::from("x").into(), Durability::Fsync).unwrap().wait().unwrap().time
    };
    let (log, _) = LocalLog::open(dir.path(), options.clone()).unwrap();
    assert_eq!(append(&log), Timestamp(100));
    now.store(50, Ordering::SeqCst);
    assert_eq!(append(&log), Timestamp(100));
    drop(log);
    let (log, _) = LocalLog::open(dir.path(), options).unwrap();
    assert_eq!(append(&log), Timestamp(100));
    now.store(200, Ordering::SeqCst);
    assert_eq!(append(&log), Timestamp(200));
    assert_eq!(log.read(P, Offset(2), 1).unwrap()[0].time, Timestamp(100));
}
