//! Checkpoints, and truncation of the log below them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::flush::flush;
#[cfg(feature = "sim")]
use super::flush::flush_partition;
use super::{shared_state, sinks};
use crate::checkpoint;
use crate::checkpoint::{FrozenImage, StateImage};
use crate::dedupe::IdRuns;
use crate::node::Node;
use crate::partition::Partition;
use crate::state::PartitionState;

/// Checkpoints kept per partition: the last, and one to fall back to when it is damaged.
pub const CHECKPOINTS_KEPT: usize = 2;
/// Time that a partition has to end its record before it gets no checkpoint this time.
const RECORD_WAIT: Duration = Duration::from_secs(1);

/// Time for which the owner may have to wait while keys of partitions of queries are saved.
const KEYS_PAUSE: Duration = Duration::from_millis(1);
/// Keys that are saved before the time is looked at.
const KEYS_AT_ONCE: usize = 32;

/// Takes a checkpoint and truncates the log, as a job.
pub fn run(node: &Node) {
    let taken = checkpoint(node);
    let result = taken.and(truncate_idle_logs(node));
    node.host.health.record_outcome("checkpoint", result);
}

/// Takes a checkpoint of every partition that moved, then drops the log below.
///
/// Order matters: images first, then every table and sink past them and the partition's log durable, then the files,
/// then truncation. What was emitted into other partitions and may not be on the disk there is in the image.
///
/// A partition that cannot be checkpointed does not keep the others from it: on a full disk each of them frees room, and one
/// that waits for a database in the middle of a record, or has stopped applying, keeps its last checkpoint and its log.
///
/// Errors: the first of those of the partitions.
pub fn checkpoint(node: &Node) -> Result<()> {
    let _alone = node.host.checkpointing.lock();
    check_allowed(node)?;
    let (mut images, mut unchanged, mut failed) = (Vec::new(), Vec::new(), None);
    node.app.counts.checkpoint_pause_us.store(0, Ordering::Relaxed);
    for partition in node.owned.all() {
        match image_of(node, &partition) {
            Ok(Some(image)) => images.push(image),
            Ok(None) => unchanged.push(partition.id),
            Err(e) => _ = failed.get_or_insert(e),
        }
    }
    // deliveries continue while a partition stands still
    for id in unchanged {
        if let Err(e) = shared_state::publish_partition(node, id) {
            failed.get_or_insert(e);
        }
    }
    if let Err(e) = node.host.changes.truncate(node.app.deployment.settings.change_stream_bytes) {
        failed.get_or_insert(e);
    }
    if images.is_empty() {
        return failed.map_or(Ok(()), Err);
    }
    let written =
        flush(node).and(sinks::commit_all(node)).and_then(|()| shared_state::publish_directory(node));
    if let Err(e) = written {
        failed.get_or_insert(e);
    }
    for image in &images {
        if let Err(e) = publish_checkpoint(node, image) {
            failed.get_or_insert(e);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Flushes the rows of one partition and takes its checkpoint, for its next owner.
///
/// Errors: as [`checkpoint`].
#[cfg(feature = "sim")]
pub fn checkpoint_partition(node: &Node, partition: &Arc<Partition>) -> Result<()> {
    let _alone = node.host.checkpointing.lock();
    check_allowed(node)?;
    let image = image_of(node, partition)?;
    flush_partition(node, partition).and(sinks::commit_partition(node, partition.id))?;
    match image {
        Some(image) => publish_checkpoint(node, &image),
        None => shared_state::publish_partition(node, partition.id),
    }
}

/// State of a partition between two records, as it is written.
struct PartitionImage {
    id: PartitionId,
    state: StateImage,
    id_runs: StreamIdRuns,
}

/// By stream, the files with the ids of its events.
type StreamIdRuns = Vec<(String, Arc<IdRuns>)>;

fn check_allowed(node: &Node) -> Result<()> {
    match node.host.checkpoints_allowed() {
        true => Ok(()),
        false => Err(Error::unavailable("the engine has stopped; no checkpoint is taken")),
    }
}

/// Returns the state of a partition between two records; `None` if its last checkpoint has it.
///
/// Errors: it has stopped applying its log, or is still at a record.
fn image_of(node: &Node, partition: &Partition) -> Result<Option<PartitionImage>> {
    let dir = checkpoint::checkpoint_dir(&node.host.dir, partition.id);
    let last = checkpoint::list(&*node.host.disk, &dir)?.last().map(|(offset, _)| *offset);
    let frozen = {
        let _round = between_records(partition)?;
        let begin = node.host.clock.monotonic();
        forget_decisions(node, partition);
        let state = partition.state.read();
        if last == Some(state.next) {
            return Ok(None);
        }
        let frozen = freeze(node, partition, &state)?;
        note_pause(node, begin);
        frozen
    };
    save_keys(node, partition)?;
    frozen.serialise(node).map(Some)
}

/// Notes that the owner of a partition had to wait since `begin`.
fn note_pause(node: &Node, begin: Duration) {
    let pause = node.host.clock.monotonic().saturating_sub(begin);
    node.app.counts.checkpoint_pause_us.fetch_max(pause.as_micros() as u64, Ordering::Relaxed);
}

/// Saves the keys of partitions of queries that [`freeze`] has marked, some at a time, so that the owner applies records in
/// between.
///
/// Errors: as [`image_of`].
fn save_keys(node: &Node, partition: &Partition) -> Result<()> {
    loop {
        let round = between_records(partition)?;
        let begin = node.host.clock.monotonic();
        let is_over = || node.host.clock.monotonic().saturating_sub(begin) >= KEYS_PAUSE;
        let state = partition.state.read();
        let save = || state.query_state.with_runtimes(|flow| flow.save_keys(KEYS_AT_ONCE));
        let mut is_complete = save();
        while !is_complete && !is_over() {
            is_complete = save();
        }
        drop(state);
        note_pause(node, begin);
        // an owner that waits is the next to have the lock
        MutexGuard::unlock_fair(round);
        if is_complete {
            return Ok(());
        }
    }
}

/// State of a partition between two records, which shares its large parts with the owner.
struct FrozenPartition {
    id: PartitionId,
    state: FrozenImage,
    id_runs: StreamIdRuns,
}

impl FrozenPartition {
    /// Serialises the state, while the owner continues. One state of the process is serialised at a time.
    fn serialise(self, node: &Node) -> Result<PartitionImage> {
        let _alone = node.host.process.serialising.lock();
        Ok(PartitionImage { id: self.id, state: self.state.serialise()?, id_runs: self.id_runs })
    }
}

fn freeze(node: &Node, partition: &Partition, state: &PartitionState) -> Result<FrozenPartition> {
    let outbox = partition.outbox.unconfirmed(&*node.host.log);
    Ok(FrozenPartition {
        id: partition.id,
        state: FrozenImage::new(state, &node.app.deployment.queries, &outbox)?,
        id_runs: id_runs(state),
    })
}

/// Waits until a partition is between two records, and holds it there.
///
/// Errors: as [`image_of`].
fn between_records(partition: &Partition) -> Result<MutexGuard<'_, ()>> {
    let id = partition.id;
    let guard = partition.apply_lock.try_lock_for(RECORD_WAIT).ok_or_else(|| {
        Error::unavailable(format!(
            "partition {id}: is at the record {} for longer than {RECORD_WAIT:?}, as of a database or a script that does not \
             answer: it has no checkpoint until the record is applied, and its log grows",
            partition.applied()
        ))
    })?;
    // the state may be half changed
    match partition.has_failed() {
        true => Err(Error::unavailable(format!(
            "partition {id}: stopped applying its log, and has no checkpoint until it is opened again"
        ))),
        false => Ok(guard),
    }
}

/// Forgets decisions on transactions whose records no other partition can replay any more.
fn forget_decisions(node: &Node, partition: &Partition) {
    let mut state = partition.state.write();
    let is_needed = |other: &u32, offset: &Offset| node.host.log.start(PartitionId(*other)) <= *offset;
    state.decisions.retain(|_, decision| {
        decision.offsets.iter().any(|(other, offset)| *other != partition.id.0 && is_needed(other, offset))
    });
}

/// Writes a partition's checkpoint, if everything below it is where it must be, and drops the log below.
fn publish_checkpoint(node: &Node, image: &PartitionImage) -> Result<()> {
    let (id, state) = (image.id, &image.state);
    check_allowed(node)?;
    for (other, offset) in state.last_commits() {
        node.host.log.sync(PartitionId(other), offset, Durability::Fsync)?;
    }
    node.host.changes.sync(id)?;
    let durable = node.host.log.durable(id);
    if durable < state.next() {
        return Err(Error::unavailable(format!(
            "partition {id}: the log is on the disk up to offset {durable} only, not to {}",
            state.next()
        )));
    }
    for (stream, table) in node.app.tables.writable() {
        if table.first_pending(id).is_some_and(|pending| pending < state.next()) {
            return Err(Error::unavailable(format!(
                "partition {id}: table {} is not flushed up to offset {}",
                stream.name,
                state.next()
            )));
        }
    }
    node.app.sinks.check_committed(id, state.next())?;
    let dir = checkpoint::checkpoint_dir(&node.host.dir, id);
    state.save(&*node.host.disk, &dir, false)?;
    note_checkpoint(image, false);
    replace_fallback(node, image, &dir)?;
    remove_old_checkpoints(node, &dir)?;
    remove_unused_ids(node, image)?;
    // explanations are a help, not a need: on a disk that runs low their room is for the log
    if node.host.check_disk_space().is_ok() {
        node.host
            .health
            .record_outcome("why", state.save_trace(&*node.host.disk, &dir, &node.app.deployment.program));
    }
    node.app.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
    // what the next owner begins with may be older than the checkpoint, and needs the log from there
    shared_state::publish_partition(node, id)?;
    truncate_log(node, id, &dir)
}

/// Drops the log of partitions that stand still. A checkpoint frees the log up to the one before it, which a partition
/// without traffic would never get rid of: it writes its last checkpoint a second time, if that takes less room than the
/// log.
///
/// Errors: the first of those of the partitions; the others are dropped all the same.
pub fn truncate_idle_logs(node: &Node) -> Result<()> {
    let _alone = node.host.checkpointing.lock();
    if !node.host.checkpoints_allowed() {
        return Ok(());
    }
    // each, before the first error is returned
    let truncated = node.owned.all().into_iter().map(|partition| truncate_idle_log(node, &partition));
    truncated.collect::<Vec<_>>().into_iter().collect()
}

fn truncate_idle_log(node: &Node, partition: &Partition) -> Result<()> {
    let (host, id) = (&node.host, partition.id);
    let dir = checkpoint::checkpoint_dir(&host.dir, id);
    let files = checkpoint::list(&*host.disk, &dir)?;
    let Some((last, path)) = files.last() else { return Ok(()) };
    let has_copy = files.iter().filter(|(offset, _)| offset == last).count() > 1;
    let image_bytes = host.disk.open(path).and_then(|file| file.len()).unwrap_or(u64::MAX);
    if has_copy || host.log.start(id) >= *last || host.log.bytes(id) <= image_bytes {
        return Ok(());
    }
    let frozen = {
        let Ok(_round) = between_records(partition) else { return Ok(()) };
        let state = partition.state.read();
        if state.next != *last {
            return Ok(());
        }
        freeze(node, partition, &state)?
    };
    save_keys(node, partition)?;
    let image = frozen.serialise(node)?;
    image.state.save(&*host.disk, &dir, true)?;
    note_checkpoint(&image, true);
    remove_old_checkpoints(node, &dir)?;
    remove_unused_ids(node, &image)?;
    // what is published must have the copy, too, before the log goes that the checkpoint before it needs
    shared_state::publish_partition(node, id)?;
    truncate_log(node, id, &dir)
}

/// Puts a copy of the last checkpoint in the place of the one before it, if that one needs records that the log does not have any more. So
/// it is for a process that has followed the partition: it has the checkpoints with which it began, and former owners have cut the log
/// behind them.
fn replace_fallback(node: &Node, image: &PartitionImage, dir: &std::path::Path) -> Result<()> {
    let files = checkpoint::list(&*node.host.disk, dir)?;
    let [.., (before, _), (last, _)] = files.as_slice() else { return Ok(()) };
    if before == last || *before >= node.host.log.start(image.id) {
        return Ok(());
    }
    checkpoint::copy_checkpoint(&*node.host.disk, dir, *last)?;
    note_checkpoint(image, true);
    Ok(())
}

/// Notes which files with ids a checkpoint names, or the `copy` of the last one.
fn note_checkpoint(image: &PartitionImage, copy: bool) {
    for (stream, runs) in &image.id_runs {
        let named = image.state.id_runs().get(stream).map_or(&[][..], Vec::as_slice);
        runs.note_checkpoint(named, CHECKPOINTS_KEPT, copy);
    }
}

/// Deletes files with ids that no checkpoint names any more; a later checkpoint does while a backup copies them.
fn remove_unused_ids(node: &Node, image: &PartitionImage) -> Result<()> {
    let Some(_no_backup) = node.host.backups.removals.try_lock() else { return Ok(()) };
    image.id_runs.iter().try_for_each(|(_, runs)| runs.remove_unnamed(CHECKPOINTS_KEPT))
}

fn id_runs(state: &PartitionState) -> StreamIdRuns {
    state.dedupe.iter().filter_map(|(stream, ids)| Some((stream.clone(), ids.runs()?.clone()))).collect()
}

/// Merges files with ids of events, as a job, so that few are looked at.
pub fn merge_id_runs(node: &Node) {
    let merge = |partition: &Arc<Partition>| -> Result<()> {
        // one in the middle of a record is merged the next time
        let Some(state) = partition.state.try_read_for(RECORD_WAIT) else { return Ok(()) };
        let all = id_runs(&state);
        drop(state);
        for (_, runs) in all {
            while !node.host.is_stopping() && runs.merge()? {}
        }
        Ok(())
    };
    let outcomes: Vec<Result<()>> = node.owned.all().iter().map(merge).collect();
    node.host.health.record_outcome("ids of events", outcomes.into_iter().collect());
}

/// Removes all but the last checkpoints. It comes before the files with ids that only they name are removed, and before the state is
/// published: a checkpoint that is there can be used.
fn remove_old_checkpoints(node: &Node, dir: &std::path::Path) -> Result<()> {
    let files = checkpoint::list(&*node.host.disk, dir)?;
    let old = &files[..files.len().saturating_sub(CHECKPOINTS_KEPT)];
    old.iter().try_for_each(|(_, path)| checkpoint::remove(&*node.host.disk, path))
}

/// Drops the log below the oldest checkpoint.
fn truncate_log(node: &Node, id: PartitionId, dir: &std::path::Path) -> Result<()> {
    let files = checkpoint::list(&*node.host.disk, dir)?;
    // with one checkpoint there is nothing to fall back to but the log itself
    // and the next owner may begin with an older one
    if let [(oldest, _), _, ..] = files.as_slice()
        && let Some(needed) = node.host.partition_store.needed_from(id)
    {
        node.host.log.truncate(id, needed.min(*oldest))?;
    }
    Ok(())
}
