//! The Delta log: its actions, the replay of a table's state, and commits.
//!
//! Delta checkpoints, log cleanup and vacuum use deltalake ([`deltalake_core`]). Table creation is
//! implemented here because every entry carries a checksum; replay and commit are implemented here for two
//! reasons. A commit through deltalake costs time proportional to the number of files and accepts a `txn`
//! version that decreases; ours needs only the versions of the application ids. And the replay that opens a
//! table can then also apply the entries of concurrent commits.

pub(crate) mod action;
pub(crate) mod builder;
mod checkpoint_checksums;
pub(crate) mod commit;
pub(crate) mod commit_info;
pub(crate) mod create;
pub(crate) mod files;
pub(crate) mod history;
pub(crate) mod maintenance;
pub(crate) mod replay;
pub(crate) mod schema;

use object_store::path::Path;

/// Returns the path of the log entry `version` below the log directory `log`.
pub(crate) fn entry_path(log: &Path, version: u64) -> Path {
    log.clone().join(format!("{version:020}.json"))
}
