//! Byte format of a segment, as described in `docs/formats/log.md`. Pure.
//!
//! A segment is a header followed by records; all numbers are little-endian.
//!
//! ```text
//! header, 40 bytes                          record, 32 bytes + payload
//!  0  magic      8  "TIDELOG\n"              0  length    4  bytes after the crc field
//!  8  format     4  1, 2 if encrypted        4  crc       4  CRC32C of salt, length, all after crc
//! 12  partition  4                           8  offset    8
//! 16  base       8  first offset            16  time      8  µs since 1970, UTC
//! 24  salt       8                          24  unsynced  4  records before it not yet on the disk
//! 32  reserved   4  0                       28  flags     2  bit 0: last of its group; bit 1: encrypted
//! 36  crc        4  CRC32C of bytes 0..36   30  padding   2  bytes after the payload
//!                                           32  payload, padding
//! ```
//!
//! The salt is random. It prevents bytes inside a payload, or bytes that an earlier file left on the disk,
//! from passing as records when the bytes after damage are searched for valid records.

use thiserror::Error;

/// Magic number at the start of every segment.
pub const MAGIC: [u8; 8] = *b"TIDELOG\n";
/// Format version of segments without encrypted records.
pub const FORMAT: u32 = 1;
/// Format version of segments with encrypted records, so that releases which do not know these reject the segment.
pub const FORMAT_ENCRYPTED: u32 = 2;
/// Size of a segment header in bytes.
pub const SEGMENT_HEADER_BYTES: usize = 40;
/// Size of a record header in bytes.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Maximum size of a payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// Maximum size of the padding in bytes.
pub const PADDING_BYTES_MAX: usize = 4095;
/// Padding bytes. Not zeros, because a sector of zeros indicates a write that did not reach the disk.
pub const PADDING: [u8; PADDING_BYTES_MAX] = [0xff; PADDING_BYTES_MAX];

/// Bytes that the length field does not count: length and crc.
const PREFIX_BYTES: usize = 8;
const GROUP_END: u32 = 1;
const ENCRYPTED: u32 = 2;
/// Position of the padding size in the flags: the upper half.
const PADDING_SHIFT: u32 = 16;

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Partition that the segment belongs to.
    pub partition: u32,
    /// Offset of the first record.
    pub base: u64,
    /// Salt of the records' checksums.
    pub salt: u64,
    /// True if records may be encrypted.
    pub encrypted: bool,
}

/// Reason why a segment header is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderFault {
    /// The file is shorter than a header.
    #[error("the file has {0} bytes, a segment header has {SEGMENT_HEADER_BYTES}")]
    Short(u64),
    /// The file is not a segment, or its first bytes are damaged.
    #[error("the file does not begin with a log segment's mark")]
    Magic,
    /// The checksum does not match.
    #[error("the header's checksum is {stored:08x}, its bytes give {computed:08x}")]
    Crc {
        /// Checksum in the file.
        stored: u32,
        /// Checksum of the bytes in the file.
        computed: u32,
    },
    /// The format version is that of another release.
    #[error(
        "the segment has format {0}, this release reads the formats {FORMAT} and {FORMAT_ENCRYPTED}: open it with the release that wrote it"
    )]
    Format(u32),
}

impl SegmentHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[0..8].copy_from_slice(&MAGIC);
        let format = if self.encrypted { FORMAT_ENCRYPTED } else { FORMAT };
        out[8..12].copy_from_slice(&format.to_le_bytes());
        out[12..16].copy_from_slice(&self.partition.to_le_bytes());
        out[16..24].copy_from_slice(&self.base.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&out[..36]);
        out[36..40].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes and checks the header at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(b) = bytes.first_chunk::<SEGMENT_HEADER_BYTES>() else {
            return Err(HeaderFault::Short(bytes.len() as u64));
        };
        if b[..8] != MAGIC {
            return Err(HeaderFault::Magic);
        }
        let (stored, computed) = (u32_at(b, 36), crc32c::crc32c(&b[..36]));
        if stored != computed {
            return Err(HeaderFault::Crc { stored, computed });
        }
        match u32_at(b, 8) {
            format @ (FORMAT | FORMAT_ENCRYPTED) => Ok(Self {
                partition: u32_at(b, 12),
                base: u64_at(b, 16),
                salt: u64_at(b, 24),
                encrypted: format == FORMAT_ENCRYPTED,
            }),
            other => Err(HeaderFault::Format(other)),
        }
    }
}

/// Header fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// Size of the payload in bytes.
    pub payload_bytes: u32,
    /// Stored checksum.
    pub crc: u32,
    /// Offset of the record.
    pub offset: u64,
    /// Microseconds since 1970, UTC.
    pub time: i64,
    /// Number of records before this one that were not known to be on the disk when it was written.
    pub unsynced: u32,
    /// True for the last record of its group.
    pub group_end: bool,
    /// True if the payload is encrypted.
    pub encrypted: bool,
    /// Bytes after the payload that fill up a disk block.
    pub padding: u16,
}

/// Reason why the bytes at a position are not the expected record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadRecord {
    /// Fewer bytes remain than a record header has.
    #[error("only {0} bytes are left, a record header has {RECORD_HEADER_BYTES}")]
    Short(u64),
    /// The length is impossible.
    #[error("{0} is no record length")]
    Length(u32),
    /// The record extends past the end of the file.
    #[error("the record has {needed} bytes, the file only {left} more")]
    PastEnd {
        /// Size of the record in bytes.
        needed: u64,
        /// Remaining bytes of the file.
        left: u64,
    },
    /// The format does not define these flags.
    #[error("unknown record flags {0:#010x}")]
    Flags(u32),
    /// The offset is not the expected one.
    #[error("the record has offset {found}, expected {expected}")]
    Offset {
        /// Offset in the file.
        found: u64,
        /// Expected offset.
        expected: u64,
    },
    /// The checksum does not match.
    #[error("the record's checksum is {stored:08x}, its bytes give {computed:08x}")]
    Crc {
        /// Checksum in the file.
        stored: u32,
        /// Checksum of the bytes in the file.
        computed: u32,
    },
}

impl RecordHead {
    /// Decodes the head at the start of `bytes`; checks everything that does not need the payload.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadRecord> {
        let Some(b) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Err(BadRecord::Short(bytes.len() as u64));
        };
        let length = u32_at(b, 0);
        let flags = u32_at(b, 28);
        let padding = (flags >> PADDING_SHIFT) as u16;
        if flags & u32::from(u16::MAX) & !(GROUP_END | ENCRYPTED) != 0
            || usize::from(padding) > PADDING_BYTES_MAX
        {
            return Err(BadRecord::Flags(flags));
        }
        let payload_bytes = length
            .checked_sub((RECORD_HEADER_BYTES - PREFIX_BYTES) as u32 + u32::from(padding))
            .filter(|n| *n as usize <= PAYLOAD_BYTES_MAX)
            .ok_or(BadRecord::Length(length))?;
        Ok(Self {
            payload_bytes,
            crc: u32_at(b, 4),
            offset: u64_at(b, 8),
            time: i64::from_le_bytes(u64_at(b, 16).to_le_bytes()),
            unsynced: u32_at(b, 24),
            group_end: flags & GROUP_END != 0,
            encrypted: flags & ENCRYPTED != 0,
            padding,
        })
    }

    /// Returns the size of the whole record in bytes, padding included.
    pub fn record_bytes(&self) -> usize {
        self.payload_end() + usize::from(self.padding)
    }

    /// Returns the end of the payload, relative to the record's first byte.
    pub fn payload_end(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload_bytes as usize
    }

    /// Returns the padding bytes.
    pub fn padding(&self) -> &'static [u8] {
        &PADDING[..usize::from(self.padding).min(PADDING_BYTES_MAX)]
    }
}

/// Checksum function for records of segments with one salt.
#[derive(Debug, Clone, Copy)]
pub struct Checksum {
    seed: u32,
}

impl Checksum {
    /// Creates the function for segments with `salt`.
    pub fn new(salt: u64) -> Self {
        Self { seed: crc32c::crc32c(&salt.to_le_bytes()) }
    }

    /// Returns the checksum of a record's first [`RECORD_HEADER_BYTES`]; continue with [`Checksum::extend`].
    pub fn of_head(self, head: &[u8]) -> u32 {
        let crc = crc32c::crc32c_append(self.seed, &head[..4]);
        crc32c::crc32c_append(crc, &head[PREFIX_BYTES..RECORD_HEADER_BYTES])
    }

    /// Extends a checksum with payload or padding bytes.
    pub fn extend(crc: u32, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc, payload)
    }
}

/// Appends one record to `out`.
///
/// `payload` has at most [`PAYLOAD_BYTES_MAX`] bytes, the padding at most [`PADDING_BYTES_MAX`]. `head.crc`
/// and `head.payload_bytes` are ignored.
pub fn encode_record(out: &mut Vec<u8>, checksum: Checksum, head: &RecordHead, payload: &[u8]) {
    out.extend_from_slice(&encode_head(checksum, head, payload));
    out.extend_from_slice(payload);
    out.extend_from_slice(head.padding());
}

/// Encodes the header of a record; the conditions of [`encode_record`] apply.
///
/// Panics: when `payload` is too long.
pub fn encode_head(checksum: Checksum, head: &RecordHead, payload: &[u8]) -> [u8; RECORD_HEADER_BYTES] {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes reached the encoder", payload.len());
    let length = (RECORD_HEADER_BYTES - PREFIX_BYTES + payload.len() + head.padding().len()) as u32;
    let mut b = [0; RECORD_HEADER_BYTES];
    b[0..4].copy_from_slice(&length.to_le_bytes());
    b[8..16].copy_from_slice(&head.offset.to_le_bytes());
    b[16..24].copy_from_slice(&head.time.to_le_bytes());
    b[24..28].copy_from_slice(&head.unsynced.to_le_bytes());
    let flags = (u32::from(head.group_end) * GROUP_END)
        | (u32::from(head.encrypted) * ENCRYPTED)
        | (u32::from(head.padding) << PADDING_SHIFT);
    b[28..32].copy_from_slice(&flags.to_le_bytes());
    let crc = Checksum::extend(checksum.of_head(&b), payload);
    let crc = Checksum::extend(crc, head.padding());
    b[4..8].copy_from_slice(&crc.to_le_bytes());
    b
}

/// Decodes and checks the whole record at the start of `bytes`, which must have offset `expected`.
///
/// The payload is `bytes[RECORD_HEADER_BYTES..head.payload_end()]`.
pub fn decode_record(bytes: &[u8], checksum: Checksum, expected: u64) -> Result<RecordHead, BadRecord> {
    let head = RecordHead::decode(bytes)?;
    let Some(record) = bytes.get(..head.record_bytes()) else {
        return Err(BadRecord::PastEnd { needed: head.record_bytes() as u64, left: bytes.len() as u64 });
    };
    if head.offset != expected {
        return Err(BadRecord::Offset { found: head.offset, expected });
    }
    let computed = Checksum::extend(checksum.of_head(record), &record[RECORD_HEADER_BYTES..]);
    if computed != head.crc {
        return Err(BadRecord::Crc { stored: head.crc, computed });
    }
    Ok(head)
}

/// Requires `at + 4 <= N`.
fn u32_at<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Requires `at + 8 <= N`.
fn u64_at<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(b, at)) | u64::from(u32_at(b, at + 4)) << 32
}
