//! Writes chunks to the disk: the only writer of a partition's files.
//!
//! It tracks two positions in the newest segment: `pos`, up to which whole chunks are written, and
//! `durable_pos`, up to which `fsync` has returned. A failed write leaves part of a chunk behind, which is
//! truncated before the next write. After a failed `fsync` the durability of all bytes after `durable_pos` is
//! unknown (the system may now count them as clean and report no error the next time), so they are written
//! again from memory, the same bytes at the same positions.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disks::disk::{Disk, DiskFile, write_all};
use crate::disks::failure::IoFailure;
use crate::segments::format::{Checksum, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::segments::newest_segment;
use crate::segments::segment::{Segment, SparseIndex, file_name};
use crate::tail::Chunk;

/// Maximum number of chunks per write.
const CHUNKS_PER_WRITE_MAX: usize = 1024;

/// A partition's segments, oldest first, never empty. Locked only briefly; no other lock is taken while it is
/// held.
pub(crate) type Segments = Arc<Mutex<VecDeque<Segment>>>;

/// End offsets of the written and of the durable records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnds {
    /// Records below have been handed to the operating system.
    pub written: u64,
    /// Records below are durable.
    pub durable: u64,
}

pub(crate) struct LogWriter {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub partition: u32,
    pub salt: u64,
    pub segment_bytes: u64,
    /// True if records of new segments are encrypted.
    pub encrypted: bool,
    pub segments: Segments,
    /// First offset of the newest segment.
    pub base: u64,
    /// First offset of the segment named by the file of [`newest_segment`].
    pub noted: Option<u64>,
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    pub pos: u64,
    pub durable_pos: u64,
    /// Position up to which the file holds whole chunks; above `pos` after a failed `fsync`.
    pub whole_pos: u64,
    /// True if there may be bytes after `whole_pos`.
    pub must_cut: bool,
    /// True if bytes after `durable_pos` were written or truncated since the last successful sync.
    pub dirty: bool,
}

impl LogWriter {
    /// Writes the chunks, which begin at `progress.written`, and syncs if `sync`. `progress` is correct after
    /// a failure, too.
    pub(crate) fn run(
        &mut self,
        chunks: &[Chunk],
        sync: bool,
        progress: &mut LogEnds,
    ) -> Result<(), IoFailure> {
        if self.must_cut {
            self.file.set_len(self.pos).map_err(|e| IoFailure::new("cut", &self.path, &e))?;
            self.must_cut = false;
            self.dirty = true;
        }
        let mut rest = chunks;
        while let Some(first) = rest.first() {
            if self.is_full_for(first.disk_bytes) {
                self.sync(progress)?;
                self.roll(first.first)?;
            }
            self.note_newest()?;
            let mut now = self.how_many_fit(rest);
            while let Err(failure) = self.write(&rest[..now]) {
                if now == 1 || !failure.is_disk_full() || self.must_cut {
                    // Make durable what was written before: a checkpoint that would free space waits for just
                    // that. Return the write's failure, not that of this sync.
                    let _ = self.sync(progress);
                    return Err(failure);
                }
                // A disk that has no space for all chunks may have some for fewer.
                now /= 2;
            }
            progress.written = rest[now - 1].next();
            rest = &rest[now..];
        }
        if sync { self.sync(progress) } else { Ok(()) }
    }

    fn is_full_for(&self, bytes: usize) -> bool {
        self.pos > SEGMENT_HEADER_BYTES as u64 && self.pos + bytes as u64 > self.segment_bytes
    }

    /// Returns how many chunks fit into the segment; at least 1.
    fn how_many_fit(&self, chunks: &[Chunk]) -> usize {
        let mut end = self.pos;
        let fit = chunks.iter().take(CHUNKS_PER_WRITE_MAX).take_while(|c| {
            end += c.disk_bytes as u64;
            end <= self.segment_bytes
        });
        fit.count().max(1)
    }

    fn write(&mut self, chunks: &[Chunk]) -> Result<(), IoFailure> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(chunks.len());
        chunks.iter().for_each(|c| c.slices(&mut slices));
        self.dirty = true;
        if let Err(e) = write_all(&*self.file, self.pos, &mut slices) {
            // Free the space now if possible, else before the next write.
            self.must_cut = self.file.set_len(self.whole_pos).is_err();
            return Err(IoFailure::new("write to", &self.path, &e));
        }
        let mut segments = self.segments.lock();
        let index = &mut segments.back_mut().expect("a partition has a segment").index;
        for chunk in chunks {
            chunk.for_each_start(|offset, start| index.note(offset, self.pos + start));
            self.pos += chunk.disk_bytes as u64;
        }
        self.whole_pos = self.whole_pos.max(self.pos);
        Ok(())
    }

    fn sync(&mut self, progress: &mut LogEnds) -> Result<(), IoFailure> {
        if self.dirty
            && let Err(e) = self.file.sync()
        {
            self.pos = self.durable_pos;
            progress.written = progress.durable;
            return Err(IoFailure::new("fsync of", &self.path, &e));
        }
        self.dirty = false;
        self.durable_pos = self.pos;
        progress.durable = progress.written;
        let mut segments = self.segments.lock();
        let segment = segments.back_mut().expect("a partition has a segment");
        segment.end_pos = self.pos;
        segment.next = progress.durable;
        Ok(())
    }

    /// Writes the newest-segment file unless it names the current segment. Called before every write, because
    /// an earlier attempt may have failed after it created the segment.
    fn note_newest(&mut self) -> Result<(), IoFailure> {
        if self.noted != Some(self.base) {
            newest_segment::write(&*self.disk, &self.dir, self.base)?;
            self.noted = Some(self.base);
        }
        Ok(())
    }

    /// Starts a new segment and writes the newest-segment file, so that the old segment, which is completely
    /// durable, may be removed.
    pub(crate) fn roll_and_note(&mut self, base: u64) -> Result<(), IoFailure> {
        self.roll(base)?;
        self.note_newest()
    }

    /// Starts a new segment; the caller has synced the old one completely.
    fn roll(&mut self, base: u64) -> Result<(), IoFailure> {
        let header =
            SegmentHeader { partition: self.partition, base, salt: self.salt, encrypted: self.encrypted };
        let (file, path) = create_segment(&*self.disk, &self.dir, &header)?;
        self.segments.lock().push_back(Segment {
            base,
            next: base,
            end_pos: SEGMENT_HEADER_BYTES as u64,
            checksum: Checksum::new(self.salt),
            index: SparseIndex::default(),
        });
        (self.file, self.path, self.base) = (file, path, base);
        let pos = SEGMENT_HEADER_BYTES as u64;
        (self.pos, self.durable_pos, self.whole_pos) = (pos, pos, pos);
        Ok(())
    }
}

/// Creates an empty segment and waits until its header and its directory entry are on the disk.
///
/// The header is durable before any record is, so a bad header in front of records is known to be damage.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    dir: &std::path::Path,
    header: &SegmentHeader,
) -> Result<(Arc<dyn DiskFile>, PathBuf), IoFailure> {
    let path = dir.join(file_name(header.base));
    let header = header.encode();
    let made = disk.create(&path).and_then(|file| {
        write_all(&*file, 0, &mut [IoSlice::new(&header)])?;
        file.sync()?;
        disk.sync_dir(dir)?;
        Ok(file)
    });
    match made {
        Ok(file) => Ok((file, path)),
        Err(e) => {
            // The remaining file holds no record; recovery removes it, too.
            let _ = disk.remove(&path);
            Err(IoFailure::new("create", &path, &e))
        }
    }
}
