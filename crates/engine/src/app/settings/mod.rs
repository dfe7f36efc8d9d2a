//! Engine settings: plain data; durations and sizes are written with units.

mod encryption;
mod listen;
mod memory;
mod sections;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use tidemill_log::Durability;
use tidemill_types::{Duration, Error, Result};
use tidemill_zones::{ZonesOptions, check_store_settings};

pub use encryption::EncryptionSettings;
pub use listen::{ListenProtocol, ListenSettings};
pub use memory::ResultSettings;
pub use sections::{MongoSettings, ServerSettings, SqlSettings};

/// Treatment of the state of queries whose text has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangedQueries {
    /// Reject the deploy and change nothing.
    Refuse,
    /// Drop the state and restart the queries. Stored events stay.
    Restart,
}

/// Settings of an operator: under `[settings]` in `app.toml`, or in the environment as [`ENVIRONMENT`] and
/// the name.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Number of log partitions. Fixed when the data directory is created.
    pub partitions: u32,
    /// Durability of writes that do not request another.
    #[serde(deserialize_with = "durability")]
    pub durability: Durability,
    /// Memory that data may take, from which other sizes follow: those that are `None`, and the shares of SQL and of the cache.
    #[serde(deserialize_with = "sections::bytes")]
    pub memory: Option<u64>,
    /// Interval at which tails are flushed as Parquet tablets.
    #[serde(deserialize_with = "duration")]
    pub flush_interval: Duration,
    /// Bytes at which a table's tail is flushed early.
    #[serde(deserialize_with = "sections::bytes")]
    pub flush_bytes: Option<u64>,
    /// Bytes of a table that are not in a tablet yet at which applying pauses (the object store is
    /// unavailable or slow).
    #[serde(deserialize_with = "sections::bytes")]
    pub tail_bytes: Option<u64>,
    /// Bytes of all tables together that are not in a tablet yet at which applying pauses.
    #[serde(deserialize_with = "sections::bytes")]
    pub unflushed_bytes: Option<u64>,
    /// Interval of checkpoints of document and rule state, which bounds the replay after a restart.
    #[serde(deserialize_with = "duration")]
    pub checkpoint_interval: Duration,
    /// Bytes of unapplied records per partition at which senders wait.
    #[serde(deserialize_with = "sections::bytes")]
    pub inbox_bytes: Option<u64>,
    /// Bytes of events that may wait on the disk for one sink of a connector. Then applying pauses.
    #[serde(deserialize_with = "bytes")]
    pub sink_bytes: u64,
    /// Time that a sender waits for room before its request is rejected with `LimitReached`.
    #[serde(deserialize_with = "duration")]
    pub send_timeout: Duration,
    /// Time after which a record that is still being applied stops its partition, which is opened again and sets it aside:
    /// rules and queries do not see it. Records that wait for other systems have all the time they need; 0 disables it.
    #[serde(deserialize_with = "duration")]
    pub record_timeout: Duration,
    /// Ids remembered per stream and partition to detect duplicates.
    pub dedupe_ids: usize,
    /// Events per partition that `why` can explain; 0 disables it.
    pub why_events: usize,
    /// Maximum memory for documents, per partition.
    #[serde(deserialize_with = "sections::bytes")]
    pub documents_bytes: Option<u64>,
    /// Maximum memory for the writes of one open transaction.
    #[serde(deserialize_with = "sections::bytes")]
    pub transaction_bytes: Option<u64>,
    /// Maximum memory for the writes of all open transactions.
    #[serde(deserialize_with = "sections::bytes")]
    pub transactions_bytes: Option<u64>,
    /// Bytes of changes per partition that change streams can go back to.
    #[serde(deserialize_with = "bytes")]
    pub change_stream_bytes: u64,
    /// Size of a log segment file, in bytes.
    #[serde(deserialize_with = "bytes")]
    pub segment_bytes: u64,
    /// Disk space reserved in the data directory, so that a full disk can still be checkpointed and thereby
    /// freed. Writes are accepted only while as much again is free. At most a 16th of the disk; 0 disables
    /// it.
    #[serde(deserialize_with = "bytes")]
    pub reserve_bytes: u64,
    /// Rows that one table, window, aggregation or output rate limiter of a query may hold, per partition.
    pub query_rows: usize,
    /// Treatment of queries with state whose text has changed.
    pub changed_queries: ChangedQueries,
    /// Opens a damaged log: records before the damage stay, the rest is set aside. Acknowledged events may be
    /// lost.
    pub log_repair: bool,
    /// URL of a log on Kafka, `kafka://host:port/topic`. Default: segment files in the data directory.
    pub log: Option<String>,
    /// Location of the tables: a directory or an object store URL. Default: `tables` in the data directory.
    pub tables: Option<String>,
    /// Options of the object store of the tables without its secrets: `tables_store.endpoint = "https://minio:9000"`.
    #[serde(deserialize_with = "texts")]
    pub tables_store: BTreeMap<String, String>,
    /// Keys with which data is encrypted: `encryption.key_file = "/etc/tidemill/keys"`.
    pub encryption: EncryptionSettings,
    /// Options for writing and opening tables: `zones.compression = "snappy"`, `zones.open_degraded = true`.
    pub zones: ZonesOptions,
    /// Limits of SQL queries: `sql.memory_bytes = "2GiB"`.
    pub sql: SqlSettings,
    /// Host names and limits of the HTTP server: `server.hosts = ["events.example.com"]`.
    pub server: ServerSettings,
    /// Limits of the commands of MongoDB drivers: `mongo.command_timeout = "10s"`.
    pub mongo: MongoSettings,
    /// Listeners of the protocols, `[[settings.listen]]`. A protocol without one has its default address.
    pub listen: Vec<ListenSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            partitions: 4,
            durability: Durability::Fsync,
            memory: None,
            flush_interval: Duration::seconds(5),
            flush_bytes: None,
            tail_bytes: None,
            unflushed_bytes: None,
            checkpoint_interval: Duration::seconds(30),
            inbox_bytes: None,
            sink_bytes: 4 << 30,
            send_timeout: Duration::seconds(10),
            record_timeout: Duration::seconds(60),
            dedupe_ids: 1_000_000,
            why_events: 10_000,
            documents_bytes: None,
            transaction_bytes: None,
            transactions_bytes: None,
            change_stream_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            reserve_bytes: 64 << 20,
            query_rows: 50_000_000,
            changed_queries: ChangedQueries::Refuse,
            log_repair: false,
            log: None,
            tables: None,
            tables_store: BTreeMap::new(),
            encryption: EncryptionSettings::default(),
            zones: ZonesOptions::default(),
            sql: SqlSettings::default(),
            server: ServerSettings::default(),
            mongo: MongoSettings::default(),
            listen: Vec::new(),
        }
    }
}

/// Prefix of environment variables with settings: `TIDEMILL_SETTINGS__FLUSH_INTERVAL=1s`,
/// `TIDEMILL_SETTINGS__ZONES__COMPRESSION=snappy`. They override `app.toml`.
pub const ENVIRONMENT: &str = "TIDEMILL_SETTINGS__";

impl Settings {
    /// Returns the settings of an `app.toml`, overridden by those of the environment; `None` if the
    /// environment has none.
    ///
    /// Errors: `Invalid` with the variables.
    pub fn from_environment(
        app_toml: Option<&str>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Option<Self>> {
        let ours = variables.filter_map(|(name, value)| {
            name.strip_prefix(ENVIRONMENT).map(|path| (path.to_lowercase(), name.clone(), value))
        });
        let ours: Vec<_> = ours.collect();
        if ours.is_empty() {
            return Ok(None);
        }
        let wrong = |e: toml::de::Error| Error::invalid(crate::app::app_toml::meant(e.message()));
        let mut table: toml::Table = app_toml.unwrap_or_default().parse().map_err(wrong)?;
        let mut settings = match table.remove("settings") {
            Some(toml::Value::Table(settings)) => settings,
            _ => toml::Table::new(),
        };
        for (path, name, text) in &ours {
            let mut at = &mut settings;
            let mut keys = path.split("__").peekable();
            while let Some(key) = keys.next() {
                if keys.peek().is_none() {
                    // a value that is not TOML is a string, so that strings need no TOML quotes inside shell
                    // quotes
                    let value = toml::from_str::<toml::Table>(&format!("x = {text}"));
                    let value = value.ok().and_then(|mut t| t.remove("x"));
                    at.insert(key.to_owned(), value.unwrap_or_else(|| toml::Value::String(text.clone())));
                    break;
                }
                let inner = at.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new()));
                at = inner
                    .as_table_mut()
                    .ok_or_else(|| Error::invalid(format!("{name}: `{key}` has nothing inside")))?;
            }
        }
        let names: Vec<&str> = ours.iter().map(|(_, name, _)| name.as_str()).collect();
        let read = Self::deserialize(toml::Value::Table(settings)).map_err(wrong);
        read.and_then(|s| s.check().map(|()| Some(s))).map_err(|e| e.context(names.join(", ")))
    }

    /// Maximum partitions of a data directory: each is a thread and a set of files.
    pub const PARTITIONS_MAX: u32 = 256;

    /// Rejects settings that cannot work.
    ///
    /// Errors: `Invalid` with the setting and its bounds.
    pub fn check(&self) -> Result<()> {
        if self.partitions == 0 || self.partitions > Self::PARTITIONS_MAX {
            return Err(Error::invalid(format!(
                "setting partitions = {}: expected 1 to {}",
                self.partitions,
                Self::PARTITIONS_MAX
            )));
        }
        for (name, value) in [
            ("flush_interval", self.flush_interval),
            ("checkpoint_interval", self.checkpoint_interval),
            ("send_timeout", self.send_timeout),
        ] {
            if value.0 < 1_000 {
                return Err(Error::invalid(format!("setting {name} = \"{value}\": expected at least 1ms")));
            }
        }
        for (name, value) in [("segment_bytes", self.segment_bytes), ("inbox_bytes", self.inbox_bytes())] {
            if value < 64 << 10 {
                return Err(Error::invalid(format!("setting {name} = {value}: expected at least 64KiB")));
            }
        }
        self.check_memory()?;
        if self.query_rows == 0 {
            return Err(Error::invalid("setting query_rows = 0: expected at least 1"));
        }
        check_store_settings(self.tables.as_deref().unwrap_or("tables"), &self.tables_store)
            .map_err(|e| e.context("setting"))?;
        self.encryption.check()?;
        self.sql.check()?;
        self.server.check()?;
        self.mongo.check()?;
        listen::check(&self.listen)?;
        self.zones.validate()
    }
}

fn duration<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(d)?;
    Duration::parse(&text).map_err(serde::de::Error::custom)
}

fn durability<'de, D: Deserializer<'de>>(d: D) -> Result<Durability, D::Error> {
    let text = String::deserialize(d)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Deserializes a table of strings, numbers and truth values as strings.
fn texts<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string, a whole number, true or false")]
    enum Scalar {
        Text(String),
        Number(i64),
        Truth(bool),
    }
    let read = BTreeMap::<String, Scalar>::deserialize(d)?;
    let text = |scalar| match scalar {
        Scalar::Text(text) => text,
        Scalar::Number(number) => number.to_string(),
        Scalar::Truth(truth) => truth.to_string(),
    };
    Ok(read.into_iter().map(|(name, value)| (name, text(value))).collect())
}

/// Deserializes `67108864` or `"64MiB"`.
fn bytes<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(d)? {
        Size::Number(n) => Ok(n),
        Size::Text(text) => parse_bytes(&text).map_err(serde::de::Error::custom),
    }
}

/// Parses a size in bytes: `64MiB`, `1 GiB`, `500kB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let t = text.trim();
    let split = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let unit = match t[split..].trim() {
        "" | "B" => Some(1),
        "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    t[..split].parse::<u64>().ok().zip(unit).and_then(|(n, u)| n.checked_mul(u)).ok_or_else(|| {
        Error::invalid(format!(
            "`{text}` is not a size: expected a whole number and a unit, for example 64MiB"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_read_units_and_name_what_is_wrong() {
        let s: Settings =
            toml::from_str("flush_interval = \"250ms\"\nsegment_bytes = \"1MiB\"\ndurability = \"os\"")
                .unwrap();
        assert_eq!(
            (s.flush_interval, s.segment_bytes, s.durability),
            (Duration(250_000), 1 << 20, Durability::Os)
        );
        let error = toml::from_str::<Settings>("flush_intervall = \"1s\"").unwrap_err().to_string();
        assert!(error.contains("flush_intervall") && error.contains("flush_interval"), "{error}");
        assert!(parse_bytes("64 MiBs").unwrap_err().to_string().contains("64MiB"));
        assert!(Settings { partitions: 0, ..Settings::default() }.check().is_err());
    }

    /// Settings as they stand in `app.toml` or the environment, and what is said about them.
    #[test]
    fn listeners_are_read_and_bad_ones_are_told() {
        let text = include_str!("listen_cases.txt");
        let mut answers = String::new();
        for case in text.split("---\n") {
            let toml = case.split("=> ").next().unwrap_or_default();
            let read = toml::from_str::<Settings>(toml).map_err(|e| crate::app::app_toml::refused(&e));
            let answer = match read.and_then(|settings| settings.check().map(|()| settings.listen)) {
                Ok(listen) => {
                    listen.iter().map(|l| format!("=> {:?} at {}\n", l.protocol, l.address)).collect()
                }
                Err(error) => format!("=> {}\n", error.to_string().replace('\n', "\n=> ")),
            };
            answers += &format!("{}{toml}{answer}", if answers.is_empty() { "" } else { "---\n" });
        }
        if std::env::var_os("UPDATE_CASES").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/src/app/settings/listen_cases.txt"),
                &answers,
            )
            .unwrap();
        } else {
            assert_eq!(answers, text);
        }
        let listener = r#"[{protocol = "http", address = "4800"}]"#;
        let variables = [("TIDEMILL_SETTINGS__LISTEN".to_owned(), listener.to_owned())];
        let settings = Settings::from_environment(None, variables.into_iter()).unwrap().unwrap();
        assert_eq!(
            (settings.listen[0].protocol, settings.listen[0].address.as_str()),
            (ListenProtocol::Http, "4800")
        );
    }

    #[test]
    fn sections_are_read_where_the_engine_does_not_use_them() {
        let s: Settings = toml::from_str(
            "sql.memory_bytes = \"1GiB\"\nsql.query_timeout = \"5s\"\n[server]\nhosts = [\"a.example\"]\nbody_bytes_max = 4096",
        )
        .unwrap();
        assert_eq!((s.sql.memory_bytes, s.sql.rows_max), (Some(1 << 30), None));
        assert_eq!(s.sql.query_timeout, Some(Duration::seconds(5)));
        assert_eq!((s.server.hosts.len(), s.server.body_bytes_max), (1, Some(4096)));
        let error = toml::from_str::<Settings>("sql.memory = \"1GiB\"").unwrap_err().to_string();
        assert!(error.contains("`memory`") && error.contains("`memory_bytes`"), "{error}");
        let zero: Settings = toml::from_str("sql.function_bytes = 0").unwrap();
        assert!(
            zero.check().unwrap_err().to_string().contains("sql.function_bytes = 0"),
            "{:?}",
            zero.check()
        );
    }

    #[test]
    fn options_of_the_object_store_are_checked() {
        let check = |toml: &str| toml::from_str::<Settings>(toml).unwrap().check();
        let store = "tables = \"s3://bucket/tables\"\n";
        let settings: Settings = toml::from_str(&format!(
            "{store}tables_store = {{ endpoint = \"http://minio:9000\", allow_http = true, timeout = \"5s\" }}"
        ))
        .unwrap();
        settings.check().unwrap();
        assert_eq!(settings.tables_store["allow_http"], "true");
        let secret =
            check(&format!("{store}tables_store.secret_access_key = \"x\"")).unwrap_err().to_string();
        assert!(secret.contains("AWS_SECRET_ACCESS_KEY"), "{secret}");
        let mistyped = check(&format!("{store}tables_store.endpont = \"x\"")).unwrap_err().to_string();
        assert!(mistyped.contains("`endpoint`"), "{mistyped}");
        assert!(check("tables_store.endpoint = \"x\"").unwrap_err().to_string().contains("s3://"));
    }

    #[test]
    fn the_environment_wins() {
        let read = |toml: &str, variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            Settings::from_environment(Some(toml), variables)
        };
        let toml = "name = \"x\"\n[settings]\nflush_interval = \"9s\"\nwhy_events = 5";
        assert!(read(toml, &[("HOME", "/"), ("TIDEMILL_DATA", "d")]).unwrap().is_none());
        let variables = [
            ("TIDEMILL_SETTINGS__FLUSH_INTERVAL", "1s"),
            ("TIDEMILL_SETTINGS__PARTITIONS", "2"),
            ("TIDEMILL_SETTINGS__ZONES__OPEN_DEGRADED", "true"),
            ("TIDEMILL_SETTINGS__SQL__ROWS_MAX", "7"),
            ("TIDEMILL_SETTINGS__SERVER__HOSTS", "[\"b.example\"]"),
        ];
        let s = read(toml, &variables).unwrap().unwrap();
        assert_eq!((s.flush_interval, s.partitions, s.why_events), (Duration::seconds(1), 2, 5));
        assert!(s.zones.open_degraded);
        assert_eq!(
            (s.sql.rows_max, s.server.hosts.as_slice()),
            (Some(7), ["b.example".to_owned()].as_slice())
        );
        let error = read(toml, &[("TIDEMILL_SETTINGS__PARTITION", "2")]).unwrap_err().to_string();
        assert!(error.contains("TIDEMILL_SETTINGS__PARTITION") && error.contains("partitions"), "{error}");
        let error = read(toml, &[("TIDEMILL_SETTINGS__PARTITIONS", "0")]).unwrap_err().to_string();
        assert!(error.contains("expected 1 to 256"), "{error}");
        assert!(read(toml, &[("TIDEMILL_SETTINGS__WHY_EVENTS__X", "0")]).is_err());
    }
}
