//! The newest records, in memory: those that wait for the disk and some that are there already.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use tidemill_types::Timestamp;

use crate::api::Record;
use crate::format::{
    Checksum, PADDING, PADDING_BYTES_MAX, RECORD_HEADER_BYTES, RecordHead, encode_head, encode_record,
};
use crate::segment::record;

/// What a chunk costs beside its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 128;
/// What a record in a chunk costs beside its bytes on the disk: a place, or a share of a payload.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// One group as it goes to the disk.
#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// Offset of its first record.
    pub first: u64,
    /// Bytes that it takes on the disk.
    pub disk_bytes: usize,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    /// The records as they are on the disk, and where they begin; one record, the common case, needs no list.
    Copied { bytes: Bytes, starts: Option<Arc<[u32]>> },
    /// All heads, one after the other, and the payloads as they were given; padding behind the last.
    Shared { heads: Bytes, payloads: Arc<[Bytes]>, padding: u16 },
}

/// What all records of a group have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub checksum: Checksum,
    pub first: u64,
    /// Records below are on the disk.
    pub durable: u64,
    pub time: Timestamp,
    /// The byte of its segment at which it will begin, as far as one can tell: what is padded is the end.
    pub pos: u64,
}

/// The unit in which files are written: a write that ends inside one makes the next write that one again.
const BLOCK_BYTES: u64 = 4096;
/// A group is filled up to the end of a block if that takes at most this part of it.
const PADDING_DIVISOR: usize = 8;

/// How much padding a group of `bytes` bytes that begins at `pos` gets.
///
/// Groups of some size then begin and end with a block. Without it the block in which two of them meet is written
/// twice, and syncing 64 KiB takes a quarter longer (`bench/log.md`).
fn padding(pos: u64, bytes: usize) -> u16 {
    let end = pos + bytes as u64;
    let padding = (end.next_multiple_of(BLOCK_BYTES) - end) as usize;
    if padding <= bytes / PADDING_DIVISOR { padding as u16 } else { 0 }
}

impl Group {
    /// The head of record `i` of `count`.
    fn head(&self, i: usize, count: usize, padding: u16) -> RecordHead {
        let offset = self.first + i as u64;
        RecordHead {
            payload_bytes: 0,
            crc: 0,
            offset,
            time: self.time.micros(),
            unsynced: u32::try_from(offset - self.durable).unwrap_or(u32::MAX),
            group_end: i + 1 == count,
            padding: if i + 1 == count { padding } else { 0 },
        }
    }
}

impl Chunk {
    /// A group with its payloads copied; the caller has checked that it is not empty and below the limits.
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
        Self { first: group.first, disk_bytes, body: Body::Copied { bytes: bytes.into(), starts } }
    }

    /// A group that shares the memory of its payloads; the same conditions.
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
            body: Body::Shared { heads: heads.into(), payloads: payloads.into(), padding },
        }
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> usize {
        match &self.body {
            Body::Copied { starts, .. } => starts.as_ref().map_or(1, |s| s.len()),
            Body::Shared { payloads, .. } => payloads.len(),
        }
    }

    /// The offset after its last record.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.records() as u64
    }

    /// What it takes in memory.
    pub(crate) fn cost(&self) -> usize {
        self.disk_bytes + CHUNK_OVERHEAD_BYTES + self.records() * RECORD_OVERHEAD_BYTES
    }

    /// What goes to the disk, in order.
    pub(crate) fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        match &self.body {
            Body::Copied { bytes, .. } => out.push(IoSlice::new(bytes)),
            Body::Shared { heads, payloads, padding } => {
                for (head, payload) in heads.chunks(RECORD_HEADER_BYTES).zip(payloads.iter()) {
                    out.extend([IoSlice::new(head), IoSlice::new(payload)]);
                }
                if *padding > 0 {
                    out.push(IoSlice::new(&PADDING[..usize::from(*padding)]));
                }
            }
        }
    }

    /// Shows every record's offset and the byte, from the chunk's first, at which it begins.
    pub(crate) fn for_each_start(&self, mut show: impl FnMut(u64, u64)) {
        match &self.body {
            Body::Copied { starts: None, .. } => show(self.first, 0),
            Body::Copied { starts: Some(starts), .. } => {
                (self.first..).zip(starts.iter()).for_each(|(offset, start)| show(offset, u64::from(*start)));
            }
            Body::Shared { payloads, .. } => {
                let mut start = 0;
                for (offset, payload) in (self.first..).zip(payloads.iter()) {
                    show(offset, start);
                    start += (RECORD_HEADER_BYTES + payload.len()) as u64;
                }
            }
        }
    }

    fn record(&self, i: usize) -> Record {
        let decode = |bytes: &[u8]| RecordHead::decode(bytes).expect("the chunk was encoded in this process");
        match &self.body {
            Body::Copied { bytes, starts } => {
                let at = starts.as_ref().map_or(0, |s| s[i] as usize);
                let head = decode(&bytes[at..]);
                record(&head, bytes.slice(at + RECORD_HEADER_BYTES..at + head.payload_end()))
            }
            Body::Shared { heads, payloads, .. } => {
                record(&decode(&heads[i * RECORD_HEADER_BYTES..]), payloads[i].clone())
            }
        }
    }
}

/// Bytes that a group with payloads of these lengths takes on the disk.
fn group_bytes(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.map(|n| n.saturating_add(RECORD_HEADER_BYTES)).fold(0, usize::saturating_add)
}

/// What a group with payloads of these lengths will cost in memory.
pub(crate) fn group_cost(lengths: impl ExactSizeIterator<Item = usize>) -> usize {
    let overhead = CHUNK_OVERHEAD_BYTES + lengths.len() * RECORD_OVERHEAD_BYTES;
    let bytes = group_bytes(lengths);
    bytes.saturating_add((bytes / PADDING_DIVISOR).min(PADDING_BYTES_MAX)).saturating_add(overhead)
}

/// Chunks without holes up to the end of the log.
///
/// Bounds: what waits for the disk is the writer's to bound; beyond that [`Tail::mark_durable`] keeps `tail_bytes_max`.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    unsynced_bytes: usize,
}

impl Tail {
    pub(crate) fn push(&mut self, chunk: Chunk) {
        self.bytes += chunk.cost();
        self.unsynced_bytes += chunk.cost();
        self.chunks.push_back(chunk);
    }

    /// What waits for the disk.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.unsynced_bytes
    }

    /// The first offset in memory, if there is one.
    pub(crate) fn first(&self) -> Option<u64> {
        self.chunks.front().map(|c| c.first)
    }

    /// The chunks that begin at or after `from`.
    pub(crate) fn since(&self, from: u64) -> Vec<Chunk> {
        let i = self.chunks.partition_point(|c| c.first < from);
        self.chunks.range(i..).cloned().collect()
    }

    /// Chunks that end in `old..=new` have become durable; gives up the oldest durable ones beyond `keep_bytes`.
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

    /// Records from `from` on, which must be in memory: about `max_bytes`, at least one.
    pub(crate) fn read(&self, from: u64, max_bytes: usize) -> Vec<Record> {
        let mut out = Vec::new();
        let mut taken = 0;
        let i = self.chunks.partition_point(|c| c.next() <= from);
        for chunk in self.chunks.range(i..) {
            for i in from.saturating_sub(chunk.first) as usize..chunk.records() {
                let record = chunk.record(i);
                taken += RECORD_HEADER_BYTES + record.payload.len();
                if !out.is_empty() && taken > max_bytes {
                    return out;
                }
                out.push(record);
            }
        }
        out
    }
}
