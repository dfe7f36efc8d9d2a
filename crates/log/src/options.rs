//! The settings and limits of a local log.

use std::hash::{BuildHasher, Hasher, RandomState};

use tidemill_types::{Error, Result};

use crate::format::{PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES};

/// How a [`crate::LocalLog`] is opened. Start from [`LogOptions::new`] and change fields.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Number of partitions. Fixed when the log is made: keys are spread by it.
    pub partitions: u32,
    /// A segment is closed before it gets longer than this, unless one group alone is longer. 4 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// What may wait for the disk, per partition, and so the longest group. At most 1 GiB.
    pub pending_bytes_max: usize,
    /// How much of what is already on the disk stays in memory for readers that follow closely, per partition.
    pub tail_bytes_max: usize,
    /// How long a writer waits for room among the pending bytes before it is refused, in milliseconds.
    pub write_wait_ms_max: u64,
    /// After a failed write or `fsync` the disk is left alone for this time, in milliseconds; meanwhile callers get
    /// that failure as their answer.
    pub retry_wait_ms: u64,
    /// Records that nobody waits for are brought to the disk after this time, in milliseconds; 0 leaves them
    /// until somebody waits, the pending bytes are used up, or the log is closed.
    pub background_sync_ms: u64,
    /// Cut the log at a damaged place instead of refusing to open. What is cut is kept in `*.lost` files beside
    /// the segments and told in the [`crate::RecoveryReport`].
    pub repair: bool,
    /// Goes into the checksums of new partitions, see [`crate::format`]. Random; tests that compare bytes set it.
    pub salt: u64,
}

impl LogOptions {
    /// Segments of 64 MiB, 64 MiB pending, 8 MiB tail, background sync after 100 ms.
    pub fn new(partitions: u32) -> Self {
        Self {
            partitions,
            segment_bytes: 64 << 20,
            pending_bytes_max: 64 << 20,
            tail_bytes_max: 8 << 20,
            write_wait_ms_max: 10_000,
            retry_wait_ms: 100,
            background_sync_ms: 100,
            repair: false,
            salt: RandomState::new().build_hasher().finish(),
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
