//! What a turn did.

use std::fmt;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_types::decode::FieldValue;
use tidemill_types::{PartitionId, Timestamp};

/// Most errors of one turn that are kept with their text; the others are counted.
pub const ERRORS_MAX: usize = 1_000;

/// What the rules made of a batch, besides the changes of documents.
#[derive(Debug, Default)]
pub struct Effects {
    /// Events for this partition, by stream, in the order of the streams.
    pub emitted: Vec<EmittedBatch>,
    /// Events for other partitions, in the order in which they were emitted.
    pub outbound: Vec<Outbound>,
    /// Emitted events of this partition that were there already: stream and number.
    pub duplicates: Vec<(usize, u64)>,
    /// Firings that went wrong, at most [`ERRORS_MAX`].
    pub errors: Vec<RuleError>,
    /// Firings that went wrong beyond those.
    pub errors_more: u64,
    /// Documents inserted, changed or deleted.
    pub changed_documents: u64,
    /// Firings that went well.
    pub fired: u64,
    /// Events that were emitted, those for other partitions and duplicates included.
    pub emitted_count: u32,
}

/// Emitted events of one stream.
#[derive(Debug)]
pub struct EmittedBatch {
    /// The stream.
    pub stream: usize,
    /// The events, of the stream's batch schema.
    pub batch: RecordBatch,
    /// For each event its row in the record: those of the record's own events come first. Events for other
    /// partitions and duplicates have numbers, too, so numbers are missing here.
    pub rows: Vec<u32>,
    /// For each event the row of the record whose event it goes back to.
    pub source_rows: Vec<u32>,
}

/// An emitted event for another partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Outbound {
    /// Where it belongs.
    pub partition: PartitionId,
    /// The stream.
    pub stream: usize,
    /// Its declared fields in order.
    pub cells: Vec<FieldValue>,
    /// Its time.
    pub time: Timestamp,
    /// Its number among all that the turn emitted, from 0.
    pub number: u32,
    /// The row of the record whose event it goes back to.
    pub source_row: u32,
}

/// A firing that went wrong. Its own changes were taken back; the other rules went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleError {
    /// The rule.
    pub rule: String,
    /// The row of the record whose event it goes back to.
    pub row: u32,
    /// What went wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule, self.message)
    }
}

/// What the rules of an app did, by rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters {
    rules: Vec<RuleCounters>,
}

/// What a rule did since it was deployed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleCounters {
    /// The rule.
    pub name: String,
    /// Events for which everything held that the rule asks of the event alone.
    pub reached: u64,
    /// Firings that went well: one for each combination of documents.
    pub fired: u64,
    /// Events that reached the rule's documents and did not find what it asks for.
    pub missed: u64,
    /// Firings that went wrong.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
}

impl Counters {
    /// Counters for rules of these names, in order, with what `old` has counted for them.
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>, old: &Counters) -> Self {
        let rules = names.map(|name| {
            let fresh = || RuleCounters { name: name.to_owned(), ..RuleCounters::default() };
            old.rule(name).cloned().unwrap_or_else(fresh)
        });
        Self { rules: rules.collect() }
    }

    /// The counters of the rule `name`.
    pub fn rule(&self, name: &str) -> Option<&RuleCounters> {
        self.rules.iter().find(|r| r.name == name)
    }

    /// All rules in order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = &RuleCounters> {
        self.rules.iter()
    }

    /// The counters of the rule at a position of the program.
    pub(crate) fn at(&mut self, position: usize) -> &mut RuleCounters {
        &mut self.rules[position]
    }
}
