//! Places of parts of other nodes' statements.

use std::sync::Arc;

use tidemill_types::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::execution::work::Places;

/// Fragments that are executed at the same time. Further ones are refused: their statements are executed by the nodes that got them.
const FRAGMENTS_MAX: usize = 64;
/// Places of fragments. They wait for none: nodes whose statements wait for places at each other would wait for ever.
#[derive(Debug)]
pub(crate) struct FragmentPlaces {
    running: Arc<Semaphore>,
    /// Places of their work.
    pub places: Arc<Places>,
}

impl Default for FragmentPlaces {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(FRAGMENTS_MAX)), places: Places::new(FRAGMENTS_MAX, 0) }
    }
}

impl FragmentPlaces {
    /// Takes a place, until the permit is dropped.
    ///
    /// Errors: `Unavailable` if all are taken.
    pub fn take(&self) -> Result<OwnedSemaphorePermit> {
        let taken = self.running.clone().try_acquire_owned();
        taken.map_err(|_| {
            Error::unavailable(format!("it executes {FRAGMENTS_MAX} parts of statements already"))
        })
    }
}
