//! Partitions of a data directory or a cluster, and the rule by which files of queries get one of them.
//!
//! ```text
//! windows.siddhi   home: hash("windows.siddhi") mod partitions      made by this version
//! windows.siddhi   home: partition 0                                made before there were homes
//! ```
//!
//! The newest rule also lets queries with `@dist(parallel='4')` run where the events of a stream without a key are, so that these events
//! can be in several partitions.
//!
//! The rule is fixed when a directory or a cluster is made, as the number of partitions is: the state of queries is in the
//! checkpoint of the partition in which they run. `docs/rfcs/0037-placement-of-global-queries.md` has the reasons.

use tidemill_types::{Error, PartitionId, Result, partition_of_key};

/// Rule by which a file of queries gets its home, the partition of those queries that run in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum HomeRule {
    /// All files have the first partition.
    First,
    /// Each file has the partition of its name.
    #[default]
    ByName,
    /// The same, and queries that ask for several instances of themselves run in every partition.
    Parallel,
}

impl HomeRule {
    /// Rule of directories and clusters that are made now.
    pub const NEWEST: Self = Self::Parallel;

    /// Returns the rule of a number that was stored: 0 for directories and clusters that were made before there were homes.
    ///
    /// Errors: `Invalid` for a number that this version does not know.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::First),
            1 => Ok(Self::ByName),
            2 => Ok(Self::Parallel),
            _ => Err(Error::invalid(format!(
                "queries are placed by rule {number}; this version knows the rules 0 to 2: start a newer one"
            ))),
        }
    }

    /// Returns the number under which the rule is stored.
    pub const fn number(self) -> u32 {
        match self {
            Self::First => 0,
            Self::ByName => 1,
            Self::Parallel => 2,
        }
    }
}

/// Number of partitions of a directory or a cluster, and the rule by which files of queries get one. Neither ever changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partitioning {
    /// Number of partitions.
    pub partitions: u32,
    /// Rule by which files get their homes.
    pub home_rule: HomeRule,
}

impl Partitioning {
    /// Returns the partitioning of a directory that is made now.
    pub fn new(partitions: u32) -> Self {
        Self { partitions, home_rule: HomeRule::NEWEST }
    }

    /// Returns the home of a file.
    pub fn home(self, file: &str) -> PartitionId {
        match self.home_rule {
            HomeRule::First => PartitionId::FIRST,
            HomeRule::ByName | HomeRule::Parallel => partition_of_key(file.as_bytes(), self.partitions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_stay_where_they_are() {
        // state is kept there: another home would lose it
        let files = ["alarms.siddhi", "means.siddhi", "trades/spells.siddhi", "app.toml/http to S"];
        let homes = |partitions| files.map(|file| Partitioning::new(partitions).home(file).0);
        assert_eq!(homes(1), [0; 4]);
        assert_eq!(homes(4), [0, 0, 1, 3]);
        assert_eq!(homes(16), [4, 8, 9, 7]);
        let old = Partitioning { partitions: 16, home_rule: HomeRule::First };
        assert!(files.iter().all(|file| old.home(file) == PartitionId::FIRST));
    }

    #[test]
    fn rules_are_known_by_their_numbers() {
        for rule in [HomeRule::First, HomeRule::ByName, HomeRule::Parallel] {
            assert_eq!(HomeRule::from_number(rule.number()).unwrap(), rule);
        }
        let newer = HomeRule::from_number(3).unwrap_err().to_string();
        assert!(newer.contains("rule 3") && newer.contains("newer"), "{newer}");
    }
}
