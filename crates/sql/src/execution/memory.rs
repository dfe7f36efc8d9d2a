//! Memory pool of all queries of a session.

use std::fmt;

use datafusion::common::human_readable_size;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use parking_lot::Mutex;

/// Memory pool that shares memory evenly among operators that can spill and reserves a quarter for those that
/// cannot.
///
/// A sort fills its share, spills, and then needs memory to merge the spilled runs, which it cannot spill
/// again. If the shares added up to the whole pool, the merge would find no memory left, and the query would
/// fail although all of its data could be on disk.
///
/// Bounds: `size` bytes in total, except for what DataFusion allocates without a check
/// ([`MemoryPool::grow`]).
#[derive(Debug)]
pub(crate) struct QueryMemory {
    size: usize,
    used: Mutex<PoolUsage>,
}

#[derive(Debug, Default)]
struct PoolUsage {
    /// Number of operators that can spill.
    spillers: usize,
    /// Bytes reserved by operators that can spill.
    spillable: usize,
    /// Bytes reserved by operators that cannot spill.
    fixed: usize,
}

impl QueryMemory {
    pub fn new(size: usize) -> Self {
        Self { size, used: Mutex::default() }
    }

    /// Returns the maximum bytes of one operator that can spill.
    fn share(&self, used: &PoolUsage) -> usize {
        self.size.saturating_sub(used.fixed.max(self.size / 4)) / used.spillers.max(1)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "queries"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.used.lock().spillers += 1;
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            let mut used = self.used.lock();
            used.spillers = used.spillers.saturating_sub(1);
        }
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let mut used = self.used.lock();
        match reservation.consumer().can_spill() {
            true => used.spillable += additional,
            false => used.fixed += additional,
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut used = self.used.lock();
        match reservation.consumer().can_spill() {
            true => used.spillable = used.spillable.saturating_sub(shrink),
            false => used.fixed = used.fixed.saturating_sub(shrink),
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut used = self.used.lock();
        let free = match reservation.consumer().can_spill() {
            true => self.share(&used).saturating_sub(reservation.size()),
            false => self.size.saturating_sub(used.fixed + used.spillable),
        };
        if additional > free {
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{} asked for {} beside its {}, of {} for all queries",
                reservation.consumer().name(),
                human_readable_size(additional),
                human_readable_size(reservation.size()),
                human_readable_size(self.size),
            )));
        }
        match reservation.consumer().can_spill() {
            true => used.spillable += additional,
            false => used.fixed += additional,
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        let used = self.used.lock();
        used.spillable + used.fixed
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.size)
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", human_readable_size(self.reserved()), human_readable_size(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_quarter_is_left_for_what_cannot_spill() {
        let pool: Arc<dyn MemoryPool> = Arc::new(QueryMemory::new(1_000));
        let sorts = ["a", "b", "c"].map(|n| MemoryConsumer::new(n).with_can_spill(true).register(&pool));
        for sort in &sorts {
            assert!(sort.try_grow(251).is_err());
            sort.try_grow(250).unwrap();
        }
        let merge = MemoryConsumer::new("merge").register(&pool);
        let error = merge.try_grow(251).unwrap_err().to_string();
        assert!(
            error.contains("merge asked for 251.0 B beside its 0.0 B, of 1000.0 B for all queries"),
            "{error}"
        );
        merge.try_grow(250).unwrap();
        assert_eq!(pool.reserved(), 1_000);
        // an operator that cannot spill may take all memory that the others free; their shares then shrink
        for sort in &sorts {
            sort.free();
        }
        merge.try_grow(450).unwrap();
        assert!(sorts[0].try_grow(101).is_err());
        sorts[0].try_grow(100).unwrap();
        drop(merge);
        drop(sorts);
        assert_eq!(pool.reserved(), 0);
    }
}
