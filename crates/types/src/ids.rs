//! Partitions, offsets and event ids.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A log partition, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u32);

impl PartitionId {
    /// First partition, which always exists. Its owner does what one node does for all, such as reading sources.
    pub const FIRST: Self = Self(0);
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position of a record in its partition, counted from 0 without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// Returns the offset after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Address of an event in the log: partition, record offset, row in that record.
///
/// Displayed as `3-1042-7`. Events that rules emit carry the offset of the record that triggered them; their
/// rows are numbered after that record's own rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Log partition.
    pub partition: PartitionId,
    /// Offset of the record.
    pub offset: Offset,
    /// Row in the record, from 0.
    pub row: u32,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.partition, self.offset, self.row)
    }
}

impl FromStr for EventId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let parsed = match parts.as_slice() {
            [p, o, r] => p.parse().ok().zip(o.parse().ok()).zip(r.parse().ok()),
            _ => None,
        };
        let Some(((partition, offset), row)) = parsed else {
            return Err(Error::invalid(format!(
                "event id `{text}`: expected PARTITION-OFFSET-ROW, for example 0-1042-7"
            )));
        };
        Ok(Self { partition: PartitionId(partition), offset: Offset(offset), row })
    }
}

/// Computes Murmur2 as Kafka's default partitioner does (seed 0x9747b28c), so that external producers agree.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    const SEED: u32 = 0x9747_b28c;
    let mut h = SEED ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        // `chunks_exact` yields exactly four bytes.
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// Returns the partition that owns `key` among `partitions`: Kafka's `toPositive(murmur2(key)) % partitions`.
///
/// Pass an empty key if the key is missing, so that a replay of the same input chooses the same partition.
pub fn partition_of_key(key: &[u8], partitions: u32) -> PartitionId {
    PartitionId((murmur2(key) & 0x7fff_ffff) % partitions.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected values: org.apache.kafka.common.utils.Utils.murmur2, Kafka's own UtilsTest.
    #[test]
    fn murmur2_agrees_with_kafka() {
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, expected, "{key}");
        }
    }

    #[test]
    fn event_ids_round_trip() {
        let id: EventId = "3-1042-7".parse().unwrap();
        assert_eq!(id.to_string(), "3-1042-7");
        assert!("3-1042".parse::<EventId>().unwrap_err().to_string().contains("0-1042-7"));
    }
}
