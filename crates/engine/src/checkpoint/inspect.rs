//! A look at a checkpoint file without the app that wrote it: what it names, and whether it is as it was written.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

use tidemill_log::disk::{Disk, FileReader};
use tidemill_types::{Error, Result};

use super::{CheckpointMeta, RunInfo, read_exact, read_meta, read_section, read_u32};

/// Content of an intact checkpoint.
pub struct CheckpointSummary {
    /// Number of documents.
    pub documents: u64,
    /// The files with ids that it names, by stream.
    pub id_runs: BTreeMap<String, Vec<RunInfo>>,
}

/// Returns the files with ids of events that a checkpoint names, by stream.
///
/// Errors: `Corrupt` with the file and what is wrong in it; `Unavailable`.
pub fn id_runs(disk: &dyn Disk, path: &Path) -> Result<BTreeMap<String, Vec<RunInfo>>> {
    let meta = read_meta(&mut open(disk, path)?).map_err(|e| e.context(path.display()))?;
    Ok(meta.id_runs)
}

/// Compares all sections of a checkpoint with their checksums.
///
/// Errors: as [`id_runs`].
pub fn check(disk: &dyn Disk, path: &Path) -> Result<CheckpointSummary> {
    let mut input = open(disk, path)?;
    check_sections(&mut input).map_err(|e| e.context(path.display()))
}

fn open(disk: &dyn Disk, path: &Path) -> Result<impl Read + use<>> {
    let file = disk
        .open(path)
        .map_err(|e| Error::unavailable(format!("{}: cannot be opened", path.display())).with_source(e))?;
    Ok(BufReader::with_capacity(1 << 20, FileReader::new(file)))
}

fn check_sections(input: &mut impl Read) -> Result<CheckpointSummary> {
    let meta = read_meta(input)?;
    check_ids(input, &meta)?;
    let CheckpointMeta { units, outbox, write_times, sessions, id_runs, .. } = meta;
    if !units.is_empty() {
        read_section(input, units.iter().map(|unit| unit.bytes), "the states of queries")?;
    }
    if !outbox.is_empty() {
        read_section(input, outbox.iter().map(|(_, bytes)| *bytes), "the emissions")?;
    }
    for (bytes, what) in [(write_times, "the times of writes"), (sessions, "the sessions")] {
        if bytes > 0 {
            read_section(input, std::iter::once(bytes), what)?;
        }
    }
    let documents = tidemill_docs::check_checkpoint(input)?;
    Ok(CheckpointSummary { documents, id_runs })
}

fn check_ids(input: &mut impl Read, meta: &CheckpointMeta) -> Result<()> {
    let expected = read_u32(input)?;
    let mut actual = 0;
    let mut id = [0; 16];
    for _ in 0..meta.ids.iter().map(|(_, ids)| *ids).sum::<u64>() {
        read_exact(input, &mut id, "its ids")?;
        actual = crc32c::crc32c_append(actual, &id);
    }
    match actual == expected {
        true => Ok(()),
        false => Err(Error::corrupt("the ids do not match their checksum")),
    }
}
