//! Streams of OpenTelemetry: one for logs, one for spans, and one for each kind of metric.

use tidemill_types::FieldType::{self, Bool, Double, Int, Long, Object, String, Time};

use crate::telemetry::DeclaredStream;

/// All streams.
pub static STREAMS: [&DeclaredStream; 7] =
    [&LOGS, &TRACES, &GAUGE, &SUM, &HISTOGRAM, &EXPONENTIAL_HISTOGRAM, &SUMMARY];

/// Log records.
pub static LOGS: DeclaredStream = DeclaredStream {
    name: "otel_logs",
    rows: "log records",
    columns: &[
        ("id", String),
        ("time", Time),
        ("nanos", Int),
        ("observed_time", Time),
        ("severity_number", Int),
        ("severity_text", String),
        ("service_name", String),
        ("body", String),
        ("event_name", String),
        ("trace_id", String),
        ("span_id", String),
        ("flags", Long),
        ("log_attributes", Object),
        ("scope_name", String),
        ("scope_version", String),
        ("scope_attributes", Object),
        ("scope_schema_url", String),
        ("resource_attributes", Object),
        ("resource_schema_url", String),
    ],
    key: "service_name",
    id: &["service_name", "id", "time"],
    time: Some("time"),
};

/// Spans.
pub static TRACES: DeclaredStream = DeclaredStream {
    name: "otel_traces",
    rows: "spans",
    columns: &[
        ("time", Time),
        ("nanos", Int),
        ("end_time", Time),
        ("duration_nano", Long),
        ("trace_id", String),
        ("span_id", String),
        ("parent_span_id", String),
        ("trace_state", String),
        ("flags", Long),
        ("service_name", String),
        ("span_name", String),
        ("span_kind", String),
        ("status_code", String),
        ("status_message", String),
        ("span_attributes", Object),
        ("events", Object),
        ("links", Object),
        ("scope_name", String),
        ("scope_version", String),
        ("scope_attributes", Object),
        ("scope_schema_url", String),
        ("resource_attributes", Object),
        ("resource_schema_url", String),
    ],
    key: "trace_id",
    id: &["trace_id", "span_id", "time"],
    time: Some("time"),
};

/// Columns of all metrics, with those of a kind in the middle.
macro_rules! metric {
    ($name:literal, $rows:literal, [$($column:expr),* $(,)?]) => {
        DeclaredStream {
            name: $name,
            rows: $rows,
            columns: &[
                ("id", String),
                ("time", Time),
                ("start_time", Time),
                ("service_name", String),
                ("metric_name", String),
                ("metric_description", String),
                ("metric_unit", String),
                ("metric_metadata", Object),
                ("attributes", Object),
                $($column,)*
                ("flags", Long),
                ("scope_name", String),
                ("scope_version", String),
                ("scope_attributes", Object),
                ("scope_schema_url", String),
                ("resource_attributes", Object),
                ("resource_schema_url", String),
            ],
            key: "metric_name",
            id: &["metric_name", "id", "time"],
            time: Some("time"),
        }
    };
}

const TEMPORALITY: (&str, FieldType) = ("aggregation_temporality", String);
const EXEMPLARS: (&str, FieldType) = ("exemplars", Object);

/// Points of gauges.
pub static GAUGE: DeclaredStream =
    metric!("otel_metrics_gauge", "points of gauges", [("value", Double), ("int_value", Long), EXEMPLARS]);

/// Points of sums.
pub static SUM: DeclaredStream = metric!(
    "otel_metrics_sum",
    "points of sums",
    [("value", Double), ("int_value", Long), TEMPORALITY, ("is_monotonic", Bool), EXEMPLARS]
);

/// Points of histograms.
pub static HISTOGRAM: DeclaredStream = metric!(
    "otel_metrics_histogram",
    "points of histograms",
    [
        ("count", Long),
        ("sum", Double),
        ("min", Double),
        ("max", Double),
        ("explicit_bounds", Object),
        ("bucket_counts", Object),
        TEMPORALITY,
        EXEMPLARS,
    ]
);

/// Points of exponential histograms.
pub static EXPONENTIAL_HISTOGRAM: DeclaredStream = metric!(
    "otel_metrics_exponential_histogram",
    "points of exponential histograms",
    [
        ("count", Long),
        ("sum", Double),
        ("min", Double),
        ("max", Double),
        ("scale", Int),
        ("zero_count", Long),
        ("zero_threshold", Double),
        ("positive_offset", Int),
        ("positive_bucket_counts", Object),
        ("negative_offset", Int),
        ("negative_bucket_counts", Object),
        TEMPORALITY,
        EXEMPLARS,
    ]
);

/// Points of summaries.
pub static SUMMARY: DeclaredStream = metric!(
    "otel_metrics_summary",
    "points of summaries",
    [("count", Long), ("sum", Double), ("quantile_values", Object)]
);
