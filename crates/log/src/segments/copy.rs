//! Files of a log, for a copy of it: of an open log up to given offsets, or of a log that no process has
//! open.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tidemill_types::{Error, Result};

use crate::disks::disk::{Disk, DiskFile, read_full};
use crate::disks::failure::IoResultExt;
use crate::segments::format::{RECORD_HEADER_BYTES, RecordHead, SEGMENT_HEADER_BYTES};
use crate::segments::newest_segment;
use crate::segments::segment::{Segment, base_of_name, corrupt, file_name};

/// Metadata file of a log.
pub(crate) const META_FILE: &str = "log.meta";

/// A file of a copy of a log.
pub struct LogFile {
    /// Path below the directory of the log, with `/`.
    pub name: String,
    /// Content of the file in the copy.
    pub content: LogFileContent,
}

/// Content of a [`LogFile`].
pub enum LogFileContent {
    /// The beginning of a file of the log. It stays readable when the log removes the file.
    Stored {
        /// The open file.
        file: Arc<dyn DiskFile>,
        /// Number of bytes that belong to the copy.
        bytes: u64,
    },
    /// Content that the copy alone has.
    Written(Vec<u8>),
}

/// Returns the files of a partition in `dir` up to the offset `end`, which is durable. `segments` are those of the
/// partition, oldest first; `name` is the directory of the partition in the copy.
pub(crate) fn partition_files(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    segments: &[Segment],
    end: u64,
) -> Result<Vec<LogFile>> {
    // one at least, because it holds the offset at which the log continues
    let count = segments.partition_point(|segment| segment.base < end).max(1).min(segments.len());
    let mut files = Vec::new();
    for segment in &segments[..count] {
        let path = dir.join(file_name(segment.base));
        let file = disk.open(&path).during("open", &path)?;
        let bytes = match segment.next <= end {
            true => segment.end_pos,
            false => position_of(&*file, &path, segment, end)?,
        };
        let content = LogFileContent::Stored { file, bytes };
        files.push(LogFile { name: format!("{name}/{}", file_name(segment.base)), content });
    }
    if let Some(last) = segments[..count].last() {
        let content = LogFileContent::Written(newest_segment::encode(last.base).into_bytes());
        files.push(LogFile { name: format!("{name}/{}", newest_segment::FILE), content });
    }
    Ok(files)
}

/// Returns the position of the record `offset` in a segment that holds it.
fn position_of(file: &dyn DiskFile, path: &Path, segment: &Segment, offset: u64) -> Result<u64> {
    let (mut at, mut pos) =
        segment.index.floor(offset).unwrap_or((segment.base, SEGMENT_HEADER_BYTES as u64));
    let mut head = [0; RECORD_HEADER_BYTES];
    while at < offset {
        let n = read_full(file, pos, &mut head).during("read", path)?;
        let record = RecordHead::decode(&head[..n]).map_err(|bad| corrupt(path, pos, at, bad))?;
        pos += record.record_bytes() as u64;
        at += 1;
    }
    Ok(pos)
}

/// Returns the files of the log in `dir`, which no process has open, as they are; empty if the log does not
/// exist.
///
/// Errors: `Unavailable` when they cannot be read.
pub fn closed_log_files(disk: &dyn Disk, dir: &Path) -> Result<Vec<LogFile>> {
    let mut files = Vec::new();
    for name in list(disk, dir)? {
        if name == META_FILE {
            files.push(whole(disk, dir, &name)?);
        } else if is_partition(&name) {
            let stored = |file: &str| base_of_name(file).is_some() || file == newest_segment::FILE;
            for file in list(disk, &dir.join(&name))?.iter().filter(|file| stored(file)) {
                files.push(whole(disk, dir, &format!("{name}/{file}"))?);
            }
        }
    }
    Ok(files)
}

fn whole(disk: &dyn Disk, dir: &Path, name: &str) -> Result<LogFile> {
    let path = dir.join(name);
    let file = disk.open(&path).during("open", &path)?;
    let bytes = file.len().during("read", &path)?;
    Ok(LogFile { name: name.to_owned(), content: LogFileContent::Stored { file, bytes } })
}

/// Returns the names in a directory in order; empty if the directory does not exist.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    match disk.list(dir) {
        Ok(mut names) => {
            names.sort();
            Ok(names)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).during("list", dir),
    }
}

/// Returns whether `name` is that of a directory of a partition.
pub(crate) fn is_partition(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|digits| digits.len() == 5 && digits.parse::<u32>().is_ok())
}

/// Returns the error for a log that is not in files of this machine.
pub(crate) fn no_files() -> Error {
    Error::invalid(
        "the log is not in files of the data directory: copy it by the means of the system that has it",
    )
}
