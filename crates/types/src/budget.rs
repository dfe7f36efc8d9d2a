//! The budget of a unit of work: how long it may run, how many steps it may take, how much memory it may hold, and
//! whether anybody still wants its result.
//!
//! ```
//! use std::time::Duration;
//! use tidemill_types::budget::{self, Budget, Stop};
//!
//! let budget = Budget::builder().time(Duration::from_secs(60)).bytes(256 << 20).build();
//! let entered = budget.enter();          // code below asks `budget::step` without an argument
//! let rows = (0..1_000).map(|n| budget::step().map(|()| n)).collect::<Result<Vec<_>, Stop>>();
//! assert!(rows.is_ok());
//! drop(entered);
//!
//! budget.stop(Stop::ClientGone);         // from another thread: the next step of the work ends it
//! assert!(matches!(budget.step(), Err(Stop::ClientGone)));
//! ```
//!
//! Every door (HTTP, MongoDB, SQL, jobs) gives the work that it starts one budget; what the work does is one of three calls:
//!
//! - [`step`](Budget::step) inside of every loop whose length the data or the request decides, also where the loop produces
//!   nothing;
//! - [`reserve`](Budget::reserve) *before* memory is taken that grows with the data; the [`Reservation`] gives it back;
//! - [`stop`](Budget::stop) from outside: a cancelled statement, a client that has closed its connection.
//!
//! Work that a replay of the log repeats must end at the same place each time. Its budget counts steps and bytes and has
//! neither time nor somebody who may stop it: [`Budget::deterministic`].
//!
//! Deep inside of pure code (filters, expressions) a parameter for the budget would be part of each signature; there the
//! budget is that of the thread, which [`enter`](Budget::enter) sets. A thread without a budget is unlimited.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::Error;

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 256;

/// Reason for which work has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It ran for longer than this.
    Time(Duration),
    /// It took more than this number of steps.
    Steps(u64),
    /// It asked for memory beyond its own limit of this number of bytes.
    Bytes(u64),
    /// It asked for memory, and the named pool, which it shares with others, has only this number of bytes.
    SharedBytes(&'static str, u64),
    /// Somebody cancelled it; the text completes "was cancelled by".
    Cancelled(String),
    /// The client that waited for it has gone.
    ClientGone,
    /// The server stops.
    Stopping,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(limit) => write!(f, "took longer than {} ms", limit.as_millis()),
            Self::Steps(limit) => write!(f, "took more than {limit} steps"),
            Self::Bytes(limit) => write!(f, "needs more than {limit} bytes of memory"),
            Self::SharedBytes(pool, limit) => {
                write!(f, "needs memory, and the {limit} bytes of {pool} are in use")
            }
            Self::Cancelled(by) => write!(f, "was cancelled by {by}"),
            Self::ClientGone => f.write_str("was stopped because its client has gone"),
            Self::Stopping => f.write_str("was stopped because the server stops"),
        }
    }
}

impl std::error::Error for Stop {}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Self {
        let message = format!("the operation {stop}");
        match stop {
            Stop::Time(_) | Stop::Steps(_) | Stop::Bytes(_) | Stop::SharedBytes(..) => Self::limit(message),
            Stop::Cancelled(_) | Stop::ClientGone => Self::conflict(message),
            Stop::Stopping => Self::unavailable(message),
        }
        .with_source(stop)
    }
}

impl Stop {
    /// Returns the stop that caused an error, if one did.
    pub fn of<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(stop) = error.downcast_ref() {
                return Some(stop);
            }
            next = error.source();
        }
        None
    }
}

/// Memory that several budgets share, such as that of all commands of a server.
#[derive(Debug)]
pub struct BytePool {
    name: &'static str,
    bytes_max: u64,
    held: AtomicU64,
}

impl BytePool {
    /// Creates a pool. `name` says in errors whose memory it is, with the setting that changes it.
    pub fn new(name: &'static str, bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { name, bytes_max, held: AtomicU64::new(0) })
    }

    /// Returns the maximum bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the bytes that are held now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<(), Stop> {
        take(&self.held, bytes, self.bytes_max).map_err(|()| Stop::SharedBytes(self.name, self.bytes_max))
    }

    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Adds `bytes` to `held` unless the sum is beyond `most`.
fn take(held: &AtomicU64, bytes: u64, most: u64) -> Result<(), ()> {
    let more = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
    held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(|_| ()).map_err(|_| ())
}

/// The limits of a unit of work and the use it has made of them. Clones share both.
#[derive(Clone)]
pub struct Budget(Arc<Inner>);

struct Inner {
    deadline: Option<(Instant, Duration)>,
    steps_max: u64,
    steps: AtomicU64,
    bytes_max: u64,
    bytes: AtomicU64,
    pool: Option<Arc<BytePool>>,
    has_stopped: AtomicBool,
    stop: OnceLock<Stop>,
}

/// Limits of a budget that is being made; what is not set is unlimited.
#[derive(Debug, Default)]
pub struct BudgetBuilder {
    time: Option<Duration>,
    steps: Option<u64>,
    bytes: Option<u64>,
    pool: Option<Arc<BytePool>>,
}

impl BudgetBuilder {
    /// Limits the time from [`build`](Self::build) on.
    pub fn time(mut self, limit: Duration) -> Self {
        self.time = Some(limit);
        self
    }

    /// Limits the number of steps.
    pub fn steps(mut self, limit: u64) -> Self {
        self.steps = Some(limit);
        self
    }

    /// Limits the bytes that are held at once.
    pub fn bytes(mut self, limit: u64) -> Self {
        self.bytes = Some(limit);
        self
    }

    /// Takes the bytes out of a pool that others use, too.
    pub fn pool(mut self, pool: Arc<BytePool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Returns the budget; its time begins now.
    pub fn build(self) -> Budget {
        // a deadline beyond the range of the clock counts as none
        let deadline = self.time.and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        Budget(Arc::new(Inner {
            deadline,
            steps_max: self.steps.unwrap_or(u64::MAX),
            steps: AtomicU64::new(0),
            bytes_max: self.bytes.unwrap_or(u64::MAX),
            bytes: AtomicU64::new(0),
            pool: self.pool,
            has_stopped: AtomicBool::new(false),
            stop: OnceLock::new(),
        }))
    }
}

impl Budget {
    /// Returns a builder of a budget without limits.
    pub fn builder() -> BudgetBuilder {
        BudgetBuilder::default()
    }

    /// Returns a budget that only [`stop`](Self::stop) ends.
    pub fn unlimited() -> Self {
        Self::builder().build()
    }

    /// Returns a budget for work that a replay repeats: the same work ends at the same step each time.
    pub fn deterministic(steps: u64, bytes: u64) -> Self {
        Self::builder().steps(steps).bytes(bytes).build()
    }

    /// Ends the work at its next step. The first reason counts.
    pub fn stop(&self, reason: Stop) {
        // a second reason changes nothing
        let _ = self.0.stop.set(reason);
        self.0.has_stopped.store(true, Ordering::Release);
    }

    /// Returns why the work has to end, if it has been found.
    pub fn stopped(&self) -> Option<&Stop> {
        self.0.has_stopped.load(Ordering::Acquire).then(|| self.0.stop.get()).flatten()
    }

    /// Counts one step. See [`steps`](Self::steps).
    #[inline]
    pub fn step(&self) -> Result<(), Stop> {
        self.steps(1)
    }

    /// Counts `count` steps: turns of a loop, rows of a batch, bytes that a function looks at.
    ///
    /// Errors: the work has to end. Once an error has been returned, every later call returns it as well.
    #[inline]
    pub fn steps(&self, count: u64) -> Result<(), Stop> {
        // A load and a store, as most work has one thread; several threads may lose some steps of each other, which costs
        // precision of a limit that only work with one thread sets.
        let before = self.0.steps.load(Ordering::Relaxed);
        let after = before.saturating_add(count);
        self.0.steps.store(after, Ordering::Relaxed);
        if after > self.0.steps_max {
            return Err(self.end(Stop::Steps(self.0.steps_max)));
        }
        match before / STEPS_PER_LOOK == after / STEPS_PER_LOOK && before != 0 {
            true if !self.0.has_stopped.load(Ordering::Relaxed) => Ok(()),
            _ => self.check(),
        }
    }

    /// Looks at clock and stop at once, without counting a step.
    ///
    /// Errors: the work has to end.
    pub fn check(&self) -> Result<(), Stop> {
        if let Some(stop) = self.stopped() {
            return Err(stop.clone());
        }
        match self.0.deadline {
            Some((at, limit)) if Instant::now() >= at => Err(self.end(Stop::Time(limit))),
            _ => Ok(()),
        }
    }

    /// Returns the time that is left; `None` without a limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.deadline.map(|(at, _)| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the steps that were taken.
    pub fn steps_taken(&self) -> u64 {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Returns the bytes that are held.
    pub fn bytes_held(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns a reservation without memory, which can [grow](Reservation::grow).
    pub fn reservation(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: 0 }
    }

    /// Reserves memory before it is taken. Dropping the reservation gives it back.
    ///
    /// Errors: there is not so much left.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation, Stop> {
        let mut reservation = self.reservation();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// Makes this the budget of the thread until the guard is dropped; then the one of before is back.
    pub fn enter(&self) -> Entered {
        Entered { before: CURRENT.replace(Some(self.clone())), not_send: std::marker::PhantomData }
    }

    fn end(&self, reason: Stop) -> Stop {
        self.stop(reason.clone());
        self.stopped().cloned().unwrap_or(reason)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("time_left", &self.time_left())
            .field("steps", &self.steps_taken())
            .field("bytes", &self.bytes_held())
            .field("stopped", &self.stopped())
            .finish_non_exhaustive()
    }
}

/// Memory of a budget that is in use. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Reservation {
    budget: Budget,
    bytes: u64,
}

impl Reservation {
    /// Reserves more.
    ///
    /// Errors: there is not so much left; what was reserved before stays.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Stop> {
        let (inner, bytes) = (&self.budget.0, bytes as u64);
        take(&inner.bytes, bytes, inner.bytes_max)
            .map_err(|()| self.budget.end(Stop::Bytes(inner.bytes_max)))?;
        if let Some(Err(stop)) = inner.pool.as_ref().map(|pool| pool.take(bytes)) {
            inner.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(self.budget.end(stop));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back a part, at most all.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = self.bytes.min(bytes as u64);
        self.bytes -= bytes;
        self.budget.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(pool) = &self.budget.0.pool {
            pool.give_back(bytes);
        }
    }

    /// Returns the bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink(usize::MAX);
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// Guard of [`Budget::enter`].
#[derive(Debug)]
pub struct Entered {
    before: Option<Budget>,
    /// It belongs to the thread that entered.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before.take());
    }
}

/// Returns the budget of the thread; one without limits if it has none.
pub fn current() -> Budget {
    CURRENT.with_borrow(Option::clone).unwrap_or_else(Budget::unlimited)
}

/// Looks at clock and stop of the thread's budget, without counting a step. Under a budget without a clock, as a replay has, this finds
/// what a step has found.
///
/// Errors: the work has to end.
pub fn check() -> Result<(), Stop> {
    CURRENT.with_borrow(|budget| budget.as_ref().map_or(Ok(()), Budget::check))
}

/// Counts a step of the thread's budget.
///
/// Errors: the work has to end.
#[inline]
pub fn step() -> Result<(), Stop> {
    steps(1)
}

/// Counts steps of the thread's budget.
///
/// Errors: the work has to end.
#[inline]
pub fn steps(count: u64) -> Result<(), Stop> {
    CURRENT.with_borrow(|budget| budget.as_ref().map_or(Ok(()), |budget| budget.steps(count)))
}

/// Reserves memory of the thread's budget.
///
/// Errors: there is not so much left.
pub fn reserve(bytes: usize) -> Result<Reservation, Stop> {
    current().reserve(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_ends_a_loop_without_results() {
        let budget = Budget::builder().time(Duration::ZERO).build();
        let ended = (0..u64::MAX).find_map(|_| budget.step().err());
        assert_eq!(ended, Some(Stop::Time(Duration::ZERO)));
        assert_eq!(budget.step(), Err(Stop::Time(Duration::ZERO)), "an error stays");
    }

    #[test]
    fn the_same_work_ends_at_the_same_step() {
        let count = || {
            let budget = Budget::deterministic(1_000, 0);
            let entered = budget.enter();
            let taken = std::iter::repeat_with(step).take_while(Result::is_ok).count();
            drop(entered);
            assert_eq!(step(), Ok(()), "a thread without a budget is unlimited");
            taken
        };
        assert_eq!([count(), count()], [1_000, 1_000]);
    }

    #[test]
    fn a_stop_from_another_thread_ends_the_work() {
        let budget = Budget::unlimited();
        let remote = budget.clone();
        let work = std::thread::spawn(move || {
            loop {
                if let Err(stop) = budget.step() {
                    return stop;
                }
            }
        });
        remote.stop(Stop::Cancelled("killOp".into()));
        remote.stop(Stop::ClientGone);
        let stop = work.join().unwrap();
        assert_eq!(stop, Stop::Cancelled("killOp".into()));
        let error = Error::from(stop).context("find");
        assert_eq!(error.message(), "find: the operation was cancelled by killOp");
        assert!(matches!(Stop::of(&error), Some(Stop::Cancelled(_))));
    }

    #[test]
    fn memory_is_refused_before_it_is_taken_and_given_back() {
        let pool = BytePool::new("all commands (setting memory)", 100);
        let [one, two] = [(); 2].map(|()| Budget::builder().bytes(80).pool(pool.clone()).build());
        let mut first = one.reserve(60).unwrap();
        assert_eq!(one.reserve(30).unwrap_err(), Stop::Bytes(80));
        assert_eq!(two.reserve(50).unwrap_err(), Stop::SharedBytes("all commands (setting memory)", 100));
        assert_eq!((one.bytes_held(), two.bytes_held(), pool.held()), (60, 0, 60));
        first.shrink(20);
        first.grow(10).unwrap();
        assert_eq!((first.bytes(), pool.held()), (50, 50));
        drop(first);
        assert_eq!((one.bytes_held(), pool.held()), (0, 0));
    }

    #[test]
    fn budgets_of_a_thread_nest() {
        let (outer, inner) = (Budget::deterministic(10, 0), Budget::deterministic(2, 0));
        let _outer = outer.enter();
        {
            let _inner = inner.enter();
            assert!(steps(3).is_err());
        }
        assert_eq!(steps(3), Ok(()));
        assert_eq!(outer.steps_taken(), 3);
    }
}
