//! Threads of a partition: they start when it is opened and end when it is closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_types::{Error, Result};

use super::{Partition, send_replies};
use crate::process::clock::Clock;
use crate::process::spawn::spawn;

/// Maximum time that the owner of one partition may take to end its record.
pub const OWNER_WAIT: Duration = Duration::from_secs(2);
/// Interval at which a wait for the owner checks whether it has ended.
const OWNER_POLL: Duration = Duration::from_millis(5);

/// Threads that run.
#[derive(Default)]
pub(super) struct PartitionThreads {
    owner: Option<JoinHandle<()>>,
    forwarder: Option<JoinHandle<()>>,
}

impl Partition {
    /// Starts the owner and the forwarder.
    ///
    /// Errors: `Unavailable` when a thread cannot be started.
    pub fn start_threads(self: &Arc<Self>) -> Result<()> {
        let mut threads = self.threads.lock();
        let (owner, forwarder) = (self.clone(), self.clone());
        threads.owner = Some(spawn(format!("partition-{}", self.id.0), move || owner.run_owner())?);
        threads.forwarder = Some(spawn(format!("forward-{}", self.id.0), move || forwarder.run_forwarder())?);
        Ok(())
    }

    /// Asks the owner to end.
    pub fn request_stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop_consuming();
        self.current.stop();
    }

    /// Asks the owner to end, and waits for it until `deadline` on `clock`. Returns whether it has ended: a record that does not end is
    /// left behind.
    pub fn stop_owner(&self, clock: &dyn Clock, deadline: Duration) -> bool {
        self.request_stop();
        let Some(owner) = self.threads.lock().owner.take() else {
            self.forget_waiting();
            return true;
        };
        while !owner.is_finished() && clock.monotonic() < deadline {
            clock.sleep(OWNER_POLL);
        }
        if !owner.is_finished() {
            self.threads.lock().owner = Some(owner);
            return false;
        }
        // a panic of the owner has been printed
        let _ = owner.join();
        true
    }

    /// Ends the owner, and then the forwarder with `reason`, see [`Self::stop_forwarder`]. Returns false if the owner has not ended within
    /// [`OWNER_WAIT`]; the forwarder continues then.
    pub fn close(&self, reason: &str) -> bool {
        let clock = &*self.host.clock;
        let ended = self.stop_owner(clock, clock.monotonic() + OWNER_WAIT);
        if ended {
            self.stop_forwarder(reason);
        }
        ended
    }

    /// Ends the forwarder, after the owner, which adds no more emissions; those that wait are in the last checkpoint, or are made again
    /// from the log. Those who wait for them are answered with `reason`.
    pub fn stop_forwarder(&self, reason: &str) {
        let failed = |(reply, _)| (reply, Err(Error::unavailable(reason)));
        send_replies(self.outbox.close().into_iter().map(failed).collect());
        let Some(forwarder) = self.threads.lock().forwarder.take() else { return };
        let _ = forwarder.join();
        self.host.in_flight.done(self.outbox.waiting_rounds(), 0);
    }
}
