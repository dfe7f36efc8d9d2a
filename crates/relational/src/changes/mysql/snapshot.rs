//! The rows of the table as they are at a position of the log.

use futures::{Future, StreamExt};
use mysql_async::prelude::{Query, Queryable, WithParams};
use mysql_async::{BinaryProtocol, Conn, ResultSetStream, Row};

use super::super::{ChangeSettings, RowWriter, SnapshotRow};
use super::table::MySqlTable;
use super::values;
use crate::drivers::mysql::error;
use crate::error::DbError;

/// Rows on their way, with the connection that they come on.
pub(super) type Rows = ResultSetStream<'static, 'static, 'static, Row, BinaryProtocol>;

/// Errors that say that the user may not do something.
const DENIED: [&str; 5] = ["1044", "1045", "1142", "1227", "1370"];

/// Begins a transaction that sees the table as it is at a position of the log, and returns file and place.
///
/// MariaDB reports the position by itself. MySQL is asked for it under a lock that blocks writes.
///
/// Errors: those of the server.
pub(super) async fn begin<F: Future<Output = Result<Conn, DbError>>>(
    connection: &mut Conn,
    open: impl FnOnce() -> F,
    table: &str,
) -> Result<(String, u64), DbError> {
    let isolation = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    connection.query_drop(isolation).await.map_err(error)?;
    // a server of MySQL has no such values
    let sql = "SHOW STATUS LIKE 'binlog_snapshot_%'";
    let is_known = !connection.query::<Row, _>(sql).await.map_err(error)?.is_empty();
    if !is_known {
        return begin_locked(connection, open().await?, table).await;
    }
    begin_transaction(connection).await?;
    let rows: Vec<(String, String)> = connection.query(sql).await.map_err(error)?;
    let value = |name: &str| {
        let found = rows.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    match (value("binlog_snapshot_file"), value("binlog_snapshot_position").parse()) {
        (file, Ok(place)) if !file.is_empty() => Ok((file, place)),
        _ => {
            connection.query_drop("ROLLBACK").await.map_err(error)?;
            begin_locked(connection, open().await?, table).await
        }
    }
}

async fn begin_transaction(connection: &mut Conn) -> Result<(), DbError> {
    connection.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.map_err(error)
}

/// Locks all tables, or where that is not allowed this one, for the moment in which the transaction begins.
async fn begin_locked(
    connection: &mut Conn,
    mut locking: Conn,
    table: &str,
) -> Result<(String, u64), DbError> {
    match locking.query_drop("FLUSH TABLES WITH READ LOCK").await.map_err(error) {
        Ok(()) => {}
        Err(e) if DENIED.contains(&e.code.as_str()) => {
            locking.query_drop(format!("LOCK TABLES {table} READ")).await.map_err(error)?;
        }
        Err(e) => return Err(e),
    }
    begin_transaction(connection).await?;
    let position = end_of_log(&mut locking).await;
    locking.query_drop("UNLOCK TABLES").await.map_err(error)?;
    super::close(locking).await;
    position
}

/// Returns the file and the place at which the log ends.
async fn end_of_log(connection: &mut Conn) -> Result<(String, u64), DbError> {
    let row = match connection.query_first::<Row, _>("SHOW MASTER STATUS").await.map_err(error) {
        // the name since MySQL 8.2
        Err(e) if e.code == "1064" => {
            connection.query_first("SHOW BINARY LOG STATUS").await.map_err(error)?
        }
        other => other?,
    };
    let missing = || DbError::invalid("the server writes no binary log; start it with `log_bin`");
    let row = row.ok_or_else(missing)?;
    let file = row.get_opt::<String, _>(0).and_then(Result::ok);
    let place = row.get_opt::<u64, _>(1).and_then(Result::ok);
    file.zip(place).ok_or_else(missing)
}

/// Begins to read rows.
///
/// Errors: those of the server.
pub(super) async fn select(connection: Conn, sql: String) -> Result<Rows, DbError> {
    sql.with(()).stream(connection).await.map_err(error)
}

/// Returns up to `count` rows; none at the end.
///
/// Errors: those of the server.
pub(super) async fn next(
    rows: &mut Rows,
    count: usize,
    table: &MySqlTable,
    settings: &ChangeSettings,
) -> Result<Vec<SnapshotRow>, DbError> {
    let mut found = vec![];
    while found.len() < count
        && let Some(row) = rows.next().await
    {
        found.push(converted(row.map_err(error)?, table, settings));
    }
    Ok(found)
}

fn converted(row: Row, table: &MySqlTable, settings: &ChangeSettings) -> SnapshotRow {
    let mut out = RowWriter::default();
    let mut key = None;
    for (index, (column, value)) in table.columns.iter().zip(row.unwrap()).enumerate() {
        if table.integer_key() == Some(index) {
            key = integer(&value);
        }
        let wanted = settings.wanted.get(&column.name).copied();
        values::write(column, value, wanted, out.name("", &column.name));
    }
    SnapshotRow { json: out.finish(), key }
}

/// Returns the integer that a value is.
pub(super) fn integer(value: &mysql_async::Value) -> Option<i64> {
    match value {
        mysql_async::Value::Int(n) => Some(*n),
        mysql_async::Value::UInt(n) => i64::try_from(*n).ok(),
        _ => None,
    }
}
