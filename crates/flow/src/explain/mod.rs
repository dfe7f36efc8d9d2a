//! Reports on why a query emits nothing: its input, its state, and what it waits for.
//!
//! [`AppRuntime::why`](crate::runtime::AppRuntime::why) creates a [`QueryReport`]. Event processing only
//! maintains a few counts. A failed condition is evaluated again, on the last event that did not satisfy it,
//! when a report is requested. Restoring a saved state resets the counts and that event, but not the reported
//! state of windows and patterns.
//!
//! ```text
//! query `average` at 1003
//!   4 events arrived, 3 passed what stands in front; 3 events came out, the last at 1002
//!   the last event that did not pass, at 1003: price > 0 is not true (price = -1.0)
//!   window length(5): 3 of 5, from 1000 to 1002
//!     waits for 2 more events until it is full; nothing leaves before
//! ```

mod context;
mod source_text;
mod stats;
mod text;

use serde::{Deserialize, Serialize};

use crate::columns::value::Value;
use crate::functions::json_text::to_json;
use crate::window::WindowStatus;

pub use crate::columns::value::format_time;
pub(crate) use context::ReadOnlyContext;
pub(crate) use source_text::conjuncts;
pub use source_text::{InputText, QueryText};
pub(crate) use stats::{
    EventSamples, InputStats, SampledEvent, first_failed_condition, leading_filters, named_values,
    referenced_columns,
};

/// Maximum number of keys or groups that a report names.
pub(crate) const LISTED_MAX: usize = 10;

/// Report on why a query emits nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QueryReport {
    /// Query name.
    pub query: String,
    /// Clock of the app, milliseconds.
    pub clock: i64,
    /// Keys of the query's partition; `None` outside partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PartitionKeysReport>,
    /// Clock at which counting began because the app restored a saved state, which has no counts; else
    /// `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Number of events that arrived, including those that expired from a named window.
    pub arrived: u64,
    /// Number of events that passed the handlers before the window; `None` without such handlers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<u64>,
    /// Number of events emitted.
    pub emitted: u64,
    /// Clock of the last output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted_at: Option<i64>,
    /// The last event that did not pass the filters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_out: Option<FailedConditionReport>,
    /// Next due time of a stream processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_due: Option<i64>,
    /// Window of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
    /// Pattern or sequence of the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternReport>,
    /// The sides of a join, left first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<JoinSideReport>,
    /// Source text of the join condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// Groups that `having` rejects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub having: Option<HavingReport>,
    /// Events that the output rate limiter buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<OutputRateReport>,
}

/// Keys of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionKeysReport {
    /// Number of keys.
    pub count: usize,
    /// The key of the report; `None` for a report on all keys.
    pub key: Option<String>,
    /// Some of the keys, oldest first.
    pub some: Vec<String>,
}

/// A condition that an event did not satisfy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedConditionReport {
    /// Timestamp of the event, milliseconds.
    pub time: i64,
    /// Key of the event, in a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Source text of the condition.
    pub condition: String,
    /// Values that the condition reads.
    pub values: Vec<NamedValue>,
}

/// A named value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedValue {
    /// Such as `price` or `e1.price`.
    pub name: String,
    /// The value as JSON.
    pub value: serde_json::Value,
}

/// Report on a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Source text, such as `length(3)`.
    pub window: String,
    /// Rows of the window, and what it waits for.
    #[serde(flatten)]
    pub waits: WindowStatus,
    /// Maximum number of rows.
    pub rows_max: u64,
}

/// Report on a pattern or a sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatternReport {
    /// True for a sequence, where no other event may come between two steps.
    pub sequence: bool,
    /// Maximum duration of a match, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<i64>,
    /// The steps in order.
    pub steps: Vec<StepReport>,
}

/// Report on a step of a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Reference or stream name of the step.
    pub step: String,
    /// Number of partial matches that wait here.
    pub waiting: usize,
    /// True if this side of a logical step has its event while the other side waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub came: bool,
    /// Description of what the matches wait for.
    pub waits_for: String,
    /// Time at which an absence is complete, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// The partial match that arrived last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<PartialMatchReport>,
    /// Why the last event did not advance that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<FailedConditionReport>,
}

/// Report on a partial match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartialMatchReport {
    /// Timestamp of its last event, milliseconds; `None` before the first event.
    pub time: Option<i64>,
    /// Number of events collected by the step at which the match waits.
    pub collected: usize,
    /// Values stored of its events.
    pub values: Vec<NamedValue>,
}

/// Report on a side of a join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinSideReport {
    /// Name of the side.
    pub side: String,
    /// Kind of the side: `stream`, `window`, `table` or `aggregation`.
    pub reads: String,
    /// Number of events that arrived.
    pub arrived: u64,
    /// True if arriving events are matched with the other side.
    pub triggers: bool,
    /// Window of the side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
    /// Number of rows that the other side can match; `None` for an aggregation, whose rows depend on the
    /// query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The last event that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastEventReport>,
}

/// Report on the last event of a side of a join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastEventReport {
    /// Timestamp, milliseconds.
    pub time: i64,
    /// Values that the join condition reads.
    pub values: Vec<NamedValue>,
    /// The condition of the side's filters that the event did not satisfy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_out: Option<FailedConditionReport>,
    /// Number of rows of the other side that match now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<u64>,
}

/// Report on a `having` clause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HavingReport {
    /// Source text of the condition.
    pub condition: String,
    /// Number of groups examined; `None` if the condition depends on single events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// Number of groups that do not satisfy the condition now.
    pub failing: usize,
    /// Output values of some of these groups, the newest group first.
    pub some: Vec<Vec<NamedValue>>,
}

/// Report on an output rate limiter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRateReport {
    /// Source text, such as `output last every 25 events`.
    pub rate: String,
    /// Number of buffered events.
    pub held: u64,
    /// End of the current period, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// Description of what it waits for.
    pub waits_for: String,
}

impl NamedValue {
    pub(crate) fn new(name: impl Into<String>, value: &Value) -> Self {
        Self { name: name.into(), value: to_json(value) }
    }

    pub(crate) fn all(values: &[(String, Value)]) -> Vec<Self> {
        values.iter().map(|(name, value)| Self::new(name, value)).collect()
    }
}
