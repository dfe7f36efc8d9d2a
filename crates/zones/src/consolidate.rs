//! Consolidation: small tablets are merged into large ones, in the background.
//!
//! A flush writes a tablet every few seconds (level 0, the pre-shared zone). As soon as there are enough of a level,
//! the oldest are merged into one of the next level, until a tablet is large (the shared zone). So a table has a few
//! small tablets of each level, whatever the rhythm of its events, and a row is rewritten once per level.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use tidemill_types::{Error, ErrorKind, Result};

use crate::ZonesOptions;
use crate::delta::builder::{CommitBuilder, RowChange};
use crate::delta::commit::ROWS_REMOVED;
use crate::error::{internal, store_error};
use crate::merge::{MergeInput, merge_tablets};
use crate::stores::checked::CheckedStore;
use crate::stores::retry::Retry;
use crate::table::Table;
use crate::tablets::tablet::Tablet;
use crate::tablets::tablet_name::tablet_id;

/// Maximum number of tablets merged at once.
const MERGED_AT_ONCE: usize = 64;
/// Number of tablets read concurrently.
const FETCHES: usize = 4;

/// Result of a consolidation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consolidation {
    /// Delta version that replaced the tablets.
    pub version: i64,
    /// Number of tablets that were merged.
    pub merged: usize,
    /// Rows of the new tablet.
    pub rows: u64,
    /// Size of the tablets that were merged, in bytes.
    pub bytes_before: u64,
    /// Size of the new tablet, in bytes.
    pub bytes: u64,
}

/// Chooses tablets to merge: the oldest small ones of the lowest level that has enough of them.
fn choose(tablets: &[Arc<Tablet>], options: &ZonesOptions) -> Option<Vec<Arc<Tablet>>> {
    let mut levels: BTreeMap<u32, Vec<&Arc<Tablet>>> = BTreeMap::new();
    let is_small =
        |tablet: &Tablet| tablet.size < options.tablet_bytes / 2 && tablet_id(&tablet.name).is_some();
    for tablet in tablets.iter().filter(|tablet| is_small(tablet)) {
        levels.entry(tablet.level).or_default().push(tablet);
    }
    levels.into_values().find_map(|mut tablets| {
        // Names begin with the time at which a tablet was written.
        tablets.sort_by(|a, b| a.name.cmp(&b.name));
        let mut bytes = 0;
        let fits = |tablet: &&&Arc<Tablet>| {
            bytes += tablet.size;
            bytes <= options.tablet_bytes
        };
        let chosen: Vec<Arc<Tablet>> =
            tablets.iter().take(MERGED_AT_ONCE).take_while(fits).map(|tablet| Arc::clone(tablet)).collect();
        let size: u64 = chosen.iter().map(|tablet| tablet.size).sum();
        let enough = chosen.len() >= options.merge_tablets || size >= options.tablet_bytes / 2;
        (chosen.len() > 1 && enough).then_some(chosen)
    })
}

impl Table {
    /// Returns whether [`Table::consolidate`] has something to do.
    pub fn needs_consolidation(&self) -> bool {
        self.choose().is_some()
    }

    /// Merges some small tablets into a larger one and replaces them in one Delta commit; `None` when there is
    /// nothing to merge. Pushes, flushes and snapshots proceed concurrently; snapshots taken before keep their
    /// files until these are removed by [`Table::remove_old_files`].
    ///
    /// Bounds: memory for the tablets and the merged one, each at most `tablet_bytes`.
    /// Errors: `Unavailable` when the store does not answer, `Conflict` when another writer has replaced one of
    /// the tablets or a later owner has taken over: the tablets stay as they are. `Corrupt` naming a damaged tablet.
    pub async fn consolidate(&self) -> Result<Option<Consolidation>> {
        self.check_open()?;
        let _alone = self.rewriting.lock().await;
        self.settle().await?;
        let Some(inputs) = self.choose() else { return Ok(None) };
        let merged = self.merge(&inputs).await;
        if let Err(error) = &merged
            && matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Internal)
        {
            self.leave_out(&inputs, error);
        }
        merged.map(Some)
    }

    /// Chooses tablets to merge, without those that cannot be merged.
    fn choose(&self) -> Option<Vec<Arc<Tablet>>> {
        let unmergeable = self.unmergeable.lock();
        let tablets = self.tablets();
        let all = tablets.iter().filter(|tablet| !unmergeable.contains(&tablet.name));
        choose(&all.cloned().collect::<Vec<_>>(), &self.options)
    }

    /// Returns the names of tablets that are left out of merges, because they are damaged or not sorted.
    pub fn unmergeable(&self) -> Vec<String> {
        let unmergeable = self.unmergeable.lock();
        let tablets = self.tablets();
        let live = tablets.iter().filter(|tablet| unmergeable.contains(&tablet.name));
        live.map(|tablet| tablet.name.clone()).collect()
    }

    /// Leaves the tablets that `error` names out of further merges, or all if it names none: one of them must not keep
    /// the others from it.
    fn leave_out(&self, inputs: &[Arc<Tablet>], error: &Error) {
        let text = error.to_string();
        let mut named: Vec<&Arc<Tablet>> =
            inputs.iter().filter(|tablet| text.contains(&tablet.name)).collect();
        if named.is_empty() {
            named = inputs.iter().collect();
        }
        self.unmergeable.lock().extend(named.into_iter().map(|tablet| tablet.name.clone()));
    }

    async fn merge(&self, inputs: &[Arc<Tablet>]) -> Result<Consolidation> {
        let level = inputs.iter().map(|tablet| tablet.level).max().unwrap_or_default() + 1;
        let bytes_before = inputs.iter().map(|tablet| tablet.size).sum();
        let contents = self.fetch(inputs).await?;
        let (stream, schema, options) =
            (self.stream.clone(), self.stored_schema.clone(), self.options.clone());
        let keep_from = self.expired_before();
        let merge = move || merge_tablets(&stream, &schema, &options, contents, keep_from);
        let merged = tokio::task::spawn_blocking(merge)
            .await
            .map_err(|e| internal("the task that merges tablets ended early", e))?
            .map_err(|e| e.context(format!("table `{}`", self.name())))?;
        let (rows, bytes) = (merged.file.rows, merged.file.bytes.len() as u64);
        let change = if merged.expired > 0 { RowChange::Changed } else { RowChange::Same };
        let mut commit = CommitBuilder::new("OPTIMIZE", self.now_ms());
        inputs.iter().for_each(|tablet| commit.remove(tablet, change));
        if rows > 0 {
            commit.add(merged.file, level, &self.location, change)?;
        }
        if merged.expired > 0 {
            commit.txn(ROWS_REMOVED.to_owned(), self.removed_rows() + merged.expired)?;
        }
        let version = self.replace(commit).await?;
        Ok(Consolidation { version, merged: inputs.len(), rows, bytes_before, bytes })
    }

    /// Reads whole tablets and verifies their checksums.
    pub(crate) async fn fetch(&self, tablets: &[Arc<Tablet>]) -> Result<Vec<MergeInput>> {
        let store = CheckedStore::new(self.location.store.clone(), tablets.iter().map(Arc::as_ref));
        let retry = Retry::new(&self.options);
        let (store, retry) = (&store, &retry);
        let fetch = |tablet: Arc<Tablet>| async move {
            let read = || async { store.get(&tablet.path).await?.bytes().await };
            let bytes = retry.run(read).await.map_err(|e| {
                let path = self.location.display(&tablet.path);
                store_error(format!("table `{}`: {path} cannot be read", self.name()), e)
            })?;
            Ok(MergeInput { name: tablet.name.clone(), bytes, keys: self.location.keys.clone() })
        };
        futures::stream::iter(tablets.to_vec()).map(fetch).buffered(FETCHES).try_collect().await
    }

    /// Uploads the files of a commit that replaces tablets, then writes its entry. Returns its version.
    pub(crate) async fn replace(&self, mut commit: CommitBuilder) -> Result<i64> {
        // Before the lock is taken, so that flushes do not wait for it.
        self.upload(&mut commit).await?;
        let prepared = Arc::new(commit.build(0)?);
        let mut writer = self.writer.lock().await;
        let mut flushed = None;
        self.finish(&mut writer, true, &mut flushed).await?;
        writer.prepared = Some(prepared);
        if let Err(error) = self.finish(&mut writer, true, &mut flushed).await {
            return Err(match writer.prepared {
                Some(_) => {
                    error.context("the outcome is not known yet, the next commit of the table settles it")
                }
                None => error,
            });
        }
        self.maintain(&writer).await;
        Ok(writer.version as i64)
    }

    /// Finishes a commit of unknown outcome, so that what is decided next is decided on the state after it.
    pub(crate) async fn settle(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        self.finish(&mut writer, true, &mut None).await
    }

    /// Deletes the files of a commit that is given up.
    pub(crate) async fn discard_uploads(&self, commit: &CommitBuilder) {
        let uploaded = commit.files.iter().filter(|file| file.bytes.is_none());
        self.location.discard(self.name(), uploaded.map(|file| &file.path)).await;
    }

    /// Uploads the files of a commit that are only in memory so far.
    pub(crate) async fn upload(&self, commit: &mut CommitBuilder) -> Result<()> {
        for file in &mut commit.files {
            let Some(bytes) = file.bytes.take() else { continue };
            self.location.put(Retry::new(&self.options), self.name(), &file.path, &bytes).await?;
        }
        Ok(())
    }
}
