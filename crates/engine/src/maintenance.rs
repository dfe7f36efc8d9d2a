//! Flushes, checkpoints and truncation.

use std::num::NonZero;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::Table;

use crate::core::Core;
use crate::queries;
use crate::state::{self, StateImage};

/// Checkpoints kept per partition: the last, and one to fall back to when it is damaged.
const CHECKPOINTS_KEPT: usize = 2;

/// While a disk stays low, how often room is sought by a checkpoint.
const DISK_RELIEF_INTERVAL: Duration = Duration::from_secs(2);

/// Flushes tails and takes checkpoints at their intervals until the engine stops.
pub fn run(core: &Core) {
    let every = |d: tidemill_types::Duration| Duration::from_micros(d.0.unsigned_abs());
    let flush_every = every(core.settings.flush_interval);
    let checkpoint_every = every(core.settings.checkpoint_interval);
    let (mut flushed, mut checkpointed) = (Instant::now(), Instant::now());
    let mut relieved: Option<Instant> = None;
    let mut signals = 0;
    while !core.is_stopping() {
        let next = (flushed + flush_every).min(checkpointed + checkpoint_every);
        let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
        core.notifier.wait(&mut signals, wait);
        if core.is_stopping() {
            return;
        }
        let large = core.all_tables().any(|(_, t)| t.pending_bytes() >= core.settings.flush_bytes);
        if large || flushed.elapsed() >= flush_every {
            record_outcome(core, "tables", flush(core));
            report_lossy_queries(core);
            flushed = Instant::now();
        }
        if checkpointed.elapsed() >= checkpoint_every {
            record_outcome(core, "checkpoint", checkpoint(core).and_then(|()| truncate_idle_logs(core)));
            checkpointed = Instant::now();
        }
        core.measure_disk_space();
        match core.check_disk_space() {
            Ok(()) => {
                core.clear_problem("disk");
                core.disk_space.reserve();
            }
            Err(e) => {
                core.report_problem("disk", e.to_string());
                if relieved.is_none_or(|at| at.elapsed() >= DISK_RELIEF_INTERVAL) {
                    free_disk_space(core);
                    relieved = Some(Instant::now());
                }
            }
        }
    }
}

/// Frees what the log takes on a disk that runs low, with the room that was kept back for this.
fn free_disk_space(core: &Core) {
    core.disk_space.release();
    record_outcome(core, "checkpoint", checkpoint(core).and_then(|()| truncate_idle_logs(core)));
}

/// Reports queries that fail where no fault stream takes the events.
pub fn report_lossy_queries(core: &Core) {
    let losing: Vec<String> = queries::queries(core)
        .into_iter()
        .filter(|query| query.lost > 0)
        .map(|query| format!("`{}` of {}", query.name, query.file))
        .collect();
    if !losing.is_empty() {
        let problem =
            format!("events are lost in {}; system.queries tells how many and why", losing.join(", "));
        core.report_problem("queries", problem);
    }
}

fn record_outcome(core: &Core, area: &'static str, result: Result<()>) {
    match result {
        Ok(()) => core.clear_problem(area),
        Err(e) => core.report_problem(area, e.to_string()),
    }
}

/// Commits every table's tail up to what is applied and on the disk now, as many tables at once as there are cores. A
/// table that fails keeps its tail; the others go on.
pub fn flush(core: &Core) -> Result<()> {
    let (cut, failed) = core.sync_applied();
    let at_once = std::thread::available_parallelism().map_or(1, NonZero::get);
    let flushes = futures::stream::iter(core.all_tables()).map(|(_, table)| flush_table(core, table, &cut));
    let results: Vec<Result<()>> = core.runtime.block_on(flushes.buffered(at_once).collect());
    results.into_iter().filter_map(Result::err).chain(failed).next().map_or(Ok(()), Err)
}

async fn flush_table(core: &Core, table: &Table, cut: &[(PartitionId, Offset)]) -> Result<()> {
    let start = Instant::now();
    if let Some(flushed) = table.flush(cut).await? {
        core.counts.tablets.fetch_add(flushed.files as u64, Ordering::Relaxed);
        core.counts.flush_us.fetch_add(start.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Takes a checkpoint of every partition that moved, then drops the log below.
///
/// Order matters: images first, then every table past them and the partition's log durable, then the files, then
/// truncation. What was emitted into other partitions and may not be on the disk there is in the image.
///
/// A partition that cannot be checkpointed does not keep the others from it: on a full disk each of them frees room.
pub fn checkpoint(core: &Core) -> Result<()> {
    let _alone = core.checkpointing.lock();
    if !core.checkpoints_allowed() {
        return Err(Error::unavailable("a partition stopped applying its log; no checkpoint is taken"));
    }
    let mut images = Vec::new();
    for partition in core.partitions() {
        let dir = state::checkpoint_dir(&core.dir, partition.id);
        let last = state::list(&dir)?.last().map(|(offset, _)| *offset);
        let _round = partition.apply_lock.lock();
        let state = partition.state.read();
        if last != Some(state.next) {
            let outbox = partition.outbox.unconfirmed(&*core.log);
            images.push((partition.id, state.image(&core.queries, &outbox)?));
        }
    }
    if images.is_empty() {
        return Ok(());
    }
    let mut failed = flush(core).err();
    for (id, image) in &images {
        if let Err(e) = publish_checkpoint(core, *id, image) {
            failed.get_or_insert(e);
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Writes a partition's checkpoint, if everything below it is where it must be, and drops the log below.
fn publish_checkpoint(core: &Core, id: PartitionId, image: &StateImage) -> Result<()> {
    if !core.checkpoints_allowed() {
        return Err(Error::unavailable("a partition stopped applying its log; no checkpoint is taken"));
    }
    let durable = core.log.durable(id);
    if durable < image.next() {
        return Err(Error::unavailable(format!(
            "partition {id}: the log is on the disk up to offset {durable} only, not to {}",
            image.next()
        )));
    }
    for (stream, table) in core.all_tables() {
        if table.first_pending(id).is_some_and(|pending| pending < image.next()) {
            return Err(Error::unavailable(format!(
                "partition {id}: table {} is not flushed up to offset {}",
                stream.name,
                image.next()
            )));
        }
    }
    let dir = state::checkpoint_dir(&core.dir, id);
    image.save(&dir, false)?;
    // explanations are a help, not a need: on a disk that runs low their room is for the log
    if core.check_disk_space().is_ok() {
        record_outcome(core, "why", image.save_trace(&dir, &core.program));
    }
    core.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
    truncate_below(core, id, &dir)
}

/// Drops the log of partitions that stand still. A checkpoint frees the log up to the one before it, which a partition
/// without traffic would never get rid of: it writes its last checkpoint a second time, if that takes less room than the
/// log.
pub fn truncate_idle_logs(core: &Core) -> Result<()> {
    let _alone = core.checkpointing.lock();
    if !core.checkpoints_allowed() {
        return Ok(());
    }
    for partition in core.partitions() {
        let dir = state::checkpoint_dir(&core.dir, partition.id);
        let files = state::list(&dir)?;
        let Some((last, path)) = files.last() else { continue };
        let has_copy = files.iter().filter(|(offset, _)| offset == last).count() > 1;
        let image_bytes = path.metadata().map_or(u64::MAX, |m| m.len());
        if has_copy || core.log.start(partition.id) >= *last || core.log.bytes(partition.id) <= image_bytes {
            continue;
        }
        let image = {
            let _round = partition.apply_lock.lock();
            let state = partition.state.read();
            if state.next != *last {
                continue;
            }
            state.image(&core.queries, &partition.outbox.unconfirmed(&*core.log))?
        };
        image.save(&dir, true)?;
        truncate_below(core, partition.id, &dir)?;
    }
    Ok(())
}

/// Removes all but the last checkpoints, and the log below the oldest one kept.
fn truncate_below(core: &Core, id: PartitionId, dir: &std::path::Path) -> Result<()> {
    let files = state::list(dir)?;
    let keep_from = files.len().saturating_sub(CHECKPOINTS_KEPT);
    for (_, path) in &files[..keep_from] {
        state::remove(path)?;
    }
    // with one checkpoint there is nothing to fall back to but the log itself
    if files.len() >= CHECKPOINTS_KEPT {
        core.log.truncate(id, files[keep_from].0)?;
    }
    Ok(())
}
