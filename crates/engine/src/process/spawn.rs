//! Starting threads.

use std::thread::JoinHandle;

use thread_priority::{ThreadPriority, ThreadPriorityValue, set_current_thread_priority};
use tidemill_types::{Error, Result};

/// Priority of threads that work in the background, where 50 is usual: on Linux a `nice` value of 5, a third of the share of a
/// node that a usual thread gets beside it.
const BACKGROUND_PRIORITY: u8 = 35;

/// Starts a thread called `name`.
///
/// Errors: `Unavailable` when the machine has no more threads.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let message = format!("cannot start the thread `{name}`");
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.map_err(|e| Error::unavailable(message).with_source(e))
}

/// Lets other threads go before the current one when there are fewer cores than work. Writing tablets then takes cores that neither
/// senders nor queries need; `tail_bytes` bounds how far it may fall behind.
pub fn lower_priority() {
    let priority = ThreadPriorityValue::try_from(BACKGROUND_PRIORITY).map(ThreadPriority::Crossplatform);
    let lowered = priority.is_ok_and(|priority| set_current_thread_priority(priority).is_ok());
    if !lowered {
        tracing::debug!("a background thread keeps its priority: the system refused to lower it");
    }
}
