//! Where the rows are while statements run: in memory, in files, or in both.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use tempfile::TempDir;
use tidemill::Tidemill;

use crate::app::{self, AppOptions, Flushes};
use crate::dataset::{Table, TableBatch};
use crate::load::{self, check_counts, rows_of};

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// All in memory.
    Tail,
    /// The older half in files, the newer half in memory.
    Mixed,
    /// All in files, as they were flushed.
    Files,
    /// All in one file per table, merged from those of eight flushes.
    Merged,
}

impl State {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 4] = [Self::Tail, Self::Mixed, Self::Files, Self::Merged];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tail => "tail",
            Self::Mixed => "mixed",
            Self::Files => "files",
            Self::Merged => "merged",
        }
    }
}

/// A data set in one state.
pub struct Loaded {
    /// The store.
    pub tidemill: Tidemill,
    /// Removed with this.
    _dir: TempDir,
}

/// Flushes after which the tablets of a table are merged (`zones.merge_tablets`).
const MERGED_FLUSHES: usize = 8;

/// Checks that no events are in small files.
fn check_merged(tidemill: &Tidemill) -> Result<()> {
    let small = "SELECT coalesce(sum(rows), 0) FROM system.zones WHERE zone = 'flushed' AND stream <> 'tags'";
    let rows = load::sum(tidemill, small)?;
    ensure!(rows == 0, "{rows} rows are in tablets that were not merged");
    Ok(())
}

impl Loaded {
    /// Loads `batches` into a fresh directory below `scratch`.
    ///
    /// Errors: rows are missing, or are not where the state says.
    pub fn new(scratch: &Path, state: State, batches: &[TableBatch], settings: &[String]) -> Result<Self> {
        let dir = tempfile::tempdir_in(scratch)?;
        let settings = AppOptions { partitions: 4, flushes: Flushes::OnDemand, settings: settings.to_vec() };
        let tidemill = Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &settings)?)?;
        let in_files = match state {
            State::Tail => 0,
            State::Mixed => batches.len() / 2,
            State::Files | State::Merged => batches.len(),
        };
        let (older, newer) = batches.split_at(in_files);
        let flushes = if state == State::Merged { MERGED_FLUSHES } else { 1 };
        for part in older.chunks(older.len().div_ceil(flushes).max(1)) {
            load::send(&tidemill, part, |_, _| {})?;
            tidemill.engine().catch_up()?;
            tidemill.engine().flush()?;
        }
        if state == State::Merged {
            tidemill.engine().consolidate()?;
            check_merged(&tidemill)?;
        }
        load::send(&tidemill, newer, |_, _| {})?;
        check_counts(&tidemill, |table| rows_of(batches, table))?;
        for table in Table::ALL {
            let (found, expected) =
                (tidemill.engine().stream(table.name())?.tail_rows, rows_of(newer, table));
            ensure!(found == expected, "{}: expected {expected} rows in memory, found {found}", table.name());
        }
        Ok(Self { tidemill, _dir: dir })
    }
}
