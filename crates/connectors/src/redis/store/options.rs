//! Options of the store, as Siddhi's store has them, and the address that they make.

use std::path::Path;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tidemill_connect::{OptionError, OptionSpec, Options};

use super::session::TimeToLive;
use crate::redis::options::RedisSettings;

/// Options of the store.
pub(super) const STORE_OPTIONS: &[OptionSpec] = crate::client_tls::tls_options![
    OptionSpec::text("table.name", "Name of the table in Redis, with which its keys begin; default: that of the table."),
    OptionSpec::text("nodes", "Address of the server: `host:port`, or `host:port@password`.").secret(),
    OptionSpec::text("host", "Host, instead of `nodes`."),
    OptionSpec::integer("port", 1, 65535, "Port, with `host`."),
    OptionSpec::text("username", "User, with `password`."),
    OptionSpec::text("password", "Password.").secret(),
    OptionSpec::text("url", "Address of the server, instead of `nodes`: `redis://user:password@host:6379/database`, or `rediss://` with TLS.").secret(),
    OptionSpec::flag("cluster.mode", "false", "Redis Cluster is not supported."),
    OptionSpec::integer("ttl.seconds", 1, i64::MAX / 1000, "Seconds after which a row is deleted; default: never."),
    OptionSpec::flag("ttl.on.update", "false", "Whether an update lets a row live as long again."),
    OptionSpec::flag("ttl.on.read", "false", "Whether reading lets a row live as long again."),
];

/// Returns how long rows live.
pub(super) fn time_to_live(options: &Options) -> Option<TimeToLive> {
    Some(TimeToLive {
        seconds: options.integer("ttl.seconds")?,
        on_update: options.flag("ttl.on.update"),
        on_read: options.flag("ttl.on.read"),
    })
}

/// Returns where the rows are.
pub(super) fn store_settings(options: &Options) -> Result<RedisSettings, OptionError> {
    if options.flag("cluster.mode") {
        let message = "Redis Cluster is not supported: a write and its position are one transaction, which is for one \
                       node; name a server without a cluster";
        return Err(OptionError::option("cluster.mode", message));
    }
    for name in ["nodes", "host", "port"] {
        if options.is_written("url") && options.is_written(name) {
            return Err(OptionError::option(name, "`url` has the address already"));
        }
    }
    if let Some(url) = options.get("url") {
        return RedisSettings::of_url("url", url, options, Path::new("."));
    }
    let (mut host, mut port, mut password) = ("localhost".to_owned(), 6379, None);
    if let Some(nodes) = options.get("nodes") {
        // neither is repeated, because there may be a password
        let wrong =
            || OptionError::option("nodes", "expected one server: `host:port`, or `host:port@password`");
        let (address, behind) = match nodes.split_once('@') {
            Some((address, password)) => (address, Some(password)),
            None => (nodes, None),
        };
        let (of, at) = address.trim().rsplit_once(':').ok_or_else(wrong)?;
        if of.is_empty() || of.contains(',') {
            return Err(wrong());
        }
        (host, port) = (of.to_owned(), at.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?);
        password = behind.map(str::to_owned);
    }
    if let Some(written) = options.get("host") {
        host = written.to_owned();
    }
    if let Some(written) = options.integer("port").and_then(|port| u16::try_from(port).ok()) {
        port = written;
    }
    let wrong = |e: redis::RedisError| OptionError::option("host", e.to_string());
    let mut info: ConnectionInfo = (host.as_str(), port).into_connection_info().map_err(wrong)?;
    info = info.set_addr(ConnectionAddr::Tcp(host, port));
    if let Some(password) = password {
        let login = info.redis_settings().clone().set_password(password);
        info = info.set_redis_settings(login);
    }
    RedisSettings::new("host", info, options, Path::new("."))
}
