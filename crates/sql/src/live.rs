//! New rows of streams, and what holds for all statements over them.

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tidemill_access::{Access, Action, Principal, Resource};
use tidemill_types::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Statements over new rows that run at the same time.
const TAILS_MAX: usize = 256;

/// New rows of a stream, from a moment on.
pub struct LiveRows {
    /// The rows.
    pub batches: Box<dyn LiveBatches>,
    /// For each partition the offset of the first record that is new. Rows of records before it may come all the same.
    pub starts: Vec<(u32, i64)>,
}

/// Source of new rows, with the columns of the stream's table.
pub trait LiveBatches: Send {
    /// Waits for the next rows; `None` when there will be none. May be dropped at any time.
    fn next(&mut self) -> BoxFuture<'_, Option<RecordBatch>>;

    /// Returns whether rows were left out since the last call, because those before them were not taken. The rows that wait are dropped
    /// then: the table has them, too.
    fn take_gap(&mut self) -> bool;
}

/// Statements over new rows.
pub(crate) struct Tails {
    places: Arc<Semaphore>,
    /// Users, whose rights change while a statement runs; none where callers keep those that they have.
    access: OnceLock<Arc<Access>>,
    stopping: watch::Sender<bool>,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(TAILS_MAX)),
            access: OnceLock::new(),
            stopping: watch::Sender::new(false),
        }
    }
}

impl Tails {
    /// Sets the users whose rights are looked at while a statement runs. The first call counts.
    pub fn follow_access(&self, access: Arc<Access>) {
        let _ = self.access.set(access);
    }

    /// Ends all of them, and refuses new ones.
    pub fn end_all(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until all of them have to end.
    pub async fn stopped(&self) {
        // the sender lives as long as this
        let _ = self.stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    /// Takes the place of a statement.
    ///
    /// Errors: `LimitReached`; `Unavailable` when the program stops.
    pub fn begin(&self) -> Result<OwnedSemaphorePermit> {
        if *self.stopping.borrow() {
            return Err(stopped());
        }
        self.places.clone().try_acquire_owned().map_err(|_| {
            Error::limit(format!(
                "{TAILS_MAX} statements follow streams by tail(), which is the limit: end some"
            ))
        })
    }
}

/// Returns the error of a statement that ends because the server stops.
pub(crate) fn stopped() -> Error {
    Error::unavailable("the server stops: ask for the rows behind the last one when it is there again")
}

/// Rights of a caller on a stream, as they change.
pub(crate) struct Rights {
    principal: Principal,
    /// Number of the content of the file of users with which the principal agrees.
    generation: Mutex<Option<u64>>,
}

impl Rights {
    /// Creates the rights of a caller.
    pub fn new(principal: Principal) -> Self {
        Self { principal, generation: Mutex::new(None) }
    }

    /// Checks that the caller may read the stream now.
    ///
    /// Errors: `Forbidden`.
    pub fn check(&self, tails: &Tails, stream: &str) -> Result<()> {
        let Some(access) = tails.access.get() else { return Ok(()) };
        let generation = access.generation();
        if self.generation.lock().replace(generation) == Some(generation) {
            return Ok(());
        }
        let gone = || {
            Error::new(
                ErrorKind::Forbidden,
                "the user was removed, or its password or token has changed: log in again",
            )
        };
        let principal = access.renew(&self.principal).ok_or_else(gone)?;
        principal.may(Action::Read, &Resource::stream(stream))
    }
}
