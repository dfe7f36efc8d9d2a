//! Positions in the changes of all partitions.

use tidemill_types::{Error, Offset, Result};

/// A position in the changes of all partitions: after some changes and before all others. Valid as long as the changes after it are kept, also
/// over restarts, and at each node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePosition {
    /// Log that the records belong to.
    pub(crate) kind: PositionKind,
    /// For each partition the record, and the number of the change in it, at which to go on.
    pub(crate) partitions: Vec<(Offset, u32)>,
}

/// Log that the records of a position belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PositionKind {
    /// The change log of a process that is alone. It has what a power failure took from the log, and readers have been told.
    ChangeLog = 1,
    /// The log of a cluster: all nodes have the same.
    Log = 2,
}

impl ChangePosition {
    /// Encodes the position. The first byte is the kind.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![self.kind as u8];
        for (offset, change) in &self.partitions {
            out.extend(offset.0.to_be_bytes());
            out.extend(change.to_be_bytes());
        }
        out
    }

    /// Decodes what [`Self::to_bytes`] encoded.
    ///
    /// Errors: `Invalid` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let foreign = || Error::invalid("this is not the position of a change in this data directory");
        let (kind, rest) = bytes.split_first().ok_or_else(foreign)?;
        let kind =
            [PositionKind::ChangeLog, PositionKind::Log].into_iter().find(|known| *known as u8 == *kind);
        let kind = kind.ok_or_else(foreign)?;
        if !rest.len().is_multiple_of(12) {
            return Err(foreign());
        }
        let number = |chunk: &[u8]| {
            let (offset, change) = chunk.split_first_chunk()?;
            Some((Offset(u64::from_be_bytes(*offset)), u32::from_be_bytes(change.try_into().ok()?)))
        };
        let partitions = rest.chunks(12).map(number).collect::<Option<_>>().ok_or_else(foreign)?;
        Ok(Self { kind, partitions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip_and_other_bytes_are_refused() {
        for kind in [PositionKind::ChangeLog, PositionKind::Log] {
            let position = ChangePosition { kind, partitions: vec![(Offset(7), 0), (Offset(u64::MAX), 3)] };
            let bytes = position.to_bytes();
            assert_eq!(ChangePosition::from_bytes(&bytes).unwrap(), position);
            for other in [&[][..], &[0], &[3], &bytes[..20]] {
                assert!(ChangePosition::from_bytes(other).is_err());
            }
        }
    }
}
