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

    /// Splits rows in order of arrival into parts that are flushed one after the other, and those that stay in memory.
    pub fn split<T>(self, rows: &[T]) -> (Vec<&[T]>, &[T]) {
        let (in_files, flushes) = match self {
            Self::Tail => (0, 1),
            Self::Mixed => (rows.len() / 2, 1),
            Self::Files => (rows.len(), 1),
            Self::Merged => (rows.len(), MERGED_FLUSHES),
        };
        let (older, newer) = rows.split_at(in_files);
        (older.chunks(older.len().div_ceil(flushes).max(1)).collect(), newer)
    }

    /// Merges what was flushed, if that is the state.
    ///
    /// Errors: the events of a stream other than `except` are still in small files.
    pub fn finish(self, tidemill: &Tidemill, except: &str) -> Result<()> {
        if self != Self::Merged {
            return Ok(());
        }
        tidemill.engine().consolidate()?;
        let rows = load::sum(
            tidemill,
            &format!(
                "SELECT coalesce(sum(rows), 0) FROM system.zones WHERE zone = 'flushed' AND stream NOT IN ('rejected', '{except}')"
            ),
        )?;
        ensure!(rows == 0, "{rows} rows are in tablets that were not merged");
        Ok(())
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

impl Loaded {
    /// Loads `batches` into a fresh directory below `scratch`.
    ///
    /// Errors: rows are missing, or are not where the state says.
    pub fn new(scratch: &Path, state: State, batches: &[TableBatch], settings: &[String]) -> Result<Self> {
        let dir = tempfile::tempdir_in(scratch)?;
        let settings = AppOptions {
            partitions: 4,
            flushes: Flushes::OnDemand,
            unique: false,
            settings: settings.to_vec(),
        };
        let tidemill = Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &settings)?)?;
        let (older, newer) = state.split(batches);
        for part in older {
            load::send(&tidemill, part, |_, _| {})?;
            tidemill.engine().catch_up()?;
            tidemill.engine().flush()?;
        }
        // The tags are few and come in one batch.
        state.finish(&tidemill, Table::Tags.name())?;
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
