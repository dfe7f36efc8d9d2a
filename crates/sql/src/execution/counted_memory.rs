//! Memory of the operators of one statement, counted beside that of all.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;

/// Memory pool of one statement: it takes all of its bytes from the pool of the session, and knows how many.
#[derive(Debug)]
pub(crate) struct CountedMemory {
    all: Arc<dyn MemoryPool>,
    bytes: AtomicUsize,
}

impl CountedMemory {
    /// Creates the pool of a statement whose session has the pool `all`.
    pub fn new(all: &Arc<dyn MemoryPool>) -> Arc<Self> {
        Arc::new(Self { all: all.clone(), bytes: AtomicUsize::new(0) })
    }

    /// Returns the bytes that the statement holds.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the environment of the session with this pool in place of its own.
    pub fn environment(self: &Arc<Self>, session: &RuntimeEnv) -> Arc<RuntimeEnv> {
        Arc::new(RuntimeEnv { memory_pool: self.clone(), ..session.clone() })
    }
}

impl fmt::Display for CountedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

impl MemoryPool for CountedMemory {
    fn name(&self) -> &str {
        self.all.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.all.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.all.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.all.grow(reservation, additional);
        self.bytes.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.all.shrink(reservation, shrink);
        self.bytes.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.all.try_grow(reservation, additional)?;
        self.bytes.fetch_add(additional, Ordering::Relaxed);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.all.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.all.memory_limit()
    }
}
