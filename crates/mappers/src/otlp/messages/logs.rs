//! Log records.

use serde::Deserialize;

use super::common::{
    ANY_VALUE, AnyValue, InstrumentationScope, KEY_VALUE, KeyValue, RESOURCE, Resource, SCOPE,
};
use super::json::{id, integer, or_default};
use crate::telemetry::{MessageShape, Part};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LogsRequest {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub scope_logs: Vec<ScopeLogs>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub log_records: Vec<LogRecord>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LogRecord {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "11")]
    #[serde(deserialize_with = "integer")]
    pub observed_time_unix_nano: u64,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub severity_number: i32,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub severity_text: String,
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "7")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
    #[prost(fixed32, tag = "8")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
    #[prost(bytes = "vec", tag = "9")]
    #[serde(deserialize_with = "id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    #[serde(deserialize_with = "id")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "12")]
    #[serde(deserialize_with = "or_default")]
    pub event_name: String,
}

pub(super) static REQUEST: MessageShape =
    MessageShape { size: 0, parts: &[(1, Part::Message(&RESOURCE_LOGS))] };
static RESOURCE_LOGS: MessageShape = MessageShape {
    size: size_of::<ResourceLogs>(),
    parts: &[(1, Part::Message(&RESOURCE)), (2, Part::Message(&SCOPE_LOGS))],
};
static SCOPE_LOGS: MessageShape = MessageShape {
    size: size_of::<ScopeLogs>(),
    parts: &[(1, Part::Message(&SCOPE)), (2, Part::Message(&LOG_RECORD))],
};
static LOG_RECORD: MessageShape = MessageShape {
    size: size_of::<LogRecord>(),
    parts: &[(5, Part::Message(&ANY_VALUE)), (6, Part::Message(&KEY_VALUE))],
};
