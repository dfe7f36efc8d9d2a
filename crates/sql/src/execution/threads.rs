//! Threads of statements: each plans and runs one statement at a time.
//!
//! A statement has a thread of its own because its steps may take long, and only the operating system can give the
//! processor to another one in the middle of a step. A thread whose priority was lowered ends with its statement, because a
//! process may not raise it again.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SendError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use thread_priority::{ThreadPriority, ThreadPriorityValue, set_current_thread_priority};
use tidemill_types::{Error, Result};

use crate::execution::stack;

/// Threads that are kept while they have nothing to do.
const IDLE_MAX: usize = 8;
/// Time for which an idle thread is kept.
const IDLE: Duration = Duration::from_secs(10);
/// Priority of long statements, where 50 is usual: on Linux a `nice` value of 5, a third of the share of a processor that a
/// usual thread gets beside it.
const LONG_PRIORITY: u8 = 35;

type Job = Box<dyn FnOnce() + Send>;

/// Threads of the statements of a session.
#[derive(Default)]
pub(crate) struct StatementThreads {
    idle: Arc<Mutex<Vec<Sender<Job>>>>,
}

impl StatementThreads {
    /// Runs `job` on a thread.
    ///
    /// Errors: `Unavailable` when the machine has no more threads.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let mut job: Job = Box::new(job);
        // sent under the lock, under which a thread also looks for the last time before it ends
        let mut idle = self.idle.lock();
        while let Some(thread) = idle.pop() {
            match thread.send(job) {
                Ok(()) => return Ok(()),
                // it has ended meanwhile
                Err(SendError(back)) => job = back,
            }
        }
        drop(idle);
        self.start(job)
    }

    fn start(&self, first: Job) -> Result<()> {
        let idle = Arc::downgrade(&self.idle);
        let body = move || {
            let mut job = first;
            loop {
                job();
                let Some(idle) = idle.upgrade().filter(|_| !LOWERED.get()) else { return };
                let (sender, jobs) = channel();
                {
                    let mut idle = idle.lock();
                    if idle.len() >= IDLE_MAX {
                        return;
                    }
                    idle.push(sender);
                }
                let next = jobs.recv_timeout(IDLE);
                job = match next {
                    Ok(next) => next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        let _idle = idle.lock();
                        let last = jobs.try_recv();
                        // before others may send again
                        drop(jobs);
                        let Ok(next) = last else { return };
                        next
                    }
                };
            }
        };
        let thread =
            std::thread::Builder::new().name("sql-statement".to_owned()).stack_size(stack::THREAD_BYTES);
        let started = thread.spawn(body);
        started
            .map(drop)
            .map_err(|e| Error::unavailable("a thread for the query cannot be started").with_source(e))
    }
}

thread_local! {
    static LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// Lets other threads go before the current one from now on.
pub(crate) fn lower_priority() {
    if !LOWERED.replace(true) {
        let priority = ThreadPriorityValue::try_from(LONG_PRIORITY).map(ThreadPriority::Crossplatform);
        // where the system refuses, long statements share processors with others as equals
        let _ = priority.map(set_current_thread_priority);
    }
}
