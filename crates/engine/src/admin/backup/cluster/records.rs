//! The records of a log that processes share, as a log in files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidemill_log::disk::Disk;
use tidemill_log::{Log, LogFile, LogFileContent, SegmentEncoder, meta_file};
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::super::manifest::{FileEntry, PartitionRange};
use super::super::write::{FileCopy, create_parents};
use super::cut::{Cause, read_to_cut};
use crate::entry;

/// Bytes of records that are read at once.
const READ_BYTES: usize = 8 << 20;
/// Size of a segment after which another one begins.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Directory of the log, below the data directory.
const LOG_DIR: &str = "log";

/// Place of the copy, and the question whether to continue.
#[derive(Clone, Copy)]
pub struct CopyTarget<'t> {
    /// The disk.
    pub disk: &'t dyn Disk,
    /// Directory of the backup.
    pub dir: &'t Path,
    /// Asked now and then.
    pub goes_on: &'t dyn Fn() -> bool,
}

/// Records of a log that were copied.
pub struct CopiedLog {
    /// Their range in each partition.
    pub partitions: Vec<PartitionRange>,
    /// The files that have them.
    pub files: Vec<FileEntry>,
}

/// Copies the records of a log, from `starts` up to the cut that begins with `ends`, see [`read_to_cut`].
///
/// Errors: `NotFound` if the log does not have all of them any more; `Corrupt` for a record that is not an entry; `Unavailable`.
pub fn copy<'t>(
    log: &'t dyn Log,
    starts: &[Offset],
    ends: Vec<Offset>,
    target: CopyTarget<'t>,
) -> Result<CopiedLog> {
    let mut files = CopiedFiles { target, directories: BTreeSet::new(), entries: Vec::new() };
    files.add(&meta_file(log.partitions()))?;
    let open = |(p, start): (u32, &Offset)| SegmentCopy::create(&mut files, PartitionId(p), *start);
    let segments = (0..).zip(starts).map(open).collect::<Result<Vec<_>>>()?;
    let mut copy = LogCopy { log, files, segments };
    let cut = read_to_cut(starts, ends, |id, range| copy.add(id, range))?;
    let LogCopy { mut files, segments, .. } = copy;
    for segment in segments {
        let newest = segment.encoder.newest_file();
        segment.finish(&mut files)?;
        files.add(&newest)?;
    }
    for directory in &files.directories {
        target.disk.sync_dir(directory).map_err(|e| {
            Error::unavailable(format!("{}: cannot be synced", directory.display())).with_source(e)
        })?;
    }
    let range = |((partition, log_start), log_end)| PartitionRange { partition, log_start, log_end };
    let partitions = (0..).zip(starts.iter().copied()).zip(cut).map(range).collect();
    Ok(CopiedLog { partitions, files: files.entries })
}

/// A copy that is being made, with the newest segment of each partition.
struct LogCopy<'t> {
    log: &'t dyn Log,
    files: CopiedFiles<'t>,
    segments: Vec<SegmentCopy<'t>>,
}

impl LogCopy<'_> {
    /// Adds a range of a partition. Returns the causes of its records: the last of each partition.
    fn add(&mut self, id: PartitionId, range: Range<Offset>) -> Result<Vec<Cause>> {
        let segment = &mut self.segments[id.0 as usize];
        let mut causes = BTreeMap::<PartitionId, Offset>::new();
        let mut next = range.start;
        let mut bytes = Vec::new();
        while next < range.end {
            let records =
                self.log.read(id, next, READ_BYTES).map_err(|e| unless_cut(self.log, (id, next), e))?;
            if records.is_empty() {
                return Err(Error::unavailable(format!(
                    "partition {id}: the log ends at offset {next}, and had the record {} before",
                    range.end.0 - 1
                )));
            }
            for record in records.iter().take_while(|record| record.offset < range.end) {
                let place = |e: Error| e.context(format!("partition {id}, offset {}", record.offset));
                if let Some((from, offset, _)) = entry::provenance(&record.payload).map_err(place)? {
                    let last = causes.entry(from).or_default();
                    *last = offset.max(*last);
                }
                if segment.encoder.bytes() >= SEGMENT_BYTES {
                    segment.copy.write(&std::mem::take(&mut bytes))?;
                    segment.roll(&mut self.files)?;
                }
                segment.encoder.record(record, &mut bytes)?;
                next = record.offset.next();
            }
            segment.copy.write(&std::mem::take(&mut bytes))?;
        }
        Ok(causes.into_iter().collect())
    }
}

/// Returns the error of a read, which is `NotFound` if the records from an offset on were removed meanwhile.
fn unless_cut(log: &dyn Log, (id, next): (PartitionId, Offset), e: Error) -> Error {
    match log.learn_starts() {
        Ok(()) if log.start(id) > next => Error::not_found(format!(
            "partition {id}: the log begins at offset {}, and the records from {next} on are needed",
            log.start(id)
        )),
        _ => e,
    }
}

/// Files of the copy.
struct CopiedFiles<'t> {
    target: CopyTarget<'t>,
    directories: BTreeSet<PathBuf>,
    entries: Vec<FileEntry>,
}

impl<'t> CopiedFiles<'t> {
    fn create(&mut self, name: &str) -> Result<FileCopy<'t>> {
        let CopyTarget { disk, dir, goes_on } = self.target;
        let path = dir.join(LOG_DIR).join(name);
        create_parents(disk, dir, &path, &mut self.directories)?;
        FileCopy::create(disk, path, goes_on)
    }

    fn finish(&mut self, copy: FileCopy<'t>, name: &str) -> Result<()> {
        self.entries.push(copy.finish(&format!("{LOG_DIR}/{name}"))?);
        Ok(())
    }

    fn add(&mut self, file: &LogFile) -> Result<()> {
        let LogFileContent::Written(bytes) = &file.content else {
            return Err(Error::internal(format!("{}: its content is elsewhere", file.name)));
        };
        let mut copy = self.create(&file.name)?;
        copy.write(bytes)?;
        self.finish(copy, &file.name)
    }
}

/// A segment that is being written.
struct SegmentCopy<'t> {
    partition: PartitionId,
    encoder: SegmentEncoder,
    copy: FileCopy<'t>,
}

impl<'t> SegmentCopy<'t> {
    fn create(files: &mut CopiedFiles<'t>, partition: PartitionId, first: Offset) -> Result<Self> {
        let encoder = SegmentEncoder::new(partition, first);
        let mut copy = files.create(&encoder.name())?;
        copy.write(&encoder.header())?;
        Ok(Self { partition, encoder, copy })
    }

    /// Continues with another segment.
    fn roll(&mut self, files: &mut CopiedFiles<'t>) -> Result<()> {
        let next = Self::create(files, self.partition, self.encoder.next())?;
        std::mem::replace(self, next).finish(files)
    }

    fn finish(self, files: &mut CopiedFiles<'t>) -> Result<()> {
        let name = self.encoder.name();
        files.finish(self.copy, &name)
    }
}
