//! SQLite: a file that this program reads and writes by itself.
//!
//! The library blocks, see [`crate::drivers::blocking`].

use std::time::{Duration, Instant};

use async_trait::async_trait;
use backon::{BlockingRetryable, ConstantBuilder};
use rusqlite::types::{Value as SqliteValue, ValueRef};
use rusqlite::{Connection, ErrorCode, params_from_iter};
use tidemill_types::{FieldType, Timestamp, Value};

use crate::connection::{self, FoundRows, TextRows};
use crate::drivers::blocking::BlockingConnection;
use crate::error::{DbError, DbErrorKind};
use crate::param::{LoadOutcome, Param};
use crate::text_format::{civil, micros_of_civil, time_range};
use crate::url::DatabaseUrl;

/// Statements of a connection that stay prepared.
const STATEMENTS_MAX: usize = 64;
/// Settings of a connection: other connections may read while one writes, and committed data is on disk.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY";

/// Time between two tries to open a file that others open.
const BUSY_RETRY: Duration = Duration::from_millis(5);

/// Connection to a file.
pub struct SqliteConnection {
    connection: BlockingConnection<Connection>,
}

impl SqliteConnection {
    pub async fn connect(url: &DatabaseUrl) -> Result<Self, DbError> {
        let (path, timeout) = (url.database.clone(), url.connect_timeout);
        let connection = BlockingConnection::open("sqlite", move || open(&path, timeout)).await?;
        Ok(Self { connection })
    }

    /// Executes a statement for each set of parameters. Returns the sum of its rows.
    async fn execute_sets(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<u64, DbError> {
        let (sql, sets) = (sql.to_owned(), owned(sets)?);
        self.connection
            .call(move |connection| {
                let mut statement = connection.prepare_cached(&sql).map_err(error)?;
                let execute = |params| statement.execute(params_from_iter(params)).map_err(error);
                let counts: Result<Vec<usize>, DbError> = sets.into_iter().map(execute).collect();
                Ok(counts?.into_iter().map(|count| count as u64).sum())
            })
            .await
    }
}

#[async_trait]
impl connection::Connection for SqliteConnection {
    async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        let sql = sql.to_owned();
        self.connection.call(move |connection| connection.execute_batch(&sql).map_err(error)).await
    }

    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        self.execute_sets(sql, &[params.to_vec()]).await
    }

    async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        self.execute_sets(sql, sets).await.map(drop)
    }

    async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<FoundRows, DbError> {
        Ok(self.query_each(sql, &[params.to_vec()], types).await?.into_iter().flatten().collect())
    }

    async fn query_each(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        types: &[FieldType],
    ) -> Result<Vec<FoundRows>, DbError> {
        let (sql, sets, types) = (sql.to_owned(), owned(sets)?, types.to_vec());
        self.connection
            .call(move |connection| {
                let mut statement = connection.prepare_cached(&sql).map_err(error)?;
                let mut found = vec![];
                for params in sets {
                    let mut rows = statement.query(params_from_iter(params)).map_err(error)?;
                    let mut values = vec![];
                    while let Some(row) = rows.next().map_err(error)? {
                        let value = |(index, ty): (usize, &FieldType)| {
                            from_sqlite(row.get_ref(index).map_err(error)?, *ty)
                        };
                        values.push(types.iter().enumerate().map(value).collect::<Result<_, DbError>>()?);
                    }
                    found.push(values);
                }
                Ok(found)
            })
            .await
    }

    /// Texts become what the types of the columns say.
    async fn load(&mut self, rows: TextRows<'_>) -> Result<LoadOutcome, DbError> {
        let TextRows { table, columns, data, .. } = rows;
        // each row ends with a newline, and one of one column may have nothing else
        let data = data.strip_suffix(b"\n").map_or_else(|| data.clone(), |rows| data.slice_ref(rows));
        let first = data.split(|b| *b == b'\n').next().unwrap_or_default();
        let count = first.split(|b| *b == b'\t').count();
        let marks: Vec<String> = (1..=count).map(|number| format!("?{number}")).collect();
        let sql = format!("INSERT INTO {table} ({columns}) VALUES ({})", marks.join(", "));
        self.connection
            .call(move |connection| {
                let mut statement = connection.prepare_cached(&sql).map_err(error)?;
                for line in data.split(|b| *b == b'\n') {
                    for (index, cell) in line.split(|b| *b == b'\t').enumerate() {
                        statement.raw_bind_parameter(index + 1, unescaped(cell)?).map_err(error)?;
                    }
                    statement.raw_execute().map_err(error)?;
                }
                Ok(LoadOutcome::Loaded)
            })
            .await
    }
}

fn open(path: &str, timeout: Duration) -> Result<Connection, DbError> {
    let connection = Connection::open(path).map_err(|e| {
        let e = error(e);
        DbError {
            message: format!("{}; the directory of the file must exist and be writable", e.message),
            ..e
        }
    })?;
    connection.busy_timeout(timeout).map_err(error)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    apply_settings(&connection, timeout)?;
    Ok(connection)
}

/// Applies the settings, and waits up to `timeout` for others that open the same file.
///
/// SQLite answers `BUSY` at once, without the wait of `busy_timeout`, when two connections change the journal
/// of a new file together.
fn apply_settings(connection: &Connection, timeout: Duration) -> Result<(), DbError> {
    let until = Instant::now() + timeout;
    (|| connection.execute_batch(SETTINGS))
        .retry(ConstantBuilder::new().with_delay(BUSY_RETRY).without_max_times())
        .when(|e| e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until)
        .call()
        .map_err(error)
}

fn owned(sets: &[Vec<Param<'_>>]) -> Result<Vec<Vec<SqliteValue>>, DbError> {
    sets.iter().map(|params| params.iter().map(to_sqlite).collect()).collect()
}

fn to_sqlite(param: &Param<'_>) -> Result<SqliteValue, DbError> {
    Ok(match (&param.value, param.ty) {
        (Value::Missing | Value::Null, _) => SqliteValue::Null,
        (Value::Bool(b), FieldType::Bool) => SqliteValue::Integer((*b).into()),
        (Value::Int(n), FieldType::Int | FieldType::Long) => SqliteValue::Integer(*n),
        (Value::Int(n), FieldType::Float | FieldType::Double) => SqliteValue::Real(*n as f64),
        // as short as it is written in bulk
        (Value::Float(x), FieldType::Float) => {
            SqliteValue::Real(format!("{:?}", *x as f32).parse().unwrap_or(*x))
        }
        (Value::Float(x), FieldType::Double) => SqliteValue::Real(*x),
        (Value::Str(text), FieldType::String | FieldType::Object) => {
            SqliteValue::Text(text.as_ref().to_owned())
        }
        (Value::Time(time), FieldType::Time) => {
            let civil = civil(*time).ok_or_else(|| DbError::new(DbErrorKind::RowRefused, time_range()))?;
            let [month, day, hour, minute, second] = civil.parts;
            SqliteValue::Text(format!(
                "{:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:06}",
                civil.year, civil.micros
            ))
        }
        (value, ty) => {
            let found = value.type_name();
            return Err(DbError::invalid(format!("a value of type {found} for a parameter of type {ty}")));
        }
    })
}

fn from_sqlite(value: ValueRef<'_>, ty: FieldType) -> Result<Value<'static>, DbError> {
    let unfit = |found: &str| DbError::invalid(format!("found {found} in a column of type {ty}"));
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| DbError::invalid("a text in the database is not UTF-8"))
    };
    Ok(match (value, ty) {
        (ValueRef::Null, _) => Value::Missing,
        (ValueRef::Integer(n), FieldType::Bool) => Value::Bool(n != 0),
        (ValueRef::Integer(n), FieldType::Int | FieldType::Long) => Value::Int(n),
        (ValueRef::Integer(n), FieldType::Float | FieldType::Double) => Value::Float(n as f64),
        (ValueRef::Real(x), FieldType::Float) => Value::Float((x as f32).into()),
        (ValueRef::Real(x), FieldType::Double) => Value::Float(x),
        (ValueRef::Real(x), FieldType::Int | FieldType::Long) if x.fract() == 0.0 && x.abs() < 9e15 => {
            Value::Int(x as i64)
        }
        // as other programs store times: milliseconds since 1970
        (ValueRef::Integer(n), FieldType::Time) => Value::Time(Timestamp(n.saturating_mul(1000))),
        (ValueRef::Text(bytes), FieldType::Time) => {
            let text = text(bytes)?;
            Value::Time(timestamp(&text).ok_or_else(|| unfit(&format!("`{text}`")))?)
        }
        (ValueRef::Integer(n), FieldType::String | FieldType::Object) => Value::Str(n.to_string().into()),
        (ValueRef::Real(x), FieldType::String | FieldType::Object) => Value::Str(x.to_string().into()),
        (ValueRef::Text(bytes), FieldType::String | FieldType::Object) => Value::Str(text(bytes)?.into()),
        (ValueRef::Real(_), _) => return Err(unfit("a number with a fraction")),
        (ValueRef::Text(_), _) => return Err(unfit("a text")),
        (ValueRef::Blob(_), _) => return Err(unfit("bytes")),
    })
}

/// Parses `2024-05-01 12:00:00.123456`, also with `T` between, without fraction, and a date.
fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once([' ', 'T']).unwrap_or((text, "00:00:00"));
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (date.next()?.parse().ok()?, date.next()?, date.next()?);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut clock = clock.splitn(3, ':');
    let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next().unwrap_or("0"));
    let part = |text: &str| text.parse::<u8>().ok();
    let parts = [part(month)?, part(day)?, part(hour)?, part(minute)?, part(second)?];
    let micros: u32 = format!("{:0<6}", fraction.get(..6).unwrap_or(fraction)).parse().ok()?;
    Some(Timestamp(micros_of_civil(year, parts, micros)))
}

fn unescaped(cell: &[u8]) -> Result<SqliteValue, DbError> {
    if cell == b"\\N" {
        return Ok(SqliteValue::Null);
    }
    let mut bytes = Vec::with_capacity(cell.len());
    let mut rest = cell.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'0') => 0,
                Some(other) => *other,
                None => b'\\',
            },
            other => *other,
        });
    }
    let text = String::from_utf8(bytes).map_err(|_| DbError::invalid("a text is not UTF-8"))?;
    Ok(SqliteValue::Text(text))
}

/// Converts an error of the library.
fn error(e: rusqlite::Error) -> DbError {
    let rusqlite::Error::SqliteFailure(failure, message) = e else {
        return DbError::invalid(e.to_string());
    };
    let kind = match failure.code {
        ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig => {
            DbErrorKind::RowRefused
        }
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::SystemIoFailure
        | ErrorCode::DiskFull
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::ReadOnly
        | ErrorCode::CannotOpen
        | ErrorCode::SchemaChanged
        | ErrorCode::FileLockingProtocolFailed => DbErrorKind::Unavailable,
        _ => DbErrorKind::Invalid,
    };
    let message = message.unwrap_or_else(|| failure.to_string());
    DbError { kind, code: failure.extended_code.to_string(), message }
}
