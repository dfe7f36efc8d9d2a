//! OTLP, the protocol of OpenTelemetry: logs, spans and points of metrics as rows of streams.
//!
//! ```text
//! POST /v1/logs  {"resourceLogs": [{"resource": {"attributes": [{"key": "service.name", …}]},
//!                 "scopeLogs": [{"scope": {…}, "logRecords": [{"timeUnixNano": "1767603600000000001", "body": {…}, …}]}]}]}
//!
//! otel_logs      time                  nanos  service_name  body  log_attributes  resource_attributes  …
//!                2026-01-05T09:00:00Z  1      shop          …     {"user":"u1"}   {"service.name":"shop"}
//! ```
//!
//! Each record is one row, which has the values of its resource and of its scope, too. The structures of messages are our own ([`messages`]): those
//! of the crate `opentelemetry-proto` lose values of JSON without a word, and need the SDK (RFC 35).

mod logs;
mod messages;
mod metrics;
mod source;
pub mod streams;
mod traces;
mod value;

use tidemill_types::{Error, Result, without_bom};

use self::messages::common::{InstrumentationScope, Resource};
use self::messages::logs::LogsRequest;
use self::messages::metrics::MetricsRequest;
use self::messages::trace::TracesRequest;
use crate::telemetry::{Row, RowCell, RowTarget, SharedCells, StreamRows, decoded_bytes};
pub(crate) use source::OtlpSourceType;

/// Kind of telemetry, as the routes tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Log records.
    Logs,
    /// Points of metrics.
    Metrics,
    /// Spans.
    Traces,
}

/// Encoding of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Protocol buffers.
    Protobuf,
    /// JSON by the rules of OTLP.
    Json,
}

/// Bytes that an object of JSON may take as a structure: those of the largest one.
const JSON_OBJECT_BYTES: usize = 256;

/// Adds the rows of a request (`ExportLogsServiceRequest` and its like) to `rows`.
///
/// Errors: `Invalid` for a message that cannot be decoded, with its place; `LimitReached` where there is no memory for it.
pub fn decode(signal: Signal, encoding: Encoding, body: &[u8], rows: &mut StreamRows<'_>) -> Result<()> {
    rows.reserve(bytes_of(signal, encoding, body))?;
    add_rows(signal, encoding, body, rows)
}

/// Returns the memory that a request takes once it is decoded, about.
fn bytes_of(signal: Signal, encoding: Encoding, body: &[u8]) -> usize {
    let shape = match signal {
        Signal::Logs => messages::LOGS,
        Signal::Metrics => messages::METRICS,
        Signal::Traces => messages::TRACES,
    };
    match encoding {
        Encoding::Protobuf => decoded_bytes(body, shape),
        Encoding::Json => body.len() + JSON_OBJECT_BYTES * body.iter().filter(|byte| **byte == b'{').count(),
    }
}

fn add_rows(signal: Signal, encoding: Encoding, body: &[u8], rows: &mut dyn RowTarget) -> Result<()> {
    match signal {
        Signal::Logs => logs::add(&message::<LogsRequest>(encoding, body)?, rows),
        Signal::Metrics => metrics::add(&message::<MetricsRequest>(encoding, body)?, rows),
        Signal::Traces => traces::add(&message::<TracesRequest>(encoding, body)?, rows),
    }
}

/// Decodes a message.
///
/// Errors: what is wrong with it, and where.
fn message<M>(encoding: Encoding, body: &[u8]) -> Result<M>
where
    M: prost::Message + Default + serde::de::DeserializeOwned,
{
    match encoding {
        Encoding::Protobuf => M::decode(body).map_err(|e| {
            let reason = e.to_string();
            let reason = reason.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&reason);
            Error::invalid(format!("the body is not a message of OTLP: {reason}"))
        }),
        Encoding::Json => serde_json::from_slice(without_bom(body))
            .map_err(|e| Error::invalid(format!("the body is not OTLP as JSON: {e}"))),
    }
}

/// Returns the values of a resource and a scope, which all their rows have.
fn shared<'a>(
    resource: Option<&'a Resource>,
    resource_schema_url: &'a str,
    scope: Option<&'a InstrumentationScope>,
    scope_schema_url: &'a str,
) -> SharedCells<'a> {
    let mut row = Row::new();
    if let Some(resource) = resource {
        if let Some(name) = value::text_of(&resource.attributes, "service.name") {
            row.text("service_name", name);
        }
        row.json("resource_attributes", value::attributes(&resource.attributes));
        row.nonzero("resource_dropped_attributes_count", resource.dropped_attributes_count);
    }
    row.text("resource_schema_url", resource_schema_url);
    if let Some(scope) = scope {
        row.text("scope_name", scope.name.as_str());
        row.text("scope_version", scope.version.as_str());
        row.json("scope_attributes", value::attributes(&scope.attributes));
        row.nonzero("scope_dropped_attributes_count", scope.dropped_attributes_count);
    }
    row.text("scope_schema_url", scope_schema_url);
    SharedCells::of(row)
}

/// Adds bits that say something about a record, if there are any.
fn push_flags(row: &mut Row<'_, '_>, flags: u32) {
    if flags != 0 {
        row.push("flags", RowCell::Int(flags.into()));
    }
}

#[cfg(test)]
mod tests;
