//! The newest records in memory: those that wait for the disk and some durable ones.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_types::Timestamp;

use crate::encryption::{ENCRYPTION_BYTES, RecordCipher, StoredRecord};
use crate::segments::format::{
    Checksum, PADDING, PADDING_BYTES_MAX, RECORD_HEADER_BYTES, RecordHead, encode_head, encode_record,
};
use crate::segments::segment::record;

/// Memory overhead of a chunk in addition to its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 128;
/// Memory overhead of a record in addition to its bytes on the disk: its start, or its share of a `Bytes`.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// One group of records in the form in which it is written to the disk.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    pub first: u64,
    /// Size on the disk, padding included.
    pub disk_bytes: usize,
    body: TailBody,
}

#[derive(Debug, Clone)]
enum TailBody {
    /// The encoded records and the start of each; `starts` is `None` for a single record, the common case.
    Copied { bytes: Bytes, starts: Option<Arc<[u32]>> },
    /// The consecutive heads of all records, and the payloads as passed in; `padding` follows the last
    /// payload.
    Shared { heads: Bytes, payloads: Arc<[Bytes]>, padding: u16 },
}

/// Attributes that all records of a group share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub checksum: Checksum,
    pub first: u64,
    /// End of the durable records when the group was pushed.
    pub durable: u64,
    pub time: Timestamp,
    /// Position in the segment at which the group is expected to begin; the padding is computed from it.
    pub pos: u64,
}

/// Unit of file writes: after a write that ends inside a block, the next write rewrites that block.
const BLOCK_BYTES: u64 = 4096;
/// A group is padded to the end of a block if that adds at most its size divided by this.
const PADDING_DIVISOR: usize = 8;

/// Returns the padding for a group of `bytes` bytes that begins at `pos`.
///
/// Large groups thus begin and end at block boundaries. Without padding, the block in which two of them meet
/// is written twice, and syncing 64 KiB takes a quarter longer (`bench/log.md`).
fn padding(pos: u64, bytes: usize) -> u16 {
    let end = pos + bytes as u64;
    let padding = (end.next_multiple_of(BLOCK_BYTES) - end) as usize;
    if padding <= bytes / PADDING_DIVISOR { padding as u16 } else { 0 }
}

impl Group {
    /// Returns the head of record `i` of `count`.
    fn head(&self, i: usize, count: usize, padding: u16) -> RecordHead {
        let offset = self.first + i as u64;
        RecordHead {
            payload_bytes: 0,
            crc: 0,
            offset,
            time: self.time.micros(),
            unsynced: u32::try_from(offset - self.durable).unwrap_or(u32::MAX),
            group_end: i + 1 == count,
            encrypted: false,
            padding: if i + 1 == count { padding } else { 0 },
        }
    }
}

impl Chunk {
    /// Encodes a group by copying its payloads; the caller has checked that it is not empty and below the
    /// limits.
    pub(crate) fn copied(group: Group, payloads: &[&[u8]]) -> Self {
        let needed = group_bytes(payloads.iter().map(|p| p.len()));
        let padding = padding(group.pos, needed);
        let disk_bytes = needed + usize::from(padding);
        let mut bytes = Vec::with_capacity(disk_bytes);
        let mut starts = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            starts.push(bytes.len() as u32);
            encode_record(&mut bytes, group.checksum, &group.head(i, payloads.len(), padding), payload);
        }
        let starts = (starts.len() > 1).then(|| starts.into());
        Self { first: group.first, disk_bytes, body: TailBody::Copied { bytes: bytes.into(), starts } }
    }

    /// Encodes a group with encrypted payloads; the conditions of [`Chunk::copied`] apply.
    pub(crate) fn encrypted<P: AsRef<[u8]>>(group: Group, payloads: &[P], cipher: &RecordCipher) -> Self {
        let needed = group_bytes(payloads.iter().map(|p| p.as_ref().len() + ENCRYPTION_BYTES));
        let padding = padding(group.pos, needed);
        let disk_bytes = needed + usize::from(padding);
        let mut bytes = Vec::with_capacity(disk_bytes);
        let mut starts = Vec::new();
        for (i, payload) in payloads.iter().enumerate() {
            let head = RecordHead { encrypted: true, ..group.head(i, payloads.len(), padding) };
            let start = bytes.len();
            starts.push(start as u32);
            bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
            cipher.seal(head.offset, head.time, payload.as_ref(), &mut bytes);
            // the checksum is that of the encrypted payload, so that recovery needs no key
            let encoded = encode_head(group.checksum, &head, &bytes[start + RECORD_HEADER_BYTES..]);
            bytes[start..start + RECORD_HEADER_BYTES].copy_from_slice(&encoded);
            bytes.extend_from_slice(head.padding());
        }
        let starts = (starts.len() > 1).then(|| starts.into());
        Self { first: group.first, disk_bytes, body: TailBody::Copied { bytes: bytes.into(), starts } }
    }

    /// Encodes a group that shares the memory of its payloads; the conditions of [`Chunk::copied`] apply.
    pub(crate) fn shared(group: Group, payloads: Vec<Bytes>) -> Self {
        let needed = group_bytes(payloads.iter().map(Bytes::len));
        let padding = padding(group.pos, needed);
        let mut heads = Vec::with_capacity(payloads.len() * RECORD_HEADER_BYTES);
        for (i, payload) in payloads.iter().enumerate() {
            let head = group.head(i, payloads.len(), padding);
            heads.extend_from_slice(&encode_head(group.checksum, &head, payload));
        }
        Self {
            first: group.first,
            disk_bytes: needed + usize::from(padding),
            body: TailBody::Shared { heads: heads.into(), payloads: payloads.into(), padding },
        }
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> usize {
        match &self.body {
            TailBody::Copied { starts, .. } => starts.as_ref().map_or(1, |s| s.len()),
            TailBody::Shared { payloads, .. } => payloads.len(),
        }
    }

    /// Returns the offset after the last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.records() as u64
    }

    /// Returns the memory cost in bytes.
    pub(crate) fn cost(&self) -> usize {
        self.disk_bytes + CHUNK_OVERHEAD_BYTES + self.records() * RECORD_OVERHEAD_BYTES
    }

    /// Appends the slices to write to the disk, in order, to `out`.
    pub(crate) fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        match &self.body {
            TailBody::Copied { bytes, .. } => out.push(IoSlice::new(bytes)),
            TailBody::Shared { heads, payloads, padding } => {
                for (head, payload) in heads.chunks(RECORD_HEADER_BYTES).zip(payloads.iter()) {
                    out.extend([IoSlice::new(head), IoSlice::new(payload)]);
                }
                if *padding > 0 {
                    out.push(IoSlice::new(&PADDING[..usize::from(*padding)]));
                }
            }
        }
    }

    /// Calls `show` with the offset and the start of every record; starts are relative to the chunk's first
    /// byte.
    pub(crate) fn for_each_start(&self, mut show: impl FnMut(u64, u64)) {
        match &self.body {
            TailBody::Copied { starts: None, .. } => show(self.first, 0),
            TailBody::Copied { starts: Some(starts), .. } => {
                (self.first..).zip(starts.iter()).for_each(|(offset, start)| show(offset, u64::from(*start)));
            }
            TailBody::Shared { payloads, .. } => {
                let mut start = 0;
                for (offset, payload) in (self.first..).zip(payloads.iter()) {
                    show(offset, start);
                    start += (RECORD_HEADER_BYTES + payload.len()) as u64;
                }
            }
        }
    }

    fn record(&self, i: usize) -> StoredRecord {
        let decode = |bytes: &[u8]| RecordHead::decode(bytes).expect("the chunk was encoded in this process");
        match &self.body {
            TailBody::Copied { bytes, starts } => {
                let at = starts.as_ref().map_or(0, |s| s[i] as usize);
                let head = decode(&bytes[at..]);
                record(&head, bytes.slice(at + RECORD_HEADER_BYTES..at + head.payload_end()))
            }
            TailBody::Shared { heads, payloads, .. } => {
                record(&decode(&heads[i * RECORD_HEADER_BYTES..]), payloads[i].clone())
            }
        }
    }
}

/// Returns the size on the disk, without padding, of a group with payloads of these lengths.
fn group_bytes(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.map(|n| n.saturating_add(RECORD_HEADER_BYTES)).fold(0, usize::saturating_add)
}

/// Returns an upper bound of the memory cost of a group with payloads of these lengths.
pub(crate) fn group_cost(lengths: impl ExactSizeIterator<Item = usize>) -> usize {
    let overhead = CHUNK_OVERHEAD_BYTES + lengths.len() * RECORD_OVERHEAD_BYTES;
    let bytes = group_bytes(lengths);
    bytes.saturating_add((bytes / PADDING_DIVISOR).min(PADDING_BYTES_MAX)).saturating_add(overhead)
}

/// Consecutive chunks up to the end of the log.
///
/// Bounds: the partition bounds the bytes that wait for the disk; of the durable bytes,
/// [`LogTail::mark_durable`] retains at most `keep_bytes`.
#[derive(Debug, Default)]
pub(crate) struct LogTail {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    unsynced_bytes: usize,
}

impl LogTail {
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.cost();
        self.unsynced_bytes += chunk.cost();
        self.chunks.push_back(chunk);
    }

    /// Returns the memory cost of the chunks that are not yet durable.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// Returns the first offset in memory, if there is one.
    pub(crate) fn first(&self) -> Option<u64> {
        self.chunks.front().map(|c| c.first)
    }

    /// Returns the chunks that begin at or after `from`.
    pub(crate) fn since(&self, from: u64) -> Vec<Chunk> {
        let i = self.chunks.partition_point(|c| c.first < from);
        self.chunks.range(i..).cloned().collect()
    }

    /// Marks chunks that end in `old..=new` as durable; drops the oldest durable chunks beyond `keep_bytes`.
    pub(crate) fn mark_durable(&mut self, old: u64, new: u64, keep_bytes: usize) {
        let i = self.chunks.partition_point(|c| c.first < old);
        let settled: usize = self.chunks.range(i..).take_while(|c| c.next() <= new).map(Chunk::cost).sum();
        self.unsynced_bytes -= settled;
        while self.bytes - self.unsynced_bytes > keep_bytes {
            match self.chunks.front() {
                Some(c) if c.next() <= new => {
                    self.bytes -= c.cost();
                    self.chunks.pop_front();
                }
                _ => break,
            }
        }
    }

    /// Returns records from `from` on, which must be in memory: about `max_bytes`, at least one.
    pub(crate) fn read(&self, from: u64, max_bytes: usize) -> Vec<StoredRecord> {
        let mut out = Vec::new();
        let mut taken = 0;
        let i = self.chunks.partition_point(|c| c.next() <= from);
        for chunk in self.chunks.range(i..) {
            for i in from.saturating_sub(chunk.first) as usize..chunk.records() {
                let record = chunk.record(i);
                taken += RECORD_HEADER_BYTES + record.record.payload.len();
                if !out.is_empty() && taken > max_bytes {
                    return out;
                }
                out.push(record);
            }
        }
        out
    }
}
