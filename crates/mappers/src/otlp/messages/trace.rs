//! Spans.

use serde::Deserialize;

use super::common::{InstrumentationScope, KEY_VALUE, KeyValue, RESOURCE, Resource, SCOPE};
use super::json::{id, integer, or_default};
use crate::telemetry::{MessageShape, Part};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TracesRequest {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub scope_spans: Vec<ScopeSpans>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub spans: Vec<Span>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "id")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "integer")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(deserialize_with = "integer")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "or_default")]
    pub events: Vec<SpanEvent>,
    #[prost(uint32, tag = "12")]
    #[serde(deserialize_with = "integer")]
    pub dropped_events_count: u32,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "or_default")]
    pub links: Vec<SpanLink>,
    #[prost(uint32, tag = "14")]
    #[serde(deserialize_with = "integer")]
    pub dropped_links_count: u32,
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpanEvent {
    #[prost(fixed64, tag = "1")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpanLink {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "id")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "id")]
    pub span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub trace_state: String,
    #[prost(message, repeated, tag = "4")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "5")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
    #[prost(fixed32, tag = "6")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpanStatus {
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub code: i32,
}

pub(super) static REQUEST: MessageShape =
    MessageShape { size: 0, parts: &[(1, Part::Message(&RESOURCE_SPANS))] };
static RESOURCE_SPANS: MessageShape = MessageShape {
    size: size_of::<ResourceSpans>(),
    parts: &[(1, Part::Message(&RESOURCE)), (2, Part::Message(&SCOPE_SPANS))],
};
static SCOPE_SPANS: MessageShape = MessageShape {
    size: size_of::<ScopeSpans>(),
    parts: &[(1, Part::Message(&SCOPE)), (2, Part::Message(&SPAN))],
};
static SPAN: MessageShape = MessageShape {
    size: size_of::<Span>(),
    parts: &[(9, Part::Message(&KEY_VALUE)), (11, Part::Message(&EVENT)), (13, Part::Message(&LINK))],
};
static EVENT: MessageShape =
    MessageShape { size: size_of::<SpanEvent>(), parts: &[(3, Part::Message(&KEY_VALUE))] };
static LINK: MessageShape =
    MessageShape { size: size_of::<SpanLink>(), parts: &[(4, Part::Message(&KEY_VALUE))] };
