//! The order in which documents were inserted, over all partitions of a collection.

use tidemill_types::Timestamp;

use crate::error::{DocsError, ErrorCode, Result};

/// When a document was inserted: the time of its record in the log, and its place among the documents of one statement.
///
/// A replay of the log gives the same ones. Within a partition they never decrease from row to row, so only a merge of several
/// partitions compares them. Documents that were stored before there were sequences have 0 and come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence(u64);

/// Documents that one microsecond has room for: a statement with more of them takes more than one. The time has 53 bits, which end in
/// the year 2255.
const PLACE_BITS: u32 = 11;

impl Sequence {
    /// Returns the sequence of the document at a place of a statement.
    pub fn new(time: Timestamp, place: u32) -> Self {
        let time = time.0.max(0).unsigned_abs().min(u64::MAX >> PLACE_BITS);
        Self((time << PLACE_BITS).saturating_add(place.into()))
    }

    /// Returns the time of the record.
    pub fn time(self) -> Timestamp {
        Timestamp((self.0 >> PLACE_BITS).cast_signed())
    }

    /// Returns the number that [`Self::from_number`] takes.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the sequence that had this number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// Encodes sequences: for each the difference to the one before, zigzag, as a number of seven bits a byte, the lowest first.
pub(crate) fn encode(sequences: &[Sequence], out: &mut Vec<u8>) {
    let mut last = 0;
    for Sequence(number) in sequences {
        let difference = number.wrapping_sub(last).cast_signed();
        let mut rest = ((difference << 1) ^ (difference >> 63)).cast_unsigned();
        last = *number;
        while rest >= 0x80 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
}

/// Decodes what [`encode`] encoded.
///
/// Errors: other bytes.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Sequence>> {
    let damaged = || DocsError::new(ErrorCode::InvalidBson, "the sequences of documents are cut off");
    let (mut sequences, mut last) = (Vec::new(), 0_u64);
    let (mut number, mut shift) = (0_u64, 0);
    for byte in bytes {
        let bits = u64::from(byte & 0x7f);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits).ok_or_else(damaged)?;
        shift += 7;
        if byte & 0x80 == 0 {
            let difference = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
            last = last.wrapping_add(difference.cast_unsigned());
            sequences.push(Sequence(last));
            (number, shift) = (0, 0);
        }
    }
    match shift {
        0 => Ok(sequences),
        _ => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_round_trip_in_any_order() {
        let times = [0, 1, 1_700_000_000_000_000, 1_700_000_000_000_001, 3, i64::MAX, -1];
        let sequences: Vec<_> = times
            .iter()
            .flat_map(|time| [0, 1, 70_000, u32::MAX].map(|place| Sequence::new(Timestamp(*time), place)))
            .collect();
        let mut bytes = Vec::new();
        encode(&sequences, &mut bytes);
        assert_eq!(decode(&bytes).unwrap(), sequences);
        assert!(decode(&bytes[..bytes.len() - 1]).is_err() || bytes.last().is_some_and(|last| *last < 0x80));
        for bad in [&[0x80][..], &[0xff; 11], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]] {
            assert!(decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_later_record_comes_after_all_documents_of_one_before_it() {
        let first = Sequence::new(Timestamp(1_800_000_000_000_000), 2047);
        assert!(first < Sequence::new(Timestamp(1_800_000_000_000_001), 0));
        assert!(first > Sequence::new(Timestamp(1_800_000_000_000_000), 2046));
    }
}
