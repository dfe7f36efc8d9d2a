//! Inspection of a log that no process has open: every byte is read and compared with its checksums, nothing is changed.

use std::path::{Path, PathBuf};

use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::disks::disk::Disk;
use crate::disks::failure::IoResultExt;
use crate::local::read_meta;
use crate::segments::copy::{META_FILE, is_partition, list};
use crate::segments::newest_segment;
use crate::segments::recover::fault_text;
use crate::segments::scan::{FaultKind, ScanError, scan};
use crate::segments::segment::{base_of_name, file_name};

/// Content and damage of a log.
#[derive(Debug, Default)]
pub struct LogInspection {
    /// The partitions.
    pub partitions: Vec<PartitionInspection>,
    /// Damage outside of partitions.
    pub damaged: Vec<DamagedFile>,
}

/// Content and damage of a partition of a log.
#[derive(Debug)]
pub struct PartitionInspection {
    /// Id.
    pub partition: PartitionId,
    /// First stored offset.
    pub start: Offset,
    /// Offset after the last whole record.
    pub end: Offset,
    /// Number of segments.
    pub segments: u64,
    /// Bytes of the segments.
    pub bytes: u64,
    /// The file whose last write was not finished, as after a power failure: the next start cuts it. It does
    /// not count as damage.
    pub unfinished: Option<DamagedFile>,
    /// Damage.
    pub damaged: Vec<DamagedFile>,
}

/// A file that is not as it was written, or that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Description of the damage.
    pub problem: String,
}

/// Inspects the log in `dir`; without such a directory there is nothing in it.
///
/// Errors: `Unavailable` when files cannot be read.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<LogInspection> {
    let mut found = LogInspection::default();
    let names = list(disk, dir)?;
    let ids: Vec<u32> =
        names.iter().filter(|name| is_partition(name)).filter_map(|name| name[1..].parse().ok()).collect();
    let path = dir.join(META_FILE);
    let problem = match names.iter().any(|name| name == META_FILE).then(|| read_meta(disk, &path)) {
        Some(Ok(partitions)) if partitions as usize != ids.len() => {
            Some(format!("it says that there are {partitions} partitions, and there are {}", ids.len()))
        }
        Some(Ok(_)) => None,
        Some(Err(e)) => Some(problem(&e, &path)),
        None => (!ids.is_empty()).then(|| "it is missing".to_owned()),
    };
    found.damaged.extend(problem.map(|problem| DamagedFile { path, problem }));
    for id in ids {
        found.partitions.push(inspect_partition(disk, dir, id)?);
    }
    Ok(found)
}

fn inspect_partition(disk: &dyn Disk, log: &Path, id: u32) -> Result<PartitionInspection> {
    let dir = log.join(format!("p{id:05}"));
    let mut partition = PartitionInspection {
        partition: PartitionId(id),
        start: Offset(0),
        end: Offset(0),
        segments: 0,
        bytes: 0,
        unfinished: None,
        damaged: Vec::new(),
    };
    let names = list(disk, &dir)?;
    let bases: Vec<u64> = names.iter().filter_map(|name| base_of_name(name)).collect();
    match newest_segment::read(disk, &dir, &names) {
        Ok(Some(newest)) if bases.last().is_none_or(|last| *last < newest) => {
            partition.damaged.push(DamagedFile {
                path: dir.join(file_name(newest)),
                problem: format!("it is missing; it held the records from offset {newest} on"),
            });
        }
        Ok(_) => {}
        Err(e) => {
            let path = dir.join(newest_segment::FILE);
            partition.damaged.push(DamagedFile { problem: problem(&e, &path), path });
        }
    }
    for (at, base) in bases.iter().enumerate() {
        let next = bases.get(at + 1).copied();
        inspect_segment(disk, &dir, *base, next, &mut partition)?;
        if at == 0 {
            partition.start = Offset(*base);
        }
    }
    Ok(partition)
}

/// Inspects a segment. `following`: the first offset of the next one.
fn inspect_segment(
    disk: &dyn Disk,
    dir: &Path,
    base: u64,
    following: Option<u64>,
    partition: &mut PartitionInspection,
) -> Result<()> {
    let path = dir.join(file_name(base));
    let file = disk.open(&path).during("open", &path)?;
    partition.segments += 1;
    partition.bytes += file.len().during("read", &path)?;
    let mut damaged = |problem: String| partition.damaged.push(DamagedFile { path: path.clone(), problem });
    let scan = match scan(&*file, |_, _| {}) {
        Ok(scan) => scan,
        Err(ScanError::Io(e)) => return Err(e).during("read", &path),
        Err(ScanError::Header(e)) => {
            damaged(format!("its header: {e}"));
            return Ok(());
        }
    };
    if scan.header.base != base || scan.header.partition != partition.partition.0 {
        damaged(format!(
            "its header is that of partition {}, offset {}",
            scan.header.partition, scan.header.base
        ));
        return Ok(());
    }
    partition.end = Offset(scan.next);
    let is_last = following.is_none();
    if let Some(fault) = &scan.fault {
        let text = format!("byte {}, offset {}: {}", fault.pos, fault.expected, fault_text(fault, is_last));
        match fault.kind {
            FaultKind::Damaged { .. } => damaged(text),
            _ if !is_last => damaged(text),
            _ => partition.unfinished = Some(DamagedFile { path, problem: text }),
        }
        return Ok(());
    }
    if let Some(following) = following.filter(|following| *following != scan.next) {
        damaged(format!(
            "it ends at offset {}, and the next segment begins at offset {following}: segments are missing",
            scan.next
        ));
    }
    Ok(())
}

/// Returns the message of an error without the path, which is reported beside it.
fn problem(error: &Error, path: &Path) -> String {
    error.message().trim_start_matches(&path.display().to_string()).trim_start_matches([':', ' ']).to_owned()
}
