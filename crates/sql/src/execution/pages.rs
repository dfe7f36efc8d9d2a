//! A query whose rows are taken page by page.
//!
//! ```text
//! statement's thread                              reader
//! rows ─▶ encoder ─▶ pieces of page 1 ──────────▶ page 1
//!         a row of page 2 is there: end of page ─▶ (so page 1 is not the last)
//!         gives up its place, waits ◀──────────── demand for page 2
//! rows ─▶ a new encoder ─▶ …
//! ```
//!
//! The end of a page comes with the first row of the next one, so that a reader knows of each page whether it is the last. What a
//! waiting statement keeps is its plan: the buffers of its operators, and the snapshots that it reads.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};
use tokio::sync::Semaphore;

use crate::execution::work::Work;

/// Bytes of values, and of output, from which on a page ends although it has fewer rows than were asked for.
const PAGE_BYTES: usize = 8 << 20;
/// Part of the memory of all statements that those of one caller may keep between two pages, and that all may.
const KEPT_PARTS: (usize, usize) = (4, 2);

/// Demand of a reader for pages.
#[derive(Debug, Clone)]
pub(crate) struct PageDemand {
    pub rows: NonZeroUsize,
    /// A permit for each page that is wanted and not begun.
    wanted: Arc<Semaphore>,
}

impl PageDemand {
    /// Creates the demand for the first page.
    pub fn new(rows: NonZeroUsize) -> Self {
        Self { rows, wanted: Arc::new(Semaphore::new(0)) }
    }

    pub fn want_next(&self) {
        self.wanted.add_permits(1);
    }

    pub async fn wait(&self) {
        // never closed
        if let Ok(permit) = self.wanted.acquire().await {
            permit.forget();
        }
    }
}

/// Memory that statements keep while they wait for the demand of their next page.
#[derive(Debug)]
pub(crate) struct KeptStatements {
    bytes_max: usize,
    bytes_max_caller: usize,
    kept: Mutex<WaitingStatements>,
}

/// Statements that wait.
#[derive(Debug, Default)]
struct WaitingStatements {
    /// Number of the next one. Statements of several sessions may have equal ids.
    next: u64,
    /// By number: the caller, and the bytes.
    statements: HashMap<u64, (String, usize)>,
}

/// A statement that waits until this is dropped.
pub(crate) struct KeptStatement<'k> {
    all: &'k KeptStatements,
    number: u64,
}

impl KeptStatements {
    /// Creates the account of a session whose statements have `memory_bytes`.
    pub fn new(memory_bytes: usize) -> Self {
        let (of_caller, of_all) = KEPT_PARTS;
        Self {
            bytes_max: memory_bytes / of_all,
            bytes_max_caller: memory_bytes / of_caller,
            kept: Mutex::default(),
        }
    }

    /// Notes that a statement waits.
    ///
    /// Errors: `LimitReached` when it holds more memory than its caller's or all may keep beside those that wait already.
    pub fn keep(&self, work: &Work) -> Result<KeptStatement<'_>> {
        let statement = work.statement().statement();
        let (caller, bytes) = (statement.caller(), work.bytes_held());
        let mut kept = self.kept.lock();
        let (mut of_all, mut of_caller) = (bytes, bytes);
        for (other, other_bytes) in kept.statements.values() {
            of_all += other_bytes;
            of_caller += if *other == caller { *other_bytes } else { 0 };
        }
        let refused = |whose: &str, most: usize| {
            Error::limit(format!(
                "the statement holds {bytes} bytes of memory, and {whose} may hold {most} in all between two pages: take the pages of \
                 others to their end, end them with KILL QUERY, or ask without `page_rows`, in which rows are sent as they come"
            ))
        };
        if of_caller > self.bytes_max_caller {
            return Err(refused("statements of one caller", self.bytes_max_caller));
        }
        if of_all > self.bytes_max {
            return Err(refused("all statements", self.bytes_max));
        }
        let number = kept.next;
        kept.next += 1;
        kept.statements.insert(number, (caller, bytes));
        Ok(KeptStatement { all: self, number })
    }
}

impl Drop for KeptStatement<'_> {
    fn drop(&mut self) {
        self.all.kept.lock().statements.remove(&self.number);
    }
}

/// Size of the page that is being made.
#[derive(Default)]
pub(crate) struct PageSize {
    pub rows: usize,
    pub bytes_in: usize,
    pub bytes_out: usize,
}

impl PageSize {
    pub fn is_full(&self, rows_max: NonZeroUsize) -> bool {
        self.rows >= rows_max.get() || self.bytes_in >= PAGE_BYTES || self.bytes_out >= PAGE_BYTES
    }
}
