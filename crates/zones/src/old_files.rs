//! Removal of files that no current version of a table uses.

use std::collections::BTreeSet;

use object_store::ObjectMeta;
use tidemill_types::Result;

use crate::error::store_error;
use crate::open::list_tablets;
use crate::stores::retry::Retry;
use crate::table::Table;
use crate::tablets::tablet_name::tablet_id;

/// Maximum number of files that one call deletes.
const DELETES_MAX: usize = 1_000;

impl Table {
    /// Deletes files that were replaced longer than `zones.removed_retention_s` ago, the oldest first and at most
    /// 1,000 a call, and returns how many. Versions of the table that used them cannot be read any more.
    ///
    /// Errors: `Unavailable`; files that are still there are deleted by a later call.
    pub async fn remove_old_files(&self) -> Result<usize> {
        let before_ms = ms_before(self.now_ms(), self.options.removed_retention_s);
        let mut old: Vec<(String, i64)> = {
            let mut writer = self.writer.lock().await;
            if !writer.removed.values().any(|removed_ms| *removed_ms < before_ms) {
                return Ok(0);
            }
            // Another program may have added a file again.
            let refreshed = writer.refresh().await;
            self.publish(&writer)?;
            refreshed?;
            let old = writer.removed.iter().filter(|(_, removed_ms)| **removed_ms < before_ms);
            old.map(|(name, removed_ms)| (name.clone(), *removed_ms)).collect()
        };
        old.sort_by_key(|(_, removed_ms)| *removed_ms);
        old.truncate(DELETES_MAX);
        for (name, _) in &old {
            self.delete(name).await?;
            self.writer.lock().await.removed.remove(name);
        }
        Ok(old.len())
    }

    /// Deletes tablets that no commit names and that are older than `zones.orphan_age_s`: the remains of crashes
    /// between the upload of a tablet and its commit. Returns how many. Does nothing while tablets are rewritten, which
    /// may have uploaded some a long time ago.
    ///
    /// Errors: `Unavailable`.
    pub async fn sweep_orphans(&self) -> Result<usize> {
        let Ok(_alone) = self.rewriting.try_lock() else { return Ok(0) };
        // Listed before the log is read: a tablet that is committed in between is named by then.
        let stored = list_tablets(&self.location, self.name(), Retry::new(&self.options)).await?;
        let named: BTreeSet<String> = {
            let mut writer = self.writer.lock().await;
            let refreshed = writer.refresh().await;
            self.publish(&writer)?;
            refreshed?;
            let prepared = writer.prepared.iter().flat_map(|commit| &commit.files);
            let prepared = prepared.filter_map(|file| self.location.relative(&file.path));
            writer.files.keys().chain(writer.removed.keys()).cloned().chain(prepared).collect()
        };
        let before_ms = ms_before(self.now_ms(), self.options.orphan_age_s);
        let mut swept = 0;
        for (name, meta) in stored {
            if is_old_tablet(&name, &meta, before_ms) && !named.contains(&name) {
                self.delete(&name).await?;
                tracing::info!(table = self.name(), file = name, "removed a file that was never committed");
                swept += 1;
            }
        }
        Ok(swept)
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let path = self.location.path(name);
        self.location.delete(Retry::new(&self.options), &path).await.map_err(|e| {
            let path = self.location.display(&path);
            store_error(format!("table `{}`: {path} cannot be deleted", self.name()), e)
        })
    }
}

/// Returns the time `seconds` before `now_ms`, in milliseconds.
pub(crate) fn ms_before(now_ms: i64, seconds: u64) -> i64 {
    now_ms.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000))
}

/// Returns whether a file of the store has the name of a tablet and is so old that no commit in progress can name it.
pub(crate) fn is_old_tablet(name: &str, meta: &ObjectMeta, before_ms: i64) -> bool {
    tablet_id(name).is_some() && meta.last_modified.timestamp_millis() < before_ms
}
