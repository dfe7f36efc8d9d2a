//! What callers of the engine give and get: plain data, ready for JSON.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use tidemill_log::Durability;
use tidemill_types::{Error, EventId, Result, StreamSchema};

/// Options for sending events.
#[derive(Debug, Clone, Default)]
pub struct SendOptions {
    /// Durability that the events need before the reply; default: the engine's setting.
    pub durability: Option<Durability>,
    /// Reply only when the events are applied, with what rules emitted because of them.
    pub wait: bool,
    /// Origin of the events for `system.rejected`: `http`, a source's name.
    pub origin: String,
}

/// The form of a request body with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFormat {
    /// One JSON object, or an array of them.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// CSV with a header line that names the fields.
    Csv,
}

/// Outcome of the events of one request.
#[derive(Debug, Clone, Serialize)]
pub struct SendReply {
    /// Rows that were accepted into the log.
    pub accepted: u64,
    /// Rows that were not, each with its place in the request. They are in `system.rejected` as well.
    pub rejected: Vec<RowError>,
    /// Durability of the accepted rows at the time of the reply: `memory`, `os` or `fsync`.
    pub durability: String,
    /// With `wait`: rows that repeated the id of an earlier event and were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<u64>,
    /// With `wait`: for each accepted row, in the order in which they were sent, the id of the stored event; null for a
    /// duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Option<String>>>,
    /// With `wait`: the events that rules emitted because of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted: Option<Vec<EmittedEvent>>,
    /// With `wait`: rule firings that failed and were rolled back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule_errors: Vec<String>,
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowError {
    /// Its place in the request, from 0. For NDJSON and CSV this is the line, from 1, less one.
    pub row: u64,
    /// Reason of the refusal: what was expected and what was found.
    pub reason: String,
}

/// An event that a rule emitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmittedEvent {
    /// The stream it went to.
    pub stream: String,
    /// Its fields.
    pub event: serde_json::Value,
}

/// Rows in and rows out. `received = stored + duplicate + rejected` when it balances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerCounts {
    /// Rows that arrived: sent, read from sources, or emitted by rules.
    pub received: u64,
    /// Rows in the stream's table.
    pub stored: u64,
    /// Rows dropped because their id was seen before.
    pub duplicate: u64,
    /// Rows refused with a reason.
    pub rejected: u64,
    /// Stored rows with a value that does not have the type of its field, and is in `_extra`.
    #[serde(default)]
    pub mismatched: u64,
}

impl LedgerCounts {
    /// Returns whether every received row was stored, a duplicate or rejected.
    pub fn balances(&self) -> bool {
        self.received == self.stored + self.duplicate + self.rejected
    }

    /// Adds the counts of another partition.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.stored += other.stored;
        self.duplicate += other.duplicate;
        self.rejected += other.rejected;
        self.mismatched += other.mismatched;
    }
}

/// A stream and its counts.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Its declaration.
    pub schema: Arc<StreamSchema>,
    /// Its ledger over all partitions.
    pub ledger: LedgerCounts,
    /// Rows in its table.
    pub rows_in_table: u64,
    /// Rows that were stored and have expired or been deleted since.
    pub removed: u64,
    /// Rows in the memory tail, not yet in a tablet.
    pub tail_rows: u64,
    /// Tablets (Parquet files).
    pub tablets: u64,
    /// True if the app declares it; otherwise an earlier one did.
    pub declared: bool,
}

impl StreamInfo {
    /// Returns whether all rows are accounted for: every row that arrived was stored, found to be a duplicate
    /// or rejected, and every stored one is in the table or was removed from it.
    pub fn balances(&self) -> bool {
        self.ledger.balances() && self.ledger.stored == self.rows_in_table + self.removed
    }

    /// Field names and types as they are declared (`time(us)`), in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, String)> {
        self.schema.fields.iter().map(|f| (f.name.as_str(), f.declared_type()))
    }
}

/// A collection of documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CollectionInfo {
    /// Its name.
    pub name: String,
    /// Documents over all partitions (of one partition when replicated).
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// True if every partition has all of them.
    pub replicated: bool,
    /// The field whose value is also the `_id`, where an entity declares it.
    pub key: Option<String>,
}

/// A rule and what it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Its name.
    pub name: String,
    /// `event` or `aggregate`.
    pub kind: &'static str,
    /// The stream (or streams and entities) it looks at.
    pub source: String,
    /// Priority; event rules only.
    pub priority: i64,
    /// Firings; for aggregates: runs.
    pub fired: u64,
    /// Firings (runs) that failed and were rolled back.
    pub errors: u64,
    /// The latest of these failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Selection of the events that `why` explains.
#[derive(Debug, Clone, PartialEq)]
pub enum EventSelector {
    /// One event: `0-1042-7`.
    Id(EventId),
    /// The recent events whose declared fields have these values (as text): `flight_id=F1,origin=EWR`.
    Fields(Vec<(String, String)>),
}

impl FromStr for EventSelector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let pairs: Option<Vec<_>> = text
            .split(',')
            .map(|pair| pair.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())))
            .collect();
        pairs.filter(|p| p.iter().all(|(k, _)| !k.is_empty())).map(Self::Fields).ok_or_else(|| {
            Error::invalid(format!(
                "event `{text}`: expected an id such as 0-1042-7, or fields such as flight_id=F1 or origin=EWR,flight=1545"
            ))
        })
    }
}

impl fmt::Display for EventSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Fields(pairs) => {
                for (i, (k, v)) in pairs.iter().enumerate() {
                    write!(f, "{}{k}={v}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

/// Readiness of the engine, and its problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Recovered, taking events and applying them.
    pub ready: bool,
    /// Descriptions of problems, for people. May be non-empty while ready (a degraded table, a source that
    /// cannot be read).
    pub problems: Vec<String>,
}

/// Kind of a metric, by the way in which its value changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only goes up; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// One metric with its samples.
#[derive(Debug, Clone)]
pub struct Metric {
    /// `tidemill_<area>_<noun>_<unit>[_total]`.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Counter or gauge.
    pub kind: MetricKind,
    /// Label names and values, and the value.
    pub samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// SQL over everything the engine holds; the engine runs aggregate rules through it.
pub trait Analytics: Send + Sync {
    /// Runs one query to its end. Times out and bounds memory as the implementation states.
    fn query(&self, sql: &str) -> Result<Vec<RecordBatch>>;
}
