//! Flushes, checkpoints and truncation.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::Table;

use crate::core::Core;
use crate::state;

/// Checkpoints kept per partition: the last, and one to fall back to when it is damaged.
const CHECKPOINTS_KEPT: usize = 2;

/// Flushes tails and takes checkpoints at their intervals until the engine stops.
pub fn run(core: &Core) {
    let every = |d: tidemill_types::Duration| Duration::from_micros(d.0.unsigned_abs());
    let flush_every = every(core.settings.flush_interval);
    let checkpoint_every = every(core.settings.checkpoint_interval);
    let (mut flushed, mut checkpointed) = (Instant::now(), Instant::now());
    while !core.is_stopping() {
        let next = (flushed + flush_every).min(checkpointed + checkpoint_every);
        let wait = next.saturating_duration_since(Instant::now()).min(Duration::from_millis(50));
        core.wake.wait(wait);
        if core.is_stopping() {
            return;
        }
        let large = core.all_tables().any(|(_, t)| t.pending_bytes() >= core.settings.flush_bytes);
        if large || flushed.elapsed() >= flush_every {
            settle(core, "tables", flush(core));
            flushed = Instant::now();
        }
        if checkpointed.elapsed() >= checkpoint_every {
            settle(core, "checkpoint", checkpoint(core));
            checkpointed = Instant::now();
        }
    }
}

fn settle(core: &Core, area: &'static str, result: Result<()>) {
    match result {
        Ok(()) => core.solve(area),
        Err(e) => core.report(area, e.to_string()),
    }
}

/// Commits every table's tail up to what is applied now. A table that fails keeps its tail; the others go on.
pub fn flush(core: &Core) -> Result<()> {
    let cut = core.durable_cut()?;
    let mut failed = None;
    for (_, table) in core.all_tables() {
        if let Err(e) = flush_table(core, table, &cut) {
            failed = Some(e);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn flush_table(core: &Core, table: &Table, cut: &[(PartitionId, Offset)]) -> Result<()> {
    let start = Instant::now();
    let flushed = core.runtime.block_on(table.flush(cut))?;
    if let Some(flushed) = flushed {
        core.counts.tablets.fetch_add(flushed.files as u64, Ordering::Relaxed);
        core.counts.flush_us.fetch_add(start.elapsed().as_micros() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Takes a checkpoint of every partition that moved, then drops the log below.
///
/// Order matters: images first, then every table past them, then all logs durable (what was emitted into other
/// partitions), then the files, then truncation.
pub fn checkpoint(core: &Core) -> Result<()> {
    let mut images = Vec::new();
    for partition in core.partitions() {
        let dir = state::dir_of(&core.dir, partition.id);
        let last = state::list(&dir)?.last().map(|(offset, _)| *offset);
        let _round = partition.round.lock();
        let state = partition.state.read();
        if last != Some(state.next) {
            images.push((partition.id, state.image(&core.queries)?));
        }
    }
    if images.is_empty() {
        return Ok(());
    }
    flush(core)?;
    for (id, image) in &images {
        for (stream, table) in core.all_tables() {
            if table.first_pending(*id).is_some_and(|pending| pending < image.next()) {
                return Err(Error::internal(format!(
                    "table {} is behind the checkpoint it was flushed for",
                    stream.name
                )));
            }
        }
    }
    core.log.flush()?;
    for (id, image) in &images {
        if !core.checkpoints_allowed() {
            return Err(Error::unavailable(
                "events for other partitions could not be written; no checkpoint is taken",
            ));
        }
        let dir = state::dir_of(&core.dir, *id);
        image.save(&dir)?;
        settle(core, "why", image.save_why(&dir, &core.program));
        core.counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        drop_below(core, *id, &dir)?;
    }
    Ok(())
}

/// Removes all but the last checkpoints, and the log below the oldest one kept.
fn drop_below(core: &Core, id: PartitionId, dir: &std::path::Path) -> Result<()> {
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
