//! The durable log: it stores every acknowledged event; all other state is derived from it.
//!
//! A log has partitions; a partition is a sequence of records whose offsets have no gaps. Records are opaque
//! bytes with the time of their append. [`LocalLog`] stores them in segment files below one directory,
//! [`MemoryLog`] in memory for tests. [`queue`] implements named transactional queues on one partition.
//!
//! ```
//! use tidemill_log::{Durability, LocalLog, Log, LogOptions};
//! use tidemill_types::{Offset, PartitionId, Timestamp};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let (log, _) = LocalLog::open(dir.path(), LogOptions::new(1))?;
//! let p = PartitionId(0);
//! let done = log.append(p, Timestamp(0), &[b"one", b"two"], Durability::Fsync)?;
//! assert_eq!((done.first, done.last), (Offset(0), Offset(1)));
//! assert_eq!(&log.read(p, Offset(1), 1 << 20)?[0].payload[..], b"two");
//! # Ok::<(), tidemill_types::Error>(())
//! ```
//!
//! `docs/formats/log.md` describes the bytes on disk.

mod api;
pub mod disk;
mod failure;
mod flusher;
pub mod format;
mod local;
mod memory;
mod newest_segment;
mod options;
mod partition;
pub mod queue;
mod recover;
pub mod scan;
mod segment;
#[cfg(feature = "sim")]
pub mod sim_disk;
mod tail;
mod writer;

pub use api::{AppendResult, Durability, Log, Record};
pub use local::LocalLog;
pub use memory::MemoryLog;
pub use options::LogOptions;
pub use recover::{CutReason, RecoveryReport, TailCut};
