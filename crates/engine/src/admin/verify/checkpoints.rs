//! Verification of checkpoints, of what `why` can explain, and of the files with ids that checkpoints name.

use std::collections::BTreeMap;
use std::path::Path;

use tidemill_log::disk::{Disk, FileReader};
use tidemill_types::{ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::files::problem;
use super::report::{Consequence, Verification};
use crate::checkpoint;
use crate::dedupe::{IdRun, RunInfo};
use crate::process::disk_files::{list, unreadable};

const CHECKPOINTS: Consequence = Consequence {
    meaning: "the start falls back to the checkpoint before it and replays the log from there; without one it does not open",
    remedy: "start Tidemill while an older checkpoint is sound: a new one takes its place; otherwise restore a backup",
};
const IDS: Consequence = Consequence {
    meaning: "repeated events cannot be recognised; the checkpoints that name the file count as damaged",
    remedy: "restore the file from a backup, or restore a backup",
};
const WHY: Consequence = Consequence {
    meaning: "`tidemill why` explains events after the checkpoint only; no data is affected",
    remedy: "nothing: the next checkpoint writes another one",
};
/// First bytes of a file with what `why` can explain.
const WHY_MAGIC: &[u8] = b"TMWHY001";

/// Verifies them.
///
/// Errors: `Unavailable`.
pub fn check(disk: &dyn Disk, dir: &Path, found: &mut Verification) -> Result<()> {
    let mut all = Found::default();
    for name in list(disk, &dir.join("checkpoints"))? {
        all.check_partition(disk, dir, &name)?;
    }
    let Found { checkpoints, ids, why, documents, ids_count, .. } = all;
    let partitions = format!("{documents} documents in the newest ones");
    found.add(
        "checkpoints",
        (checkpoints.files, checkpoints.bytes),
        partitions,
        checkpoints.damaged,
        CHECKPOINTS,
    );
    if ids.files > 0 {
        found.add("ids", (ids.files, ids.bytes), format!("{ids_count} ids"), ids.damaged, IDS);
    }
    if why.files > 0 {
        found.add("why", (why.files, why.bytes), "explanations".to_owned(), why.damaged, WHY);
    }
    Ok(())
}

#[derive(Default)]
struct Found {
    checkpoints: Files,
    ids: Files,
    why: Files,
    documents: u64,
    ids_count: u64,
}

#[derive(Default)]
struct Files {
    files: u64,
    bytes: u64,
    damaged: Vec<(String, String)>,
}

impl Files {
    /// Counts a file and notes what is wrong with it.
    fn add(&mut self, disk: &dyn Disk, path: &Path, checked: Result<()>) -> Result<()> {
        self.files += 1;
        self.bytes += disk.open(path).and_then(|file| file.len()).unwrap_or_default();
        match checked {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                self.damaged.push((path.display().to_string(), problem(&e, path)));
                Ok(())
            }
            Err(e) => Err(e),
        }
    }
}

impl Found {
    /// `partition`: name of the directory of a partition.
    fn check_partition(&mut self, disk: &dyn Disk, data: &Path, partition: &str) -> Result<()> {
        let dir = data.join("checkpoints").join(partition);
        let mut named: BTreeMap<(String, String), RunInfo> = BTreeMap::new();
        let mut newest = 0;
        for (_, path) in checkpoint::list(disk, &dir)? {
            let checked = checkpoint::inspect::check(disk, &path).map(|summary| {
                newest = summary.documents;
                for (stream, runs) in summary.id_runs {
                    named.extend(runs.into_iter().map(|run| ((stream.clone(), run.file.clone()), run)));
                }
            });
            self.checkpoints.add(disk, &path, checked)?;
        }
        self.documents += newest;
        for ((stream, file), run) in named {
            let dir = data.join("ids").join(partition).join(stream);
            let ids = run.ids;
            let checked = check_run(disk, &dir, run);
            self.ids_count += ids;
            self.ids.add(disk, &dir.join(file), checked)?;
        }
        for name in list(disk, &dir)?.iter().filter(|name| name.ends_with(".why")) {
            let path = dir.join(name);
            let checked = check_why(disk, &path);
            self.why.add(disk, &path, checked)?;
        }
        Ok(())
    }
}

fn check_run(disk: &dyn Disk, dir: &Path, run: RunInfo) -> Result<()> {
    let run = IdRun::open(disk, dir, run)?;
    (0..run.blocks()).try_for_each(|block| run.block(block).map(drop))
}

/// Compares the sections of a file with what `why` can explain with their checksums.
fn check_why(disk: &dyn Disk, path: &Path) -> Result<()> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = disk.open(path).map_err(|e| unreadable(path, e))?;
    FileReader::new(file).read_to_end(&mut bytes).map_err(|e| unreadable(path, e))?;
    let damaged = |what: &str| tidemill_types::Error::corrupt(what.to_owned());
    let mut rest = bytes.strip_prefix(WHY_MAGIC).ok_or_else(|| damaged("byte 0: not such a file"))?;
    rest = rest.get(8..).ok_or_else(|| damaged("it ends in its header"))?;
    while !rest.is_empty() {
        let (len, behind) = rest.split_first_chunk().ok_or_else(|| damaged("it ends in a section"))?;
        let (hash, behind) = behind.split_first_chunk().ok_or_else(|| damaged("it ends in a section"))?;
        // the length of the head stands before the body
        let len = u32::from_le_bytes(*len) as usize;
        let body = behind.get(..len).ok_or_else(|| damaged("it ends in a section"))?;
        if xxh3_64(body) != u64::from_le_bytes(*hash) {
            return Err(damaged("a section does not match its checksum"));
        }
        rest = &behind[len..];
    }
    Ok(())
}
