//! State of partitions in an object store, from which another process continues.
//!
//! ```text
//! s3://bucket/tidemill/state/
//!   p00003/owners/0000000007.json                     process 7 owns partition 3
//!   p00003/versions/00000000000000000120-0000000007_0000000002.json
//!                                                    its state at offset 120: the files and where they are
//!   p00003/files/0000000007/41-00000000000000000120.ckpt
//!   holds/…                                          a backup copies what is there, see `holds.rs`
//!   directory/…                                       files that belong to no partition, as the app
//!   directory/released/0000000007.json                process 7 has ended, and all is published
//! ```
//!
//! The data directory stays the place where a process works; the store has a copy as of the last checkpoint. After each checkpoint the
//! files that are new or longer are uploaded, then a version names all of them: it is there whole or not at all. A process that takes
//! the state over makes its directory what the newest versions say. The log is part of the state if it is in the directory.
//!
//! The queues of sinks belong to partitions: events that wait for another system move with the partition that emitted them.
//!
//! A group of files is published in the order in which a crash may cut it off: what belongs to no partition first, because a sink of a
//! file that is ahead of a partition drops repetitions, and one that is behind would lose rows. `docs/rfcs/0024-state-that-moves.md` has the
//! reasons.

mod files;
mod holds;
mod object;
mod take_over;

use serde::{Deserialize, Serialize};

use crate::directory::partition_store::PublishedFile;

pub use files::{directory_files, partition_files};
pub use holds::EXPIRES_AFTER;
pub use object::ObjectPartitionStore;
pub use take_over::{TakeOver, take_over};

/// Version of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StateVersion {
    format: u32,
    files: Vec<PublishedFile>,
}

/// Process that owns a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOwner {
    /// Version of the format.
    pub format: u32,
    /// Identity of the data directory.
    pub id: String,
    /// Distinguishes the process from others.
    pub process: String,
    /// Number of its partitions.
    pub partitions: u32,
    /// Machine on which the process runs, for people.
    pub host: String,
    /// True if the log is in the data directory, and so in the state.
    pub log_in_directory: bool,
}

impl StateOwner {
    /// Returns a node of a cluster.
    pub fn of_cluster(cluster: &str, node: &str, partitions: u32) -> Self {
        Self {
            format: FORMAT,
            id: cluster.to_owned(),
            process: bson::oid::ObjectId::new().to_hex(),
            partitions,
            host: node.to_owned(),
            log_in_directory: false,
        }
    }
}

/// Version of the format of these files.
const FORMAT: u32 = 1;
