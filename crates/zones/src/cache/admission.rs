//! Which blocks the disk of the cache takes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foyer::{Statistics, StorageFilterCondition, StorageFilterResult};
use parking_lot::Mutex;

/// Blocks that are remembered per generation; two generations are kept, at 8 bytes each block.
const REMEMBERED_MAX: usize = 64 * 1024;

/// Admits everything until as much was written as the disk takes, and from then on blocks that come a second time. So a
/// scan of a large table, whose blocks come once, does not displace what is read every day.
#[derive(Debug)]
pub(super) struct AdmitWhileRoomThenSecondRead {
    disk_bytes: u64,
    written: AtomicU64,
    refused: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    present: HashSet<u64>,
    former: HashSet<u64>,
}

impl AdmitWhileRoomThenSecondRead {
    pub fn new(disk_bytes: u64) -> Self {
        Self { disk_bytes, written: AtomicU64::new(0), refused: Mutex::default() }
    }

    fn admits(&self, hash: u64, bytes: u64) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        if written.saturating_add(bytes) > self.disk_bytes && !self.refused.lock().is_second(hash) {
            return false;
        }
        self.written.store(written.saturating_add(bytes), Ordering::Relaxed);
        true
    }
}

impl Generations {
    /// Remembers the block, and returns whether it was remembered.
    fn is_second(&mut self, hash: u64) -> bool {
        if self.present.remove(&hash) || self.former.remove(&hash) {
            return true;
        }
        if self.present.len() >= REMEMBERED_MAX {
            self.former = std::mem::take(&mut self.present);
        }
        self.present.insert(hash);
        false
    }
}

impl StorageFilterCondition for AdmitWhileRoomThenSecondRead {
    fn filter(&self, _: &Arc<Statistics>, hash: u64, estimated_size: usize) -> StorageFilterResult {
        match self.admits(hash, estimated_size as u64) {
            true => StorageFilterResult::Admit,
            false => StorageFilterResult::Reject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_refused_when_the_disk_is_full() {
        let filter = AdmitWhileRoomThenSecondRead::new(1_000);
        assert!((0..10).all(|hash| filter.admits(hash, 100)));
        assert!(!(10..100).any(|hash| filter.admits(hash, 100)), "blocks of a scan come once");
        assert!(filter.admits(50, 100), "a second time");
        assert!(!filter.admits(50, 100), "the next time counts anew");
    }

    #[test]
    fn memory_is_bounded() {
        let mut blocks = Generations::default();
        for hash in 0..10 * REMEMBERED_MAX as u64 {
            assert!(!blocks.is_second(hash));
        }
        assert!(blocks.present.len() + blocks.former.len() <= 2 * REMEMBERED_MAX);
        assert!(blocks.is_second(10 * REMEMBERED_MAX as u64 - 1));
    }
}
