//! Paths of telemetry, for guards and the API description as well as for the routes.

use tidemill_mappers::otlp::Signal;

/// Path of remote write.
pub(crate) const REMOTE_WRITE: &str = "/api/v1/write";

/// Returns the signal of OTLP that a path over HTTP has.
pub(crate) fn http_signal(path: &str) -> Option<Signal> {
    match path {
        "/v1/logs" => Some(Signal::Logs),
        "/v1/metrics" => Some(Signal::Metrics),
        "/v1/traces" => Some(Signal::Traces),
        _ => None,
    }
}

/// Returns the signal of OTLP that a path over gRPC has.
pub(crate) fn grpc_signal(path: &str) -> Option<Signal> {
    match path {
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => Some(Signal::Logs),
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => Some(Signal::Metrics),
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => Some(Signal::Traces),
        _ => None,
    }
}
