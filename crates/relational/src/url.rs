//! Addresses of databases, as JDBC and as the databases' own tools write them.

mod oracle;
mod sql_server;

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tidemill_types::nearest;

use crate::dialect::Dialect;

/// Timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    Disabled,
    /// If the server can.
    Preferred,
    /// Always, with any certificate.
    Required,
    /// Always, with a certificate of a known authority.
    VerifyAuthority,
    /// Always, with a certificate of a known authority for this host.
    VerifyHost,
}

/// Address of a database, with what its parameters say.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    /// Kind of database.
    pub dialect: Dialect,
    /// Name or address of the server.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Database. In Oracle a service, or an instance.
    pub database: String,
    /// True if the database is named by its instance. Only Oracle.
    pub is_sid: bool,
    /// Encryption.
    pub tls: TlsMode,
    /// File with certificates of authorities, instead of those of the system; SQL Server takes these, too. In Oracle the
    /// directory of `ewallet.pem`.
    pub root_cert: Option<PathBuf>,
    /// True if encryption starts before the first message (TDS 8). Only SQL Server.
    pub is_strict: bool,
    /// Host that the certificate is for, if that is not `host`. Only SQL Server.
    pub certificate_host: Option<String>,
    /// Time in which the server must answer.
    pub connect_timeout: Duration,
    /// Schemas that are searched for tables, as a list in SQL. Only PostgreSQL.
    pub search_path: Option<String>,
    /// Name of the program in the server's lists.
    pub application: Option<String>,
    /// User, if the URL has one.
    pub user: Option<String>,
    /// Password, if the URL has one.
    pub password: Option<String>,
    /// Parameters of JDBC drivers that have no effect here.
    pub without_effect: Vec<String>,
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for DatabaseUrl {
    /// Leaves user, password and parameters out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.dialect {
            Dialect::PostgreSql => "postgresql",
            Dialect::MySql => "mysql",
            Dialect::Sqlite => return write!(f, "sqlite:{}", self.database),
            Dialect::Oracle if self.is_sid => {
                return write!(f, "oracle:thin:@{}:{}:{}", self.host, self.port, self.database);
            }
            Dialect::Oracle => "oracle:thin:@",
            Dialect::SqlServer => {
                return write!(f, "sqlserver://{}:{};databaseName={}", self.host, self.port, self.database);
            }
        };
        let colon = if self.dialect == Dialect::Oracle { "" } else { ":" };
        write!(f, "{scheme}{colon}//{}:{}/{}", self.host, self.port, self.database)
    }
}

/// Parameters that have an effect. A misspelt one is refused, because some of them decide what is encrypted.
const POSTGRES_PARAMETERS: &[&str] = &[
    "user",
    "password",
    "sslmode",
    "ssl",
    "sslrootcert",
    "connectTimeout",
    "currentSchema",
    "ApplicationName",
];
const MYSQL_PARAMETERS: &[&str] = &[
    "user",
    "password",
    "useSSL",
    "useSsl",
    "requireSSL",
    "verifyServerCertificate",
    "trustServerCertificate",
    "sslMode",
    "serverSslCert",
    "connectTimeout",
];

impl DatabaseUrl {
    /// Parses `jdbc:postgresql://host:port/db?…`, `jdbc:mysql:`, `jdbc:mariadb:`, `jdbc:sqlite:path`,
    /// `jdbc:sqlserver://host:port;databaseName=db;…` and `jdbc:oracle:thin:@//host:port/service`, also without `jdbc:`, and `postgres:`.
    ///
    /// Errors: another database or form; what was expected, without the URL, which may have a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bare = text.strip_prefix("jdbc:").unwrap_or(text);
        let scheme = bare.split_once(':').map_or(String::new(), |(scheme, _)| scheme.to_ascii_lowercase());
        let dialect = match scheme.as_str() {
            "postgresql" | "postgres" => Dialect::PostgreSql,
            "mysql" | "mariadb" => Dialect::MySql,
            "oracle" => return oracle::parse(bare.get(scheme.len() + 1..).unwrap_or_default()),
            "sqlserver" => return sql_server::parse(bare.get(scheme.len() + 1..).unwrap_or_default()),
            "sqlite" => return sqlite(bare.get(scheme.len() + 1..).unwrap_or_default()),
            "h2" => return Err(instead_of_h2(bare.get(scheme.len() + 1..).unwrap_or_default())),
            _ => return Err(unknown_scheme(&scheme)),
        };
        // `jdbc:postgresql:db` means the server on this machine
        let rest = bare.get(scheme.len() + 1..).unwrap_or_default();
        let rest = match rest.strip_prefix("//") {
            Some(rest) => rest.to_owned(),
            None if dialect == Dialect::PostgreSql && rest.starts_with('/') => format!("localhost{rest}"),
            None if dialect == Dialect::PostgreSql => format!("localhost/{rest}"),
            None => {
                let form = format!("`jdbc:{scheme}://host:port/database`");
                return Err(format!("expected {form}; lists and modes of hosts are not understood"));
            }
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.rsplit('@').next().is_some_and(|hosts| hosts.contains(',')) {
            return Err("the URL names several hosts; write the one that takes writes".into());
        }
        let url = ::url::Url::parse(&format!("{scheme}://{rest}"))
            .map_err(|e| format!("expected `jdbc:{scheme}://host:port/database`, found a URL with an {e}"))?;
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let database = decode(url.path().trim_start_matches('/'));
        let host = match url.host_str() {
            Some(host) if !host.is_empty() => host.trim_matches(['[', ']']).to_owned(),
            _ => "localhost".into(),
        };
        let port = url.port().unwrap_or(if dialect == Dialect::PostgreSql { 5432 } else { 3306 });
        let mut parsed = Self {
            host,
            database,
            tls: match scheme.as_str() {
                "mariadb" => TlsMode::Disabled,
                _ => TlsMode::Preferred,
            },
            user: Some(decode(url.username())).filter(|user| !user.is_empty()),
            password: url.password().map(decode),
            ..Self::new(dialect, port)
        };
        let parameters: Vec<(String, String)> =
            url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        for (name, value) in &parameters {
            parsed.set(name, value)?;
        }
        if dialect == Dialect::MySql {
            parsed.set_mysql_tls(&parameters)?;
        }
        if parsed.database.is_empty() {
            return Err(format!("the URL names no database; write `jdbc:{scheme}://host:port/database`"));
        }
        Ok(parsed)
    }

    /// Returns the address of a server on this machine, without a database.
    fn new(dialect: Dialect, port: u16) -> Self {
        Self {
            dialect,
            host: "localhost".into(),
            port,
            database: String::new(),
            is_sid: false,
            tls: TlsMode::Disabled,
            root_cert: None,
            is_strict: false,
            certificate_host: None,
            connect_timeout: CONNECT_TIMEOUT,
            search_path: None,
            application: None,
            user: None,
            password: None,
            without_effect: vec![],
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (self.dialect, name) {
            (_, "user") => self.user = Some(value.to_owned()),
            (_, "password") => self.password = Some(value.to_owned()),
            (Dialect::PostgreSql, "connectTimeout") => {
                self.connect_timeout = Duration::from_secs(number(name, value)?);
            }
            (Dialect::MySql, "connectTimeout") => {
                self.connect_timeout = Duration::from_millis(number(name, value)?);
            }
            (Dialect::PostgreSql, "sslmode") => self.tls = tls_mode(name, value)?,
            (Dialect::PostgreSql, "ssl") if flag(name, value)? => self.tls = TlsMode::VerifyHost,
            (Dialect::PostgreSql, "ssl") => {}
            (Dialect::PostgreSql, "sslrootcert") | (Dialect::MySql, "serverSslCert") => {
                self.root_cert = Some(PathBuf::from(value));
            }
            (Dialect::PostgreSql, "currentSchema") => self.search_path = Some(value.to_owned()),
            (Dialect::PostgreSql, "ApplicationName") => self.application = Some(value.to_owned()),
            (Dialect::MySql, "sslMode") => self.tls = tls_mode(name, value)?,
            (Dialect::MySql, name) if MYSQL_PARAMETERS.contains(&name) => {}
            _ => {
                let known = match self.dialect {
                    Dialect::PostgreSql => POSTGRES_PARAMETERS,
                    _ => MYSQL_PARAMETERS,
                };
                if let Some(meant) = nearest(name, known.iter().copied()) {
                    return Err(format!(
                        "the URL has an unknown parameter `{name}`; did you mean `{meant}`?"
                    ));
                }
                self.without_effect.push(name.to_owned());
            }
        }
        if self.connect_timeout.is_zero() {
            self.connect_timeout = CONNECT_TIMEOUT;
        }
        Ok(())
    }

    /// The older parameters of MySQL's driver work together; `sslMode` overrides them.
    fn set_mysql_tls(&mut self, parameters: &[(String, String)]) -> Result<(), String> {
        let written = |names: &[&str]| {
            let found = parameters.iter().find(|(name, _)| names.contains(&name.as_str()));
            found.map(|(name, value)| flag(name, value)).transpose()
        };
        let uses = written(&["useSSL", "useSsl"])?;
        let requires = written(&["requireSSL"])?;
        let verifies = written(&["verifyServerCertificate"])?;
        let trusts = written(&["trustServerCertificate"])?;
        if parameters.iter().any(|(name, _)| name == "sslMode") {
            return Ok(());
        }
        self.tls = match (uses, requires, verifies, trusts) {
            (Some(false), ..) => TlsMode::Disabled,
            (_, _, Some(true), _) => TlsMode::VerifyAuthority,
            (_, _, _, Some(true)) => TlsMode::Required,
            (_, Some(true), ..) => TlsMode::Required,
            (Some(true), ..) => TlsMode::Preferred,
            (None, ..) => self.tls,
        };
        Ok(())
    }
}

/// Parses the path of a file.
fn sqlite(rest: &str) -> Result<DatabaseUrl, String> {
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.strip_prefix("file:").unwrap_or(path);
    if path.is_empty() || path.starts_with(":memory:") {
        return Err("a database in memory is lost when the program ends; write the path of a file, such as \
             `jdbc:sqlite:./app.db`"
            .into());
    }
    let names = parameters.split('&').filter_map(|part| part.split('=').next());
    Ok(DatabaseUrl {
        host: String::new(),
        database: path.to_owned(),
        without_effect: names.filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        ..DatabaseUrl::new(Dialect::Sqlite, 0)
    })
}

/// Returns what to type instead of a URL of H2, whose files only Java reads.
fn instead_of_h2(rest: &str) -> String {
    let path = rest.split(';').next().unwrap_or_default();
    let lower = path.to_ascii_lowercase();
    let is_remote = ["tcp:", "ssl:", "zip:"].iter().any(|start| lower.starts_with(start));
    let file = ["file:", "mem:", "nio:"].iter().find(|start| lower.starts_with(**start));
    let file = file.map_or(path, |start| path.get(start.len()..).unwrap_or_default());
    let file = if file.is_empty() { "./app" } else { file };
    let other = "`jdbc:postgresql://host:port/database` for a server";
    match is_remote || file.contains('@') {
        true => format!("H2 runs only in Java; write {other}, or `jdbc:sqlite:./app.db` for a file"),
        false => {
            format!("H2 runs only in Java; write `jdbc:sqlite:{file}.db` for a file in its place, or {other}")
        }
    }
}

fn unknown_scheme(scheme: &str) -> String {
    let there = "there are PostgreSQL (`jdbc:postgresql:`), MySQL (`jdbc:mysql:`), MariaDB (`jdbc:mariadb:`), SQL Server \
         (`jdbc:sqlserver:`), Oracle (`jdbc:oracle:`) and SQLite (`jdbc:sqlite:`)";
    let name = match scheme {
        "microsoft" | "jtds" => {
            return "the driver of SQL Server takes `jdbc:sqlserver://host:port;databaseName=name`".into();
        }
        "db2" => "DB2",
        "" => return format!("expected the URL of a database; {there}"),
        other if other.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-') => {
            return format!("`{other}` is no database that is known here; {there}");
        }
        _ => return format!("expected the URL of a database; {there}"),
    };
    format!("{name} is not supported; {there}")
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.trim().parse().map_err(|_| format!("`{name}` in the URL must be an integer, found `{value}`"))
}

fn flag(name: &str, value: &str) -> Result<bool, String> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "" | "1" | "yes" => Ok(true),
        "false" | "0" | "no" => Ok(false),
        _ => Err(format!("`{name}` in the URL must be `true` or `false`, found `{value}`")),
    }
}

fn tls_mode(name: &str, value: &str) -> Result<TlsMode, String> {
    Ok(match value.trim().to_ascii_lowercase().replace('_', "-").as_str() {
        "disable" | "disabled" => TlsMode::Disabled,
        "prefer" | "preferred" | "allow" => TlsMode::Preferred,
        "require" | "required" | "trust" => TlsMode::Required,
        "verify-ca" => TlsMode::VerifyAuthority,
        "verify-full" | "verify-identity" => TlsMode::VerifyHost,
        _ => {
            return Err(format!(
                "`{name}` in the URL must be one of disable, prefer, require, verify-ca, verify-full, found `{value}`"
            ));
        }
    })
}
