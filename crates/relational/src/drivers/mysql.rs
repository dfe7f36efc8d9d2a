//! Connection to MariaDB or MySQL.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use mysql_async::prelude::Queryable;
use mysql_async::{
    Conn, DriverError, Error as LibraryError, IoError, Opts, OptsBuilder, Params, Row, SslOpts,
    Value as MySqlValue,
};
use tidemill_types::{FieldType, Timestamp, Value};

use crate::connection::{Connection, FoundRows, TextRows};
use crate::error::{DbError, DbErrorKind};
use crate::param::{LoadOutcome, Param};
use crate::text_format::{civil, micros_of_civil, time_range};
use crate::tls;
use crate::url::{DatabaseUrl, TlsMode};

/// Size of the pieces in which rows are sent, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum silence of a connection before it is probed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Errors of a server that does not allow LOAD DATA LOCAL.
const LOCAL_INFILE_FORBIDDEN: [u16; 3] = [1148, 3948, 4166];

pub struct MySqlConnection {
    connection: Conn,
    /// False once the server has refused LOAD DATA LOCAL.
    allows_load: bool,
}

impl MySqlConnection {
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        Ok(Self { connection: open(url, user, password).await?, allows_load: true })
    }
}

#[async_trait]
impl Connection for MySqlConnection {
    async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        self.connection.query_drop(sql).await.map_err(error)
    }

    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        self.connection.exec_drop(sql, parameters(params)?).await.map_err(error)?;
        Ok(self.connection.affected_rows())
    }

    async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<FoundRows, DbError> {
        let rows: Vec<Row> = self.connection.exec(sql, parameters(params)?).await.map_err(error)?;
        rows.into_iter()
            .map(|row| {
                row.unwrap().into_iter().zip(types).map(|(value, ty)| from_mysql(value, *ty)).collect()
            })
            .collect()
    }

    async fn load(&mut self, rows: TextRows<'_>) -> Result<LoadOutcome, DbError> {
        let TextRows { table, columns, data, count, replace } = rows;
        if !self.allows_load {
            return Ok(LoadOutcome::Forbidden);
        }
        let chunks = (0..data.len()).step_by(CHUNK_BYTES).map(move |from| {
            let to = (from + CHUNK_BYTES).min(data.len());
            Ok(data.slice(from..to))
        });
        let chunks: Vec<std::io::Result<Bytes>> = chunks.collect();
        self.connection.set_infile_handler(async move { Ok(stream::iter(chunks).boxed()) });
        let replace = if replace { "REPLACE " } else { "" };
        let sql = format!(
            "LOAD DATA LOCAL INFILE 'rows' {replace}INTO TABLE {table} CHARACTER SET utf8mb4 \
             FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' ({columns})"
        );
        match self.connection.query_drop(sql).await {
            Ok(()) => {
                let is_short = self.connection.affected_rows() < count as u64;
                match is_short || self.connection.get_warnings() > 0 {
                    true => Ok(LoadOutcome::Doubtful),
                    false => Ok(LoadOutcome::Loaded),
                }
            }
            Err(LibraryError::Server(e)) if LOCAL_INFILE_FORBIDDEN.contains(&e.code) => {
                tracing::warn!(
                    "the server forbids LOAD DATA LOCAL ({}): rows are written by INSERT, which is slower; \
                     set `local_infile = 1` at the server",
                    e.message
                );
                self.allows_load = false;
                Ok(LoadOutcome::Forbidden)
            }
            Err(e) => Err(error(e)),
        }
    }

    async fn close(self: Box<Self>) {
        // the server notices a lost connection by itself
        let _ = self.connection.disconnect().await;
    }
}

/// Connects, with a session in UTC that takes and gives UTF-8.
///
/// Errors: the server cannot be reached, or refuses.
pub(crate) async fn open(
    url: &DatabaseUrl,
    user: Option<&str>,
    password: Option<&str>,
) -> Result<Conn, DbError> {
    let options = OptsBuilder::default()
        .ip_or_hostname(url.host.clone())
        .tcp_port(url.port)
        .db_name(Some(url.database.clone()))
        .user(user)
        .pass(password)
        .prefer_socket(false)
        .client_found_rows(true)
        .tcp_keepalive(Some(SILENCE_MAX))
        .stmt_cache_size(64)
        .setup(vec![
            "SET NAMES utf8mb4".to_owned(),
            "SET time_zone = '+00:00'".into(),
            "SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'".into(),
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".into(),
        ]);
    let encrypted = match url.tls {
        TlsMode::Disabled => None,
        mode => Some(ssl(url, mode)?),
    };
    let opened = Conn::new(Opts::from(options.clone().ssl_opts(encrypted))).await;
    let opened = match opened {
        Err(LibraryError::Driver(DriverError::NoClientSslFlagFromServer))
            if url.tls == TlsMode::Preferred =>
        {
            Conn::new(Opts::from(options)).await
        }
        other => other,
    };
    opened.map_err(error)
}

fn ssl(url: &DatabaseUrl, mode: TlsMode) -> Result<SslOpts, DbError> {
    let options = SslOpts::default().with_disable_built_in_roots(true);
    let verifies = matches!(mode, TlsMode::VerifyAuthority | TlsMode::VerifyHost);
    // the library wants authorities even if it accepts all certificates
    let roots = match (tls::authorities(url.root_cert.as_deref()), verifies) {
        (Ok(roots), _) => roots.into_iter().map(|root| root.to_vec().into()).collect(),
        (Err(e), true) => return Err(e),
        (Err(_), false) => return Ok(SslOpts::default().with_danger_accept_invalid_certs(true)),
    };
    Ok(options
        .with_root_certs(roots)
        .with_danger_accept_invalid_certs(!verifies)
        .with_danger_skip_domain_validation(mode != TlsMode::VerifyHost))
}

fn parameters(params: &[Param<'_>]) -> Result<Params, DbError> {
    if params.is_empty() {
        return Ok(Params::Empty);
    }
    let values: Result<Vec<MySqlValue>, DbError> = params.iter().map(to_mysql).collect();
    values.map(Params::Positional)
}

fn to_mysql(param: &Param<'_>) -> Result<MySqlValue, DbError> {
    Ok(match (&param.value, param.ty) {
        (Value::Missing | Value::Null, _) => MySqlValue::NULL,
        (Value::Bool(b), FieldType::Bool) => MySqlValue::Int((*b).into()),
        (Value::Int(n), FieldType::Int | FieldType::Long) => MySqlValue::Int(*n),
        (Value::Int(n), FieldType::Double) => MySqlValue::Double(*n as f64),
        (Value::Int(n), FieldType::Float) => MySqlValue::Float(*n as f32),
        (Value::Float(x), FieldType::Double) => MySqlValue::Double(*x),
        (Value::Float(x), FieldType::Float) => MySqlValue::Float(*x as f32),
        (Value::Str(text), FieldType::String | FieldType::Object) => {
            MySqlValue::Bytes(text.as_bytes().to_vec())
        }
        (Value::Time(time), FieldType::Time) => {
            let civil = civil(*time).ok_or_else(|| DbError::new(DbErrorKind::RowRefused, time_range()))?;
            let [month, day, hour, minute, second] = civil.parts;
            MySqlValue::Date(civil.year, month, day, hour, minute, second, civil.micros)
        }
        (value, ty) => {
            let found = value.type_name();
            return Err(DbError::invalid(format!("a value of type {found} for a parameter of type {ty}")));
        }
    })
}

fn from_mysql(value: MySqlValue, ty: FieldType) -> Result<Value<'static>, DbError> {
    let unfit = |found: &str| DbError::invalid(format!("found {found} in a column of type {ty}"));
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map_err(|_| DbError::invalid("a text in the database is not UTF-8"))
    };
    Ok(match (value, ty) {
        (MySqlValue::NULL, _) => Value::Missing,
        (MySqlValue::Int(n), FieldType::Bool) => Value::Bool(n != 0),
        (MySqlValue::UInt(n), FieldType::Bool) => Value::Bool(n != 0),
        (MySqlValue::Bytes(bits), FieldType::Bool) => Value::Bool(bits.iter().any(|b| *b != 0 && *b != b'0')),
        (MySqlValue::Int(n), FieldType::Int | FieldType::Long) => Value::Int(n),
        (MySqlValue::UInt(n), FieldType::Int | FieldType::Long) => {
            Value::Int(i64::try_from(n).map_err(|_| unfit("a number above the range of `long`"))?)
        }
        (MySqlValue::Int(n), FieldType::Float | FieldType::Double) => Value::Float(n as f64),
        (MySqlValue::UInt(n), FieldType::Float | FieldType::Double) => Value::Float(n as f64),
        (MySqlValue::Float(x), FieldType::Float | FieldType::Double) => Value::Float(x.into()),
        (MySqlValue::Double(x), FieldType::Float | FieldType::Double) => Value::Float(x),
        // decimals
        (MySqlValue::Bytes(bytes), FieldType::Float | FieldType::Double) => {
            Value::Float(text(bytes)?.parse().map_err(|_| unfit("no number"))?)
        }
        (MySqlValue::Bytes(bytes), FieldType::Int | FieldType::Long) => {
            let text = text(bytes)?;
            let whole = text.split('.').next().unwrap_or_default();
            Value::Int(whole.parse().map_err(|_| unfit("no integer"))?)
        }
        (MySqlValue::Date(year, month, day, hour, minute, second, micros), FieldType::Time) => {
            let micros = micros_of_civil(year, [month, day, hour, minute, second], micros);
            Value::Time(Timestamp(micros))
        }
        (MySqlValue::Bytes(bytes), FieldType::String | FieldType::Object) => Value::Str(text(bytes)?.into()),
        (other, FieldType::String | FieldType::Object) => {
            Value::Str(other.as_sql(true).trim_matches('\'').to_owned().into())
        }
        _ => return Err(unfit("a value of another type")),
    })
}

/// Converts an error of the library.
pub(crate) fn error(e: LibraryError) -> DbError {
    let server = match e {
        LibraryError::Server(server) => server,
        LibraryError::Io(IoError::Tls(tls)) => return DbError::invalid(format!("TLS: {tls}")),
        LibraryError::Io(IoError::Io(io)) => return DbError::unavailable(io.to_string()),
        LibraryError::Driver(DriverError::NoClientSslFlagFromServer) => {
            return DbError::invalid(
                "the server does not encrypt connections; write `sslMode=DISABLED` in the URL",
            );
        }
        LibraryError::Driver(
            driver @ (DriverError::UnknownAuthPlugin { .. } | DriverError::MysqlOldPasswordDisabled),
        ) => {
            return DbError::invalid(driver.to_string());
        }
        other => return DbError::unavailable(other.to_string()),
    };
    let kind = match server.code {
        // too many connections, no memory, shutdown, disk or table full, lost connections, lock waits, deadlocks,
        // read-only, killed
        1020
        | 1021
        | 1037
        | 1038
        | 1040
        | 1041
        | 1053
        | 1114
        | 1129
        | 1135
        | 1152
        | 1158..=1161
        | 1180
        | 1184
        | 1203
        | 1205
        | 1206
        | 1213
        | 1226
        | 1290
        | 1317
        | 1836
        | 1927
        | 2006
        | 2013
        | 3024
        | 3169
        | 4031 => DbErrorKind::Unavailable,
        // values, keys, constraints, triggers that refuse, rows that are too large
        1022
        | 1048
        | 1062
        | 1138
        | 1153
        | 1169
        | 1216
        | 1217
        | 1242
        | 1263..=1266
        | 1292
        | 1300
        | 1364
        | 1365
        | 1366
        | 1367
        | 1369
        | 1406
        | 1411
        | 1416
        | 1425
        | 1438
        | 1439
        | 1441
        | 1451
        | 1452
        | 1526
        | 1557
        | 1586
        | 1644
        | 1690
        | 1761
        | 1762
        | 3140..=3160
        | 3730
        | 3819
        | 4025
        | 4035
        | 4036
        | 4037
        | 4038 => DbErrorKind::RowRefused,
        _ => DbErrorKind::Invalid,
    };
    DbError { kind, code: server.code.to_string(), message: server.message }
}
