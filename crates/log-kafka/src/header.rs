//! The header of a message: bytes that name the record beside its payload. `docs/formats/kafka.md` describes them. Pure.

use rdkafka::message::{Headers, Message};
use tidemill_types::{Error, Result};

/// Key of the header.
pub(crate) const KEY: &str = "tm";
/// Version that is written. The first one had no version, no clock and no base, and 24 bytes.
const VERSION: u8 = 2;
const BYTES: usize = 41;
const BYTES_V1: usize = 24;

/// Fields of the header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Producer, as one run of a process has it.
    pub incarnation: [u8; 16],
    /// Number of the record of this producer.
    pub number: u64,
    pub stamp: Option<Stamp>,
}

/// Part of a header that the first version does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Clock of the appender.
    pub clock: u64,
    /// Offset of the record in the log less its offset in Kafka.
    pub base: u64,
}

impl RecordHeader {
    /// Returns the bytes of a header of the written version.
    pub(crate) fn encode(incarnation: &[u8; 16], number: u64, stamp: Stamp) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = VERSION;
        bytes[1..17].copy_from_slice(incarnation);
        bytes[17..25].copy_from_slice(&number.to_le_bytes());
        bytes[25..33].copy_from_slice(&stamp.clock.to_le_bytes());
        bytes[33..41].copy_from_slice(&stamp.base.to_le_bytes());
        bytes
    }

    /// Decodes a header of any version.
    ///
    /// Errors: `Corrupt` for bytes that no version has.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let unknown = || {
            Error::corrupt(format!(
                "the header `{KEY}` has {} bytes and begins with {}: a later release wrote the record; use that, or newer",
                bytes.len(),
                bytes.first().map_or("none".to_owned(), u8::to_string)
            ))
        };
        let (name, stamp) = match bytes.len() {
            BYTES_V1 => (bytes, None),
            BYTES if bytes[0] == VERSION => {
                let stamp = Stamp { clock: u64_at(bytes, 25), base: u64_at(bytes, 33) };
                (&bytes[1..25], Some(stamp))
            }
            _ => return Err(unknown()),
        };
        let incarnation = *name.first_chunk().ok_or_else(unknown)?;
        Ok(Self { incarnation, number: u64_at(name, 16), stamp })
    }

    /// Returns the header of a message; `None` for a message of another program.
    pub(crate) fn of(message: &impl Message) -> Result<Option<Self>> {
        let Some(headers) = message.headers() else { return Ok(None) };
        let found = headers.iter().find(|header| header.key == KEY);
        found.map(|header| Self::decode(header.value.unwrap_or_default())).transpose()
    }
}

/// Returns the number at a position that the caller has checked.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCARNATION: [u8; 16] = *b"incarnation no 7";

    #[test]
    fn written_header_is_read() {
        let stamp = Stamp { clock: 0x0102_0304_0506_0708, base: 99 };
        let bytes = RecordHeader::encode(&INCARNATION, 5, stamp);
        let header = RecordHeader { incarnation: INCARNATION, number: 5, stamp: Some(stamp) };
        assert_eq!(RecordHeader::decode(&bytes).expect("a header"), header);
    }

    #[test]
    fn header_of_the_first_version_is_read() {
        let mut bytes = INCARNATION.to_vec();
        bytes.extend(7_u64.to_le_bytes());
        let header = RecordHeader { incarnation: INCARNATION, number: 7, stamp: None };
        assert_eq!(RecordHeader::decode(&bytes).expect("a header"), header);
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut later = RecordHeader::encode(&INCARNATION, 5, Stamp { clock: 1, base: 0 });
        later[0] = 3;
        for bytes in [&later[..], &later[..40], b"", &[1; 100]] {
            let refused = RecordHeader::decode(bytes).expect_err("no version has these bytes");
            assert!(refused.message().contains("a later release"), "{refused}");
        }
    }
}
