//! Verification of the log and of the change log.

use std::path::Path;

use tidemill_log::LogInspection;
use tidemill_log::disk::Disk;
use tidemill_types::Result;

use super::report::{Consequence, Verification};
use crate::changes::CHANGES_DIR;

const LOG: Consequence = Consequence {
    meaning: "events and document writes in it that no table and no checkpoint has are lost, and the data directory does not \
              open",
    remedy: "restore the file from a backup, or restore a backup. Without one, `log_repair = true` keeps what is before the \
             damage",
};
const CHANGES: Consequence = Consequence {
    meaning: "change streams cannot go back as far as before; documents and events are not affected",
    remedy: "delete the directory `changes`: change streams begin at the last checkpoint then",
};

/// Verifies the log.
///
/// Errors: `Unavailable`.
pub fn check(disk: &dyn Disk, dir: &Path, found: &mut Verification) -> Result<()> {
    let inspection = tidemill_log::inspect(disk, &dir.join("log"))?;
    let mut totals = LogTotals::default();
    totals.add(&inspection);
    let mut damaged = totals.damaged;
    if inspection.partitions.is_empty() && damaged.is_empty() {
        let path = dir.join("log").join("log.meta").display().to_string();
        damaged.push((path, "it is missing, with all partitions".to_owned()));
    }
    found.notes.append(&mut totals.unfinished);
    let content = format!("{} partitions, {} records", inspection.partitions.len(), totals.records);
    found.add("log", (totals.segments, totals.bytes), content, damaged, LOG);
    Ok(())
}

/// Verifies the change log, if there is one.
///
/// Errors: `Unavailable`.
pub fn check_changes(disk: &dyn Disk, dir: &Path, found: &mut Verification) -> Result<()> {
    let inspection = tidemill_log::inspect(disk, &dir.join(CHANGES_DIR))?;
    let mut totals = LogTotals::default();
    totals.add(&inspection);
    if totals.segments > 0 || !totals.damaged.is_empty() {
        let content = format!("{} records", totals.records);
        found.add("changes", (totals.segments, totals.bytes), content, totals.damaged, CHANGES);
    }
    Ok(())
}

/// Counts of logs.
#[derive(Default)]
pub struct LogTotals {
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their records.
    pub records: u64,
    /// Damaged files and what is wrong with each.
    pub damaged: Vec<(String, String)>,
    /// Notes on files whose last write was not finished.
    pub unfinished: Vec<String>,
}

impl LogTotals {
    /// Adds a log.
    pub fn add(&mut self, log: &LogInspection) {
        let of_partitions = log.partitions.iter().flat_map(|partition| &partition.damaged);
        let damaged = log.damaged.iter().chain(of_partitions);
        self.damaged.extend(damaged.map(|file| (file.path.display().to_string(), file.problem.clone())));
        for partition in &log.partitions {
            self.segments += partition.segments;
            self.bytes += partition.bytes;
            self.records += partition.end.0.saturating_sub(partition.start.0);
            self.unfinished.extend(partition.unfinished.iter().map(|file| {
                format!(
                    "{}: the last write was not finished ({}); the next start cuts it, and nothing that was acknowledged as \
                     fsync is lost",
                    file.path.display(),
                    file.problem
                )
            }));
        }
    }
}
