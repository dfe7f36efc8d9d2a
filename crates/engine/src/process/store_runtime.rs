//! The runtime of requests to an object store.

use std::ops::Deref;

/// A runtime that may be dropped anywhere, also by a task of another runtime, where waiting for its threads is forbidden. Nothing
/// runs on it any more by then.
pub struct StoreRuntime(Option<tokio::runtime::Runtime>);

impl StoreRuntime {
    /// Wraps a runtime.
    pub fn new(runtime: tokio::runtime::Runtime) -> Self {
        Self(Some(runtime))
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
