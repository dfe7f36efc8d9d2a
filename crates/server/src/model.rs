//! Wire format of replies. These types are the published contract; the engine's own may change freely.

use serde::Serialize;
use tidemill_access::{Action, Principal, Resource};
use tidemill_engine as engine;
use utoipa::ToSchema;

/// Error of a rule for callers who may not read everything.
const HIDDEN_ERROR: &str = "a rule failed: who may read it finds the error in the list of rules";

/// Outcome of the events of one request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SendReply {
    /// Rows that were accepted into the log.
    pub accepted: u64,
    /// Rows that were not. They are in the table `system.rejected` as well.
    pub rejected: Vec<RejectedRow>,
    /// Durability of the accepted rows at the time of the reply: `memory`, `os` or `fsync`.
    #[schema(example = "fsync")]
    pub durability: String,
    /// With `wait=true`: rows that repeated the id of an earlier event and were dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<u64>,
    /// With `wait=true`: for each accepted row, in the order in which they were sent, the id of the stored event; null
    /// for a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["0-1042-7"]))]
    pub events: Option<Vec<Option<String>>>,
    /// With `wait=true`: the events that rules emitted because of these, into streams that the caller may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emitted: Option<Vec<EmittedEvent>>,
    /// With `wait=true`: rule firings that failed and were rolled back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rule_errors: Vec<String>,
    /// Present when every row was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::error::ErrorDetail>,
}

/// One JSON object or an array of them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "names the forms for the API description")]
pub(crate) enum OneOrMany {
    One(serde_json::Map<String, serde_json::Value>),
    Many(Vec<serde_json::Map<String, serde_json::Value>>),
}

/// Either what was done with each row, or why the body could not be read as rows.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "names the forms for the API description")]
pub(crate) enum SendRefusal {
    Rejected(SendReply),
    Error(crate::error::ErrorBody),
}

/// A row that was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RejectedRow {
    /// Its place in the request, from 0.
    pub row: u64,
    /// Explanation: what was expected and what was found.
    pub reason: String,
}

/// An event that a rule emitted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmittedEvent {
    /// The stream it went to.
    pub stream: String,
    /// Its fields.
    #[schema(value_type = Object)]
    pub event: serde_json::Value,
}

impl SendReply {
    /// Creates the reply to a caller, who sees the emitted events of streams that it may read. The errors of rules may have any name, so
    /// their texts are for callers who may read everything.
    pub fn new(reply: engine::SendReply, principal: &Principal) -> Self {
        let engine::SendReply {
            accepted,
            rejected,
            durability,
            duplicates,
            events,
            emitted,
            mut rule_errors,
        } = reply;
        let is_readable = |stream: &str| principal.can(Action::Read, &Resource::stream(stream));
        let emitted = emitted.map(|list| {
            list.into_iter()
                .filter(|emitted| is_readable(&emitted.stream))
                .map(|engine::EmittedEvent { stream, event }| EmittedEvent { stream, event })
                .collect()
        });
        if !principal.can_everywhere(Action::Read) {
            rule_errors.fill(HIDDEN_ERROR.to_owned());
        }
        let rejected = rejected
            .into_iter()
            .map(|engine::RowError { row, reason }| RejectedRow { row, reason })
            .collect();
        Self { accepted, rejected, durability, duplicates, events, emitted, rule_errors, error: None }
    }
}

/// A stream: its fields, its ledger and how its rows are stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stream {
    /// Its name.
    #[schema(example = "TakeOffEvent")]
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<StreamField>,
    /// The field whose value decides the partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fields that identify an event: a second one with the same values is a duplicate.
    pub id: Vec<String>,
    /// The field that is the event time; the time of arrival when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Rows in and out.
    pub ledger: Ledger,
    /// Rows in memory that are in no tablet yet.
    pub tail_rows: u64,
    /// Parquet files of the table.
    pub tablets: u64,
}

/// A field of a stream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StreamField {
    /// Its name.
    pub name: String,
    /// `bool`, `int`, `long`, `float`, `double`, `string`, `time` (with a unit such as `time(us)`) or `object`.
    #[serde(rename = "type")]
    pub ty: String,
}

/// Rows in and out over all partitions. `received = stored + duplicate + rejected` when it balances.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ledger {
    /// Rows that arrived: sent, read from sources, or emitted by rules.
    pub received: u64,
    /// Rows in the stream's table.
    pub stored: u64,
    /// Rows dropped because their id was seen before.
    pub duplicate: u64,
    /// Rows refused with a reason.
    pub rejected: u64,
    /// Stored events with a value that does not have the type of its field, and is in `_extra`.
    pub mismatched: u64,
    /// True if all rows are accounted for.
    pub balances: bool,
}

impl From<engine::StreamInfo> for Stream {
    fn from(info: engine::StreamInfo) -> Self {
        let engine::StreamInfo { ref schema, ledger, tail_rows, tablets, .. } = info;
        let name_of = |index: usize| schema.fields.get(index).map(|f| f.name.clone());
        Self {
            name: schema.name.clone(),
            fields: info.fields().map(|(name, ty)| StreamField { name: name.into(), ty }).collect(),
            key: schema.key.and_then(name_of),
            id: schema.id.iter().filter_map(|i| name_of(*i)).collect(),
            time: schema.time.and_then(name_of),
            ledger: ledger.into(),
            tail_rows,
            tablets,
        }
    }
}

impl From<engine::LedgerCounts> for Ledger {
    fn from(counts: engine::LedgerCounts) -> Self {
        let balances = counts.balances();
        let engine::LedgerCounts { received, stored, duplicate, rejected, mismatched } = counts;
        Self { received, stored, duplicate, rejected, mismatched, balances }
    }
}

/// A collection of documents.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Collection {
    /// Its name.
    pub name: String,
    /// Documents over all partitions (of one partition when replicated).
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// True if every partition has all of them.
    pub replicated: bool,
    /// The field whose value is also the `_id`, where an entity declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl From<engine::CollectionInfo> for Collection {
    fn from(info: engine::CollectionInfo) -> Self {
        let engine::CollectionInfo { name, documents, bytes, replicated, key } = info;
        Self { name, documents, bytes, replicated, key }
    }
}

/// A rule and what it did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rule {
    /// Its name.
    pub name: String,
    /// `event` or `aggregate`.
    pub kind: String,
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

impl From<engine::RuleInfo> for Rule {
    fn from(info: engine::RuleInfo) -> Self {
        let engine::RuleInfo { name, kind, source, priority, fired, errors, last_error } = info;
        Self { name, kind: kind.into(), source, priority, fired, errors, last_error }
    }
}

/// Outcome of an aggregate run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunReply {
    /// Documents that the run wrote.
    pub documents_written: u64,
}

/// Readiness of the server, and its problems.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// Recovered and taking events.
    pub ready: bool,
    /// Descriptions of problems, for people. May be non-empty while ready. Missing for callers who may not know them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<String>>,
}

impl From<engine::Health> for Readiness {
    fn from(engine::Health { ready, problems }: engine::Health) -> Self {
        Self { ready, problems: Some(problems) }
    }
}
