//! Files of a log whose records were stored elsewhere, such as in a log of another system.
//!
//! Records 120 to 122 of partition 3 become a log that begins at 120 and continues at 123:
//!
//! ```text
//! log.meta   p00003/00000000000000000120.seg   p00003/newest
//! ```
//!
//! The records keep their offsets and times. The caller writes the bytes, and makes them durable before it shows the log to anybody.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::record::Record;
use crate::segments::copy::{LogFile, LogFileContent, META_FILE};
use crate::segments::format::{
    Checksum, PAYLOAD_BYTES_MAX, RecordHead, SEGMENT_HEADER_BYTES, SegmentHeader, encode_record,
};
use crate::segments::newest_segment;
use crate::segments::segment::file_name;

/// Encodes one segment: its header, then records in their order.
pub struct SegmentEncoder {
    header: SegmentHeader,
    next: u64,
    bytes: u64,
}

impl SegmentEncoder {
    /// Begins a segment of a partition with the offset of its first record.
    pub fn new(partition: PartitionId, first: Offset) -> Self {
        let salt = RandomState::new().build_hasher().finish();
        let header = SegmentHeader { partition: partition.0, base: first.0, salt, encrypted: false };
        Self { header, next: first.0, bytes: SEGMENT_HEADER_BYTES as u64 }
    }

    /// Returns the path of the segment below the directory of the log.
    pub fn name(&self) -> String {
        format!("{}/{}", self.directory(), file_name(self.header.base))
    }

    /// Returns the bytes before the first record.
    pub fn header(&self) -> Vec<u8> {
        self.header.encode().to_vec()
    }

    /// Appends the bytes of the next record to `out`.
    ///
    /// Errors: `Internal` for a record with another offset; `LimitReached` for one that is too large for a segment.
    pub fn record(&mut self, record: &Record, out: &mut Vec<u8>) -> Result<()> {
        if record.offset.0 != self.next {
            return Err(Error::internal(format!(
                "partition {}: the record {} follows, and {} is expected",
                self.header.partition, record.offset, self.next
            )));
        }
        let payload = &record.payload;
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::limit(format!(
                "partition {}: the record {} has {} bytes, and a log in files takes {PAYLOAD_BYTES_MAX}",
                self.header.partition,
                record.offset,
                payload.len()
            )));
        }
        let head = RecordHead {
            payload_bytes: payload.len() as u32,
            crc: 0,
            offset: record.offset.0,
            time: record.time.0,
            unsynced: 0,
            group_end: true,
            encrypted: false,
            padding: 0,
        };
        let before = out.len();
        encode_record(out, Checksum::new(self.header.salt), &head, payload);
        self.bytes += (out.len() - before) as u64;
        self.next += 1;
        Ok(())
    }

    /// Returns the offset of the record that follows.
    pub fn next(&self) -> Offset {
        Offset(self.next)
    }

    /// Returns the bytes of the segment so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file that names this segment as the newest of its partition.
    pub fn newest_file(&self) -> LogFile {
        let content = LogFileContent::Written(newest_segment::encode(self.header.base).into_bytes());
        LogFile { name: format!("{}/{}", self.directory(), newest_segment::FILE), content }
    }

    fn directory(&self) -> String {
        format!("p{:05}", self.header.partition)
    }
}

/// Returns the file that says how many partitions a log has.
pub fn meta_file(partitions: u32) -> LogFile {
    let content = LogFileContent::Written(crate::local::meta_text(partitions).into_bytes());
    LogFile { name: META_FILE.to_owned(), content }
}
