//! Attributes, resources and scopes.

use serde::Deserialize;

use super::json::{AnyValueJson, integer, or_default};
use crate::telemetry::{MessageShape, Part};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(try_from = "AnyValueJson")]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    ArrayValue(ArrayValue),
    #[prost(message, tag = "6")]
    Keys(KeyValueList),
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValueList {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub version: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "4")]
    #[serde(deserialize_with = "integer")]
    pub dropped_attributes_count: u32,
}

pub(super) static ANY_VALUE: MessageShape = MessageShape {
    size: size_of::<AnyValue>(),
    parts: &[(5, Part::Message(&ARRAY_VALUE)), (6, Part::Message(&KEY_VALUE_LIST))],
};
static ARRAY_VALUE: MessageShape = MessageShape { size: 0, parts: &[(1, Part::Message(&ANY_VALUE))] };
static KEY_VALUE_LIST: MessageShape = MessageShape { size: 0, parts: &[(1, Part::Message(&KEY_VALUE))] };
pub(super) static KEY_VALUE: MessageShape =
    MessageShape { size: size_of::<KeyValue>(), parts: &[(2, Part::Message(&ANY_VALUE))] };
pub(super) static RESOURCE: MessageShape =
    MessageShape { size: size_of::<Resource>(), parts: &[(1, Part::Message(&KEY_VALUE))] };
pub(super) static SCOPE: MessageShape =
    MessageShape { size: size_of::<InstrumentationScope>(), parts: &[(3, Part::Message(&KEY_VALUE))] };
