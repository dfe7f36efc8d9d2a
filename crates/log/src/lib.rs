//! The durable log: it stores every acknowledged event; all other state is derived from it.
//!
//! A log has partitions; a partition is a sequence of records whose offsets have no gaps. Records are opaque
//! bytes with the time of their append. [`LocalLog`] stores them in segment files below one directory,
//! [`MemoryLog`] in memory for tests.
//!
//! ```
//! use bytes::Bytes;
//! use tidemill_log::{Durability, LocalLog, Log, LogOptions};
//! use tidemill_types::{Offset, PartitionId};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! let (log, _) = LocalLog::open(dir.path(), LogOptions::new(1))?;
//! let p = PartitionId(0);
//! let one = log.append(p, Bytes::from("one").into(), Durability::Fsync)?;
//! let two = log.append(p, Bytes::from("two").into(), Durability::Fsync)?;
//! assert_eq!((one.wait()?.offset, two.wait()?.offset), (Offset(0), Offset(1)));
//! assert_eq!(&log.read(p, Offset(1), 1 << 20)?[0].payload[..], b"two");
//! # Ok::<(), tidemill_types::Error>(())
//! ```
//!
//! `docs/rfcs/0007-log-contract.md` gives the reasons for the interface, `docs/formats/log.md` describes the bytes on disk.

mod api;
mod appender_clock;
#[cfg(feature = "contract")]
pub mod contract;
mod disks;
mod encryption;
mod flusher;
mod local;
mod memory;
mod options;
mod partition;
mod record;
mod segments;
mod subscription;
mod tail;
mod ticket;

pub use api::{GroupLog, Log};
pub use appender_clock::{AppenderClock, clock_at};
pub use disks::disk;
pub use disks::encrypted_disk::EncryptedDisk;
#[cfg(feature = "sim")]
pub use disks::sim_disk;
pub use encryption::LogEncryption;
pub use local::LocalLog;
pub use memory::MemoryLog;
pub use options::{LogClock, LogOptions};
pub use record::{AppendResult, Attachment, Durability, NewRecord, Record};
pub use segments::copy::{LogFile, LogFileContent, closed_log_files};
pub use segments::encoder::{SegmentEncoder, meta_file};
pub use segments::format;
pub use segments::inspect::{DamagedFile, LogInspection, PartitionInspection, inspect};
pub use segments::recover::{CutReason, RecoveryReport, TailCut};
pub use segments::scan;
pub use subscription::{ConsumedRecord, Content, Subscription};
pub use ticket::{AppendReceipt, Ticket, TicketCompletion};
