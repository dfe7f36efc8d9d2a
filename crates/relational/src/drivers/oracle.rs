//! Connection to Oracle.
//!
//! The library blocks, see [`crate::drivers::blocking`].

use async_trait::async_trait;
use oracledb::{
    BindParameters, Config, Connection, DbType, Error as LibraryError, ErrorKind, OracleNumber,
    OracleTimestamp, Row, ToDbValue,
};
use tidemill_types::{FieldType, Timestamp, Value};

use crate::connection::{self, FoundRows};
use crate::drivers::blocking::BlockingConnection;
use crate::error::{DbError, DbErrorKind};
use crate::param::Param;
use crate::text_format::{civil, micros_of_civil, time_range};
use crate::url::{DatabaseUrl, TlsMode};

/// Session settings of a connection: times are in UTC, texts are compared exactly, numbers and times have one
/// form as texts, and constraints are checked by each statement.
const SETTINGS: &[&str] = &[
    "ALTER SESSION SET TIME_ZONE = '+00:00'",
    "ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY NLS_NUMERIC_CHARACTERS = '.,' \
     NLS_DATE_FORMAT = 'YYYY-MM-DD HH24:MI:SS' NLS_TIMESTAMP_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF6' \
     NLS_TIMESTAMP_TZ_FORMAT = 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM'",
    "ALTER SESSION SET CONSTRAINTS = IMMEDIATE",
];
/// Rows that are sent as one.
const BATCH_ROWS_MAX: usize = 1_000;
/// Longest text among rows that are sent as one, in bytes; longer ones go alone.
const BATCH_TEXT_BYTES_MAX: usize = 4_000;
/// Statements of a connection that stay prepared.
const STATEMENTS_MAX: usize = 64;

type Bound = Box<dyn ToDbValue + Send>;

/// Connection to a server.
pub struct OracleConnection {
    connection: BlockingConnection<Connection>,
}

impl OracleConnection {
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        let mut config = Config::default()
            .set_credentials(user.unwrap_or_default(), password.unwrap_or_default())
            .set_connect_string(&descriptor(url))
            .map_err(error)?
            .set_stmtcachesize(STATEMENTS_MAX)
            .set_transport_connect_timeout(Some(url.connect_timeout));
        if let Some(directory) = &url.root_cert {
            config = config.set_wallet_location(directory.display().to_string());
        }
        let connection = BlockingConnection::open("oracle", move || open(config)).await?;
        Ok(Self { connection })
    }
}

#[async_trait]
impl connection::Connection for OracleConnection {
    async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        self.execute(sql, &[]).await.map(drop)
    }

    async fn commit(&mut self) -> Result<(), DbError> {
        self.connection.call(|connection| connection.commit().map_err(error)).await
    }

    async fn rollback(&mut self) -> Result<(), DbError> {
        self.connection.call(|connection| connection.rollback().map_err(error)).await
    }

    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        let (sql, params) = (sql.to_owned(), owned(params)?);
        let done = move |connection: &mut Connection| {
            let done = connection.execute(&sql, &borrowed(&params)).map_err(error)?;
            Ok(done.rows_affected())
        };
        self.connection.call(done).await
    }

    /// Sends many sets at a time.
    async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        let mut groups: Vec<Vec<Vec<Bound>>> = vec![];
        let mut is_open = false;
        for params in sets {
            let is_long = params.iter().any(has_long_text);
            match groups.last_mut() {
                Some(group) if is_open && !is_long && group.len() < BATCH_ROWS_MAX => {
                    group.push(owned(params)?)
                }
                _ => groups.push(vec![owned(params)?]),
            }
            is_open = !is_long;
        }
        let sql = sql.to_owned();
        self.connection
            .call(move |connection| {
                for group in &groups {
                    let rows: Vec<Vec<&dyn ToDbValue>> =
                        group.iter().map(|params| borrowed(params)).collect();
                    match rows.as_slice() {
                        [params] => drop(connection.execute(&sql, params).map_err(error)?),
                        _ => {
                            let rows: Vec<&[&dyn ToDbValue]> = rows.iter().map(Vec::as_slice).collect();
                            connection
                                .execute_batch(&sql, BindParameters::from(rows.as_slice()))
                                .map_err(error)?;
                        }
                    }
                }
                Ok(())
            })
            .await
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
        let sets: Result<Vec<Vec<Bound>>, DbError> = sets.iter().map(|params| owned(params)).collect();
        let (sql, sets, types) = (sql.to_owned(), sets?, types.to_vec());
        self.connection
            .call(move |connection| {
                let mut found = vec![];
                for params in &sets {
                    let rows = connection.query(&sql, &borrowed(params)).map_err(error)?;
                    let rows = rows.map(|row| from_row(&row.map_err(error)?, &types));
                    found.push(rows.collect::<Result<_, DbError>>()?);
                }
                Ok(found)
            })
            .await
    }
}

fn open(config: Config) -> Result<Connection, DbError> {
    let connection = oracledb::connect(config).map_err(error)?;
    for setting in SETTINGS {
        connection.execute(setting, &[]).map_err(error)?;
    }
    Ok(connection)
}

/// Returns the address as the library takes it. The URL was checked: none of its parts has parentheses.
fn descriptor(url: &DatabaseUrl) -> String {
    let DatabaseUrl { host, port, database, is_sid, .. } = url;
    let protocol = if url.tls == TlsMode::Disabled { "tcp" } else { "tcps" };
    let name = if *is_sid { "SID" } else { "SERVICE_NAME" };
    format!(
        "(DESCRIPTION=(ADDRESS=(PROTOCOL={protocol})(HOST={host})(PORT={port}))(CONNECT_DATA=({name}={database})))"
    )
}

fn has_long_text(param: &Param<'_>) -> bool {
    matches!(&param.value, Value::Str(text) if text.len() > BATCH_TEXT_BYTES_MAX)
}

fn borrowed(params: &[Bound]) -> Vec<&dyn ToDbValue> {
    params.iter().map(|param| &**param as &dyn ToDbValue).collect()
}

fn owned(params: &[Param<'_>]) -> Result<Vec<Bound>, DbError> {
    params.iter().map(to_oracle).collect()
}

fn to_oracle(param: &Param<'_>) -> Result<Bound, DbError> {
    Ok(match (&param.value, param.ty) {
        (Value::Missing | Value::Null, FieldType::Bool | FieldType::Int | FieldType::Long) => {
            Box::new(None::<OracleNumber>)
        }
        (Value::Missing | Value::Null, FieldType::Float) => Box::new(None::<f32>),
        (Value::Missing | Value::Null, FieldType::Double) => Box::new(None::<f64>),
        (Value::Missing | Value::Null, FieldType::String | FieldType::Object) => Box::new(None::<String>),
        (Value::Missing | Value::Null, FieldType::Time) => Box::new(None::<OracleTimestamp>),
        (Value::Bool(b), FieldType::Bool) => Box::new(OracleNumber::from(u8::from(*b))),
        (Value::Int(n), FieldType::Int | FieldType::Long) => Box::new(OracleNumber::from(*n)),
        (Value::Int(n), FieldType::Float) => Box::new(*n as f32),
        (Value::Int(n), FieldType::Double) => Box::new(*n as f64),
        (Value::Float(x), FieldType::Float) => Box::new(*x as f32),
        (Value::Float(x), FieldType::Double) => Box::new(*x),
        (Value::Str(text), FieldType::String | FieldType::Object) => Box::new(text.as_ref().to_owned()),
        (Value::Time(time), FieldType::Time) => {
            let civil = civil(*time).ok_or_else(|| DbError::new(DbErrorKind::RowRefused, time_range()))?;
            let [month, day, hour, minute, second] = civil.parts;
            // up to 9999
            let year = civil.year as i16;
            let nanos = civil.micros * 1000;
            Box::new(OracleTimestamp::new_timestamp(year, month, day, hour, minute, second, nanos))
        }
        (value, ty) => {
            let found = value.type_name();
            return Err(DbError::invalid(format!("a value of type {found} for a parameter of type {ty}")));
        }
    })
}

fn from_row(row: &Row, types: &[FieldType]) -> Result<Vec<Value<'static>>, DbError> {
    types.iter().enumerate().map(|(index, ty)| from_oracle(row, index, *ty)).collect()
}

fn from_oracle(row: &Row, index: usize, ty: FieldType) -> Result<Value<'static>, DbError> {
    let count = row.columns().len();
    let column = row.columns().get(index);
    let column = column.ok_or_else(|| DbError::invalid(format!("the result has {count} columns")))?;
    let is = |types: &[&'static DbType]| types.iter().any(|known| *known == column.db_type());
    let unfit = |found: &str| DbError::invalid(format!("found {found} in a column of type {ty}"));
    if is(&[oracledb::DB_TYPE_BINARY_FLOAT]) {
        let x: Option<f32> = row.get(index).map_err(error)?;
        return converted(x.map(|x| Value::Float(x.into())), ty);
    }
    if is(&[oracledb::DB_TYPE_BINARY_DOUBLE]) {
        let x: Option<f64> = row.get(index).map_err(error)?;
        return converted(x.map(Value::Float), ty);
    }
    if is(&[oracledb::DB_TYPE_BOOLEAN]) {
        let b: Option<bool> = row.get(index).map_err(error)?;
        return converted(b.map(Value::Bool), ty);
    }
    if is(&[oracledb::DB_TYPE_NUMBER, oracledb::DB_TYPE_BINARY_INTEGER]) {
        let digits: Option<String> = row.get(index).map_err(error)?;
        return converted(digits.map(|digits| number(digits, ty)), ty);
    }
    let times = [
        oracledb::DB_TYPE_DATE,
        oracledb::DB_TYPE_TIMESTAMP,
        oracledb::DB_TYPE_TIMESTAMP_TZ,
        oracledb::DB_TYPE_TIMESTAMP_LTZ,
    ];
    if is(&times) {
        let time: Option<OracleTimestamp> = row.get(index).map_err(error)?;
        let Some(time) = time else { return Ok(Value::Missing) };
        let year = u16::try_from(time.year()).map_err(|_| unfit("a time before the year 0"))?;
        let parts = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
        let micros = micros_of_civil(year, parts, time.nanoseconds() / 1000);
        return converted(Some(Value::Time(Timestamp(micros))), ty);
    }
    let text: Option<String> = row.get(index).map_err(error)?;
    converted(text.map(|text| Value::Str(text.into())), ty)
}

/// Returns a decimal number as a value of type `ty`.
fn number(digits: String, ty: FieldType) -> Value<'static> {
    match ty {
        FieldType::Float | FieldType::Double => digits.parse().map_or(Value::Missing, Value::Float),
        FieldType::String | FieldType::Object => Value::Str(digits.into()),
        _ => match digits.parse() {
            Ok(n) => Value::Int(n),
            Err(_) => digits.parse().map_or(Value::Missing, Value::Float),
        },
    }
}

fn converted(found: Option<Value<'static>>, ty: FieldType) -> Result<Value<'static>, DbError> {
    let Some(found) = found else { return Ok(Value::Missing) };
    Ok(match (found, ty) {
        (Value::Int(n), FieldType::Bool) => Value::Bool(n != 0),
        (Value::Bool(b), FieldType::Int | FieldType::Long) => Value::Int(b.into()),
        (Value::Float(x), FieldType::Float) => Value::Float((x as f32).into()),
        (Value::Float(x), FieldType::Int | FieldType::Long) if x.fract() == 0.0 && x.abs() < 9e15 => {
            Value::Int(x as i64)
        }
        (Value::Time(time), FieldType::String) => Value::Str(time.to_string().into()),
        (Value::Float(x), FieldType::String | FieldType::Object) => Value::Str(x.to_string().into()),
        (Value::Bool(b), FieldType::String | FieldType::Object) => Value::Str(u8::from(b).to_string().into()),
        (value @ Value::Bool(_), FieldType::Bool)
        | (value @ Value::Int(_), FieldType::Int | FieldType::Long)
        | (value @ Value::Float(_), FieldType::Double)
        | (value @ Value::Time(_), FieldType::Time)
        | (value @ Value::Str(_), FieldType::String | FieldType::Object) => value,
        (other, ty) => {
            let found = other.type_name();
            return Err(DbError::invalid(format!("found {found} in a column of type {ty}")));
        }
    })
}

/// Converts an error of the library.
fn error(e: LibraryError) -> DbError {
    let kind = match e.kind() {
        ErrorKind::DbError(server) => {
            let code = format!("ORA-{:05}", server.code());
            let message = server.message();
            let message = message.strip_prefix(&format!("{code}: ")).unwrap_or(message);
            // what follows is the address of the message in the manual
            let message = message.split("\nHelp: ").next().unwrap_or_default().trim_end();
            return DbError { kind: kind(server.code()), message: message.replace('\n', "; "), code };
        }
        ErrorKind::InvalidServiceName(..)
        | ErrorKind::InvalidSid(..)
        | ErrorKind::InvalidConnectString(..)
        | ErrorKind::InvalidNetworkName(_)
        | ErrorKind::NoCredentials
        | ErrorKind::NotImplemented(_)
        | ErrorKind::PemFileOperation
        | ErrorKind::ServerVersionNotSupported
        | ErrorKind::TlsOperation
        | ErrorKind::UnsupportedConversion(..)
        | ErrorKind::UnsupportedDbType(_)
        | ErrorKind::WalletPasswordMissingOrInvalid(..)
        | ErrorKind::WalletPrivateKeyInvalid(_)
        | ErrorKind::WalletUnreadable(_)
        | ErrorKind::WrongNumPositionalBinds(..) => DbErrorKind::Invalid,
        _ => DbErrorKind::Unavailable,
    };
    let message = e.to_string();
    DbError::new(kind, message.strip_prefix("stream operation failed: ").unwrap_or(&message))
}

/// Returns what the caller has to do about an error number of the server.
pub(crate) fn kind(code: usize) -> DbErrorKind {
    match code {
        // deadlocks, locks that are not free, serialization, snapshots that are too old
        54 | 60 | 1555 | 4020 | 4021 | 8177 | 30006 | 30036
        // sessions that were ended, limits of sessions
        | 18 | 20 | 28 | 1012 | 1013 | 1041 | 2391 | 2396 | 2399 | 3113 | 3114 | 3135 | 3136
        // shutdown, start, read-only at present
        | 257 | 1033..=1035 | 1089..=1092 | 16000 | 16456 | 25402..=25409
        // no memory, no space
        | 1536 | 1628 | 1631 | 1632 | 1650..=1655 | 1658 | 1659 | 1683 | 1688 | 1691 | 4030 | 4031
        // errors within the server, packages that were compiled anew
        | 600 | 604 | 4061 | 4068 | 7445
        // network
        | 12150..=12170 | 12203 | 12224 | 12500..=12504 | 12506..=12513 | 12515..=12699 => DbErrorKind::Unavailable,
        // keys, NULL, constraints, views with a check, partitions
        1 | 1400 | 1402 | 1407 | 2290..=2292 | 14400 | 14402 | 30926
        // lengths, ranges, conversions
        | 1401 | 1426 | 1438 | 1455 | 1457 | 1461 | 1465 | 1476 | 1481 | 1483 | 1489 | 1722 | 1723 | 1830..=1899 | 6502
        | 12899 | 22835 | 22858
        // texts that are not JSON, triggers that refuse
        | 4088 | 4091 | 40441 | 40587 | 20000..=20999 => DbErrorKind::RowRefused,
        _ => DbErrorKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_say_what_to_do() {
        for code in [60, 3113, 3114, 12541, 1034, 12170] {
            assert_eq!(kind(code), DbErrorKind::Unavailable, "ORA-{code:05}");
        }
        for code in [1, 1400, 12899, 1438, 2290, 2291, 20_001] {
            assert_eq!(kind(code), DbErrorKind::RowRefused, "ORA-{code:05}");
        }
        for code in [942, 1017, 1031, 904, 12_514, 12_505] {
            assert_eq!(kind(code), DbErrorKind::Invalid, "ORA-{code:05}");
        }
    }

    #[test]
    fn numbers_become_what_their_column_is_declared_as() {
        let value = |digits: &str, ty| format!("{:?}", converted(Some(number(digits.into(), ty)), ty).ok());
        assert_eq!(value("1", FieldType::Bool), "Some(Bool(true))");
        assert_eq!(value("-9223372036854775808", FieldType::Long), "Some(Int(-9223372036854775808))");
        assert_eq!(value("1.5", FieldType::Double), "Some(Float(1.5))");
        assert_eq!(value("1.5", FieldType::Long), "None");
        assert_eq!(value("10", FieldType::String), "Some(Str(\"10\"))");
    }

    #[test]
    fn addresses_are_descriptors() {
        let of = |url: &str| descriptor(&DatabaseUrl::parse(url).unwrap());
        assert_eq!(
            of("jdbc:oracle:thin:@//db:1522/plant.example"),
            "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST=db)(PORT=1522))(CONNECT_DATA=(SERVICE_NAME=plant.example)))"
        );
        assert_eq!(
            of("jdbc:oracle:thin:@db:1521:XE"),
            "(DESCRIPTION=(ADDRESS=(PROTOCOL=tcp)(HOST=db)(PORT=1521))(CONNECT_DATA=(SID=XE)))"
        );
    }
}
