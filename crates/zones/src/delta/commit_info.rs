//! The `commitInfo` action of a Delta log entry.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::action::{CHECKSUM_PLACEHOLDER, CommitInfo};

/// Returns the action of a commit with the id `id`.
pub(crate) fn commit_info(id: &str, now_ms: i64, operation: &str) -> CommitInfo {
    let parameters = match operation {
        "WRITE" => BTreeMap::from([("mode".to_owned(), "Append".into())]),
        _ => BTreeMap::new(),
    };
    CommitInfo {
        timestamp: now_ms,
        operation: operation.to_owned(),
        operation_parameters: parameters,
        engine_info: concat!("tidemill/", env!("CARGO_PKG_VERSION")).to_owned(),
        is_blind_append: operation == "WRITE",
        txn_id: Some(id.to_owned()),
        crc32c: Some(CHECKSUM_PLACEHOLDER.to_owned()),
    }
}

/// Returns a new id that sorts by time.
pub(crate) fn new_id(now_ms: i64) -> Uuid {
    let ms = now_ms.max(0) as u64;
    let nanos = (ms % 1_000) as u32 * 1_000_000;
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, ms / 1_000, nanos))
}
