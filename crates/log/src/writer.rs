//! Brings chunks to the disk: the only writer of a partition's files.
//!
//! It knows two places in the newest segment: `pos`, up to which whole chunks are written, and `durable_pos`, up to
//! which `fsync` has returned. A failed write leaves part of a chunk behind; it is cut before the next one. A
//! failed `fsync` leaves all bytes behind `durable_pos` in doubt (the system may count them as clean now and say
//! nothing the next time), so they are written again from memory, the same bytes to the same places.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile, write_all};
use crate::failure::IoFailure;
use crate::format::{Checksum, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::newest_segment;
use crate::segment::{Index, Segment, file_name};
use crate::tail::Chunk;

/// Chunks that are gathered for one write.
const CHUNKS_PER_WRITE_MAX: usize = 1024;

/// A partition's segments, oldest first, never empty. Locked for moments only, and no other lock is taken inside.
pub(crate) type Segments = Arc<Mutex<VecDeque<Segment>>>;

/// How far the disk has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Records below are with the operating system.
    pub written: u64,
    /// Records below are on the disk.
    pub durable: u64,
}

pub(crate) struct Writer {
    pub disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    pub partition: u32,
    pub salt: u64,
    pub segment_bytes: u64,
    pub segments: Segments,
    /// The first offset of the newest segment.
    pub base: u64,
    /// The segment that the partition's note names, see [`newest_segment`].
    pub noted: Option<u64>,
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    pub pos: u64,
    pub durable_pos: u64,
    /// Up to here the file holds whole chunks; above `pos` after a failed `fsync`.
    pub whole_pos: u64,
    /// There may be bytes behind `whole_pos`.
    pub must_cut: bool,
    /// Something behind `durable_pos` was written or cut.
    pub dirty: bool,
}

impl Writer {
    /// Writes the chunks, which begin with `progress.written`, and syncs if asked to. `progress` is right after a
    /// failure, too.
    pub(crate) fn run(
        &mut self,
        chunks: &[Chunk],
        sync: bool,
        progress: &mut Progress,
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
                    // What the disk took before can still be made durable: a checkpoint that frees room waits for just
                    // that. The write's failure is the one to tell.
                    let _ = self.sync(progress);
                    return Err(failure);
                }
                // A disk that has no room for all may have some for a part.
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

    /// The first one always does.
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
            // Give the room back at once if possible, else before the next write.
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

    fn sync(&mut self, progress: &mut Progress) -> Result<(), IoFailure> {
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

    /// Every time before records are written, as an earlier attempt may have failed between making and noting.
    fn note_newest(&mut self) -> Result<(), IoFailure> {
        if self.noted != Some(self.base) {
            newest_segment::write(&*self.disk, &self.dir, self.base)?;
            self.noted = Some(self.base);
        }
        Ok(())
    }

    /// Goes on in a new segment and notes it, so that the old one, which is on the disk as a whole, may be removed.
    pub(crate) fn roll_and_note(&mut self, base: u64) -> Result<(), IoFailure> {
        self.roll(base)?;
        self.note_newest()
    }

    /// Goes on in a new segment; the old one is on the disk as a whole.
    fn roll(&mut self, base: u64) -> Result<(), IoFailure> {
        let (file, path) = create_segment(&*self.disk, &self.dir, self.partition, base, self.salt)?;
        self.segments.lock().push_back(Segment {
            base,
            next: base,
            end_pos: SEGMENT_HEADER_BYTES as u64,
            checksum: Checksum::new(self.salt),
            index: Index::default(),
        });
        (self.file, self.path, self.base) = (file, path, base);
        let pos = SEGMENT_HEADER_BYTES as u64;
        (self.pos, self.durable_pos, self.whole_pos) = (pos, pos, pos);
        Ok(())
    }
}

/// Makes an empty segment and returns when it is on the disk, header and directory entry.
///
/// The header is on the disk before any record is, so that a bad header before records is known to be damage.
pub(crate) fn create_segment(
    disk: &dyn Disk,
    dir: &std::path::Path,
    partition: u32,
    base: u64,
    salt: u64,
) -> Result<(Arc<dyn DiskFile>, PathBuf), IoFailure> {
    let path = dir.join(file_name(base));
    let header = SegmentHeader { partition, base, salt }.encode();
    let made = disk.create(&path).and_then(|file| {
        write_all(&*file, 0, &mut [IoSlice::new(&header)])?;
        file.sync()?;
        disk.sync_dir(dir)?;
        Ok(file)
    });
    match made {
        Ok(file) => Ok((file, path)),
        Err(e) => {
            // What is left of it holds no record; recovery takes it away, too.
            let _ = disk.remove(&path);
            Err(IoFailure::new("create", &path, &e))
        }
    }
}
