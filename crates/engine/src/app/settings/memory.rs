//! Sizes in memory that follow from the setting `memory`, unless they are set themselves.
//!
//! A quarter of `memory` is left for what has no size of its own: merges of tablets, batches on their way, buffers of
//! requests, what the allocator keeps. The shares are parts of the rest.

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

use super::Settings;

/// The least that a program with default sizes of messages and tablets can do with.
const MEMORY_MIN: u64 = 256 << 20;
/// The least memory of the cache of tablets, if there is one.
const CACHE_BYTES_MIN: u64 = 8 << 20;

/// Settings that decide what becomes of a record, because they bound the state of a partition. Two nodes that apply the same log need the
/// same ones, and so does a replay. All others change when something happens, but not what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSettings {
    /// Maximum memory for documents, per partition.
    documents_bytes: u64,
    /// Rows that one table, window, aggregation or output rate limiter of a query may hold, per partition.
    query_rows: usize,
}

impl Settings {
    /// Returns the settings that decide what becomes of a record.
    pub fn result_settings(&self) -> ResultSettings {
        ResultSettings { documents_bytes: self.documents_bytes(), query_rows: self.query_rows }
    }

    /// Returns the settings with those that decide what becomes of a record.
    pub fn with_result_settings(self, results: ResultSettings) -> Self {
        let ResultSettings { documents_bytes, query_rows } = results;
        Self { documents_bytes: Some(documents_bytes), query_rows, ..self }
    }

    /// Returns the bytes at which a table's tail is flushed early.
    pub fn flush_bytes(&self) -> u64 {
        self.flush_bytes.unwrap_or_else(|| self.share(32, 64 << 20).min(64 << 20))
    }

    /// Returns the bytes of a table in no tablet at which applying pauses.
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes.unwrap_or_else(|| self.share(8, 512 << 20).min(512 << 20))
    }

    /// Returns the bytes of all tables in no tablet at which applying pauses. A flush needs as much again while it sorts and
    /// encodes them.
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes.unwrap_or_else(|| self.share(8, 2 << 30))
    }

    /// Returns the bytes of unapplied records per partition at which senders wait.
    pub fn inbox_bytes(&self) -> u64 {
        let all = self.share(16, u64::MAX) / u64::from(self.partitions.max(1));
        self.inbox_bytes.unwrap_or_else(|| all.clamp(64 << 10, 64 << 20))
    }

    /// Returns the maximum memory for documents, per partition.
    pub fn documents_bytes(&self) -> u64 {
        self.documents_bytes.unwrap_or_else(|| match self.memory {
            Some(_) => self.share(4, 0) / u64::from(self.partitions.max(1)),
            None => 4 << 30,
        })
    }

    /// Returns the maximum memory for the writes of all open transactions.
    pub fn transactions_bytes(&self) -> u64 {
        self.transactions_bytes.unwrap_or_else(|| self.share(32, 1 << 30))
    }

    /// Returns the maximum memory for the writes of one open transaction, where `all` open ones have so many bytes.
    pub fn transaction_bytes(&self, all: u64) -> u64 {
        self.transaction_bytes.unwrap_or_else(|| (all / 2).min(256 << 20))
    }

    /// Returns the maximum memory for what all commands of MongoDB drivers make.
    pub fn mongo_commands_bytes(&self) -> u64 {
        self.mongo.commands_bytes.unwrap_or_else(|| self.share(16, 2 << 30))
    }

    /// Returns the maximum memory for what one command of a MongoDB driver makes.
    pub fn mongo_command_bytes(&self) -> u64 {
        self.mongo.command_bytes.unwrap_or_else(|| (self.mongo_commands_bytes() / 2).min(512 << 20))
    }

    /// Returns the maximum memory of the cache of tablets; 0 for none.
    pub fn cache_memory_bytes(&self) -> u64 {
        let set = self.zones.cache_memory_bytes;
        self.memory.map_or(set, |_| set.min(self.share(16, set).max(CACHE_BYTES_MIN)))
    }

    /// Returns the maximum memory for sorts, joins and groups of all SQL statements; `None` for the default.
    pub fn sql_memory_bytes(&self) -> Option<u64> {
        self.sql.memory_bytes.or_else(|| self.memory.map(|_| self.share(8, 0)))
    }

    /// Returns the maximum memory for decoded columns of event tables; `None` for the default.
    pub fn hot_bytes(&self) -> Option<u64> {
        self.sql.hot_bytes.or_else(|| self.memory.map(|_| self.share(4, 0)))
    }

    /// Returns the memory that the app may hold for as long as it likes: documents, rows in no file yet and their copies while they are
    /// written, records that are not applied, caches.
    pub fn held_bytes(&self) -> u64 {
        let partitions = u64::from(self.partitions);
        let parts = [
            self.documents_bytes().saturating_mul(partitions),
            self.unflushed_bytes().saturating_mul(2),
            self.inbox_bytes().saturating_mul(partitions),
            self.cache_memory_bytes(),
            self.hot_bytes().unwrap_or_default(),
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns one of `parts` of three quarters of `memory`, or `usual` if `memory` is not set.
    fn share(&self, parts: u64, usual: u64) -> u64 {
        self.memory.map_or(usual, |memory| memory / 4 * 3 / parts)
    }

    /// Rejects memory that is too little.
    ///
    /// Errors: `Invalid` with the minimum.
    pub fn check_memory(&self) -> Result<()> {
        match self.memory {
            Some(memory) if memory < MEMORY_MIN => {
                Err(Error::invalid(format!("setting memory = {memory}: expected at least 256MiB")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_memory_unless_they_are_set() {
        let read = |text: &str| toml::from_str::<Settings>(text).unwrap();
        let usual = Settings::default();
        assert_eq!((usual.tail_bytes(), usual.unflushed_bytes()), (512 << 20, 2 << 30));
        assert_eq!((usual.flush_bytes(), usual.inbox_bytes()), (64 << 20, 64 << 20));
        assert_eq!(
            (usual.documents_bytes(), usual.hot_bytes(), usual.sql_memory_bytes()),
            (4 << 30, None, None)
        );
        assert_eq!((usual.transactions_bytes(), usual.transaction_bytes(1 << 30)), (1 << 30, 256 << 20));
        assert_eq!((usual.mongo_commands_bytes(), usual.mongo_command_bytes()), (2 << 30, 512 << 20));

        let small = read("memory = \"1GiB\"\npartitions = 2\ntail_bytes = \"5MiB\"\nsql.hot_bytes = 7");
        assert_eq!((small.tail_bytes(), small.unflushed_bytes()), (5 << 20, 96 << 20));
        assert_eq!((small.flush_bytes(), small.inbox_bytes()), (24 << 20, 24 << 20));
        assert_eq!((small.hot_bytes(), small.sql_memory_bytes()), (Some(7), Some(96 << 20)));
        assert_eq!((small.documents_bytes(), small.cache_memory_bytes()), (96 << 20, 48 << 20));

        assert_eq!((small.transactions_bytes(), small.transaction_bytes(24 << 20)), (24 << 20, 12 << 20));
        assert_eq!((small.mongo_commands_bytes(), small.mongo_command_bytes()), (48 << 20, 24 << 20));

        // a setting that is larger than usual makes nothing wait later than usual, except for all tables together
        let large = read("memory = \"64GiB\"");
        assert_eq!(
            (large.flush_bytes(), large.tail_bytes(), large.inbox_bytes()),
            (64 << 20, 512 << 20, 64 << 20)
        );
        assert_eq!((large.unflushed_bytes(), large.cache_memory_bytes()), (6 << 30, 128 << 20));

        let error = read("memory = 5").check().unwrap_err().to_string();
        assert!(error.contains("memory = 5: expected at least 256MiB"), "{error}");
    }
}
