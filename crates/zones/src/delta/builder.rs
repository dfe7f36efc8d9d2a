//! Building of commits: the lines of a Delta log entry and the files that it adds.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_types::{Error, Result};
use uuid::Uuid;

use super::action::{ActionLine, Add, Metadata, Remove, Txn, to_lines};
use super::commit::{NewFile, OffsetAdvance, PreparedCommit, log_id, not_owned, owner_id};
use super::commit_info::{commit_info, new_id};
use crate::error::internal;
use crate::owner_epochs::OwnerEpochs;
use crate::stores::location::Location;
use crate::tablets::checksum::Checksums;
use crate::tablets::tablet::{CHECKSUMS_TAG, ENCRYPTED_STATS_TAG, EncodedFile, Tablet, tablet_name};

/// Effect of a commit on the rows of the table: it changes them, or only how they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowChange {
    Changed,
    Same,
}

/// A commit that is being put together.
pub(crate) struct CommitBuilder {
    id: String,
    now_ms: i64,
    lines: Vec<ActionLine>,
    pub files: Vec<NewFile>,
    removes: Vec<String>,
    advances: Vec<OffsetAdvance>,
}

impl CommitBuilder {
    /// Begins a commit. `operation` is its name in the table's history.
    pub fn new(operation: &str, now_ms: i64) -> Self {
        let id = Uuid::new_v4().to_string();
        let info = commit_info(&id, now_ms, operation);
        let lines = vec![ActionLine { commit_info: Some(info), ..ActionLine::default() }];
        Self { id, now_ms, lines, files: Vec::new(), removes: Vec::new(), advances: Vec::new() }
    }

    /// Sets the version of an application id.
    ///
    /// Errors: `Invalid` for a version that Delta cannot count.
    pub fn txn(&mut self, app_id: String, version: u64) -> Result<()> {
        let version = i64::try_from(version)
            .map_err(|_| Error::invalid(format!("{app_id} is {version}: Delta counts up to {}", i64::MAX)))?;
        let txn = Txn { app_id, version, last_updated: Some(self.now_ms) };
        self.lines.push(ActionLine { txn: Some(txn), ..ActionLine::default() });
        Ok(())
    }

    /// Moves partitions to new offsets, as their owner.
    ///
    /// Errors: `Conflict` for a partition that this process does not own.
    pub fn advance(&mut self, advances: Vec<OffsetAdvance>, epochs: &OwnerEpochs) -> Result<()> {
        for advance in &advances {
            let epoch = epochs.of(advance.partition);
            let epoch = epoch.ok_or_else(|| not_owned(advance.partition))?;
            self.txn(log_id(advance.partition), advance.upto.0)?;
            self.txn(owner_id(advance.partition), epoch)?;
        }
        self.advances.extend(advances);
        Ok(())
    }

    /// Replaces the table's schema and configuration.
    pub fn metadata(&mut self, metadata: Metadata) {
        self.lines.push(ActionLine { meta_data: Some(metadata), ..ActionLine::default() });
    }

    /// Adds a new tablet of `level` to the table at `location`.
    ///
    /// Errors: `Unavailable` when it is to be encrypted and the system has no random numbers.
    pub fn add(
        &mut self,
        encoded: EncodedFile,
        level: u32,
        location: &Location,
        change: RowChange,
    ) -> Result<()> {
        let name = tablet_name(level, new_id(self.now_ms));
        let path = location.path(&name);
        let size = encoded.bytes.len() as u64;
        let checksums = Checksums::of(&encoded.bytes);
        let mut tags = BTreeMap::from([(CHECKSUMS_TAG.to_owned(), Some(checksums.to_text()))]);
        let tablet = Tablet {
            path: path.clone(),
            name: name.clone(),
            size,
            rows: encoded.rows,
            level,
            columns: encoded.columns,
            checksums: Some(Arc::new(checksums)),
        };
        let mut stats = tablet.stats_json(&encoded.schema);
        if let Some(keys) = &location.keys {
            tags.insert(ENCRYPTED_STATS_TAG.to_owned(), Some(keys.seal_stats(&name, &stats)?));
            stats = tablet.counts_json(&encoded.schema);
        }
        let add = Add {
            path: name,
            partition_values: BTreeMap::new(),
            size: size as i64,
            modification_time: self.now_ms,
            data_change: change == RowChange::Changed,
            stats: Some(stats),
            tags: Some(tags),
            deletion_vector: None,
        };
        self.lines.push(ActionLine { add: Some(add), ..ActionLine::default() });
        self.files.push(NewFile { path, size, bytes: Some(encoded.bytes) });
        Ok(())
    }

    /// Removes a tablet that this program wrote: the names of other files may need another encoding.
    pub fn remove(&mut self, tablet: &Tablet, change: RowChange) {
        let remove = Remove {
            path: tablet.name.clone(),
            deletion_timestamp: Some(self.now_ms),
            data_change: change == RowChange::Changed,
            size: i64::try_from(tablet.size).ok(),
        };
        self.lines.push(ActionLine { remove: Some(remove), ..ActionLine::default() });
        self.removes.push(tablet.name.clone());
    }

    /// Encodes the commit. `rows` is the number of rows that it moves from the tail to files.
    pub fn build(self, rows: u64) -> Result<PreparedCommit> {
        let body =
            to_lines(&self.lines).map_err(|e| internal("a Delta log entry cannot be written as JSON", e))?;
        let Self { id, files, removes, advances, .. } = self;
        Ok(PreparedCommit { id, body: Bytes::from(body), files, removes, advances, rows })
    }
}
