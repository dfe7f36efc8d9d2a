//! Results of running rules over a batch, and counters per rule.

use std::fmt;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_types::decode::FieldValue;
use tidemill_types::{PartitionId, Timestamp};

/// Limit on the errors of one run that are stored with their message; further ones are only counted.
pub const ERRORS_MAX: usize = 1_000;

/// Result of running rules over a batch, apart from the document changes, which are made in the store
/// directly.
#[derive(Debug, Default)]
pub struct Effects {
    /// Events for this partition, one batch per stream, in order of the streams.
    pub emitted: Vec<EmittedBatch>,
    /// Events for other partitions, in the order in which they were emitted.
    pub outbound: Vec<Outbound>,
    /// Emitted events of this partition that were dropped as duplicates: stream and count.
    pub duplicates: Vec<(usize, u64)>,
    /// Failed firings, at most [`ERRORS_MAX`].
    pub errors: Vec<RuleError>,
    /// Number of failed firings beyond those in `errors`.
    pub errors_more: u64,
    /// Number of documents inserted, changed or deleted.
    pub changed_documents: u64,
    /// Number of successful firings.
    pub fired: u64,
    /// Number of events emitted, including those for other partitions and duplicates.
    pub emitted_count: u32,
}

/// Emitted events of one stream.
#[derive(Debug)]
pub struct EmittedBatch {
    /// Index of the stream.
    pub stream: usize,
    /// The events, in the stream's batch schema.
    pub batch: RecordBatch,
    /// Row of each event in the record, after the rows of the record's own events. Rows have gaps, because
    /// events for other partitions and duplicates are numbered as well.
    pub rows: Vec<u32>,
    /// For each event, the row of the record's event that caused it.
    pub source_rows: Vec<u32>,
}

/// An emitted event for another partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Outbound {
    /// Partition that the event belongs to.
    pub partition: PartitionId,
    /// Index of the stream.
    pub stream: usize,
    /// Values of the declared fields, in order.
    pub cells: Vec<FieldValue>,
    /// Event time.
    pub time: Timestamp,
    /// Position among all events that the run emitted, counted from 0.
    pub number: u32,
    /// Row of the record's event that caused this one.
    pub source_row: u32,
}

/// A failed firing. Its own changes were rolled back; other rules were not affected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleError {
    /// Name of the rule.
    pub rule: String,
    /// Row of the record's event that caused the firing.
    pub row: u32,
    /// The cause, and how to fix it.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule, self.message)
    }
}

/// Counters of all rules of an app.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counters {
    rules: Vec<RuleCounters>,
}

/// Counters of one rule since it was deployed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuleCounters {
    /// Name of the rule.
    pub name: String,
    /// Events for which all conditions held that need the event alone.
    pub reached: u64,
    /// Successful firings, one for each combination of documents.
    pub fired: u64,
    /// Events that passed the conditions on the event, but matched no combination of documents.
    pub missed: u64,
    /// Failed firings.
    pub errors: u64,
    /// Message of the latest failed firing; failures beyond [`ERRORS_MAX`] of a run do not update it.
    pub last_error: Option<String>,
}

impl Counters {
    /// Creates counters for rules of these names, in order, starting from the counts that `old` has for them.
    pub(crate) fn new<'n>(names: impl Iterator<Item = &'n str>, old: &Counters) -> Self {
        let rules = names.map(|name| {
            let fresh = || RuleCounters { name: name.to_owned(), ..RuleCounters::default() };
            old.rule(name).cloned().unwrap_or_else(fresh)
        });
        Self { rules: rules.collect() }
    }

    /// Makes these the counters of `other`. If they belong to the same rules, nothing is allocated but new messages.
    pub fn copy_from(&mut self, other: &Counters) {
        if self.rules.len() != other.rules.len() {
            *self = other.clone();
            return;
        }
        for (own, other) in self.rules.iter_mut().zip(&other.rules) {
            let RuleCounters { name, reached, fired, missed, errors, last_error } = other;
            (own.reached, own.fired, own.missed, own.errors) = (*reached, *fired, *missed, *errors);
            own.name.clone_from(name);
            own.last_error.clone_from(last_error);
        }
    }

    /// Returns the counters of the rule `name`.
    pub fn rule(&self, name: &str) -> Option<&RuleCounters> {
        self.rules.iter().find(|r| r.name == name)
    }

    /// Iterates over the rules in order of declaration.
    pub fn iter(&self) -> impl Iterator<Item = &RuleCounters> {
        self.rules.iter()
    }

    /// Returns the counters of the rule with this index in the program.
    pub(crate) fn at(&mut self, position: usize) -> &mut RuleCounters {
        &mut self.rules[position]
    }
}
