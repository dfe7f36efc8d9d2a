//! The work of one statement: its budget, its place among the statements that use processors, and its turn on its thread.
//!
//! ```text
//! arrives ─▶ place of a statement that begins ─▶ own thread: plans, and runs what needs no further task
//!                                  │
//!                                  └─ took 50 ms of a processor, or starts tasks
//!                                       ▼
//!                    lower priority, place of a long statement (`sql.queries_max`), or waits for one
//! ```
//!
//! Most statements end before they become long, so they are answered although long statements have all places: the
//! operating system takes a processor from a long statement's thread whenever another thread wants it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::DataFusionError;
use futures::future::{Abortable, Aborted};
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tidemill_types::budget::{self, Budget, Entered, Stop};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::StatementPhase;
use crate::execution::counted_memory::CountedMemory;
use crate::execution::statements::RunningStatement;
use crate::execution::threads;

/// Statements that have begun and are not long yet.
const BEGUN_MAX: usize = 64;
/// Processor time after which a statement is long.
pub(crate) const LONG: Duration = Duration::from_millis(50);
/// Bytes of pages that are reserved together, and from which on they are.
pub(crate) const PAGE_UNIT: usize = 1 << 20;
/// Time between two looks at the processor time of a thread.
const LOOK: Duration = Duration::from_millis(5);

/// Places of the statements of a session.
#[derive(Debug)]
pub(crate) struct Places {
    begun: Arc<Semaphore>,
    long: Arc<Semaphore>,
    /// Memory for pages of files with large values, in [`PAGE_UNIT`]s.
    pages: Arc<Semaphore>,
    pages_max: u32,
}

impl Places {
    /// Creates the places of a session in which `long_max` statements may run for long at the same time, and may hold
    /// `page_bytes` of pages.
    pub fn new(long_max: usize, page_bytes: usize) -> Arc<Self> {
        let pages_max =
            u32::try_from(page_bytes / PAGE_UNIT).unwrap_or(u32::MAX >> 4).clamp(1, u32::MAX >> 4);
        let places = [BEGUN_MAX, long_max.max(1), pages_max as usize];
        let [begun, long, pages] = places.map(|places| Arc::new(Semaphore::new(places)));
        Arc::new(Self { begun, long, pages, pages_max })
    }

    /// Takes the place of a statement that begins, if there is one.
    pub fn try_begin(&self) -> Option<OwnedSemaphorePermit> {
        self.begun.clone().try_acquire_owned().ok()
    }

    /// Waits for the place of a statement that begins.
    pub async fn begin(&self) -> Option<OwnedSemaphorePermit> {
        self.begun.clone().acquire_owned().await.ok()
    }
}

/// State shared by the threads and operators of a statement. The statement has ended when the last of them
/// has dropped it.
pub(crate) struct Work {
    statement: Arc<RunningStatement>,
    places: Arc<Places>,
    place: Mutex<Place>,
    pages: Mutex<Option<OwnedSemaphorePermit>>,
    /// Memory of its operators, if it is counted.
    memory: Option<Arc<CountedMemory>>,
}

/// A place that is held.
#[derive(Default)]
#[expect(dead_code, reason = "permits are held, and never read")]
enum Place {
    #[default]
    None,
    Begun(OwnedSemaphorePermit),
    Long(OwnedSemaphorePermit),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("budget", self.budget()).finish_non_exhaustive()
    }
}

impl Work {
    pub fn new(statement: Arc<RunningStatement>, places: Arc<Places>) -> Arc<Self> {
        Self::with_memory(statement, places, None)
    }

    /// Creates the work of a statement whose operators take their memory from `memory`.
    pub fn with_memory(
        statement: Arc<RunningStatement>,
        places: Arc<Places>,
        memory: Option<Arc<CountedMemory>>,
    ) -> Arc<Self> {
        Arc::new(Self { statement, places, place: Mutex::default(), pages: Mutex::default(), memory })
    }

    /// Returns the memory of its operators, if it is counted.
    pub fn memory(&self) -> Option<&Arc<CountedMemory>> {
        self.memory.as_ref()
    }

    /// Returns the bytes that the statement holds: those of its operators, if they are counted, and of pages of files.
    pub fn bytes_held(&self) -> usize {
        let pages = self.pages.lock().as_ref().map_or(0, |permit| permit.num_permits() * PAGE_UNIT);
        pages + self.memory.as_ref().map_or(0, |memory| memory.bytes())
    }

    /// Gives up the place, and memory for pages, while `rest` waits. Takes them again after it.
    ///
    /// Errors: the statement has ended meanwhile.
    pub async fn rest<T>(&self, rest: impl Future<Output = T>) -> Result<T, Stop> {
        let place = std::mem::take(&mut *self.place.lock());
        let was_long = matches!(place, Place::Long(_));
        drop(place);
        let pages = self.pages.lock().take().map_or(0, |permit| permit.num_permits());
        let value = rest.await;
        if pages > 0 {
            self.reserve_pages(pages * PAGE_UNIT).await?;
        }
        match was_long {
            true => self.become_long().await?,
            false => self.set_begun(self.permits(&self.places.begun, 1).await?),
        }
        Ok(value)
    }

    /// Gives up the place of a statement that waits from now on.
    pub fn give_up_place(&self) {
        *self.place.lock() = Place::None;
    }

    pub fn statement(&self) -> &Arc<RunningStatement> {
        &self.statement
    }

    pub fn budget(&self) -> &Budget {
        self.statement.statement().budget()
    }

    /// Returns the places among which it has one.
    pub fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Takes the place of a statement that begins.
    pub fn set_begun(&self, permit: OwnedSemaphorePermit) {
        *self.place.lock() = Place::Begun(permit);
    }

    /// Waits for the place of a long statement, unless it has one.
    ///
    /// Errors: the statement has ended meanwhile.
    pub async fn become_long(&self) -> Result<(), Stop> {
        if matches!(*self.place.lock(), Place::Long(_)) {
            return Ok(());
        }
        if let Ok(permit) = self.places.long.clone().try_acquire_owned() {
            *self.place.lock() = Place::Long(permit);
            return Ok(());
        }
        // others may begin while this one waits
        *self.place.lock() = Place::None;
        let phase = self.statement.swap_phase(StatementPhase::Waiting);
        let permit = self.permits(&self.places.long, 1).await?;
        *self.place.lock() = Place::Long(permit);
        self.statement.swap_phase(phase);
        Ok(())
    }

    /// Waits for memory for pages of this size, at most all that there is; it is held until the statement ends.
    ///
    /// A file with large values has pages that are larger than any batch, and readers take the memory without a question.
    /// Statements that need it run after one another rather than fail.
    ///
    /// Errors: the statement has ended meanwhile.
    pub async fn reserve_pages(&self, bytes: usize) -> Result<(), Stop> {
        let wanted = u32::try_from(bytes / PAGE_UNIT).unwrap_or(u32::MAX).min(self.places.pages_max);
        if wanted == 0 || self.pages.lock().is_some() {
            return Ok(());
        }
        if let Ok(permit) = self.places.pages.clone().try_acquire_many_owned(wanted) {
            *self.pages.lock() = Some(permit);
            return Ok(());
        }
        // those that have the memory may wait for the place
        let was_long = matches!(std::mem::take(&mut *self.place.lock()), Place::Long(_));
        let phase = self.statement.swap_phase(StatementPhase::Waiting);
        let permit = self.permits(&self.places.pages, wanted).await?;
        *self.pages.lock() = Some(permit);
        if was_long {
            self.become_long().await?;
        }
        self.statement.swap_phase(phase);
        Ok(())
    }

    /// Waits for permits.
    ///
    /// Errors: the statement has ended meanwhile.
    async fn permits(&self, of: &Arc<Semaphore>, count: u32) -> Result<OwnedSemaphorePermit, Stop> {
        let permits = of.clone().acquire_many_owned(count);
        match Abortable::new(permits, self.statement.statement().on_end()).await {
            Ok(Ok(permits)) => Ok(permits),
            Ok(Err(_)) => Err(Stop::Stopping),
            Err(Aborted) => Err(self.budget().check().err().unwrap_or(Stop::Stopping)),
        }
    }

    /// Makes this the work of the thread until the guard is dropped.
    pub fn enter(self: &Arc<Self>) -> Turn {
        let state = TurnState {
            work: self.clone(),
            cpu: cpu_time(),
            next_look: Instant::now() + LOOK,
            is_long: false,
        };
        TURN.set(Some(state));
        Turn { _entered: self.budget().enter() }
    }
}

/// Guard of [`Work::enter`].
pub(crate) struct Turn {
    _entered: Entered,
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURN.set(None);
    }
}

struct TurnState {
    work: Arc<Work>,
    /// Processor time of the thread when it began.
    cpu: Duration,
    next_look: Instant,
    is_long: bool,
}

thread_local! {
    static TURN: RefCell<Option<TurnState>> = const { RefCell::new(None) };
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}

/// Checks the budget of the thread. On the thread of a statement that has become long it also waits for its place.
///
/// Errors: the statement has to end.
pub(crate) fn check() -> Result<(), Stop> {
    budget::current().check()?;
    let long = TURN.with_borrow_mut(|turn| {
        let turn = turn.as_mut().filter(|turn| !turn.is_long)?;
        let now = Instant::now();
        if now < turn.next_look {
            return None;
        }
        turn.next_look = now + LOOK;
        turn.is_long = cpu_time().saturating_sub(turn.cpu) >= LONG;
        turn.is_long.then(|| turn.work.clone())
    });
    match long {
        Some(work) => {
            threads::lower_priority();
            // the runtime's limit for a task would let it wait for a wake that never comes
            futures::executor::block_on(tokio::task::unconstrained(work.become_long()))
        }
        None => Ok(()),
    }
}

/// Returns a reason to end as DataFusion carries it.
pub(crate) fn stopped(stop: Stop) -> DataFusionError {
    DataFusionError::External(Box::new(stop))
}
