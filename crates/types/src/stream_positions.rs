//! Positions up to which a reader has the events of a stream.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// For each partition the offset and the row of the last event that a reader has: `0-7-0,1-20-3` as a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamPositions(BTreeMap<u32, (i64, i32)>);

impl StreamPositions {
    /// Notes an event. Returns whether it is new.
    pub fn advance(&mut self, (partition, offset, row): (u32, i64, i32)) -> bool {
        let is_new = self.0.get(&partition).is_none_or(|last| *last < (offset, row));
        if is_new {
            self.0.insert(partition, (offset, row));
        }
        is_new
    }

    /// Returns the last event that the reader has of each partition, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, i64, i32)> {
        self.0.iter().map(|(partition, (offset, row))| (*partition, *offset, *row))
    }

    /// Returns offset and row of the last event of a partition.
    pub fn of_partition(&self, partition: u32) -> Option<(i64, i32)> {
        self.0.get(&partition).copied()
    }
}

impl FromStr for StreamPositions {
    type Err = Error;

    /// Parses what [`Self::to_string`] makes.
    ///
    /// Errors: `Invalid` with the part that is not the id of an event.
    fn from_str(text: &str) -> Result<Self> {
        let part = |part: &str| {
            let mut numbers = part.split('-');
            let position =
                (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
            numbers.next().is_none().then_some(position)
        };
        let mut positions = Self::default();
        for text_of_part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((partition, offset, row)) = part(text_of_part) else {
                return Err(Error::invalid(format!(
                    "`{text_of_part}` is not an id of an event: expected PARTITION-OFFSET-ROW, several separated by commas"
                )));
            };
            positions.advance((partition, offset, row));
        }
        Ok(positions)
    }
}

impl fmt::Display for StreamPositions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (partition, offset, row)) in self.iter().enumerate() {
            let separator = if number == 0 { "" } else { "," };
            write!(f, "{separator}{partition}-{offset}-{row}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_texts() {
        let positions: StreamPositions = "1-20-3,0-7-0".parse().unwrap();
        assert_eq!(positions.to_string(), "0-7-0,1-20-3");
        assert_eq!("".parse::<StreamPositions>().unwrap(), StreamPositions::default());
        for wrong in ["x", "1-2", "1-2-3-4", "-1-2-3", "1-2-3,,x"] {
            assert!(wrong.parse::<StreamPositions>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_counts_once() {
        let mut positions = StreamPositions::default();
        assert!(positions.advance((0, 5, 0)) && positions.advance((1, 2, 0)) && positions.advance((0, 5, 1)));
        assert!(!positions.advance((0, 5, 1)) && !positions.advance((0, 4, 9)));
        assert_eq!((positions.of_partition(0), positions.of_partition(2)), (Some((5, 1)), None));
    }
}
