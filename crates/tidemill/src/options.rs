//! Conversion of an app's settings to the options of the SQL session and of the HTTP server.

use std::path::Path;

use tidemill_engine::{ServerSettings, Settings};
use tidemill_mongo::MongoOptions;
use tidemill_server::ServerOptions;
use tidemill_sql::SqlOptions;
use tidemill_types::Duration;

/// Returns the options of the SQL session on the data directory `dir`.
pub(crate) fn sql(all: &Settings, dir: &Path) -> SqlOptions {
    let (settings, usual) = (&all.sql, SqlOptions::default());
    SqlOptions {
        memory_bytes: size(all.sql_memory_bytes(), usual.memory_bytes),
        function_bytes: size(settings.function_bytes, usual.function_bytes),
        spill_dir: Some(dir.join("spill")),
        spill_bytes: settings.spill_bytes.unwrap_or(usual.spill_bytes),
        target_partitions: size(settings.target_partitions, usual.target_partitions),
        query_timeout: time(settings.query_timeout, usual.query_timeout),
        rows_max: settings.rows_max.map(|n| size(Some(n), 0)).or(usual.rows_max),
        gap_rows_max: size(settings.gap_rows_max, usual.gap_rows_max),
        collect_bytes_max: size(settings.collect_bytes_max, usual.collect_bytes_max),
        queries_max: size(settings.queries_max, usual.queries_max),
        text_bytes_max: size(settings.text_bytes_max, usual.text_bytes_max),
        hot_bytes: size(all.hot_bytes(), usual.hot_bytes),
        cached_plans: size(settings.cached_plans, usual.cached_plans),
        distributed_bytes: settings.distributed_bytes.unwrap_or(usual.distributed_bytes),
        ..SqlOptions::default()
    }
}

/// Returns the options of the HTTP server, without a token.
pub(crate) fn server(settings: &ServerSettings) -> ServerOptions {
    let usual = ServerOptions::default();
    let body_bytes_max = size(settings.body_bytes_max, usual.body_bytes_max);
    ServerOptions {
        token: None,
        access: None,
        hosts: settings.hosts.clone(),
        body_bytes_max,
        // if only `body_bytes_max` is set, the total adapts: one body of the allowed size has to fit
        bodies_bytes_max: size(settings.bodies_bytes_max, usual.bodies_bytes_max.max(body_bytes_max)),
        reply_bytes_max: size(settings.reply_bytes_max, usual.reply_bytes_max),
        request_timeout: time(settings.request_timeout, usual.request_timeout),
        query_timeout: time(settings.query_timeout, usual.query_timeout),
        stall_timeout: time(settings.stall_timeout, usual.stall_timeout),
        concurrency_max: size(settings.concurrency_max, usual.concurrency_max),
        connections_max: size(settings.connections_max, usual.connections_max),
        clock: usual.clock,
    }
}

/// Returns the options of the listener for MongoDB drivers, without a password.
pub(crate) fn mongo(all: &Settings) -> MongoOptions {
    let usual = MongoOptions::default();
    MongoOptions {
        command_timeout: time(all.mongo.command_timeout, usual.command_timeout),
        command_memory_max: size(Some(all.mongo_command_bytes()), 0),
        commands_memory_max: size(Some(all.mongo_commands_bytes()), 0),
        ..usual
    }
}

fn size(set: Option<u64>, usual: usize) -> usize {
    set.map_or(usual, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

fn time(set: Option<Duration>, usual: std::time::Duration) -> std::time::Duration {
    set.map_or(usual, |t| t.to_std())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_engine::SqlSettings;

    #[test]
    fn what_is_set_is_used_and_the_rest_has_its_default() {
        let sql_settings = SqlSettings {
            function_bytes: Some(5),
            query_timeout: Some(Duration::seconds(7)),
            rows_max: Some(9),
            hot_bytes: Some(0),
            distributed_bytes: Some(1),
            ..SqlSettings::default()
        };
        let settings = Settings { sql: sql_settings, ..Settings::default() };
        let options = sql(&settings, Path::new("data"));
        assert_eq!((options.function_bytes, options.rows_max), (5, Some(9)));
        assert_eq!(options.query_timeout, std::time::Duration::from_secs(7));
        assert_eq!((options.hot_bytes, options.cached_plans), (0, SqlOptions::default().cached_plans));
        assert_eq!(options.distributed_bytes, 1);
        assert_eq!(options.memory_bytes, SqlOptions::default().memory_bytes);
        assert_eq!(options.spill_dir.as_deref(), Some(Path::new("data/spill")));

        let large = ServerSettings {
            body_bytes_max: Some(4 << 30),
            hosts: vec!["a.example".to_owned()],
            ..ServerSettings::default()
        };
        let options = server(&large);
        assert_eq!((options.body_bytes_max, options.bodies_bytes_max), (4 << 30, 4 << 30));
        assert_eq!(options.hosts, ["a.example"]);
        options.check().unwrap();
    }
}
