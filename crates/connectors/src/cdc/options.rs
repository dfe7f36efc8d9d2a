//! Options of the source.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_connect::{ConnectorContext, OptionError, OptionSpec, Options};
use tidemill_relational::{ChangeOperation, ChangeSettings, DatabaseUrl, Dialect, TableName};

/// Greatest length of names in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;
/// Numbers from which the number of a reader is chosen, which must be unique among the replicas of a server.
const SERVER_IDS: std::ops::Range<u64> = 1_000_000_000..2_000_000_000;

pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "url",
        "Address of the database: `jdbc:postgresql://host:port/db`, `jdbc:mysql:…`, `jdbc:mariadb:…`.",
    )
    .secret(),
    OptionSpec::text("username", "User."),
    OptionSpec::text("password", "Password of the user.").secret(),
    OptionSpec::text("table.name", "Table, `table` or `schema.table`.").required(),
    OptionSpec::one_of(
        "mode",
        &["listening", "polling"],
        "Whether the log of the database is read, or the table is asked for new rows again and again.",
    )
    .default("listening"),
    OptionSpec::text(
        "operation",
        "Changes that become events: `insert`, `update`, `delete`, or several with commas. `listening` needs it.",
    ),
    OptionSpec::one_of(
        "snapshot.mode",
        &["initial", "never"],
        "Whether the rows that are there already come as inserts before the changes. `never` is what Siddhi does.",
    )
    .default("initial"),
    OptionSpec::text("polling.column", "Column of integers or times that grows with each insert, or with each update, too."),
    OptionSpec::integer("polling.interval", 1, 86_400, "Seconds between two polls.").default("1"),
    OptionSpec::flag(
        "wait.on.missed.record",
        "false",
        "Whether a poll waits for integers that are left out, because they may be in transactions that are still open.",
    ),
    OptionSpec::integer(
        "missed.record.waiting.timeout",
        -1,
        86_400,
        "Seconds after which an integer that is left out is passed over; `-1` waits for ever.",
    )
    .default("-1"),
    OptionSpec::text("slot.name", "Replication slot of PostgreSQL; default: one made of the name of the source."),
    OptionSpec::text("publication.name", "Publication of PostgreSQL; default: one made of the name of the source."),
    OptionSpec::text("plugin.name", "Has no effect: PostgreSQL's own `pgoutput` is used."),
    OptionSpec::integer(
        "database.server.id",
        1,
        u32::MAX as i64,
        "Number among the replicas of a MariaDB or MySQL server; default: one made of the name of the source.",
    ),
    OptionSpec::text(
        "connector.properties",
        "Some of these options once more, as `name=value,name=value`: `slot.name`, `publication.name`, `snapshot.mode`, \
         `server.id`. Others have no effect.",
    ),
    OptionSpec::text("jdbc.driver.name", "Has no effect: the program has its own drivers."),
    OptionSpec::text("pool.properties", "Has no effect: a source has one connection."),
    OptionSpec::text("database.server.name", "Has no effect: positions belong to the name of the source."),
    OptionSpec::text("datasource.name", "Refused: write `url`, `username` and `password`."),
    OptionSpec::text("jndi.resource", "Refused: write `url`, `username` and `password`."),
];

/// Method of finding changes.
pub(super) enum Mode {
    /// In the database's log.
    Listening {
        /// True if the existing rows come first.
        snapshot: bool,
        /// True if the replication slot has the name that this source gives it.
        slot_is_own: bool,
    },
    /// By queries.
    Polling(PollingOptions),
}

/// Options of polling.
pub(super) struct PollingOptions {
    pub(super) column: String,
    pub(super) interval: Duration,
    /// True if the existing rows come first.
    pub(super) snapshot: bool,
    /// Maximum time to wait for integers that are left out; `None` to not wait.
    pub(super) gap_timeout: Option<Duration>,
}

pub(super) fn read(
    options: &Options,
    context: &ConnectorContext,
) -> Result<(ChangeSettings, Mode), OptionError> {
    for name in ["datasource.name", "jndi.resource"] {
        if options.is_written(name) {
            let message = "there are no shared data sources; write the address of the database";
            return Err(OptionError::option(name, message).expected([
                "url='…'",
                "username='…'",
                "password='…'",
            ]));
        }
    }
    let properties = Properties::parse(options, context)?;
    let settings = settings(options, &properties, context)?;
    let snapshot = match properties.get("snapshot.mode").or(options.get("snapshot.mode")) {
        Some(mode) if mode.eq_ignore_ascii_case("initial") => true,
        Some(mode) if ["never", "no_data", "schema_only"].iter().any(|m| mode.eq_ignore_ascii_case(m)) => {
            false
        }
        other => {
            let found = other.unwrap_or_default();
            let message = format!("`snapshot.mode` must be one of initial, never, found `{found}`");
            return Err(OptionError::option("connector.properties", message));
        }
    };
    let mode = match options.text("mode").trim().eq_ignore_ascii_case("polling") {
        false => {
            Mode::Listening { snapshot, slot_is_own: name_of(options, &properties, "slot.name").is_none() }
        }
        true => Mode::Polling(polling_options(options, &settings, snapshot)?),
    };
    Ok((settings, mode))
}

fn settings(
    options: &Options,
    properties: &Properties,
    context: &ConnectorContext,
) -> Result<ChangeSettings, OptionError> {
    let at = |name: &'static str| move |message: String| OptionError::option(name, message);
    let Some(url) = options.get("url") else {
        let message = "the source `cdc` needs the option `url`";
        return Err(OptionError::connector(message).expected(["url='jdbc:postgresql://host:port/database'"]));
    };
    let url = DatabaseUrl::parse(url).map_err(at("url"))?;
    let message = match url.dialect {
        Dialect::PostgreSql | Dialect::MySql => None,
        Dialect::Sqlite => {
            Some("SQLite keeps no log of changes; there are PostgreSQL, MariaDB and MySQL".to_owned())
        }
        other => {
            Some(format!("the source `cdc` does not read {other}; there are PostgreSQL, MariaDB and MySQL"))
        }
    };
    if let Some(message) = message {
        return Err(OptionError::option("url", message));
    }
    for parameter in &url.without_effect {
        tracing::warn!(source = context.name, "the parameter `{parameter}` of the URL has no effect");
    }
    let default_name = default_name(&context.name);
    let publication = name_of(options, properties, "publication.name");
    let server_id = match properties.get("server.id").or(properties.get("database.server.id")) {
        Some(id) => id.parse().map(Some).map_err(|_| {
            let message = format!("`server.id` must be an integer from 1 to {}, found `{id}`", u32::MAX);
            OptionError::option("connector.properties", message)
        })?,
        None => options.integer("database.server.id").and_then(|id| u32::try_from(id).ok()),
    };
    let hash = xxhash_rust::xxh3::xxh3_64(context.name.as_bytes());
    let own_id = SERVER_IDS.start + hash % (SERVER_IDS.end - SERVER_IDS.start);
    let slot = name_of(options, properties, "slot.name").unwrap_or(&default_name);
    if url.dialect == Dialect::PostgreSql && !is_slot_name(slot) {
        let message = format!("expected up to 63 of the characters a-z, 0-9 and _, found `{slot}`");
        return Err(OptionError::option("slot.name", message));
    }
    Ok(ChangeSettings {
        user: options.get("username").map(str::to_owned),
        password: options.get("password").map(str::to_owned),
        table: TableName::parse(options.text("table.name")).map_err(at("table.name"))?,
        operations: operations(options)?,
        slot: slot.to_owned(),
        owns_publication: publication.is_none(),
        publication: publication.unwrap_or(&default_name).to_owned(),
        // below 2 billion
        server_id: server_id.unwrap_or(own_id as u32),
        wanted: context.schema.fields.iter().map(|field| (field.name.clone(), field.ty)).collect(),
        url,
    })
}

fn name_of<'o>(options: &'o Options, properties: &'o Properties, name: &str) -> Option<&'o str> {
    properties.get(name).or(options.get(name)).map(str::trim).filter(|name| !name.is_empty())
}

fn operations(options: &Options) -> Result<Vec<ChangeOperation>, OptionError> {
    let is_polling = options.text("mode").trim().eq_ignore_ascii_case("polling");
    let text = match options.get("operation") {
        Some(text) => text,
        None if is_polling => "insert",
        None => {
            let message = "the mode `listening` needs the option `operation`";
            return Err(OptionError::connector(message).expected(["operation='insert'"]));
        }
    };
    let mut found = vec![];
    for word in text.split(',').map(str::trim) {
        let known = ChangeOperation::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(word));
        let known = known.ok_or_else(|| {
            let message =
                format!("expected insert, update, delete, or several of them with commas, found `{word}`");
            OptionError::option("operation", message)
        })?;
        if !found.contains(known) {
            found.push(*known);
        }
    }
    if is_polling && found.contains(&ChangeOperation::Delete) {
        let message = "rows that are deleted cannot be polled; use mode='listening'";
        return Err(OptionError::option("operation", message));
    }
    found.sort();
    Ok(found)
}

fn polling_options(
    options: &Options,
    settings: &ChangeSettings,
    snapshot: bool,
) -> Result<PollingOptions, OptionError> {
    let column = options.get("polling.column").map(str::trim).filter(|column| !column.is_empty());
    let Some(column) = column else {
        let message = format!("the mode `polling` needs a column of `{}` that grows", settings.table);
        return Err(OptionError::connector(message).expected(["polling.column='…'"]));
    };
    let seconds = |name: &str| options.integer(name).and_then(|n| u64::try_from(n).ok());
    let timeout = seconds("missed.record.waiting.timeout").map_or(Duration::MAX, Duration::from_secs);
    Ok(PollingOptions {
        column: column.to_owned(),
        interval: Duration::from_secs(seconds("polling.interval").unwrap_or(1)),
        snapshot,
        gap_timeout: options.flag("wait.on.missed.record").then_some(timeout),
    })
}

/// Returns a name for slot and publication that is made of the name of the source, and that no other source has.
fn default_name(source: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let hash = format!("_{:08x}", xxhash_rust::xxh3::xxh3_64(source.as_bytes()) >> 32);
    let room = NAME_BYTES_MAX - "tidemill_".len() - hash.len();
    let name: String = source.chars().map(plain).take(room).collect();
    format!("tidemill_{name}{hash}")
}

fn is_slot_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// `connector.properties`.
struct Properties(BTreeMap<String, String>);

impl Properties {
    const KNOWN: [&str; 6] =
        ["slot.name", "publication.name", "plugin.name", "snapshot.mode", "server.id", "database.server.id"];

    fn parse(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let mut found = BTreeMap::new();
        let text = options.get("connector.properties").unwrap_or_default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                let message = "expected `name=value,name=value`";
                return Err(OptionError::option("connector.properties", message));
            };
            let name = name.trim();
            match Self::KNOWN.contains(&name) {
                true => drop(found.insert(name.to_owned(), value.trim().to_owned())),
                false => {
                    tracing::warn!(source = context.name, "`{name}` in `connector.properties` has no effect");
                }
            }
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_names_are_names_of_slots() {
        for source in
            ["app/S", "Größe/ein sehr langer Name, der nicht in einen Namen von PostgreSQL passt", ""]
        {
            let name = default_name(source);
            assert!(is_slot_name(&name), "{name}");
        }
        assert_ne!(default_name("a/b"), default_name("a_b"));
    }
}
