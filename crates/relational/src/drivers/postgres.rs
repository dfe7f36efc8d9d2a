//! Connection to PostgreSQL.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use futures::SinkExt;
use futures::future::try_join_all;
use std::pin::pin;
use tidemill_types::{FieldType, Timestamp, Value};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connection::{Connection, FoundRows, TextRows};
use crate::error::{DbError, DbErrorKind};
use crate::param::{LoadOutcome, Param};
use crate::tls;
use crate::url::{DatabaseUrl, TlsMode};

/// Statements of a connection that stay prepared.
const STATEMENTS_MAX: usize = 64;
/// Size of the pieces in which rows are sent, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// Microseconds from 1970 to 2000, where PostgreSQL's times start.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// Maximum time that data stays unacknowledged before the connection counts as lost, and maximum silence of a
/// connection before it is probed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

pub struct PostgresConnection {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl PostgresConnection {
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        let mut config = Config::new();
        config.host(&url.host).port(url.port).dbname(&url.database);
        config.connect_timeout(url.connect_timeout).keepalives_idle(SILENCE_MAX);
        config.tcp_user_timeout(SILENCE_MAX);
        config.application_name(url.application.as_deref().unwrap_or("tidemill"));
        if let Some(user) = user {
            config.user(user);
        }
        if let Some(password) = password {
            config.password(password);
        }
        config.ssl_mode(match url.tls {
            TlsMode::Disabled => SslMode::Disable,
            TlsMode::Preferred => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let client = match url.tls {
            TlsMode::Disabled => {
                let (client, connection) = config.connect(NoTls).await.map_err(error)?;
                tokio::spawn(connection);
                client
            }
            mode => {
                let tls = MakeRustlsConnect::new(tls::client_config(mode, url.root_cert.as_deref())?);
                let (client, connection) = config.connect(tls).await.map_err(error)?;
                tokio::spawn(connection);
                client
            }
        };
        let mut connected = Self { client, statements: HashMap::new() };
        connected
            .run("SET TIME ZONE 'UTC'; SET extra_float_digits = 1; SET client_min_messages = warning")
            .await?;
        if let Some(path) = &url.search_path {
            let names = path.split(',').map(|name| crate::Dialect::PostgreSql.quote(name.trim()));
            connected.run(&format!("SET search_path TO {}", names.collect::<Vec<_>>().join(", "))).await?;
        }
        Ok(connected)
    }

    async fn prepare(&mut self, sql: &str) -> Result<Statement, DbError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await.map_err(error)?;
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

#[async_trait]
impl Connection for PostgresConnection {
    async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        self.client.batch_execute(sql).await.map_err(error)
    }

    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        let statement = self.prepare(sql).await?;
        self.client.execute_raw(&statement, params).await.map_err(error)
    }

    /// Sends all sets before it waits for the first answer.
    async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        let statement = self.prepare(sql).await?;
        let client = &self.client;
        let executing = sets.iter().map(|params| client.execute_raw(&statement, params));
        try_join_all(executing).await.map_err(error).map(drop)
    }

    async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<FoundRows, DbError> {
        let statement = self.prepare(sql).await?;
        rows(&self.client, &statement, params, types).await
    }

    /// Sends all sets before it waits for the first answer.
    async fn query_each(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        types: &[FieldType],
    ) -> Result<Vec<FoundRows>, DbError> {
        let statement = self.prepare(sql).await?;
        try_join_all(sets.iter().map(|params| rows(&self.client, &statement, params, types))).await
    }

    async fn load(&mut self, rows: TextRows<'_>) -> Result<LoadOutcome, DbError> {
        let TextRows { table, columns, data, .. } = rows;
        let statement = self.prepare(&format!("COPY {table} ({columns}) FROM STDIN")).await?;
        let mut sink = pin!(self.client.copy_in::<_, Bytes>(&statement).await.map_err(error)?);
        let mut rest = data;
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            sink.feed(chunk).await.map_err(error)?;
        }
        sink.finish().await.map_err(error)?;
        Ok(LoadOutcome::Loaded)
    }
}

async fn rows(
    client: &Client,
    statement: &Statement,
    params: &[Param<'_>],
    types: &[FieldType],
) -> Result<Vec<Vec<Value<'static>>>, DbError> {
    let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
    let rows = client.query(statement, &params).await.map_err(error)?;
    rows.iter().map(|row| values(row, types)).collect()
}

fn values(row: &Row, types: &[FieldType]) -> Result<Vec<Value<'static>>, DbError> {
    let value = |(index, ty): (usize, &FieldType)| {
        let cell: Option<DriverValue> = row.try_get(index).map_err(error)?;
        let value = cell.map_or(Value::Missing, |cell| cell.0);
        Ok(match (ty, value) {
            (FieldType::Float | FieldType::Double, Value::Int(n)) => Value::Float(n as f64),
            (_, value) => value,
        })
    };
    types.iter().enumerate().map(value).collect()
}

/// Value of a column, by its type in the database.
struct DriverValue(Value<'static>);

impl<'a> FromSql<'a> for DriverValue {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *ty {
            Type::BOOL => Value::Bool(bool::from_sql(ty, raw)?),
            Type::INT2 => Value::Int(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::FLOAT4 => Value::Float(f32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Float(f64::from_sql(ty, raw)?),
            Type::TIMESTAMPTZ | Type::TIMESTAMP => {
                let micros = i64::from_sql(&Type::INT8, raw)?;
                Value::Time(Timestamp(micros.saturating_add(EPOCH_MICROS)))
            }
            _ => Value::Str(String::from_sql(&Type::TEXT, raw)?.into()),
        }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let unfit =
            || format!("a value of type {} for a parameter of type {}", self.value.type_name(), self.ty);
        match (&self.value, self.ty) {
            (Value::Missing | Value::Null, _) => return Ok(IsNull::Yes),
            (Value::Bool(b), FieldType::Bool) => out.put_u8((*b).into()),
            (Value::Int(n), FieldType::Int) => out.put_i32(i32::try_from(*n)?),
            (Value::Int(n), FieldType::Long) => out.put_i64(*n),
            (Value::Int(n), FieldType::Float) => out.put_f32(*n as f32),
            (Value::Int(n), FieldType::Double) => out.put_f64(*n as f64),
            (Value::Float(x), FieldType::Float) => out.put_f32(*x as f32),
            (Value::Float(x), FieldType::Double) => out.put_f64(*x),
            (Value::Str(text), FieldType::String | FieldType::Object) => out.put_slice(text.as_bytes()),
            (Value::Time(time), FieldType::Time) => {
                out.put_i64(time.micros().checked_sub(EPOCH_MICROS).ok_or_else(unfit)?);
            }
            _ => return Err(unfit().into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Converts an error of the library.
fn error(e: tokio_postgres::Error) -> DbError {
    let Some(db) = e.as_db_error() else {
        let mut message = e.to_string();
        let mut cause = e.source();
        while let Some(deeper) = cause {
            let text = deeper.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = deeper.source();
        }
        let is_request = ["error serializing", "certificate", "does not support TLS"];
        let is_request = is_request.iter().any(|part| message.contains(part));
        let kind = if is_request { DbErrorKind::Invalid } else { DbErrorKind::Unavailable };
        return DbError::new(kind, message);
    };
    server_error(db.code().code(), db.message().to_owned(), db.detail())
}

/// Returns an error that the server reported with a code of five characters.
pub(crate) fn server_error(code: &str, message: String, detail: Option<&str>) -> DbError {
    let kind = match code {
        // a statement that meets the same row twice must be split
        "21000" | "P0001" => DbErrorKind::RowRefused,
        "25P02" | "25P03" | "40001" | "40P01" | "55006" | "55P03" | "57P01" | "57P02" | "57P03" | "57P05" => {
            DbErrorKind::Unavailable
        }
        "25006" => DbErrorKind::Unavailable,
        _ => match code.get(..2) {
            Some("22" | "23") => DbErrorKind::RowRefused,
            Some("54") => DbErrorKind::RowRefused,
            Some("08" | "53" | "58" | "XX") => DbErrorKind::Unavailable,
            _ => DbErrorKind::Invalid,
        },
    };
    let message = match detail {
        Some(detail) => format!("{message}: {detail}"),
        None => message,
    };
    DbError { kind, code: code.to_owned(), message }
}
