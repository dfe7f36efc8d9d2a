//! Recovery of a partition: finds its segments, checks every record, truncates a torn tail, rejects damage.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::disks::disk::{Disk, DiskFile, read_full, write_all};
use crate::disks::failure::{IoFailure, IoResultExt};
use crate::options::LogOptions;
use crate::segments::format::{Checksum, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segments::newest_segment;
use crate::segments::scan::{ByteSource, Fault, FaultKind, Scan, ScanError, scan};
use crate::segments::segment::{Segment, SparseIndex, base_of_name, file_name};
use crate::segments::writer::{LogWriter, create_segment};

/// Buffer size for copying, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Result of recovering one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The recovered partition.
    pub partition: PartitionId,
    /// First stored offset.
    pub start: Offset,
    /// Offset of the next record.
    pub end: Offset,
    /// Number of segment files.
    pub segments: usize,
    /// The truncation at the end, if there was one.
    pub cut: Option<TailCut>,
}

/// A truncation at the end of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailCut {
    /// The truncated, removed or missing file.
    pub file: PathBuf,
    /// Position of the first removed byte.
    pub pos: u64,
    /// Number of bytes removed, over all files.
    pub bytes: u64,
    /// Number of whole records among them, as far as they could be found.
    pub records: u64,
    /// Reason of the truncation.
    pub reason: CutReason,
    /// Files that hold the removed bytes; filled by a repair only.
    pub quarantined_as: Vec<PathBuf>,
}

/// Reason of a truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The last write reached the disk only in part. It was never acknowledged as `fsync`.
    Torn,
    /// The file ended in zeros: allocated but never written.
    Zeros,
    /// Damage, truncated because [`LogOptions::repair`] is set. Acknowledged records may be lost.
    Damaged,
    /// The newest segment is missing; the log ends before it because [`LogOptions::repair`] is set.
    /// Acknowledged records were in it.
    Missing,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "log partition {}: offsets {} to {} in {} segments",
            self.partition, self.start, self.end, self.segments
        )?;
        let Some(cut) = &self.cut else { return Ok(()) };
        let why = match cut.reason {
            CutReason::Missing => {
                return write!(f, "; {} is missing, and what it held is lost", cut.file.display());
            }
            CutReason::Torn => "the last write was not finished",
            CutReason::Zeros => "the file ended in zeros",
            CutReason::Damaged => "it was damaged there",
        };
        write!(
            f,
            "; {} was cut at byte {} because {why}: {} bytes with {} whole records went",
            cut.file.display(),
            cut.pos,
            cut.bytes,
            cut.records
        )?;
        for file in &cut.quarantined_as {
            write!(f, ", kept as {}", file.display())?;
        }
        Ok(())
    }
}

impl ByteSource for dyn DiskFile {
    fn len(&self) -> io::Result<u64> {
        DiskFile::len(self)
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full(self, pos, buf)
    }
}

/// Recovers the partition in `dir`. When it returns, all records found are on the disk.
pub(crate) fn recover(
    disk: &Arc<dyn Disk>,
    dir: PathBuf,
    partition: u32,
    options: &LogOptions,
) -> Result<(LogWriter, RecoveryReport)> {
    let names = disk.list(&dir).during("list", &dir)?;
    let mut bases: Vec<u64> = names.iter().filter_map(|n| base_of_name(n)).collect();
    bases.sort_unstable();
    let noted = newest_segment::read(&**disk, &dir, &names)?;
    let mut recovery = Recovery {
        disk: &**disk,
        dir: &dir,
        partition,
        repair: options.repair,
        encrypted: options.encryption.is_some(),
        noted,
        cut: None,
    };
    recovery.check_newest(bases.last().copied())?;
    let mut segments = VecDeque::new();
    let mut newest = None;
    for (i, base) in bases.iter().enumerate() {
        let expected = segments.back().map(|s: &Segment| s.next);
        match recovery.segment(*base, expected, &bases[i + 1..])? {
            SegmentOutcome::Good(opened) => {
                segments.push_back(opened.segment.clone());
                newest = Some(opened);
            }
            SegmentOutcome::End(opened) => {
                segments.extend(opened.as_ref().map(|o| o.segment.clone()));
                newest = opened.or(newest);
                break;
            }
        }
    }
    let was_made = newest.is_none();
    let mut opened = match newest {
        Some(opened) => opened,
        None => {
            let base = bases.first().copied().or(noted).unwrap_or(0);
            let opened = recovery.create(base, options.salt)?;
            segments.push_back(opened.segment.clone());
            opened
        }
    };
    let report = RecoveryReport {
        partition: PartitionId(partition),
        start: Offset(segments.front().map_or(0, |s| s.base)),
        end: Offset(opened.segment.next),
        segments: segments.len(),
        cut: recovery.cut.take(),
    };
    recovery_sync(&opened)?;
    let was_plain = recovery.encrypted && !opened.encrypted;
    if was_plain {
        opened = recovery.begin_encrypted(opened)?;
        if segments.back().is_none_or(|newest| newest.base < opened.segment.base) {
            segments.push_back(opened.segment.clone());
        }
    }
    let noted = match noted == Some(opened.segment.base) {
        // A repair may have removed the named segment. In all other cases the writer updates the file,
        // because opening must work on a full disk.
        false if was_made || was_plain || options.repair => recovery.note(opened.segment.base)?,
        _ => noted,
    };
    let writer = LogWriter {
        disk: Arc::clone(disk),
        dir,
        partition,
        salt: opened.salt,
        segment_bytes: options.segment_bytes,
        encrypted: options.encryption.is_some(),
        segments: Arc::new(Mutex::new(segments)),
        base: opened.segment.base,
        noted,
        file: opened.file,
        path: opened.path,
        pos: opened.segment.end_pos,
        durable_pos: opened.segment.end_pos,
        whole_pos: opened.segment.end_pos,
        must_cut: false,
        dirty: false,
    };
    Ok((writer, report))
}

/// A recovered segment with its open file.
struct OpenSegment {
    segment: Segment,
    salt: u64,
    /// True if its records may be encrypted.
    encrypted: bool,
    /// Position from which on no later record proves that the bytes are on the disk.
    durable_pos: u64,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
}

enum SegmentOutcome {
    /// Later segments may follow.
    Good(OpenSegment),
    /// The log ends here; with this segment, if it could be kept.
    End(Option<OpenSegment>),
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    partition: u32,
    repair: bool,
    /// True if records are to be encrypted.
    encrypted: bool,
    /// First offset of the newest segment according to [`newest_segment`].
    noted: Option<u64>,
    cut: Option<TailCut>,
}

impl Recovery<'_> {
    /// Rejects a log whose newest segment is missing; a repair continues without it.
    fn check_newest(&mut self, last: Option<u64>) -> Result<()> {
        let Some(noted) = self.noted.filter(|noted| last.is_none_or(|last| last < *noted)) else {
            return Ok(());
        };
        let file = self.dir.join(file_name(noted));
        if !self.repair {
            return Err(Error::corrupt(format!(
                "{}, the newest segment of log partition {}, is missing: it held the records from offset {noted} on. \
                 Restore the log from a backup, or open it once with `log_repair = true`, which keeps the records below \
                 offset {noted}",
                file.display(),
                self.partition
            )));
        }
        self.cut = Some(TailCut {
            file,
            pos: 0,
            bytes: 0,
            records: 0,
            reason: CutReason::Missing,
            quarantined_as: vec![],
        });
        Ok(())
    }

    fn note(&self, newest: u64) -> Result<Option<u64>> {
        newest_segment::write(self.disk, self.dir, newest).map_err(|failure| failure.error())?;
        Ok(Some(newest))
    }

    /// Recovers one segment. `expected` is the offset after the previous segment, `later` the bases of the
    /// following ones.
    fn segment(&mut self, base: u64, expected: Option<u64>, later: &[u64]) -> Result<SegmentOutcome> {
        let path = self.dir.join(file_name(base));
        let file = self.disk.open(&path).during("open", &path)?;
        let is_last = later.is_empty();
        let mut index = SparseIndex::default();
        let scan = match scan(&*file, |head, pos| index.note(head.offset, pos)) {
            Ok(scan) => scan,
            Err(ScanError::Io(e)) => return Err(e).during("read", &path),
            Err(ScanError::Header(fault)) => {
                let bytes = file.len().during("read", &path)?;
                return self.bad_header(&path, bytes, fault, base, later);
            }
        };
        if scan.header.encrypted && !self.encrypted {
            return Err(Error::invalid(format!(
                "{} is encrypted, and there are no keys: set key_file or key_command in the section [settings.encryption], \
                 with the keys with which the log was written",
                path.display()
            )));
        }
        if let Some(why) = self.misplaced(&scan.header, base, expected) {
            let lost = QuarantinedBytes {
                expected: expected.unwrap_or(base),
                pos: 0,
                bytes: scan.file_bytes,
                records: scan.next - scan.header.base,
            };
            self.refuse_or_quarantine(&path, &why, lost, None, later)?;
            return Ok(SegmentOutcome::End(None));
        }
        let Some(fault) = &scan.fault else {
            return Ok(SegmentOutcome::Good(open_segment(file, path, &scan, index)));
        };
        let bytes = scan.file_bytes - scan.end_pos;
        let reason = match fault.kind {
            FaultKind::Zeros => Some(CutReason::Zeros),
            FaultKind::Torn | FaultKind::Unfinished => Some(CutReason::Torn),
            FaultKind::Damaged { .. } => None,
        };
        match reason.filter(|_| is_last) {
            Some(reason) => {
                let records = fault.records_after;
                self.cut = Some(TailCut {
                    file: path.clone(),
                    pos: scan.end_pos,
                    bytes,
                    records,
                    reason,
                    quarantined_as: vec![],
                });
            }
            None => {
                let lost = QuarantinedBytes {
                    expected: scan.next,
                    pos: fault.pos,
                    bytes,
                    records: fault.records_after,
                };
                self.refuse_or_quarantine(
                    &path,
                    &fault_text(fault, is_last),
                    lost,
                    Some((&*file, scan.end_pos)),
                    later,
                )?;
            }
        }
        file.set_len(scan.end_pos).during("cut", &path)?;
        index.cut(scan.end_pos);
        Ok(SegmentOutcome::End(Some(open_segment(file, path, &scan, index))))
    }

    /// Handles a bad header. Headers are durable before records are, so a file without records was just being
    /// created.
    fn bad_header(
        &mut self,
        path: &Path,
        bytes: u64,
        fault: HeaderFault,
        base: u64,
        later: &[u64],
    ) -> Result<SegmentOutcome> {
        if let HeaderFault::Format(_) = fault {
            return Err(Error::invalid(format!("{}: {fault}", path.display())));
        }
        let was_whole = self.noted == Some(base);
        if later.is_empty() && bytes <= SEGMENT_HEADER_BYTES as u64 && !was_whole {
            self.disk.remove(path).during("remove", path)?;
            self.disk.sync_dir(self.dir).during("fsync of", self.dir)?;
            let (file, reason) = (path.to_path_buf(), CutReason::Torn);
            self.cut = Some(TailCut { file, pos: 0, bytes, records: 0, reason, quarantined_as: vec![] });
        } else {
            let lost = QuarantinedBytes { expected: base, pos: 0, bytes, records: 0 };
            self.refuse_or_quarantine(path, &fault.to_string(), lost, None, later)?;
        }
        Ok(SegmentOutcome::End(None))
    }

    fn misplaced(&self, header: &SegmentHeader, base: u64, expected: Option<u64>) -> Option<String> {
        if header.partition != self.partition || header.base != base {
            return Some(format!(
                "its header says partition {} and first offset {}: another segment's file was put here",
                header.partition, header.base
            ));
        }
        let expected = expected.filter(|e| *e != base)?;
        Some(format!("it begins with offset {base}, the segment before ends before offset {expected}"))
    }

    /// Returns an error; with `repair`, sets the lost bytes aside and records the truncation instead.
    ///
    /// `part` is the file and the position from which on it is lost; `None` if the whole file is.
    fn refuse_or_quarantine(
        &mut self,
        path: &Path,
        why: &str,
        lost: QuarantinedBytes,
        part: Option<(&dyn DiskFile, u64)>,
        later: &[u64],
    ) -> Result<()> {
        if !self.repair {
            return Err(Error::corrupt(format!(
                "{} is damaged at byte {}, where offset {} is expected: {why}. Restore the log from a backup, or open \
                 it once with `log_repair = true`, which keeps the records below offset {} and sets the rest aside in \
                 *.lost files",
                path.display(),
                lost.pos,
                lost.expected,
                lost.expected
            )));
        }
        let mut bytes = lost.bytes;
        let mut kept_as = Vec::new();
        match part {
            Some((file, from)) => kept_as.push(self.copy_aside(file, path, from, lost.bytes)?),
            None => kept_as.push(self.set_aside(path)?),
        }
        // Newest first: after a crash in between, the remaining segments still have the damage in their
        // middle.
        for base in later.iter().rev() {
            let path = self.dir.join(file_name(*base));
            bytes += self.disk.open(&path).and_then(|f| f.len()).during("open", &path)?;
            kept_as.push(self.set_aside(&path)?);
        }
        self.disk.sync_dir(self.dir).during("fsync of", self.dir)?;
        let pos = part.map_or(0, |(_, from)| from);
        let (file, records, reason) = (path.to_path_buf(), lost.records, CutReason::Damaged);
        self.cut = Some(TailCut { file, pos, bytes, records, reason, quarantined_as: kept_as });
        Ok(())
    }

    fn set_aside(&self, path: &Path) -> Result<PathBuf> {
        let aside = path.with_extension("seg.lost");
        self.disk.rename(path, &aside).during("rename", path)?;
        Ok(aside)
    }

    fn copy_aside(&self, file: &dyn DiskFile, path: &Path, from: u64, bytes: u64) -> Result<PathBuf> {
        let aside = path.with_extension(format!("seg.{from}.lost"));
        let copy = self.disk.create(&aside).during("create", &aside)?;
        copy_bytes(file, &*copy, from, 0, bytes).and_then(|()| copy.sync()).during("write", &aside)?;
        Ok(aside)
    }

    fn create(&self, base: u64, salt: u64) -> Result<OpenSegment> {
        let header = SegmentHeader { partition: self.partition, base, salt, encrypted: self.encrypted };
        let made = create_segment(self.disk, self.dir, &header);
        let (file, path) = made.map_err(|failure: IoFailure| failure.error())?;
        let pos = SEGMENT_HEADER_BYTES as u64;
        let segment = Segment {
            base,
            next: base,
            end_pos: pos,
            checksum: Checksum::new(salt),
            index: SparseIndex::default(),
        };
        Ok(OpenSegment { segment, salt, encrypted: self.encrypted, durable_pos: pos, file, path })
    }

    /// Begins a segment for encrypted records after `opened`, the newest, which is not for those. All its records are on
    /// the disk.
    fn begin_encrypted(&self, opened: OpenSegment) -> Result<OpenSegment> {
        let (base, salt) = (opened.segment.next, opened.salt);
        if opened.segment.base < base {
            return self.create(base, salt);
        }
        // Without records only the header changes. It is smaller than a sector, which is written as a whole.
        let header = SegmentHeader { partition: self.partition, base, salt, encrypted: true }.encode();
        write_all(&*opened.file, 0, &mut [IoSlice::new(&header)])
            .and_then(|()| opened.file.sync())
            .during("write to", &opened.path)?;
        Ok(OpenSegment { encrypted: true, ..opened })
    }
}

struct QuarantinedBytes {
    expected: u64,
    pos: u64,
    bytes: u64,
    records: u64,
}

fn open_segment(file: Arc<dyn DiskFile>, path: PathBuf, scan: &Scan, index: SparseIndex) -> OpenSegment {
    let start = SEGMENT_HEADER_BYTES as u64;
    OpenSegment {
        durable_pos: index.floor(scan.known_durable).map_or(start, |(_, pos)| pos).min(scan.end_pos),
        segment: Segment {
            base: scan.header.base,
            next: scan.next,
            end_pos: scan.end_pos,
            checksum: Checksum::new(scan.header.salt),
            index,
        },
        salt: scan.header.salt,
        encrypted: scan.header.encrypted,
        file,
        path,
    }
}

pub(crate) fn fault_text(fault: &Fault, is_last: bool) -> String {
    let what =
        fault.record_fault.as_ref().map_or("its last group has no end".to_owned(), ToString::to_string);
    match fault.kind {
        FaultKind::Damaged { next_valid: Some((pos, offset)) } => {
            format!(
                "{what}, and the valid record at byte {pos} (offset {offset}) shows that this is not the end"
            )
        }
        FaultKind::Damaged { next_valid: None } => {
            format!("{what}, and there is too much behind it that looks like records to search it all")
        }
        _ if !is_last => format!("{what}, and later segments exist, so this is not the end"),
        _ => what,
    }
}

/// Makes sure that the recovered records are on the disk.
///
/// They may have been read from pages that the operating system failed to write before; such pages count as
/// clean, and `fsync` alone would not write them. So the bytes that no later record proves durable are
/// written again.
fn recovery_sync(opened: &OpenSegment) -> Result<()> {
    let (from, to) = (opened.durable_pos, opened.segment.end_pos);
    copy_bytes(&*opened.file, &*opened.file, from, from, to - from)
        .and_then(|()| opened.file.sync())
        .during("write to", &opened.path)
}

fn copy_bytes(from: &dyn DiskFile, to: &dyn DiskFile, pos: u64, to_pos: u64, bytes: u64) -> io::Result<()> {
    let mut buf = vec![0; (bytes as usize).min(COPY_BYTES)];
    let mut done = 0;
    while done < bytes {
        let n = ((bytes - done) as usize).min(COPY_BYTES);
        let got = read_full(from, pos + done, &mut buf[..n])?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        write_all(to, to_pos + done, &mut [IoSlice::new(&buf[..got])])?;
        done += got as u64;
    }
    Ok(())
}
