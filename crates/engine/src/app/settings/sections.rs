//! Settings of the layers above the engine, as plain data. A setting that is `None` has the default of its
//! layer.

use serde::{Deserialize, Deserializer};
use tidemill_types::{Duration, Error, Result};

/// Limits of SQL queries; `docs/sql.md` describes the behaviour at each.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SqlSettings {
    /// Maximum memory for sorts, joins and groups of all queries, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub memory_bytes: Option<u64>,
    /// Maximum bytes that one function call may produce.
    #[serde(deserialize_with = "bytes")]
    pub function_bytes: Option<u64>,
    /// Maximum bytes that all queries may spill to disk.
    #[serde(deserialize_with = "bytes")]
    pub spill_bytes: Option<u64>,
    /// Threads that run queries, and partitions of a plan.
    pub target_partitions: Option<u64>,
    /// Maximum time from the arrival of a query to its last row.
    #[serde(deserialize_with = "duration")]
    pub query_timeout: Option<Duration>,
    /// Maximum rows of a result.
    pub rows_max: Option<u64>,
    /// Maximum rows that filling the gaps of one aggregate may add.
    pub gap_rows_max: Option<u64>,
    /// Maximum bytes of a result that is collected before it is sent.
    #[serde(deserialize_with = "bytes")]
    pub collect_bytes_max: Option<u64>,
    /// Maximum concurrent queries.
    pub queries_max: Option<u64>,
    /// Maximum length of a query, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub text_bytes_max: Option<u64>,
    /// Maximum memory for decoded columns of event tables, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub hot_bytes: Option<u64>,
    /// Maximum number of plans kept for repeated queries.
    pub cached_plans: Option<u64>,
    /// Length of the files of a scan from which on other nodes execute a part of its statement, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub distributed_bytes: Option<u64>,
}

/// Limits of the commands of MongoDB drivers; `docs/mongodb.md` describes the behaviour at each.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MongoSettings {
    /// Time after which a command ends that has no `maxTimeMS`.
    #[serde(deserialize_with = "duration")]
    pub command_timeout: Option<Duration>,
    /// Maximum memory for what one command makes.
    #[serde(deserialize_with = "bytes")]
    pub command_bytes: Option<u64>,
    /// Maximum memory for what all commands that run make.
    #[serde(deserialize_with = "bytes")]
    pub commands_bytes: Option<u64>,
}

/// Host names and limits of the HTTP server; `docs/http.md` describes the behaviour at each limit.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerSettings {
    /// Host names that requests to a loopback address may have besides `localhost` and the loopback
    /// addresses.
    pub hosts: Vec<String>,
    /// Serves the Model Context Protocol at `/mcp`.
    pub mcp: bool,
    /// Maximum bytes of one request body.
    #[serde(deserialize_with = "bytes")]
    pub body_bytes_max: Option<u64>,
    /// Maximum bytes of all request bodies in memory.
    #[serde(deserialize_with = "bytes")]
    pub bodies_bytes_max: Option<u64>,
    /// Maximum bytes of documents in one reply.
    #[serde(deserialize_with = "bytes")]
    pub reply_bytes_max: Option<u64>,
    /// Time limit for a body to arrive, and again for the engine to answer.
    #[serde(deserialize_with = "duration")]
    pub request_timeout: Option<Duration>,
    /// Time limit of a SQL query over HTTP or a run of an aggregate rule.
    #[serde(deserialize_with = "duration")]
    pub query_timeout: Option<Duration>,
    /// Time after which a reply is aborted because the client reads none of it.
    #[serde(deserialize_with = "duration")]
    pub stall_timeout: Option<Duration>,
    /// Maximum concurrent requests.
    pub concurrency_max: Option<u64>,
    /// Maximum open connections.
    pub connections_max: Option<u64>,
}

impl SqlSettings {
    /// Rejects settings that cannot work.
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

impl MongoSettings {
    /// Rejects settings that cannot work.
    pub(super) fn check(&self) -> Result<()> {
        positive(&[
            ("mongo.command_bytes", self.command_bytes),
            ("mongo.commands_bytes", self.commands_bytes),
        ])?;
        lasting(&[("mongo.command_timeout", self.command_timeout)])
    }
}

impl ServerSettings {
    /// Rejects settings that cannot work. The server checks relations between its limits when it starts.
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

pub(super) fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    super::bytes(d).map(Some)
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    super::duration(d).map(Some)
}
