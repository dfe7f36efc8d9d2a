//! Messages of OTLP 1.x as structures: for protocol buffers, and for JSON by the rules of OTLP.
//!
//! Numbers of fields and names are those of `opentelemetry-proto`. Alternatives (`oneof`) are optional fields,
//! which have the same bytes; a message with two of them is refused where it is used.

pub(super) mod common;
mod json;
pub(super) mod logs;
pub(super) mod metrics;
pub(super) mod trace;

use crate::telemetry::MessageShape;

/// Shapes of the messages of the three signals.
pub(super) static LOGS: &MessageShape = &logs::REQUEST;
pub(super) static METRICS: &MessageShape = &metrics::REQUEST;
pub(super) static TRACES: &MessageShape = &trace::REQUEST;
