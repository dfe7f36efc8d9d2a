//! The runtime of requests to an object store.

use std::future::Future;
use std::ops::Deref;

use tidemill_types::{Error, Result};

/// A runtime that may be dropped anywhere, also by a task of another runtime, where waiting for its threads is forbidden. Nothing
/// runs on it any more by then.
pub struct StoreRuntime(Option<tokio::runtime::Runtime>);

impl StoreRuntime {
    /// Wraps a runtime.
    pub fn new(runtime: tokio::runtime::Runtime) -> Self {
        Self(Some(runtime))
    }

    /// Runs an operation and waits for it, also on a thread that runs tasks of another runtime.
    ///
    /// Errors: those of the operation; `Unavailable` if the runtime ends.
    pub fn run<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.spawn(async move { _ = sender.send(operation.await) });
        receiver.recv().unwrap_or_else(|_| Err(Error::unavailable("the engine stops")))
    }
}

impl Deref for StoreRuntime {
    type Target = tokio::runtime::Runtime;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is taken out when it is dropped"))
    }
}

impl Drop for StoreRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
