//! Data points of metrics.

use serde::Deserialize;

use super::common::{InstrumentationScope, KEY_VALUE, KeyValue, RESOURCE, Resource, SCOPE};
use super::json::{float, floats, id, integer, integers, optional_float, optional_integer, or_default};
use crate::telemetry::{MessageShape, Part};

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub scope_metrics: Vec<ScopeMetrics>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub metrics: Vec<Metric>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub schema_url: String,
}

/// Metric with the points of one of these kinds.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metric {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub unit: String,
    #[prost(message, repeated, tag = "12")]
    #[serde(deserialize_with = "or_default")]
    pub metadata: Vec<KeyValue>,
    #[prost(message, optional, tag = "5")]
    pub gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    pub sum: Option<Sum>,
    #[prost(message, optional, tag = "9")]
    pub histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")]
    pub exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")]
    pub summary: Option<Summary>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Sum {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    #[serde(deserialize_with = "or_default")]
    pub is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub data_points: Vec<HistogramDataPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub data_points: Vec<ExponentialHistogramDataPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Summary {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub data_points: Vec<SummaryDataPoint>,
}

/// Point with a number, which is a float or an integer.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "optional_float")]
    pub as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    #[serde(deserialize_with = "optional_integer")]
    pub as_int: Option<i64>,
    #[prost(message, repeated, tag = "5")]
    #[serde(deserialize_with = "or_default")]
    pub exemplars: Vec<Exemplar>,
    #[prost(uint32, tag = "8")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HistogramDataPoint {
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "integer")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "optional_float")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    #[serde(deserialize_with = "integers")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    #[serde(deserialize_with = "floats")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "8")]
    #[serde(deserialize_with = "or_default")]
    pub exemplars: Vec<Exemplar>,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
    #[prost(double, optional, tag = "11")]
    #[serde(deserialize_with = "optional_float")]
    pub min: Option<f64>,
    #[prost(double, optional, tag = "12")]
    #[serde(deserialize_with = "optional_float")]
    pub max: Option<f64>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExponentialHistogramDataPoint {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "integer")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "optional_float")]
    pub sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    #[serde(deserialize_with = "integer")]
    pub scale: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(deserialize_with = "integer")]
    pub zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    pub negative: Option<Buckets>,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "or_default")]
    pub exemplars: Vec<Exemplar>,
    #[prost(double, optional, tag = "12")]
    #[serde(deserialize_with = "optional_float")]
    pub min: Option<f64>,
    #[prost(double, optional, tag = "13")]
    #[serde(deserialize_with = "optional_float")]
    pub max: Option<f64>,
    #[prost(double, tag = "14")]
    #[serde(deserialize_with = "float")]
    pub zero_threshold: f64,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Buckets {
    #[prost(sint32, tag = "1")]
    #[serde(deserialize_with = "integer")]
    pub offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    #[serde(deserialize_with = "integers")]
    pub bucket_counts: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SummaryDataPoint {
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "or_default")]
    pub attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(deserialize_with = "integer")]
    pub count: u64,
    #[prost(double, tag = "5")]
    #[serde(deserialize_with = "float")]
    pub sum: f64,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "or_default")]
    pub quantile_values: Vec<ValueAtQuantile>,
    #[prost(uint32, tag = "8")]
    #[serde(deserialize_with = "integer")]
    pub flags: u32,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ValueAtQuantile {
    #[prost(double, tag = "1")]
    #[serde(deserialize_with = "float")]
    pub quantile: f64,
    #[prost(double, tag = "2")]
    #[serde(deserialize_with = "float")]
    pub value: f64,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Exemplar {
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "or_default")]
    pub filtered_attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(deserialize_with = "integer")]
    pub time_unix_nano: u64,
    #[prost(double, optional, tag = "3")]
    #[serde(deserialize_with = "optional_float")]
    pub as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    #[serde(deserialize_with = "optional_integer")]
    pub as_int: Option<i64>,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(deserialize_with = "id")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    #[serde(deserialize_with = "id")]
    pub trace_id: Vec<u8>,
}

pub(super) static REQUEST: MessageShape =
    MessageShape { size: 0, parts: &[(1, Part::Message(&RESOURCE_METRICS))] };
static RESOURCE_METRICS: MessageShape = MessageShape {
    size: size_of::<ResourceMetrics>(),
    parts: &[(1, Part::Message(&RESOURCE)), (2, Part::Message(&SCOPE_METRICS))],
};
static SCOPE_METRICS: MessageShape = MessageShape {
    size: size_of::<ScopeMetrics>(),
    parts: &[(1, Part::Message(&SCOPE)), (2, Part::Message(&METRIC))],
};
static METRIC: MessageShape = MessageShape {
    size: size_of::<Metric>(),
    parts: &[
        (12, Part::Message(&KEY_VALUE)),
        (5, Part::Message(&NUMBERS)),
        (7, Part::Message(&NUMBERS)),
        (9, Part::Message(&HISTOGRAM)),
        (10, Part::Message(&EXPONENTIAL_HISTOGRAM)),
        (11, Part::Message(&SUMMARY)),
    ],
};
static NUMBERS: MessageShape = MessageShape { size: 0, parts: &[(1, Part::Message(&NUMBER))] };
static NUMBER: MessageShape = MessageShape {
    size: size_of::<NumberDataPoint>(),
    parts: &[(7, Part::Message(&KEY_VALUE)), (5, Part::Message(&EXEMPLAR))],
};
static HISTOGRAM: MessageShape = MessageShape { size: 0, parts: &[(1, Part::Message(&HISTOGRAM_POINT))] };
static HISTOGRAM_POINT: MessageShape = MessageShape {
    size: size_of::<HistogramDataPoint>(),
    parts: &[(9, Part::Message(&KEY_VALUE)), (8, Part::Message(&EXEMPLAR))],
};
static EXPONENTIAL_HISTOGRAM: MessageShape =
    MessageShape { size: 0, parts: &[(1, Part::Message(&EXPONENTIAL_POINT))] };
static EXPONENTIAL_POINT: MessageShape = MessageShape {
    size: size_of::<ExponentialHistogramDataPoint>(),
    parts: &[
        (1, Part::Message(&KEY_VALUE)),
        (8, Part::Message(&BUCKETS)),
        (9, Part::Message(&BUCKETS)),
        (11, Part::Message(&EXEMPLAR)),
    ],
};
static BUCKETS: MessageShape = MessageShape { size: 0, parts: &[(2, Part::Varints)] };
static SUMMARY: MessageShape = MessageShape { size: 0, parts: &[(1, Part::Message(&SUMMARY_POINT))] };
static SUMMARY_POINT: MessageShape = MessageShape {
    size: size_of::<SummaryDataPoint>(),
    parts: &[(7, Part::Message(&KEY_VALUE)), (6, Part::Message(&QUANTILE))],
};
static QUANTILE: MessageShape = MessageShape { size: size_of::<ValueAtQuantile>(), parts: &[] };
static EXEMPLAR: MessageShape =
    MessageShape { size: size_of::<Exemplar>(), parts: &[(7, Part::Message(&KEY_VALUE))] };
