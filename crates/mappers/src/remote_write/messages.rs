//! Messages of remote write, versions 1.0 (`prometheus.WriteRequest`) and 2.0 (`io.prometheus.write.v2.Request`).
//!
//! Samples and histograms of both versions have the same numbers, and are one structure here. Alternatives (`oneof`) are optional fields.

use crate::telemetry::{MessageShape, Part};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RequestV1 {
    #[prost(message, repeated, tag = "1")]
    pub timeseries: Vec<TimeSeriesV1>,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<MetadataV1>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TimeSeriesV1 {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub exemplars: Vec<ExemplarV1>,
    #[prost(message, repeated, tag = "4")]
    pub histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Sample {
    #[prost(double, tag = "1")]
    pub value: f64,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    /// Milliseconds since 1970; 0 if it is not known. Version 2 only.
    #[prost(int64, tag = "3")]
    pub start_timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExemplarV1 {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MetadataV1 {
    #[prost(int32, tag = "1")]
    pub metric_type: i32,
    #[prost(string, tag = "2")]
    pub metric_family_name: String,
    #[prost(string, tag = "4")]
    pub help: String,
    #[prost(string, tag = "5")]
    pub unit: String,
}

/// Native histogram: with counts that are integers, or floats.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub count_float: Option<f64>,
    #[prost(double, tag = "3")]
    pub sum: f64,
    #[prost(sint32, tag = "4")]
    pub schema: i32,
    #[prost(double, tag = "5")]
    pub zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    pub zero_count_int: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    pub negative_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "9")]
    pub negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub positive_spans: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "12")]
    pub positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub custom_values: Vec<f64>,
    /// Version 2 only.
    #[prost(int64, tag = "17")]
    pub start_timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct RequestV2 {
    #[prost(string, repeated, tag = "4")]
    pub symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub timeseries: Vec<TimeSeriesV2>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TimeSeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub histograms: Vec<Histogram>,
    #[prost(message, repeated, tag = "4")]
    pub exemplars: Vec<ExemplarV2>,
    #[prost(message, optional, tag = "5")]
    pub metadata: Option<MetadataV2>,
    /// Start of a series in earlier drafts of version 2.
    #[prost(int64, tag = "6")]
    pub created_timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExemplarV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub labels_refs: Vec<u32>,
    #[prost(double, tag = "2")]
    pub value: f64,
    #[prost(int64, tag = "3")]
    pub timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct MetadataV2 {
    #[prost(int32, tag = "1")]
    pub metric_type: i32,
    #[prost(uint32, tag = "3")]
    pub help_ref: u32,
    #[prost(uint32, tag = "4")]
    pub unit_ref: u32,
}

pub(super) static REQUEST_V1: MessageShape =
    MessageShape { size: 0, parts: &[(1, Part::Message(&SERIES_V1)), (3, Part::Message(&METADATA_V1))] };
static SERIES_V1: MessageShape = MessageShape {
    size: size_of::<TimeSeriesV1>(),
    parts: &[
        (1, Part::Message(&LABEL)),
        (2, Part::Message(&SAMPLE)),
        (3, Part::Message(&EXEMPLAR_V1)),
        (4, Part::Message(&HISTOGRAM)),
    ],
};
static METADATA_V1: MessageShape = MessageShape { size: size_of::<MetadataV1>(), parts: &[] };
static LABEL: MessageShape = MessageShape { size: size_of::<Label>(), parts: &[] };
static SAMPLE: MessageShape = MessageShape { size: size_of::<Sample>(), parts: &[] };
static EXEMPLAR_V1: MessageShape =
    MessageShape { size: size_of::<ExemplarV1>(), parts: &[(1, Part::Message(&LABEL))] };
static HISTOGRAM: MessageShape = MessageShape {
    size: size_of::<Histogram>(),
    parts: &[(8, Part::Message(&SPAN)), (9, Part::Varints), (11, Part::Message(&SPAN)), (12, Part::Varints)],
};
static SPAN: MessageShape = MessageShape { size: size_of::<BucketSpan>(), parts: &[] };
pub(super) static REQUEST_V2: MessageShape =
    MessageShape { size: 0, parts: &[(4, Part::Message(&SYMBOL)), (5, Part::Message(&SERIES_V2))] };
static SYMBOL: MessageShape = MessageShape { size: size_of::<String>(), parts: &[] };
static SERIES_V2: MessageShape = MessageShape {
    size: size_of::<TimeSeriesV2>(),
    parts: &[
        (1, Part::Varints),
        (2, Part::Message(&SAMPLE)),
        (3, Part::Message(&HISTOGRAM)),
        (4, Part::Message(&EXEMPLAR_V2)),
    ],
};
static EXEMPLAR_V2: MessageShape =
    MessageShape { size: size_of::<ExemplarV2>(), parts: &[(1, Part::Varints)] };
