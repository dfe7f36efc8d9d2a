//! Routes, one file per subject. Each route and its documentation are one declaration.

pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod find;
pub(crate) mod id;
pub(crate) mod influxql;
pub(crate) mod line_protocol;
pub(crate) mod otlp;
pub(crate) mod remote_write;
pub(crate) mod rules;
pub(crate) mod set_aside;
pub(crate) mod siddhi;
pub(crate) mod sinks;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod system;
pub(crate) mod tail;
mod telemetry;
pub(crate) mod write_reply;

/// Sender of statements and events, in `system.statements` and `system.rejected`.
const ORIGIN: &str = "http";
