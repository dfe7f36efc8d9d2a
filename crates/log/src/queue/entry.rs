//! Binary format of queue entries. Pure.
//!
//! ```text
//! put    1 | name length u8 | name | count u32 | count × (length varint, bytes)
//! moved  2 | name length u8 | name | count u32 | origin u64 | count × (index varint, length varint, bytes)
//! ack    3 | count × (origin u64, first u32, count u32)
//! ```
//! All numbers are little-endian; a varint has 7 bits per byte, lowest first. An item is identified by its
//! origin, the offset of the record that put it, and its index there. A moved entry repeats unacknowledged
//! items of a record that is to be truncated; they keep their identity.

use bytes::Bytes;
use thiserror::Error;

const PUT: u8 = 1;
const MOVED: u8 = 2;
const ACK: u8 = 3;
const RUN_BYTES: usize = 16;
/// Maximum length of a queue name in bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Reason why a record is not a queue entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum BadEntry {
    #[error("{0} is no kind of queue entry")]
    Kind(u8),
    #[error("the entry ends early")]
    Short,
    #[error("the entry goes on behind its last item")]
    Long,
    #[error("the queue name is not UTF-8")]
    Name,
    #[error("item indexes do not ascend")]
    Order,
}

/// Items `first..first + count` of one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemRun {
    pub origin: u64,
    pub first: u32,
    pub count: u32,
}

/// A decoded entry.
pub(super) enum Entry {
    Put { name: String, items: Items },
    Moved { name: String, origin: u64, items: Items },
    Ack(Vec<ItemRun>),
}

/// Items of one entry, stored in the entry's bytes.
#[derive(Debug, Clone)]
pub(super) struct Items {
    bytes: Bytes,
    /// Start of the first item.
    body: usize,
    count: u32,
    /// True if each item is preceded by its index; otherwise indexes count from 0.
    has_indexes: bool,
}

/// Position between two items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Number of items before the cursor.
    pub ordinal: u32,
    pos: usize,
}

impl Cursor {
    /// Returns the byte position in the entry; entries are shorter than 4 GiB.
    pub(super) fn pos(self) -> u32 {
        self.pos as u32
    }
}

impl Items {
    /// Creates the items of an entry that this process encoded.
    pub(super) fn of_put(bytes: Bytes, name: &str, count: u32) -> Self {
        Self { bytes, body: put_header_bytes(name), count, has_indexes: false }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the size of the whole entry in bytes.
    pub(super) fn entry_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the entry.
    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    pub(super) fn begin(&self) -> Cursor {
        Cursor { ordinal: 0, pos: self.body }
    }

    /// Returns the cursor before item `ordinal`; `pos` is its start as returned by [`Cursor::pos`].
    pub(super) fn cursor(&self, ordinal: u32, pos: u32) -> Cursor {
        Cursor { ordinal, pos: pos as usize }
    }

    /// Returns whether each item is preceded by its index; otherwise indexes count from 0.
    pub(super) fn has_indexes(&self) -> bool {
        self.has_indexes
    }

    /// Returns the item at the cursor, its index, and the cursor after it; `None` after the last item.
    pub(super) fn next(&self, at: Cursor) -> Option<(u32, Bytes, Cursor)> {
        if at.ordinal == self.count {
            return None;
        }
        let mut pos = at.pos;
        let index = if self.has_indexes { read_varint(&self.bytes, &mut pos)? } else { at.ordinal };
        let len = read_varint(&self.bytes, &mut pos)? as usize;
        let end = pos.checked_add(len).filter(|end| *end <= self.bytes.len())?;
        Some((index, self.bytes.slice(pos..end), Cursor { ordinal: at.ordinal + 1, pos: end }))
    }

    fn check(&self) -> Result<(), BadEntry> {
        let (mut at, mut least) = (self.begin(), 0_u64);
        while at.ordinal < self.count {
            let (index, _, next) = self.next(at).ok_or(BadEntry::Short)?;
            if u64::from(index) < least {
                return Err(BadEntry::Order);
            }
            least = u64::from(index) + 1;
            at = next;
        }
        if at.pos == self.bytes.len() { Ok(()) } else { Err(BadEntry::Long) }
    }
}

fn put_header_bytes(name: &str) -> usize {
    2 + name.len() + 4
}

/// Begins a put entry; append items with [`push_item`], then call [`finish_put`].
pub(super) fn begin_put(name: &str) -> Vec<u8> {
    let mut out = vec![PUT, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&[0; 4]);
    out
}

pub(super) fn push_item(out: &mut Vec<u8>, item: &[u8]) {
    write_varint(out, item.len() as u32);
    out.extend_from_slice(item);
}

pub(super) fn finish_put(out: &mut [u8], name: &str, count: u32) {
    let at = put_header_bytes(name);
    out[at - 4..at].copy_from_slice(&count.to_le_bytes());
}

/// Encodes a moved entry; `items` have ascending indexes.
pub(super) fn moved(name: &str, origin: u64, items: &[(u32, Bytes)]) -> Vec<u8> {
    let mut out = vec![MOVED, name.len() as u8];
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    out.extend_from_slice(&origin.to_le_bytes());
    for (index, item) in items {
        write_varint(&mut out, *index);
        push_item(&mut out, item);
    }
    out
}

pub(super) fn ack(runs: &[ItemRun]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + runs.len() * RUN_BYTES);
    out.push(ACK);
    for run in runs {
        out.extend_from_slice(&run.origin.to_le_bytes());
        out.extend_from_slice(&run.first.to_le_bytes());
        out.extend_from_slice(&run.count.to_le_bytes());
    }
    out
}

/// Decodes and checks the payload of a record.
pub(super) fn decode(bytes: Bytes) -> Result<Entry, BadEntry> {
    match *bytes.first().ok_or(BadEntry::Short)? {
        kind @ (PUT | MOVED) => {
            let name_end = 2 + usize::from(*bytes.get(1).ok_or(BadEntry::Short)?);
            let name = std::str::from_utf8(bytes.get(2..name_end).ok_or(BadEntry::Short)?);
            let name = name.map_err(|_| BadEntry::Name)?.to_owned();
            let count = u32::from_le_bytes(array(&bytes, name_end)?);
            let has_indexes = kind == MOVED;
            let body = name_end + if has_indexes { 12 } else { 4 };
            let origin = if has_indexes { u64::from_le_bytes(array(&bytes, name_end + 4)?) } else { 0 };
            let items = Items { bytes, body, count, has_indexes };
            items.check()?;
            Ok(if has_indexes { Entry::Moved { name, origin, items } } else { Entry::Put { name, items } })
        }
        ACK => {
            let (runs, rest) = bytes[1..].as_chunks::<RUN_BYTES>();
            let run = |b: &[u8; RUN_BYTES]| -> Result<ItemRun, BadEntry> {
                Ok(ItemRun {
                    origin: u64::from_le_bytes(array(b, 0)?),
                    first: u32::from_le_bytes(array(b, 8)?),
                    count: u32::from_le_bytes(array(b, 12)?),
                })
            };
            if rest.is_empty() {
                runs.iter().map(run).collect::<Result<_, _>>().map(Entry::Ack)
            } else {
                Err(BadEntry::Long)
            }
        }
        kind => Err(BadEntry::Kind(kind)),
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], BadEntry> {
    bytes.get(at..).and_then(|b| b.first_chunk()).copied().ok_or(BadEntry::Short)
}

fn write_varint(out: &mut Vec<u8>, mut n: u32) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn read_varint(bytes: &[u8], pos: &mut usize) -> Option<u32> {
    let mut n = 0_u64;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *bytes.get(*pos)?;
        *pos += 1;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return u32::try_from(n).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let mut put = begin_put("q");
        let items = [vec![], vec![1; 127], vec![2; 128], vec![3; 70_000]];
        items.iter().for_each(|i| push_item(&mut put, i));
        finish_put(&mut put, "q", 4);
        let Ok(Entry::Put { name, items: found }) = decode(put.clone().into()) else { panic!() };
        assert_eq!((name.as_str(), found.count()), ("q", 4));
        let mut at = found.begin();
        for (i, item) in items.iter().enumerate() {
            let (index, bytes, next) = found.next(at).unwrap();
            assert_eq!((index as usize, &bytes[..]), (i, &item[..]));
            at = next;
        }
        assert!(found.next(at).is_none());
        let moved = moved("q", 9, &[(3, Bytes::from_static(b"x")), (u32::MAX, Bytes::new())]);
        let Ok(Entry::Moved { origin, items, .. }) = decode(moved.into()) else { panic!() };
        assert_eq!((origin, items.next(items.begin()).unwrap().0), (9, 3));
        let run = ItemRun { origin: 1, first: 2, count: 3 };
        let Ok(Entry::Ack(runs)) = decode(ack(&[run, run]).into()) else { panic!() };
        assert_eq!(runs, [run, run]);
    }

    #[test]
    fn bad_entries_are_refused() {
        let mut put = begin_put("q");
        push_item(&mut put, b"item");
        finish_put(&mut put, "q", 1);
        for n in 0..put.len() {
            assert_eq!(decode(put[..n].to_vec().into()).err(), Some(BadEntry::Short), "{n}");
        }
        let long = [&put[..], &[0]].concat();
        assert_eq!(decode(long.into()).err(), Some(BadEntry::Long));
        assert_eq!(decode(vec![7].into()).err(), Some(BadEntry::Kind(7)));
        assert_eq!(decode(vec![3, 1].into()).err(), Some(BadEntry::Long));
        assert_eq!(decode(vec![1, 1, 0xff, 0, 0, 0, 0].into()).err(), Some(BadEntry::Name));
        let twice = moved("q", 9, &[(3, Bytes::new()), (3, Bytes::new())]);
        assert_eq!(decode(twice.into()).err(), Some(BadEntry::Order));
    }
}
