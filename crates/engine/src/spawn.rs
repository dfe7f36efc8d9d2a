//! Starting threads.

use std::thread::JoinHandle;

use tidemill_types::{Error, Result};

/// Starts a thread called `name`.
///
/// Errors: `Unavailable` when the machine has no more threads.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let message = format!("cannot start the thread `{name}`");
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.map_err(|e| Error::unavailable(message).with_source(e))
}
