//! The Delta log: what its entries say, how a table's state is replayed from them, how ours are written.
//!
//! Delta checkpoints, log cleanup and vacuum are deltalake's ([`deltalake_core`]). Creating tables is our own because
//! every entry carries a checksum, replay and commit are for two reasons. A commit through deltalake costs time proportional to the number
//! of files and does not refuse a `txn` version that goes backwards; ours needs only the versions of the
//! application ids. And the replay that opens a table is then the same few lines that judge a commit which
//! came between.

pub(crate) mod action;
mod checkpoint_checksums;
pub(crate) mod commit;
pub(crate) mod create;
pub(crate) mod maintenance;
pub(crate) mod replay;
pub(crate) mod schema;

use object_store::path::Path;

/// Path of the log entry `version` below the log directory `log`.
pub(crate) fn entry_path(log: &Path, version: u64) -> Path {
    log.clone().join(format!("{version:020}.json"))
}
