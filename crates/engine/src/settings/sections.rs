//! Settings of what stands above the engine, as plain data. What is not set has the default of whoever uses it.

use serde::{Deserialize, Deserializer};
use tidemill_types::{Duration, Error, Result};

/// Limits of SQL queries; `docs/sql.md` says what happens at each.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlSettings {
    /// Memory for sorts, joins and groups of all queries.
    #[serde(deserialize_with = "bytes")]
    pub memory_bytes: Option<u64>,
    /// Bytes that one call of a function may make.
    #[serde(deserialize_with = "bytes")]
    pub function_bytes: Option<u64>,
    /// Data of all queries that may be set aside on disk.
    #[serde(deserialize_with = "bytes")]
    pub spill_bytes: Option<u64>,
    /// Threads that run queries.
    pub target_partitions: Option<u64>,
    /// The longest a query may take, from its arrival to its last row.
    #[serde(deserialize_with = "duration")]
    pub query_timeout: Option<Duration>,
    /// Rows that a query may return.
    pub rows_max: Option<u64>,
    /// Bytes of a result that is gathered before it is sent.
    #[serde(deserialize_with = "bytes")]
    pub collect_bytes_max: Option<u64>,
    /// Queries that run at the same time.
    pub queries_max: Option<u64>,
    /// Bytes of a query's text.
    #[serde(deserialize_with = "bytes")]
    pub text_bytes_max: Option<u64>,
}

/// Who may call over HTTP, and how much at once; `docs/http.md` says what happens at each limit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Names, besides `localhost` and the loopback addresses, that requests to a loopback address may be for.
    pub hosts: Vec<String>,
    /// Bytes of one request body.
    #[serde(deserialize_with = "bytes")]
    pub body_bytes_max: Option<u64>,
    /// Bytes of all request bodies in memory.
    #[serde(deserialize_with = "bytes")]
    pub bodies_bytes_max: Option<u64>,
    /// Bytes of documents in one reply.
    #[serde(deserialize_with = "bytes")]
    pub reply_bytes_max: Option<u64>,
    /// Time for a body to arrive, and again for the engine to answer.
    #[serde(deserialize_with = "duration")]
    pub request_timeout: Option<Duration>,
    /// Time for a SQL query over HTTP or a run of an aggregate rule.
    #[serde(deserialize_with = "duration")]
    pub query_timeout: Option<Duration>,
    /// Time that a reply waits for a client that reads none of it.
    #[serde(deserialize_with = "duration")]
    pub stall_timeout: Option<Duration>,
    /// Requests that are worked on at the same time.
    pub concurrency_max: Option<u64>,
    /// Open connections.
    pub connections_max: Option<u64>,
}

impl SqlSettings {
    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<()> {
        positive(&[
            ("sql.memory_bytes", self.memory_bytes),
            ("sql.function_bytes", self.function_bytes),
            ("sql.target_partitions", self.target_partitions),
            ("sql.queries_max", self.queries_max),
            ("sql.text_bytes_max", self.text_bytes_max),
        ])?;
        lasting(&[("sql.query_timeout", self.query_timeout)])
    }
}

impl ServerSettings {
    /// Refuses what cannot work. How the limits relate to each other is checked by the server, at its start.
    pub(super) fn check(&self) -> Result<()> {
        positive(&[
            ("server.body_bytes_max", self.body_bytes_max),
            ("server.bodies_bytes_max", self.bodies_bytes_max),
            ("server.reply_bytes_max", self.reply_bytes_max),
            ("server.concurrency_max", self.concurrency_max),
            ("server.connections_max", self.connections_max),
        ])?;
        lasting(&[
            ("server.request_timeout", self.request_timeout),
            ("server.query_timeout", self.query_timeout),
            ("server.stall_timeout", self.stall_timeout),
        ])
    }
}

fn positive(settings: &[(&str, Option<u64>)]) -> Result<()> {
    match settings.iter().find(|(_, value)| *value == Some(0)) {
        Some((name, _)) => Err(Error::invalid(format!("setting {name} = 0: expected at least 1"))),
        None => Ok(()),
    }
}

fn lasting(settings: &[(&str, Option<Duration>)]) -> Result<()> {
    match settings.iter().find_map(|(name, value)| Some((name, value.filter(|v| v.0 < 1_000)?))) {
        Some((name, value)) => {
            Err(Error::invalid(format!("setting {name} = \"{value}\": expected at least 1ms")))
        }
        None => Ok(()),
    }
}

fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    super::bytes(d).map(Some)
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    super::duration(d).map(Some)
}
