//! Ends of the log, asked for by many readers at once.
//!
//! ```text
//! reader 1  ├── asks ───┤                     request 1
//! reader 2      ├ waits ┼── asks ──┤          request 2: its end must be later than the begin of the reader
//! reader 3         ├ waits ────────┤          shares request 2
//! ```

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tidemill_types::{Error, Offset, Result};

/// Requests for the ends of all partitions, one at a time.
#[derive(Default)]
pub struct LatestEnds {
    state: Mutex<State>,
    answered: Condvar,
    /// Number of times that a reader began to wait.
    #[cfg(test)]
    waiting: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct State {
    /// Number of the request that was sent last.
    sent: u64,
    is_waiting: bool,
    /// The last answer: the number of its request, and the ends or why there are none.
    answer: Option<(u64, Answer)>,
}

type Answer = std::result::Result<Arc<[Offset]>, Arc<Error>>;

impl LatestEnds {
    /// Returns the ends of the partitions, by id, at a time after the call has begun. `ask` is [`tidemill_log::Log::latest_ends`].
    ///
    /// Errors: those of `ask`.
    pub fn get(&self, ask: impl Fn() -> Result<Vec<Offset>>) -> Result<Arc<[Offset]>> {
        let mut state = self.state.lock();
        // one that is on its way may have been answered before this call
        let wanted = state.sent + 1;
        loop {
            if let Some((number, answer)) = &state.answer
                && *number >= wanted
            {
                return answer.clone().map_err(|e| Error::new(e.kind(), e.to_string()));
            }
            if state.is_waiting {
                #[cfg(test)]
                self.waiting.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
                self.answered.wait(&mut state);
                continue;
            }
            state.sent += 1;
            state.is_waiting = true;
            let number = state.sent;
            drop(state);
            let answer = ask().map(Arc::from).map_err(Arc::new);
            state = self.state.lock();
            state.answer = Some((number, answer));
            state.is_waiting = false;
            self.answered.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tidemill_log::{Durability, Log, MemoryLog, NewRecord};
    use tidemill_types::{ErrorKind, PartitionId};

    use super::*;

    #[test]
    fn a_reader_sees_what_was_appended_before_it_asked() {
        let (log, requests) = (MemoryLog::new(2), AtomicU64::new(0));
        let ask = || {
            requests.fetch_add(1, Ordering::Relaxed);
            let ends = log.latest_ends();
            // others come meanwhile
            std::thread::yield_now();
            ends
        };
        let ends = LatestEnds::default();
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            for reader in 0..8 {
                let (log, ask, ends, barrier) = (&log, &ask, &ends, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..50 {
                        let partition = PartitionId(reader % 2);
                        let record = NewRecord::from(bytes::Bytes::from_static(b"x"));
                        let ticket = log.append(partition, record, Durability::Fsync).unwrap();
                        let receipt = ticket.wait_assigned().unwrap();
                        let found = ends.get(ask).unwrap();
                        assert!(found[partition.0 as usize] > receipt.offset, "reader {reader}");
                    }
                });
            }
        });
        let requests = requests.load(Ordering::Relaxed);
        assert!(requests <= 400, "{requests} requests of 400 readers");
    }

    #[test]
    fn readers_that_wait_share_the_next_request_and_its_failure() {
        let (ends, requests) = (LatestEnds::default(), AtomicU64::new(0));
        let (begun, go_on) = (Barrier::new(2), Barrier::new(2));
        let first = || {
            begun.wait();
            go_on.wait();
            Ok(vec![Offset(1)])
        };
        let second = || {
            requests.fetch_add(1, Ordering::Relaxed);
            Err(Error::unavailable("no leader"))
        };
        std::thread::scope(|scope| {
            let early = scope.spawn(|| ends.get(first));
            begun.wait();
            let late: Vec<_> = (0..3).map(|_| scope.spawn(|| ends.get(second))).collect();
            while ends.waiting.load(Ordering::Acquire) < 3 {
                std::thread::yield_now();
            }
            go_on.wait();
            assert_eq!(*early.join().unwrap().unwrap(), [Offset(1)]);
            for reader in late {
                assert_eq!(reader.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
            }
        });
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }
}
