//! Partitions of events.
//!
//! ```text
//! @key('symbol') define stream Trades …      by the hash of each event's symbol
//! define stream Alarms …                     one partition: a home of a file that reads it
//! define stream Mails …                      another one for each batch, as all its readers have @dist(parallel='4')
//! ```
//!
//! Order is what a partition gives: events of one are seen as they arrived. So a stream without a key has one partition, unless all its
//! readers give up the order. `docs/rfcs/0037-placement-of-global-queries.md` has the reasons.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_rules::Program;
use tidemill_types::{PartitionId, partition_of_key};

use super::{ElementPlacement, Queries, QueryFile};

/// Partitions of a stream without a key that has a reader with several instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spread {
    /// Each batch has the next one of so many partitions, or of all if there are fewer.
    Over(u32),
    /// All events are in one partition, for this reason.
    One(String),
}

/// Assignment of events to partitions.
#[derive(Debug, Clone, Default)]
pub struct Partitioner {
    /// Number of partitions.
    pub partitions: u32,
    /// Streams without a key whose events are wanted in some partitions, with the one of these in which they live from the start.
    stream_homes: BTreeMap<String, PartitionId>,
    /// Streams without a key that stay where their events lie, whatever queries want.
    pinned_streams: BTreeMap<String, PartitionId>,
    /// Streams without a key that have several partitions, with the number of these. The home of the stream is the first one.
    spread_streams: BTreeMap<String, u32>,
}

impl Partitioner {
    /// All streams spread by key, those without one by their names.
    pub fn new(partitions: u32) -> Self {
        Self { partitions, ..Self::default() }
    }

    /// The same, with streams that stay where they are.
    #[must_use]
    pub fn with_pinned(self, kept: &BTreeMap<String, PartitionId>) -> Self {
        Self { pinned_streams: kept.clone(), ..self }
    }

    /// The partition of a key.
    pub fn for_key(&self, key: &[u8]) -> PartitionId {
        partition_of_key(key, self.partitions)
    }

    /// The partition of rows of a stream that could not be read, and of a stream's events without a key, if they have one.
    pub fn for_stream(&self, name: &str) -> PartitionId {
        match self.pinned_streams.get(name) {
            Some(kept) => *kept,
            None => self.stream_homes.get(name).copied().unwrap_or_else(|| self.for_key(name.as_bytes())),
        }
    }

    /// Returns the assignment of the events of a batch. A batch with the same number has the same partitions.
    pub fn of_batch(&self, number: u64) -> BatchPartitioner<'_> {
        BatchPartitioner { partitioner: self, number }
    }
}

/// Assignment of the events of a batch to partitions.
#[derive(Debug, Clone, Copy)]
pub struct BatchPartitioner<'a> {
    partitioner: &'a Partitioner,
    number: u64,
}

impl BatchPartitioner<'_> {
    /// Number of partitions.
    pub fn partitions(self) -> u32 {
        self.partitioner.partitions
    }

    /// The partition of a key.
    pub fn for_key(self, key: &[u8]) -> PartitionId {
        self.partitioner.for_key(key)
    }

    /// The partition of the batch's events of a stream without a key.
    pub fn for_stream(self, name: &str) -> PartitionId {
        let home = self.partitioner.for_stream(name);
        match self.partitioner.spread_streams.get(name) {
            None => home,
            Some(places) => {
                let place = (self.number % u64::from(*places)) as u32;
                PartitionId((home.0 + place) % self.partitioner.partitions)
            }
        }
    }
}

impl Queries {
    /// Returns the partitioner, which knows where events of streams without a key live.
    pub fn partitioner(&self, program: &Program, partitions: u32) -> Partitioner {
        let spread = self.spread.iter().filter_map(|(stream, spread)| match spread {
            Spread::Over(instances) => Some((stream.clone(), (*instances).min(partitions))),
            Spread::One(_) => None,
        });
        Partitioner {
            partitions,
            stream_homes: self.stream_homes(program),
            pinned_streams: BTreeMap::new(),
            spread_streams: spread.collect(),
        }
    }

    /// Returns the partitions of streams without a key that are wanted in some: one of these. Streams that a file reads
    /// together have the same one, so that they reach its queries in the order in which they arrived.
    fn stream_homes(&self, program: &Program) -> BTreeMap<String, PartitionId> {
        let streams = program.streams();
        let mut groups: Vec<BTreeSet<usize>> = Vec::new();
        for unit in self.units.iter().filter(|unit| !unit.partitioned) {
            let mut group: BTreeSet<usize> =
                unit.inputs.keys().copied().filter(|stream| streams[*stream].key.is_none()).collect();
            let (joined, others) = groups.into_iter().partition(|known| !known.is_disjoint(&group));
            groups = others;
            group.extend(joined.into_iter().flat_map(|known: BTreeSet<usize>| known));
            groups.push(group);
        }
        let mut homes = BTreeMap::new();
        for group in &groups {
            let wanted: BTreeSet<PartitionId> =
                group.iter().flat_map(|stream| self.reader_homes(*stream)).copied().collect();
            let names: BTreeSet<&str> = group.iter().map(|stream| streams[*stream].name.as_str()).collect();
            let Some(first) = names.first() else { continue };
            let place = partition_of_key(first.as_bytes(), wanted.len() as u32);
            let Some(home) = wanted.iter().nth(place.0 as usize) else { continue };
            homes.extend(names.iter().map(|name| ((*name).to_owned(), *home)));
        }
        homes
    }
}

/// Returns the streams without a key that have a reader with several instances.
pub(super) fn spread_streams(queries: &Queries, program: &Program) -> BTreeMap<String, Spread> {
    let streams = program.streams().iter().enumerate().filter(|(_, stream)| stream.key.is_none());
    let spread = streams.filter_map(|(number, stream)| {
        let asked = elements_that_read(queries, &stream.name).filter(|(_, placed)| placed.partitioned);
        let instances = asked.filter_map(|(_, placed)| placed.parallel).min()?;
        let is_in_order = |(file, placed): (&QueryFile, &ElementPlacement)| {
            let (name, _) = placed.queries.iter().find(|(_, facts)| facts.reads.contains(&stream.name))?;
            let of = format!("`{name}` of {} reads {} as well", file.name, stream.name);
            (!placed.partitioned).then(|| format!("{of}, in one partition: {}", placed.reason))
        };
        let reason = if !stream.id.is_empty() {
            Some(format!("duplicates of {} are found in one partition", stream.name))
        } else if !program.stream_rules(number).rules.is_empty() {
            Some(format!("rules look at {}, in the order of its events", stream.name))
        } else if let Some(reason) = elements_that_read(queries, &stream.name).find_map(is_in_order) {
            Some(reason)
        } else {
            let is_read = !queries.reader_homes(number).is_empty();
            is_read.then(|| format!("an aggregation or a topic reads {} as well", stream.name))
        };
        Some((stream.name.clone(), reason.map_or(Spread::Over(instances), Spread::One)))
    });
    spread.collect()
}

/// Returns the elements of all files that read a stream.
fn elements_that_read<'a>(
    queries: &'a Queries,
    stream: &'a str,
) -> impl Iterator<Item = (&'a QueryFile, &'a ElementPlacement)> {
    let reads = move |placed: &&ElementPlacement| {
        placed.queries.iter().any(|(_, facts)| facts.reads.iter().any(|read| read == stream))
    };
    let files = queries.files.iter();
    files.flat_map(move |file| file.placements.iter().filter(reads).map(move |placed| (file, placed)))
}
