//! Limits that sessions share.

use std::sync::Arc;

use crate::execution::memory::QueryMemory;
use crate::execution::pages::KeptStatements;
use crate::execution::work::Places;

/// Memory and places of the statements of several sessions, as of all databases in a process. A session that is opened without them has
/// its own, by its options.
#[derive(Debug)]
pub struct StatementLimits {
    pub(crate) memory_bytes: usize,
    pub(crate) queries_max: usize,
    pub(crate) memory: Arc<QueryMemory>,
    pub(crate) places: Arc<Places>,
    /// Statements that wait for the demand of their next page.
    pub(crate) kept: Arc<KeptStatements>,
}

impl StatementLimits {
    /// Creates limits: all statements have `memory_bytes` for sorts, joins and groups, and `queries_max` of them may run for long at the
    /// same time.
    pub fn new(memory_bytes: usize, queries_max: usize) -> Arc<Self> {
        Arc::new(Self {
            memory_bytes,
            queries_max,
            memory: Arc::new(QueryMemory::new(memory_bytes)),
            places: Places::new(queries_max, memory_bytes),
            kept: Arc::new(KeptStatements::new(memory_bytes)),
        })
    }
}
