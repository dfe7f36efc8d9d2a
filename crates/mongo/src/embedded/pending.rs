//! Writes that are in flight while their thread continues.

use tidemill_docs::CommandOutcome;
use tidemill_engine::DocumentWrite;

use super::direct;
use super::error::{Error, Result};

/// A write that was submitted: `submit()` of an insert, an update, a replacement or a delete of one document.
///
/// It takes effect whether or not somebody waits for it. Writes that one thread submits to one document are applied in their
/// order. A read sees a write at the latest when [`Self::wait`] has returned. One sync of the disk serves all writes that
/// wait for it, so a thread with a hundred of them on their way does about as many syncs as one that waits for each.
///
/// ```
/// # use std::sync::Arc;
/// # use tidemill_engine::{App, Engine};
/// # use tidemill_mongo::embedded::bson::{Document, doc};
/// # use tidemill_mongo::embedded::sync::Client;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let engine = Arc::new(Engine::open(dir.path(), Some(App::from_rules("bank", "")))?);
/// # let client = Client::new(engine.clone());
/// let accounts = client.database("docs").collection::<Document>("account");
/// accounts.insert_one(doc! { "_id": 1, "amount": 0 }).run()?;
///
/// let add = doc! { "$inc": { "amount": 1 } };
/// let submit = |_| accounts.update_one(doc! { "_id": 1 }, add.clone()).submit();
/// let pending: Vec<_> = (0..100).map(submit).collect::<Result<_, _>>()?;
/// for write in pending {
///     assert_eq!(write.wait()?.modified_count, 1);
/// }
/// # engine.stop()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "without waiting, nobody knows whether the write was durable and what it did"]
pub struct PendingWrite<R> {
    /// `None` if there was nothing to write: the collection does not exist.
    write: Option<DocumentWrite>,
    result: Box<dyn FnOnce(CommandOutcome) -> Result<R> + Send>,
}

impl<R> PendingWrite<R> {
    pub(super) fn new(
        write: Option<DocumentWrite>,
        result: impl FnOnce(CommandOutcome) -> Result<R> + Send + 'static,
    ) -> Self {
        Self { write, result: Box::new(result) }
    }

    /// Waits until the write is as safe as the setting `durability` says, and returns what it did.
    ///
    /// Errors: those that `run()` of the same write has.
    pub fn wait(self) -> Result<R> {
        let outcome = match self.write {
            Some(write) => direct::or_nothing(write.wait())?,
            None => CommandOutcome::default(),
        };
        (self.result)(outcome)
    }
}

/// Returns the error of a write that cannot be submitted.
pub(super) fn only_by_id() -> Error {
    Error::invalid(
        "submit() writes one document of a collection by its `_id` alone, without options and outside of transactions: use run()",
    )
}
