//! The file that names a partition's newest segment, so that recovery notices when that segment is missing.
//!
//! A segment missing from the middle leaves a gap in the offsets; one missing from the end leaves no trace.
//! The file names a segment once the segment's file and header are on the disk, and a segment takes records
//! only after the file names it. After a crash a segment may thus exist without being named (it holds no
//! record), but not the reverse.

use std::io::IoSlice;
use std::path::Path;

use tidemill_types::{Error, Result};

use crate::disks::disk::{Disk, read_full, write_all};
use crate::disks::failure::{IoFailure, IoResultExt};

/// Name in the partition's directory.
pub(crate) const FILE: &str = "newest";
const FILE_UNFINISHED: &str = "newest.tmp";
const FIRST_LINE: &str = "tidemill-log 1";
/// Upper bound of the size of the file.
const BYTES_MAX: usize = 4096;

/// Returns the first offset of the newest segment from the file, or `None` if the file does not exist, as in
/// a new directory and in one written by an earlier release. `names` are the files of `dir`.
///
/// Errors: `Corrupt` for content that no release wrote.
pub(crate) fn read(disk: &dyn Disk, dir: &Path, names: &[String]) -> Result<Option<u64>> {
    if !names.iter().any(|name| name == FILE) {
        return Ok(None);
    }
    let path = dir.join(FILE);
    let mut buf = vec![0; BYTES_MAX];
    let file = disk.open(&path).during("open", &path)?;
    let n = read_full(&*file, 0, &mut buf).during("read", &path)?;
    let text = &buf[..n];
    let base = std::str::from_utf8(text).ok().and_then(|text| {
        let line = text.strip_prefix(FIRST_LINE)?.trim_start().strip_prefix("newest ")?;
        line.split_whitespace().next()?.parse().ok()
    });
    base.filter(|base| encode(*base).as_bytes() == text).map(Some).ok_or_else(|| {
        Error::corrupt(format!(
            "{} is damaged: it should name the newest segment beside it. Compare the segments with a backup, then \
             delete this file; it is written again",
            path.display()
        ))
    })
}

/// Writes `base` as the newest segment and waits until that is on the disk.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, base: u64) -> Result<(), IoFailure> {
    let (path, unfinished) = (dir.join(FILE), dir.join(FILE_UNFINISHED));
    let written = disk
        .create(&unfinished)
        .and_then(|file| {
            write_all(&*file, 0, &mut [IoSlice::new(encode(base).as_bytes())])?;
            file.sync()
        })
        .and_then(|()| disk.rename(&unfinished, &path))
        .and_then(|()| disk.sync_dir(dir));
    written.map_err(|e| {
        // The next attempt creates it again.
        let _ = disk.remove(&unfinished);
        IoFailure::new("write", &path, &e)
    })
}

/// Returns the content of the file.
pub(crate) fn encode(base: u64) -> String {
    let line = format!("newest {base}");
    format!("{FIRST_LINE}\n{line}\ncrc {:08x}\n", crc32c::crc32c(line.as_bytes()))
}
