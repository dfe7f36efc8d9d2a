//! Background flusher: a thread that syncs records that no caller waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_types::{Error, Result};

use crate::partition::PartitionLog;

pub(crate) struct Flusher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<FlushRequests>,
    wake: Condvar,
    /// Set while the thread is already notified of work; lets writers skip the lock.
    notified: AtomicBool,
}

#[derive(Default)]
struct FlushRequests {
    work: bool,
    urgent: bool,
    stop: bool,
}

impl Flusher {
    /// Starts the thread; an `interval_ms` of 0 starts none.
    pub(crate) fn start(partitions: Arc<[PartitionLog]>, interval_ms: u64) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = (interval_ms > 0).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("log-flusher".into())
                .spawn(move || shared.run(&partitions, Duration::from_millis(interval_ms)))
        });
        let thread = thread
            .transpose()
            .map_err(|e| Error::unavailable("the log's background thread did not start").with_source(e))?;
        Ok(Self { shared, thread: Mutex::new(thread) })
    }

    /// Reports that records were written; `urgent` skips the rest of the interval because many bytes wait.
    pub(crate) fn notify(&self, urgent: bool) {
        if urgent || !self.shared.notified.load(Ordering::Relaxed) {
            let mut asked = self.shared.requests.lock();
            self.shared.notified.store(true, Ordering::Relaxed);
            asked.work = true;
            asked.urgent |= urgent;
            self.shared.wake.notify_one();
        }
    }

    /// Stops the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.shared.requests.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // The thread does not panic. If it did, its work would still be consistent, see
            // `PartitionLog::run_as_leader`.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, partitions: &[PartitionLog], interval: Duration) {
        while self.wait_for_work(interval) {
            let mut left = false;
            for partition in partitions {
                left |= partition.sync_in_background();
            }
            if left {
                let mut asked = self.requests.lock();
                self.notified.store(true, Ordering::Relaxed);
                asked.work = true;
            }
        }
    }

    /// Waits for work, then up to `interval` for more of it. Returns false when the thread must stop.
    fn wait_for_work(&self, interval: Duration) -> bool {
        let mut asked = self.requests.lock();
        while !asked.work && !asked.stop {
            self.wake.wait(&mut asked);
        }
        let deadline = std::time::Instant::now() + interval;
        while !asked.urgent && !asked.stop {
            if self.wake.wait_until(&mut asked, deadline).timed_out() {
                break;
            }
        }
        (asked.work, asked.urgent) = (false, false);
        self.notified.store(false, Ordering::Relaxed);
        !asked.stop
    }
}
