//! Connection to SQL Server.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use tiberius::error::Error as LibraryError;
use tiberius::time::{Date, DateTime2, Time};
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel, Row, ToSql, TokenRow};
use tidemill_types::{FieldType, Timestamp, Value};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

use crate::connection::{Connection, FoundRows};
use crate::error::{DbError, DbErrorKind};
use crate::param::{LoadOutcome, Param};
use crate::text_format::time_range;
use crate::tls;
use crate::url::{DatabaseUrl, TlsMode};

/// Maximum silence of a connection before it is probed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Session settings of a connection. A refused statement leaves its transaction open where the server can do
/// that, and a lock that is not free in time is an error.
const SETTINGS: &str = "SET XACT_ABORT OFF; SET LOCK_TIMEOUT 30000; SET TEXTSIZE 2147483647";
/// Longest text that the library sends in bulk, in bytes of UTF-16.
const BULK_TEXT_BYTES_MAX: usize = 65_535;
const DAY_MICROS: i64 = 86_400_000_000;
/// Days from the year 1, where dates of SQL Server start, to 1970.
const DAYS_TO_1970: i64 = 719_162;
/// Days from 1900, where the older types start, to 1970.
const DAYS_1900_TO_1970: i64 = 25_567;

type ServerStream = Compat<TcpStream>;

pub struct SqlServerConnection {
    client: Client<ServerStream>,
}

impl SqlServerConnection {
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        let mut config = Config::new();
        config.host(&url.host);
        config.port(url.port);
        config.database(&url.database);
        config.application_name(url.application.as_deref().unwrap_or("tidemill"));
        config.authentication(AuthMethod::sql_server(user.unwrap_or_default(), password.unwrap_or_default()));
        config.handshake_timeout(None);
        encrypt(&mut config, url)?;
        let tcp = TcpStream::connect((url.host.as_str(), url.port)).await;
        let tcp = tcp.map_err(|e| DbError::unavailable(e.to_string()))?;
        keep_alive(&tcp).map_err(|e| DbError::unavailable(e.to_string()))?;
        let client = Client::connect(config, tcp.compat_write()).await.map_err(error)?;
        let mut connected = Self { client };
        connected.run(SETTINGS).await?;
        Ok(connected)
    }
}

#[async_trait]
impl Connection for SqlServerConnection {
    async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        let answer = self.client.simple_query(sql).await.map_err(error)?;
        answer.into_results().await.map_err(error).map(drop)
    }

    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        let values = params.iter().map(to_sql_server).collect::<Result<Vec<_>, _>>()?;
        let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        let counts = self.client.execute(sql, &values).await.map_err(error)?;
        Ok(counts.total())
    }

    async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<FoundRows, DbError> {
        let values = params.iter().map(to_sql_server).collect::<Result<Vec<_>, _>>()?;
        let values: Vec<&dyn ToSql> = values.iter().map(|value| value as &dyn ToSql).collect();
        let found = self.client.query(sql, &values).await.map_err(error)?;
        let mut rows = found.into_row_stream();
        let mut converted = vec![];
        let mut problem = None;
        // the answer is read to its end, so that the connection can be used again
        while let Some(row) = rows.try_next().await.map_err(error)? {
            match from_row(&row, types) {
                Ok(row) => converted.push(row),
                Err(e) => problem = Some(e),
            }
        }
        problem.map_or(Ok(converted), Err)
    }

    /// The types of the columns are those of the parameters. Returns [`LoadOutcome::Doubtful`] without loading any if a text is longer than the library sends in bulk.
    async fn load_rows(&mut self, table: &str, rows: &[Vec<Param<'_>>]) -> Result<LoadOutcome, DbError> {
        let is_long = |param: &Param<'_>| match &param.value {
            Value::Str(text) => text.len() > BULK_TEXT_BYTES_MAX / 2,
            _ => false,
        };
        if rows.iter().flatten().any(is_long) {
            return Ok(LoadOutcome::Doubtful);
        }
        // an error after the bulk load has begun leaves the connection in its middle
        let mut converted = Vec::with_capacity(rows.len());
        for row in rows {
            let mut values = TokenRow::with_capacity(row.len());
            for param in row {
                values.push(to_sql_server(param)?.0);
            }
            converted.push(values);
        }
        let columns = rows.first().map_or(0, Vec::len);
        let names: Vec<String> = (1..=columns).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut load = self.client.bulk_insert_columns(table, &names).await.map_err(error)?;
        for row in converted {
            load.send(row).await.map_err(|e| DbError::unavailable(error(e).message))?;
        }
        load.finalize().await.map_err(error)?;
        Ok(LoadOutcome::Loaded)
    }

    async fn rollback(&mut self) -> Result<(), DbError> {
        // some errors have done so already
        self.run("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION").await
    }

    async fn close(self: Box<Self>) {
        // the server notices a lost connection by itself
        let _ = self.client.close().await;
    }
}

/// SQL Server always encrypts the login if it can; without encryption the certificate is not checked.
fn encrypt(config: &mut Config, url: &DatabaseUrl) -> Result<(), DbError> {
    let verifies = matches!(url.tls, TlsMode::VerifyAuthority | TlsMode::VerifyHost);
    config.encryption(match url.tls {
        TlsMode::Disabled => EncryptionLevel::Off,
        _ if url.is_strict => EncryptionLevel::Strict,
        _ => EncryptionLevel::Required,
    });
    if !verifies {
        config.trust_cert();
    } else if let Some(file) = &url.root_cert {
        // an unreadable file is reported with its name
        tls::authorities(Some(file))?;
        let bundle = std::fs::read(file);
        let unreadable =
            |e| DbError::invalid(format!("certificates of authorities in {}: {e}", file.display()));
        config.trust_cert_ca_bundle(bundle.map_err(unreadable)?);
    }
    if let Some(name) = &url.certificate_host {
        config.hostname_in_certificate(name);
    }
    Ok(())
}

fn keep_alive(tcp: &TcpStream) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let probes = socket2::TcpKeepalive::new().with_time(SILENCE_MAX).with_interval(SILENCE_MAX / 3);
    socket2::SockRef::from(tcp).set_tcp_keepalive(&probes)
}

/// Value of a parameter.
struct SqlServerValue<'v>(ColumnData<'v>);

impl ToSql for SqlServerValue<'_> {
    fn to_sql(&self) -> ColumnData<'_> {
        self.0.clone()
    }
}

fn to_sql_server<'v>(param: &'v Param<'_>) -> Result<SqlServerValue<'v>, DbError> {
    let refused = |message: String| DbError::new(DbErrorKind::RowRefused, message);
    Ok(SqlServerValue(match (&param.value, param.ty) {
        (Value::Missing | Value::Null, FieldType::Bool) => ColumnData::Bit(None),
        (Value::Missing | Value::Null, FieldType::Int) => ColumnData::I32(None),
        (Value::Missing | Value::Null, FieldType::Long) => ColumnData::I64(None),
        (Value::Missing | Value::Null, FieldType::Float) => ColumnData::F32(None),
        (Value::Missing | Value::Null, FieldType::Double) => ColumnData::F64(None),
        (Value::Missing | Value::Null, FieldType::String | FieldType::Object) => ColumnData::String(None),
        (Value::Missing | Value::Null, FieldType::Time) => ColumnData::DateTime2(None),
        (Value::Bool(b), FieldType::Bool) => ColumnData::Bit(Some(*b)),
        (Value::Int(n), FieldType::Int) => {
            let n = i32::try_from(*n).map_err(|_| refused(format!("{n} is out of the range of `int`")))?;
            ColumnData::I32(Some(n))
        }
        (Value::Int(n), FieldType::Long) => ColumnData::I64(Some(*n)),
        (Value::Int(n), FieldType::Float) => ColumnData::F32(Some(*n as f32)),
        (Value::Int(n), FieldType::Double) => ColumnData::F64(Some(*n as f64)),
        (Value::Float(x), FieldType::Float) => ColumnData::F32(Some(*x as f32)),
        (Value::Float(x), FieldType::Double) => ColumnData::F64(Some(*x)),
        (Value::Str(text), FieldType::String | FieldType::Object) => {
            ColumnData::String(Some(Cow::Borrowed(text.as_ref())))
        }
        (Value::Time(time), FieldType::Time) => {
            let time = date_time(*time).ok_or_else(|| refused(time_range()))?;
            ColumnData::DateTime2(Some(time))
        }
        (value, ty) => {
            let found = value.type_name();
            return Err(DbError::invalid(format!("a value of type {found} for a parameter of type {ty}")));
        }
    }))
}

/// Returns `None` outside of the years 1 to 9999.
fn date_time(time: Timestamp) -> Option<DateTime2> {
    crate::text_format::civil(time)?;
    let days = u32::try_from(time.micros().div_euclid(DAY_MICROS) + DAYS_TO_1970).ok()?;
    let micros = u64::try_from(time.micros().rem_euclid(DAY_MICROS)).ok()?;
    Some(DateTime2::new(Date::new(days), Time::new(micros, 6)))
}

fn micros_of(time: DateTime2) -> i64 {
    let clock = time.time();
    let scale = 10_i128.pow(u32::from(clock.scale().min(9)));
    // below a day
    let micros = (i128::from(clock.increments()) * 1_000_000 / scale) as i64;
    (i64::from(time.date().days()) - DAYS_TO_1970) * DAY_MICROS + micros
}

fn from_row(row: &Row, types: &[FieldType]) -> Result<Vec<Value<'static>>, DbError> {
    let cells: Vec<&ColumnData<'static>> = row.cells().map(|(_, cell)| cell).collect();
    let value = |(index, ty): (usize, &FieldType)| {
        let missing = || DbError::invalid(format!("the result has {} columns", cells.len()));
        from_sql_server(cells.get(index).ok_or_else(missing)?, *ty)
    };
    types.iter().enumerate().map(value).collect()
}

fn from_sql_server(cell: &ColumnData<'static>, ty: FieldType) -> Result<Value<'static>, DbError> {
    let unfit = |found: &str| DbError::invalid(format!("found {found} in a column of type {ty}"));
    let found = match cell {
        ColumnData::U8(n) => n.map(|n| Value::Int(n.into())),
        ColumnData::I16(n) => n.map(|n| Value::Int(n.into())),
        ColumnData::I32(n) => n.map(|n| Value::Int(n.into())),
        ColumnData::I64(n) => n.map(Value::Int),
        ColumnData::F32(x) => x.map(|x| Value::Float(x.into())),
        ColumnData::F64(x) => x.map(Value::Float),
        ColumnData::Bit(b) => b.map(Value::Bool),
        ColumnData::String(text) => text.as_ref().map(|text| Value::Str(text.clone().into_owned().into())),
        ColumnData::Guid(id) => id.map(|id| Value::Str(id.to_string().into())),
        ColumnData::Numeric(number) => number.map(|number| numeric(&number.to_string(), ty)),
        ColumnData::Xml(xml) => xml.as_ref().map(|xml| Value::Str(xml.to_string().into())),
        ColumnData::DateTime2(time) => time.map(|time| Value::Time(Timestamp(micros_of(time)))),
        ColumnData::DateTimeOffset(time) => {
            // the date and the time of day are those of UTC
            time.map(|time| Value::Time(Timestamp(micros_of(time.datetime2()))))
        }
        ColumnData::DateTime(time) => time.map(|time| {
            let days = i64::from(time.days()) - DAYS_1900_TO_1970;
            // three hundredths of a second; the server shows them as milliseconds
            let millis = (i64::from(time.seconds_fragments()) * 10 + 1) / 3;
            Value::Time(Timestamp(days * DAY_MICROS + millis * 1000))
        }),
        ColumnData::SmallDateTime(time) => time.map(|time| {
            let days = i64::from(time.days()) - DAYS_1900_TO_1970;
            Value::Time(Timestamp(days * DAY_MICROS + i64::from(time.seconds_fragments()) * 60_000_000))
        }),
        ColumnData::Date(date) => {
            date.map(|date| Value::Time(Timestamp((i64::from(date.days()) - DAYS_TO_1970) * DAY_MICROS)))
        }
        ColumnData::Time(_) => return Err(unfit("a time of day")),
        ColumnData::Binary(_) => return Err(unfit("bytes")),
    };
    let Some(found) = found else { return Ok(Value::Missing) };
    Ok(match (found, ty) {
        (Value::Int(n), FieldType::Bool) => Value::Bool(n != 0),
        (Value::Bool(b), FieldType::Int | FieldType::Long) => Value::Int(b.into()),
        (Value::Int(n), FieldType::Float | FieldType::Double) => Value::Float(n as f64),
        (Value::Float(x), FieldType::Float) => Value::Float((x as f32).into()),
        (Value::Float(x), FieldType::Int | FieldType::Long) if x.fract() == 0.0 && x.abs() < 9e15 => {
            Value::Int(x as i64)
        }
        (Value::Time(time), FieldType::String) => Value::Str(time.to_string().into()),
        (Value::Bool(b), FieldType::String | FieldType::Object) => Value::Str(u8::from(b).to_string().into()),
        (Value::Int(n), FieldType::String | FieldType::Object) => Value::Str(n.to_string().into()),
        (Value::Float(x), FieldType::String | FieldType::Object) => Value::Str(x.to_string().into()),
        (value @ Value::Bool(_), FieldType::Bool)
        | (value @ Value::Int(_), FieldType::Int | FieldType::Long)
        | (value @ Value::Float(_), FieldType::Double)
        | (value @ Value::Time(_), FieldType::Time)
        | (value @ Value::Str(_), FieldType::String | FieldType::Object) => value,
        (other, _) => return Err(unfit(other.type_name())),
    })
}

/// Returns a decimal number as a value of type `ty`.
fn numeric(digits: &str, ty: FieldType) -> Value<'static> {
    match ty {
        FieldType::Float | FieldType::Double => digits.parse().map_or(Value::Missing, Value::Float),
        FieldType::String | FieldType::Object => Value::Str(digits.to_owned().into()),
        _ => match (digits.split('.').next().unwrap_or_default().parse(), digits.parse()) {
            (Ok(n), Ok(x)) if f64::fract(x) == 0.0 => Value::Int(n),
            (_, Ok(x)) => Value::Float(x),
            _ => Value::Missing,
        },
    }
}

/// Converts an error of the library.
fn error(e: LibraryError) -> DbError {
    match e {
        LibraryError::Server(server) => {
            let code = server.code();
            DbError { kind: kind(code), code: code.to_string(), message: server.message().to_owned() }
        }
        LibraryError::Io { message, .. } => DbError::unavailable(message),
        LibraryError::Tls(message) => {
            // what follows speaks to users of the library
            let message = message.split(" To connect anyway").next().unwrap_or_default();
            DbError::invalid(format!("TLS: {message}"))
        }
        LibraryError::Protocol(message) if message.contains("encryption level") => {
            DbError::invalid("the server does not encrypt connections; write `encrypt=false` in the URL")
        }
        LibraryError::Routing { host, port } => {
            DbError::invalid(format!("the server is reached at {host}:{port}; write that address in the URL"))
        }
        LibraryError::BulkInput(message)
        | LibraryError::Encoding(message)
        | LibraryError::Conversion(message) => DbError::invalid(message),
        other => DbError::unavailable(other.to_string()),
    }
}

/// Returns what the caller has to do about an error number of the server.
pub(crate) fn kind(code: u32) -> DbErrorKind {
    match code {
        // deadlocks, lock waits, snapshots that are too old
        1204 | 1205 | 1222 | 3960 | 3961
        // no memory, no disk, full logs
        | 701 | 802 | 1101 | 1105 | 8645 | 8651 | 8902 | 9002
        // shutdown, failover, a database that is starting or read-only at present
        | 596 | 904 | 921 | 922 | 924 | 927 | 942 | 952 | 976 | 978 | 983 | 3906 | 4060 | 6001 | 6005 | 10928 | 10929
        | 17142 | 17187 | 17188 | 17189 | 17197 | 17809 | 18401 | 18451
        // Azure: throttled, moved
        | 40143 | 40197 | 40501 | 40540 | 40549 | 40550 | 40551 | 40552 | 40553 | 40613 | 42108 | 42109 | 49918 | 49919
        | 49920 => DbErrorKind::Unavailable,
        // NULL, duplicate keys, constraints
        515 | 547 | 2601 | 2627 | 3725
        // a text or a row that is too long, a number that is out of range
        | 220 | 232 | 244 | 248 | 511 | 1007 | 2628 | 8115 | 8152
        // conversions
        | 241 | 242 | 245 | 257 | 293 | 295 | 296 | 517 | 529 | 8114 | 8169 | 9420..=9465
        // values that are not valid, such as NaN
        | 8009 | 8023
        // one row of a table matches several of the batch
        | 8672
        // division by zero, functions with wrong arguments
        | 3607 | 3623 | 8134 | 512
        // views with a check, triggers that roll back
        | 550 | 3609 | 3616 | 3991 | 3992 | 3930
        // RAISERROR and THROW
        | 50000.. => DbErrorKind::RowRefused,
        _ => DbErrorKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_and_microseconds() {
        let first = date_time(Timestamp(-62_135_596_800_000_000)).unwrap();
        assert_eq!((first.date().days(), first.time().increments()), (0, 0));
        assert_eq!(date_time(Timestamp(-62_135_596_800_000_001)), None);
        for micros in [0, -1, 1_700_000_000_123_456, 253_402_300_799_999_999] {
            assert_eq!(micros_of(date_time(Timestamp(micros)).unwrap()), micros);
        }
        // 7 digits, as `datetime2` has without a number
        let time = DateTime2::new(Date::new(DAYS_TO_1970 as u32), Time::new(15_000_009, 7));
        assert_eq!(micros_of(time), 1_500_000);
    }

    #[test]
    fn numbers_of_the_older_types_are_converted() {
        let value = |cell, ty| format!("{:?}", from_sql_server(&cell, ty).ok());
        let half = tiberius::numeric::Numeric::new_with_scale(-5, 1);
        assert_eq!(value(ColumnData::Numeric(Some(half)), FieldType::Double), "Some(Float(-0.5))");
        let two = tiberius::numeric::Numeric::new_with_scale(200, 2);
        assert_eq!(value(ColumnData::Numeric(Some(two)), FieldType::Long), "Some(Int(2))");
        assert_eq!(value(ColumnData::Numeric(Some(half)), FieldType::Long), "None");
        assert_eq!(value(ColumnData::U8(Some(1)), FieldType::Bool), "Some(Bool(true))");
        assert_eq!(value(ColumnData::I32(None), FieldType::Int), "Some(Missing)");
        let time = tiberius::time::DateTime::new(25_567, 1);
        assert_eq!(value(ColumnData::DateTime(Some(time)), FieldType::Time), "Some(Time(Timestamp(3000)))");
    }

    #[test]
    fn error_numbers_say_what_to_do() {
        for code in [1205, 1222, 9002, 40_501] {
            assert_eq!(kind(code), DbErrorKind::Unavailable, "{code}");
        }
        for code in [515, 547, 2601, 2627, 2628, 8152, 8114, 8169, 8115, 3609, 50_000, 51_000] {
            assert_eq!(kind(code), DbErrorKind::RowRefused, "{code}");
        }
        for code in [208, 207, 229, 262, 18_456] {
            assert_eq!(kind(code), DbErrorKind::Invalid, "{code}");
        }
    }
}
