//! A run: ids that are not in memory any more, sorted, in a file that never changes.
//!
//! ```text
//! magic (8)  blocks of 256 ids (16 bytes each, little-endian)  filter (u64 words)  first id and CRC32C of each block
//! footer: ids (u64), words of the filter (u64), hashes of the filter (u32), CRC32C from the filter to here (u32), magic (8)
//! ```

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use fastbloom::BloomFilter;
use serde::{Deserialize, Serialize};
use tidemill_log::disk::{Disk, DiskFile, FileWriter};
use tidemill_types::{Error, Result};

const MAGIC: &[u8; 8] = b"TMIDRUN1";
/// Ids of a block, the unit that is read.
const BLOCK_IDS: usize = 256;
const ID_BYTES: usize = 16;
const INDEX_ENTRY_BYTES: usize = ID_BYTES + 4;
const FOOTER_BYTES: usize = 32;
/// Share of the ids that are not in a run and that its filter does not recognise as such.
const FALSE_POSITIVES: f64 = 0.01;
/// Seed of the filters, which must be the same when a file is read again.
const FILTER_SEED: u128 = 0x7469_6465_6d69_6c6c;

/// Times of events in microseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeRange {
    /// The first.
    pub first: i64,
    /// The last.
    pub last: i64,
}

impl TimeRange {
    /// The range of one time.
    pub fn of(time: i64) -> Self {
        Self { first: time, last: time }
    }

    /// The smallest range that has both.
    pub fn union(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    fn contains(self, time: i64) -> bool {
        self.first <= time && time <= self.last
    }
}

/// Description of a run in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of its file.
    pub file: String,
    /// Number of merges that its ids went through.
    pub level: u32,
    /// Number of ids.
    pub ids: u64,
    /// Times of the events; `None` when the times are not part of the ids, so that they say nothing.
    pub times: Option<TimeRange>,
}

/// An open run.
pub struct IdRun {
    /// Description of the run for checkpoints.
    pub info: RunInfo,
    file: Arc<dyn DiskFile>,
    /// First id and checksum of each block.
    index: Vec<(u128, u32)>,
    filter: BloomFilter,
}

impl IdRun {
    /// Returns whether an event of this time may have its id in the run; `None`: the time is not part of the
    /// id.
    pub fn may_cover(&self, time: Option<i64>) -> bool {
        match (self.info.times, time) {
            (Some(range), Some(time)) => range.contains(time),
            _ => true,
        }
    }

    /// Returns whether the run has the id.
    ///
    /// Errors: `Corrupt` naming the file and the damaged block; `Unavailable` when it cannot be read.
    pub fn contains(&self, id: u128) -> Result<bool> {
        if !self.filter.contains(&id) {
            return Ok(false);
        }
        let Some(block) = self.index.partition_point(|(first, _)| *first <= id).checked_sub(1) else {
            return Ok(false);
        };
        Ok(self.block(block)?.binary_search(&id).is_ok())
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> usize {
        self.index.len()
    }

    /// Reads the ids of a block, which are sorted.
    pub fn block(&self, block: usize) -> Result<Vec<u128>> {
        let start = block * BLOCK_IDS;
        let ids = BLOCK_IDS.min((self.info.ids as usize).saturating_sub(start));
        let mut bytes = vec![0; ids * ID_BYTES];
        read_exact(&*self.file, (MAGIC.len() + start * ID_BYTES) as u64, &mut bytes)
            .map_err(|e| unreadable(&self.info.file, e))?;
        if self.index.get(block).is_none_or(|(_, sum)| *sum != crc32c::crc32c(&bytes)) {
            return Err(Error::corrupt(format!("{}: block {block} is not what was written", self.info.file)));
        }
        Ok(bytes.chunks_exact(ID_BYTES).map(read_id).collect())
    }

    /// Writes a run of sorted ids without repetitions; when this returns it is on the disk.
    ///
    /// Errors: those of the disk. A file that was begun is removed.
    pub fn write(
        disk: &dyn Disk,
        dir: &Path,
        info: RunInfo,
        ids: impl Iterator<Item = Result<u128>>,
    ) -> Result<Self> {
        let path = dir.join(&info.file);
        let failed = |e: io::Error| Error::unavailable(format!("{}", path.display())).with_source(e);
        let written = write_file(disk, &path, &info, ids);
        let (index, filter) = written.inspect_err(|_| {
            // The next run has another name; a remainder is removed with the files that no checkpoint names.
            let _ = disk.remove(&path);
        })?;
        disk.sync_dir(dir).map_err(failed)?;
        let file = disk.open(&path).map_err(failed)?;
        Ok(Self { info, file, index, filter })
    }

    /// Opens a run that a checkpoint names.
    ///
    /// Errors: `Corrupt` naming the file when it is missing or damaged; `Unavailable`.
    pub fn open(disk: &dyn Disk, dir: &Path, info: RunInfo) -> Result<Self> {
        let path = dir.join(&info.file);
        let file = disk.open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::corrupt(format!(
                "{}: the file is missing, though the checkpoint names it; restore it from a copy",
                path.display()
            )),
            _ => unreadable(&info.file, e),
        })?;
        let damaged = || {
            Error::corrupt(format!("{}: it is not what was written; restore it from a copy", path.display()))
        };
        let read =
            |at: u64, bytes: &mut [u8]| read_exact(&*file, at, bytes).map_err(|e| unreadable(&info.file, e));
        let length = file.len().map_err(|e| unreadable(&info.file, e))?;
        let mut footer_bytes = [0; FOOTER_BYTES];
        let footer_at = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(damaged)?;
        read(footer_at, &mut footer_bytes)?;
        let footer = Footer::parse(&footer_bytes);
        if footer.ids != info.ids {
            return Err(damaged());
        }
        let blocks = (footer.ids as usize).div_ceil(BLOCK_IDS);
        let filter_bytes = (footer.filter_words as usize).checked_mul(8).ok_or_else(damaged)?;
        let filter_at = MAGIC.len() as u64 + footer.ids * ID_BYTES as u64;
        let tail_bytes = filter_bytes.checked_add(blocks * INDEX_ENTRY_BYTES).ok_or_else(damaged)?;
        if filter_at.checked_add(tail_bytes as u64) != Some(footer_at) {
            return Err(damaged());
        }
        let mut tail = vec![0; tail_bytes];
        read(filter_at, &mut tail)?;
        if footer.to_bytes(&tail) != footer_bytes {
            return Err(damaged());
        }
        let (filter, index) = tail.split_at(filter_bytes);
        let words = filter.chunks_exact(8).map(|word| u64::from_le_bytes(array(word))).collect();
        let filter = BloomFilter::from_vec(words).seed(&FILTER_SEED).hashes(footer.hashes);
        let entry = |bytes: &[u8]| {
            let (id, sum) = bytes.split_at(ID_BYTES);
            (read_id(id), u32::from_le_bytes(array(sum)))
        };
        let index = index.chunks_exact(INDEX_ENTRY_BYTES).map(entry).collect();
        Ok(Self { info, file, index, filter })
    }
}

type WrittenRun = (Vec<(u128, u32)>, BloomFilter);

fn write_file(
    disk: &dyn Disk,
    path: &Path,
    info: &RunInfo,
    ids: impl Iterator<Item = Result<u128>>,
) -> Result<WrittenRun> {
    let failed = |e: io::Error| Error::unavailable(format!("{}", path.display())).with_source(e);
    let file = disk.create(path).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, FileWriter::new(file));
    out.write_all(MAGIC).map_err(failed)?;
    let expected = usize::try_from(info.ids).unwrap_or(usize::MAX);
    let mut filter = BloomFilter::with_false_pos(FALSE_POSITIVES).seed(&FILTER_SEED).expected_items(expected);
    let (mut index, mut block, mut written) = (Vec::new(), Vec::with_capacity(BLOCK_IDS * ID_BYTES), 0_u64);
    let mut first = 0;
    let mut ids = ids.peekable();
    while let Some(id) = ids.next() {
        let id = id?;
        if block.is_empty() {
            first = id;
        }
        block.extend_from_slice(&id.to_le_bytes());
        filter.insert(&id);
        written += 1;
        if block.len() == BLOCK_IDS * ID_BYTES || ids.peek().is_none() {
            index.push((first, crc32c::crc32c(&block)));
            out.write_all(&block).map_err(failed)?;
            block.clear();
        }
    }
    if written != info.ids {
        return Err(Error::internal(format!("{written} ids instead of {} in a run", info.ids)));
    }
    let mut tail: Vec<u8> = filter.as_slice().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (first, sum) in &index {
        tail.extend_from_slice(&first.to_le_bytes());
        tail.extend_from_slice(&sum.to_le_bytes());
    }
    out.write_all(&tail).map_err(failed)?;
    let footer =
        Footer { ids: info.ids, filter_words: filter.as_slice().len() as u64, hashes: filter.num_hashes() };
    out.write_all(&footer.to_bytes(&tail)).map_err(failed)?;
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?.into_file();
    file.sync().map_err(failed)?;
    Ok((index, filter))
}

struct Footer {
    ids: u64,
    filter_words: u64,
    hashes: u32,
}

impl Footer {
    /// Encodes the footer behind `tail`: filter and index.
    fn to_bytes(&self, tail: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FOOTER_BYTES);
        bytes.extend_from_slice(&self.ids.to_le_bytes());
        bytes.extend_from_slice(&self.filter_words.to_le_bytes());
        bytes.extend_from_slice(&self.hashes.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(tail), &bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes
    }

    /// Decodes a footer, which may be damaged.
    fn parse(bytes: &[u8; FOOTER_BYTES]) -> Self {
        Self {
            ids: u64::from_le_bytes(array(&bytes[..8])),
            filter_words: u64::from_le_bytes(array(&bytes[8..16])),
            hashes: u32::from_le_bytes(array(&bytes[16..20])),
        }
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut all = [0; N];
    all.copy_from_slice(bytes);
    all
}

fn read_id(bytes: &[u8]) -> u128 {
    u128::from_le_bytes(array(bytes))
}

fn unreadable(file: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt(format!("{file}: it is shorter than it must be")),
        // what was encrypted is not what was written
        io::ErrorKind::InvalidData => Error::corrupt(format!("{file}: {error}")),
        _ => Error::unavailable(format!("{file} cannot be read")).with_source(error),
    }
}

fn read_exact(file: &dyn DiskFile, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = file.read_at(at, bytes)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += n as u64;
        bytes = &mut bytes[n..];
    }
    Ok(())
}
