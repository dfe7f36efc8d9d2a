//! Outcomes of records that other nodes have appended, for those that ask.
//!
//! ```text
//! node A  appends a command to partition 3: offset 120        asks the owner of 3 for the outcome of 120
//! node B  owns 3, consumes 120: `expect` ── applies it ── the outcome is here ── answers A
//! ```
//!
//! A standby keeps outcomes as the owner does, so that the next owner answers those who ask again. They are kept for the last
//! records of a partition only: who asks later learns that the outcome is not known.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::TransactionId;
use crate::process::clock::Clock;

/// Outcomes that are kept of a partition.
const OUTCOMES_MAX: usize = 4096;
/// Interval at which a caller that waits looks whether the partition is still here.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// The record whose outcome is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutcomeKey {
    /// The record at this offset.
    Record(Offset),
    /// The part of a transaction, whose offset its sender does not know.
    Part(TransactionId),
}

/// Outcomes of type `R` by partition and record.
pub struct Outcomes<R> {
    /// True where nodes ask each other.
    kept: AtomicBool,
    partitions: Mutex<HashMap<PartitionId, PartitionOutcomes<R>>>,
    changed: Condvar,
}

struct PartitionOutcomes<R> {
    records: BTreeMap<Offset, Outcome<R>>,
    parts: HashMap<TransactionId, Offset>,
}

/// An outcome that is to come, or is there.
enum Outcome<R> {
    Awaited(Receiver<Result<R>>),
    Known(Arc<Result<R>>),
}

impl<R> Default for PartitionOutcomes<R> {
    fn default() -> Self {
        Self { records: BTreeMap::new(), parts: HashMap::new() }
    }
}

impl<R> Default for Outcomes<R> {
    fn default() -> Self {
        Self { kept: AtomicBool::new(false), partitions: Mutex::default(), changed: Condvar::new() }
    }
}

impl<R: Clone> Outcomes<R> {
    /// Keeps outcomes from now on.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Release);
    }

    /// Returns whether outcomes are kept.
    pub fn are_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Expects the outcome of a record that is going to be applied. Returns the channel for it.
    pub fn expect(
        &self,
        partition: PartitionId,
        offset: Offset,
        part: Option<TransactionId>,
    ) -> Sender<Result<R>> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let mut partitions = self.partitions.lock();
        let of = partitions.entry(partition).or_default();
        of.records.insert(offset, Outcome::Awaited(receiver));
        of.parts.extend(part.map(|id| (id, offset)));
        if of.records.len() > OUTCOMES_MAX
            && let Some((oldest, _)) = of.records.pop_first()
        {
            of.parts.retain(|_, offset| *offset > oldest);
        }
        drop(partitions);
        self.changed.notify_all();
        sender
    }

    /// Waits for an outcome; `None` if it does not come within `timeout`, or the partition is given up meanwhile: another node may have
    /// it. `has_passed` says whether the partition has applied the record.
    ///
    /// Errors: that of the record; `Unavailable` if the outcome is not kept.
    pub fn wait(
        &self,
        partition: PartitionId,
        key: OutcomeKey,
        (clock, timeout): (&dyn Clock, Duration),
        has_passed: impl Fn() -> bool,
    ) -> Result<Option<R>> {
        let deadline = clock.monotonic() + timeout;
        loop {
            // before the look: an outcome is expected before its record is applied
            let passed = has_passed();
            let outcome = match self.find(partition, key) {
                Some((_, Outcome::Known(outcome))) => outcome,
                Some((offset, Outcome::Awaited(receiver))) => match receiver.recv_timeout(WAIT_STEP) {
                    Ok(outcome) => self.note(partition, offset, outcome),
                    Err(RecvTimeoutError::Timeout) if clock.monotonic() < deadline => continue,
                    Err(RecvTimeoutError::Timeout) => return Ok(None),
                    // another caller has received it, or the partition was given up
                    Err(RecvTimeoutError::Disconnected) => match self.find(partition, key) {
                        Some((_, Outcome::Known(outcome))) => outcome,
                        _ => return Ok(None),
                    },
                },
                None if passed => {
                    return Err(Error::unavailable(
                        "the outcome is not known, as it is not kept any more: look whether the change is there",
                    ));
                }
                None if clock.monotonic() >= deadline => return Ok(None),
                None => {
                    let mut partitions = self.partitions.lock();
                    self.changed.wait_for(&mut partitions, WAIT_STEP);
                    continue;
                }
            };
            return match &*outcome {
                Ok(outcome) => Ok(Some(outcome.clone())),
                Err(error) => Err(copy_of(error)),
            };
        }
    }

    fn find(&self, partition: PartitionId, key: OutcomeKey) -> Option<(Offset, Outcome<R>)> {
        let partitions = self.partitions.lock();
        let of = partitions.get(&partition)?;
        let offset = match key {
            OutcomeKey::Record(offset) => offset,
            OutcomeKey::Part(id) => *of.parts.get(&id)?,
        };
        Some((offset, of.records.get(&offset)?.clone()))
    }

    fn note(&self, partition: PartitionId, offset: Offset, outcome: Result<R>) -> Arc<Result<R>> {
        let outcome = Arc::new(outcome);
        let mut partitions = self.partitions.lock();
        if let Some(kept) = partitions.get_mut(&partition).and_then(|of| of.records.get_mut(&offset)) {
            *kept = Outcome::Known(outcome.clone());
        }
        outcome
    }

    /// Forgets the outcomes of a partition whose replica here ends.
    pub fn forget(&self, partition: PartitionId) {
        self.partitions.lock().remove(&partition);
        self.changed.notify_all();
    }
}

impl<R> Clone for Outcome<R> {
    fn clone(&self) -> Self {
        match self {
            Self::Awaited(receiver) => Self::Awaited(receiver.clone()),
            Self::Known(outcome) => Self::Known(outcome.clone()),
        }
    }
}

/// Returns an error with what callers see of another one.
fn copy_of(error: &Error) -> Error {
    let message = match std::error::Error::source(error) {
        None => error.message().to_owned(),
        Some(source) => format!("{}: {source}", error.message()),
    };
    let copy = Error::new(error.kind(), message).with_hint(error.hint());
    match error.document_code() {
        Some(code) => copy.with_document_code(code),
        None => copy,
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::ErrorKind;

    use super::*;
    use crate::process::clock::SystemClock;

    const P: PartitionId = PartitionId(3);
    const SOON: (&dyn Clock, Duration) = (&SystemClock, Duration::from_millis(1));

    #[test]
    fn an_outcome_is_answered_as_often_as_it_is_asked_for() {
        let outcomes = Outcomes::<u32>::default();
        let part = TransactionId::new();
        outcomes.expect(P, Offset(7), None).send(Ok(1)).unwrap();
        outcomes
            .expect(P, Offset(8), Some(part))
            .send(Err(Error::conflict("no").with_document_code(112)))
            .unwrap();
        for _ in 0..2 {
            assert_eq!(outcomes.wait(P, OutcomeKey::Record(Offset(7)), SOON, || true).unwrap(), Some(1));
            let error = outcomes.wait(P, OutcomeKey::Part(part), SOON, || true).unwrap_err();
            assert_eq!((error.kind(), error.document_code()), (ErrorKind::Conflict, Some(112)));
        }
    }

    #[test]
    fn one_that_asks_before_the_record_is_consumed_waits() {
        let outcomes = Arc::new(Outcomes::<u32>::default());
        let asking = outcomes.clone();
        let asked = std::thread::spawn(move || {
            asking.wait(P, OutcomeKey::Record(Offset(7)), (&SystemClock, Duration::from_secs(60)), || false)
        });
        outcomes.expect(P, Offset(7), None).send(Ok(1)).unwrap();
        assert_eq!(asked.join().unwrap().unwrap(), Some(1));
    }

    #[test]
    fn an_outcome_that_is_not_kept_is_said_to_be_unknown() {
        let outcomes = Outcomes::<u32>::default();
        let wait = |offset, passed| outcomes.wait(P, OutcomeKey::Record(Offset(offset)), SOON, || passed);
        let is_unknown = |result: Result<Option<u32>>| result.unwrap_err().to_string().contains("not kept");
        assert!(is_unknown(wait(7, true)));
        assert_eq!(wait(7, false).unwrap(), None);
        drop(outcomes.expect(P, Offset(7), None));
        assert_eq!(wait(7, true).unwrap(), None, "another node may have it");
        for offset in 8..9 + OUTCOMES_MAX as u64 {
            drop(outcomes.expect(P, Offset(offset), None));
        }
        assert!(is_unknown(wait(7, true)));
    }
}
