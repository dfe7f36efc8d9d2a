//! Settings and limits of a local log.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use tidemill_types::{Error, PartitionId, Result, Timestamp};

use crate::encryption::LogEncryption;
use crate::segments::format::{PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};

/// Source of the times of records. Clones never give a time before one that another of them has given, so that the times of all
/// partitions tell which record was appended first.
#[derive(Clone)]
pub struct LogClock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    latest: Arc<AtomicI64>,
}

impl LogClock {
    /// Takes the times from `now`. They may go back; the log does not.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now), latest: Arc::new(AtomicI64::new(i64::MIN)) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.not_before((self.now)())
    }

    /// Says that a record has this time. Returns the latest of all such times.
    pub(crate) fn not_before(&self, time: Timestamp) -> Timestamp {
        Timestamp(self.latest.fetch_max(time.0, Ordering::Relaxed).max(time.0))
    }
}

impl Default for LogClock {
    /// Returns the clock of the machine.
    fn default() -> Self {
        Self::new(machine_time)
    }
}

impl fmt::Debug for LogClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogClock")
    }
}

/// Returns the time of the machine's clock.
pub(crate) fn machine_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_micros() as i64)
}

/// Settings of a [`crate::LocalLog`]. Start from [`LogOptions::new`] and change fields.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Number of partitions. Fixed when the log is created, because it decides which partition a key maps to.
    pub partitions: u32,
    /// The only partition to open, by a log for each partition whose owners come and go; `None` opens all.
    pub only: Option<PartitionId>,
    /// Maximum size of a segment in bytes; only a single group may exceed it. 4 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Maximum number of bytes per partition that wait for the disk; only a single group may exceed it. 4 KiB
    /// to 1 GiB.
    pub pending_bytes_max: usize,
    /// Bytes of durable records per partition that stay in memory for readers close to the end. At most 1
    /// GiB.
    pub tail_bytes_max: usize,
    /// Maximum time a write blocks while `pending_bytes_max` is exceeded before it is rejected, in
    /// milliseconds.
    pub write_wait_ms_max: u64,
    /// Time for which the disk is left alone after a failed write or `fsync`, in milliseconds; during this
    /// time callers get that failure.
    pub retry_wait_ms: u64,
    /// Delay after which records that no caller waits for are synced, in milliseconds. 0 leaves them until a
    /// caller syncs, the pending bytes are used up, or the log is closed.
    pub background_sync_ms: u64,
    /// Truncate the log at a damaged position instead of refusing to open. The removed bytes are kept in
    /// `*.lost` files next to the segments and listed in the [`crate::RecoveryReport`].
    pub repair: bool,
    /// Salt of the checksums of new partitions, see [`crate::segments::format`]. Random; tests that compare bytes set
    /// it.
    pub salt: u64,
    /// Source of the times of appended records; by default the clock of the machine.
    pub clock: LogClock,
    /// Keys with which records are encrypted; none by default. Needed to open a log that is encrypted.
    pub encryption: Option<LogEncryption>,
}

impl LogOptions {
    /// Returns the defaults: segments of 64 MiB, 64 MiB pending, 8 MiB tail, background sync after 100 ms.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            only: None,
            segment_bytes: 64 << 20,
            pending_bytes_max: 64 << 20,
            tail_bytes_max: 8 << 20,
            write_wait_ms_max: 10_000,
            retry_wait_ms: 100,
            background_sync_ms: 100,
            repair: false,
            salt: RandomState::new().build_hasher().finish(),
            clock: LogClock::default(),
            encryption: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |name: &str, is: u64, least: u64, most: u64| {
            let ok = (least..=most).contains(&is);
            (!ok).then(|| Error::invalid(format!("log option {name} = {is}: expected {least} to {most}")))
        };
        let most = (PAYLOAD_BYTES_MAX + RECORD_HEADER_BYTES) as u64;
        [
            wrong("partitions", u64::from(self.partitions), 1, 65_536),
            self.only.and_then(|id| {
                wrong("only", u64::from(id.0), 0, u64::from(self.partitions).saturating_sub(1))
            }),
            wrong("segment_bytes", self.segment_bytes, 4 << 10, 1 << 30),
            wrong("pending_bytes_max", self.pending_bytes_max as u64, 4 << 10, most),
            wrong("tail_bytes_max", self.tail_bytes_max as u64, 0, most),
        ]
        .into_iter()
        .flatten()
        .next()
        .map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_gives_no_earlier_time_to_any_clone() {
        let hands = Arc::new(AtomicI64::new(10));
        let read = Arc::clone(&hands);
        let clock = LogClock::new(move || Timestamp(read.load(Ordering::Relaxed)));
        let other = clock.clone();
        assert_eq!(clock.now(), Timestamp(10));
        hands.store(5, Ordering::Relaxed);
        assert_eq!((other.now(), clock.now()), (Timestamp(10), Timestamp(10)));
        // as the last record of a partition that is opened
        clock.not_before(Timestamp(20));
        hands.store(15, Ordering::Relaxed);
        assert_eq!(other.now(), Timestamp(20));
        hands.store(21, Ordering::Relaxed);
        assert_eq!(other.now(), Timestamp(21));
    }
}
