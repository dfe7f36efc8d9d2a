//! Streams of remote write.

use tidemill_types::FieldType::{Bool, Double, Int, Object, String, Time};

use crate::telemetry::DeclaredStream;

/// All streams. An app may lack those of exemplars and of metadata.
pub static STREAMS: [&DeclaredStream; 3] = [&SAMPLES, &EXEMPLARS, &METADATA];

/// Samples and native histograms of all series.
pub static SAMPLES: DeclaredStream = DeclaredStream {
    name: "prometheus",
    rows: "samples",
    columns: &[
        ("id", String),
        ("time", Time),
        ("metric_name", String),
        ("labels", Object),
        ("job", String),
        ("instance", String),
        ("value", Double),
        ("is_stale", Bool),
        ("start_time", Time),
        ("metric_type", String),
        ("metric_unit", String),
        ("metric_help", String),
        ("histogram_count", Double),
        ("histogram_sum", Double),
        ("histogram_schema", Int),
        ("histogram_zero_threshold", Double),
        ("histogram_zero_count", Double),
        ("histogram_positive", Object),
        ("histogram_negative", Object),
        ("histogram_custom_values", Object),
        ("histogram_reset_hint", String),
    ],
    key: "metric_name",
    id: &["metric_name", "id", "time"],
    time: Some("time"),
};

/// Exemplars of all series.
pub static EXEMPLARS: DeclaredStream = DeclaredStream {
    name: "prometheus_exemplars",
    rows: "exemplars",
    columns: &[
        ("id", String),
        ("time", Time),
        ("metric_name", String),
        ("labels", Object),
        ("job", String),
        ("instance", String),
        ("value", Double),
        ("trace_id", String),
        ("exemplar_labels", Object),
    ],
    key: "metric_name",
    id: &["metric_name", "id", "time"],
    time: Some("time"),
};

/// Descriptions of metrics, which version 1 sends by themselves.
pub static METADATA: DeclaredStream = DeclaredStream {
    name: "prometheus_metadata",
    rows: "descriptions of metrics",
    columns: &[
        ("id", String),
        ("metric_name", String),
        ("metric_type", String),
        ("metric_unit", String),
        ("metric_help", String),
    ],
    key: "metric_name",
    id: &["metric_name", "id"],
    time: None,
};
