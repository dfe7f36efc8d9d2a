//! Why a query puts nothing out: what came to it, what it holds, and what it waits for.
//!
//! [`App::why`](crate::runtime::AppRuntime::why) makes a [`QueryReport`]. Nothing of it is computed while events are worked off but a few
//! counts; a condition that failed is computed again, on the last event that did not satisfy it, when somebody asks. So
//! counts and that event begin anew where an app takes a saved state; what is held does not.
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
use tidemill_types::Timestamp;

use crate::functions::json_text::to_json;
use crate::pattern;
use crate::value::Value;
use crate::window::WindowStatus;

pub(crate) use context::ReadOnlyContext;
pub(crate) use source_text::conjuncts;
pub use source_text::{InputText, QueryText};
pub(crate) use stats::{EventSamples, InputStats, SampledEvent, first_failed_condition, named_values};

/// From here on a number of milliseconds is shown as a date, in 1973; recorded runs like to count from 0.
const DATES_MIN_MS: i64 = 100_000_000_000;

/// How many keys or groups are named where there are many.
pub(crate) const LISTED_MAX: usize = 10;

/// An instant as a report shows it: milliseconds, or a date in UTC.
pub fn format_time(ms: i64) -> String {
    match ms.checked_mul(1000).filter(|_| ms >= DATES_MIN_MS) {
        Some(micros) => Timestamp(micros).to_string(),
        None => ms.to_string(),
    }
}

/// Why a query puts nothing out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct QueryReport {
    /// Its name.
    pub query: String,
    /// The clock of its app, milliseconds.
    pub clock: i64,
    /// The keys of its partition, if it stands in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<PartitionKeysReport>,
    /// From where on events are counted, on the clock, where the app has taken a saved state: they are no part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// Events that arrived; what left a named window counts as well.
    pub arrived: u64,
    /// Events that its filters and stream functions in front let through, where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<u64>,
    /// Events that it put out.
    pub emitted: u64,
    /// The clock when it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emitted_at: Option<i64>,
    /// The last event that did not pass its filters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_out: Option<FailedConditionReport>,
    /// When a stream processor of it acts next without an event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_due: Option<i64>,
    /// Its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
    /// Its pattern or sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternReport>,
    /// The sides of its join, left first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<JoinSideReport>,
    /// What a join's sides must satisfy together.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// Which groups `having` keeps back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub having: Option<HavingReport>,
    /// What its output rate holds back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<OutputRateReport>,
}

/// The keys of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionKeysReport {
    /// How many there are.
    pub count: usize,
    /// The one that is told about; `None` for what all of them did.
    pub key: Option<String>,
    /// Some of them, the oldest first.
    pub some: Vec<String>,
}

/// A condition that was not satisfied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailedConditionReport {
    /// The timestamp of the event, milliseconds.
    pub time: i64,
    /// The key to which it went, in a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The condition as it is written.
    pub condition: String,
    /// What it looks at.
    pub values: Vec<NamedValue>,
}

/// A value by its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedValue {
    /// `price`, `e1.price`.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
}

/// A window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// As it is written: `length(3)`.
    pub window: String,
    /// What it holds and waits for.
    #[serde(flatten)]
    pub waits: WindowStatus,
    /// Most rows that it may keep.
    pub rows_max: u64,
}

/// A pattern or a sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatternReport {
    /// Nothing may come between its steps.
    pub sequence: bool,
    /// How long a match may take, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<i64>,
    /// Its steps, in order.
    pub steps: Vec<StepReport>,
}

/// A step of a pattern.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// What it is called.
    pub step: String,
    /// Matches that have come so far and wait here.
    pub waiting: usize,
    /// Of two sides of a step this one has its event, the other one waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub came: bool,
    /// What they wait for, in words.
    pub waits_for: String,
    /// When a silence is over, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// The match that came last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<PartialMatchReport>,
    /// Why the last event did not take it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<FailedConditionReport>,
}

/// A match that is not complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartialMatchReport {
    /// The timestamp of its last event; `None` while it has none.
    pub time: Option<i64>,
    /// Events that the step at which it waits has collected.
    pub collected: usize,
    /// What was kept of its events.
    pub values: Vec<NamedValue>,
}

/// A side of a join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinSideReport {
    /// What it is called.
    pub side: String,
    /// What that is: `stream`, `window`, `table`, `aggregation`.
    pub reads: String,
    /// Events that arrived at it.
    pub arrived: u64,
    /// Whether they are matched with the other side.
    pub triggers: bool,
    /// Its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowReport>,
    /// Rows that the other side finds here; `None` for an aggregation, whose rows depend on what is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The last event that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastEventReport>,
}

/// The last event of a side of a join.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastEventReport {
    /// Its timestamp, milliseconds.
    pub time: i64,
    /// What the condition looks at.
    pub values: Vec<NamedValue>,
    /// Why it did not pass the filters of its side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_out: Option<FailedConditionReport>,
    /// How many rows of the other side match it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches: Option<u64>,
}

/// What `having` keeps back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HavingReport {
    /// The condition as it is written.
    pub condition: String,
    /// How many groups there are, and were looked at; `None` where it looks at each event by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<usize>,
    /// Of how many the totals do not satisfy it now.
    pub failing: usize,
    /// What comes out of some of those if it did, the newest group first.
    pub some: Vec<Vec<NamedValue>>,
}

/// What an output rate holds back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRateReport {
    /// As it is written: `output last every 25 events`.
    pub rate: String,
    /// Events that wait.
    pub held: u64,
    /// When the round ends, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// What has to happen, in words.
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

impl From<pattern::FailedCondition> for FailedConditionReport {
    fn from(refused: pattern::FailedCondition) -> Self {
        let pattern::FailedCondition { time, condition, values } = refused;
        Self { time, key: None, condition, values: NamedValue::all(&values) }
    }
}
