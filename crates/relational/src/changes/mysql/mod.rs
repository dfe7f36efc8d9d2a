//! The binary log of MariaDB and MySQL.
//!
//! A position is the number of the log file, times 2³², plus the place in the file.

mod events;
pub(super) mod poll;
mod snapshot;
mod table;
mod values;

use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStreamRequest, Conn, Row};

use super::{ChangeSettings, ChangeStart, LogItem, SnapshotRow};
use crate::drivers::mysql::{error, open};
use crate::error::DbError;
use events::Events;
use snapshot::Rows;
use table::MySqlTable;

/// Seconds without an event after which the server sends a sign of life, in nanoseconds.
const HEARTBEAT: &str = "SET @master_heartbeat_period = 20000000000";
/// Place in a file that is greater than positions can say: reading continues with the next file.
const FILE_END: u64 = u32::MAX as u64;
/// First event of a file.
const FILE_START: u64 = 4;

/// Connection that reads the changes of a table.
pub struct MySqlLog {
    settings: ChangeSettings,
    table: MySqlTable,
    /// Transaction that sees the table as it is at the position.
    looking: Option<Conn>,
    rows: Option<Rows>,
    position: u64,
    events: Option<Events>,
}

/// A log file.
struct BinlogFile {
    name: String,
    number: u64,
}

impl BinlogFile {
    fn parse(name: String) -> Option<Self> {
        let number = name.rsplit_once('.')?.1.parse::<u32>().ok()?;
        Some(Self { name, number: number.into() })
    }
}

fn position_in(file: u64, place: u64) -> u64 {
    file << 32 | place.min(FILE_END)
}

impl MySqlLog {
    pub(super) async fn connect(settings: &ChangeSettings) -> Result<Self, DbError> {
        let mut connection = connect(settings).await?;
        check_server(&mut connection).await?;
        let table = MySqlTable::find(&mut connection, settings).await?;
        close(connection).await;
        Ok(Self { settings: settings.clone(), table, looking: None, rows: None, position: 0, events: None })
    }

    pub(super) async fn begin(&mut self, start: ChangeStart) -> Result<u64, DbError> {
        self.position = match start {
            ChangeStart::At(position) => position,
            ChangeStart::Now { .. } => self.begin_snapshot().await?,
        };
        Ok(self.position)
    }

    pub(super) async fn begin_snapshot(&mut self) -> Result<u64, DbError> {
        // the rows of a snapshot cannot be shared between threads, so `self` is not borrowed while something is awaited
        let (settings, table) = (self.settings.clone(), self.table.quoted());
        let mut connection = connect(&settings).await?;
        let (file, place) = snapshot::begin(&mut connection, || connect(&settings), &table).await?;
        self.looking = Some(connection);
        let file = BinlogFile::parse(file).ok_or_else(bad_file)?;
        Ok(position_in(file.number, place))
    }

    pub(super) fn has_integer_key(&self) -> bool {
        self.table.integer_key().is_some()
    }

    pub(super) async fn open_snapshot(&mut self, after: Option<i64>) -> Result<(), DbError> {
        let connection = self.looking.take();
        let connection =
            connection.ok_or_else(|| DbError::unavailable("there is no snapshot of the table"))?;
        self.rows = Some(snapshot::select(connection, self.table.select_statement(after)).await?);
        Ok(())
    }

    pub(super) async fn snapshot(&mut self, count: usize) -> Result<Vec<SnapshotRow>, DbError> {
        let Some(rows) = &mut self.rows else { return Ok(vec![]) };
        let found = snapshot::next(rows, count, &self.table, &self.settings).await?;
        if found.is_empty() {
            self.rows = None;
        }
        Ok(found)
    }

    pub(super) async fn listen(&mut self) -> Result<(), DbError> {
        self.rows = None;
        if let Some(connection) = self.looking.take() {
            close(connection).await;
        }
        let mut connection = connect(&self.settings).await?;
        let (file, place) = log_file(&mut connection, self.position).await?;
        connection.query_drop(HEARTBEAT).await.map_err(error)?;
        let request = BinlogStreamRequest::new(self.settings.server_id)
            .with_filename(file.name.as_bytes())
            .with_pos(place);
        let stream = connection.get_binlog_stream(request).await.map_err(error)?;
        self.events = Some(Events::new(stream, file.number, place));
        Ok(())
    }

    pub(super) async fn next(&mut self) -> Result<LogItem, DbError> {
        let Some(events) = &mut self.events else {
            return Err(DbError::unavailable("the log is not read yet"));
        };
        loop {
            if let Some(item) = events.next(&self.table, &self.settings).await? {
                return Ok(item);
            }
            // dropping the future here loses nothing, because the events still know that the table was changed
            let mut connection = connect(&self.settings).await?;
            self.table = MySqlTable::find(&mut connection, &self.settings).await?;
            close(connection).await;
            events.table_is_known(&self.table, &self.settings)?;
        }
    }
}

async fn connect(settings: &ChangeSettings) -> Result<Conn, DbError> {
    open(&settings.url, settings.user(), settings.password()).await
}

/// Returns the file and the place at which reading begins.
async fn log_file(connection: &mut Conn, position: u64) -> Result<(BinlogFile, u64), DbError> {
    let (mut number, mut place) = (position >> 32, position & FILE_END);
    if place == FILE_END {
        (number, place) = (number + 1, FILE_START);
    }
    let rows: Vec<Row> = connection.query("SHOW BINARY LOGS").await.map_err(error)?;
    let names = rows.iter().filter_map(|row| row.get_opt::<String, _>(0)?.ok());
    let files: Vec<BinlogFile> = names.filter_map(BinlogFile::parse).collect();
    let (first, last) = match (files.first(), files.last()) {
        (Some(first), Some(last)) => (first.number, last.number),
        _ => return Err(bad_file()),
    };
    match files.into_iter().find(|file| file.number == number) {
        Some(file) => Ok((file, place)),
        None => Err(DbError::invalid(format!(
            "the source was read up to file {number} of the server's log, which has the files {first} to {last}: the \
             changes between are deleted, or it is another server; give the source another name to begin anew"
        ))),
    }
}

fn bad_file() -> DbError {
    DbError::invalid("the server's log files have other names than expected: `name.number`")
}

async fn close(connection: Conn) {
    // the server notices a lost connection by itself
    let _ = connection.disconnect().await;
}

async fn check_server(connection: &mut Conn) -> Result<(), DbError> {
    let sql = "SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_format, @@GLOBAL.binlog_row_image";
    let row: Option<(bool, String, String)> = connection.query_first(sql).await.map_err(error)?;
    let Some((is_on, format, image)) = row else { return Ok(()) };
    if !is_on {
        return Err(DbError::invalid(
            "the server writes no binary log; start it with `log_bin` and `server_id`, or use mode='polling'",
        ));
    }
    if format != "ROW" {
        return Err(DbError::invalid(format!(
            "the server's `binlog_format` is `{format}`, so it logs statements and not rows; type SET GLOBAL binlog_format = \
             'ROW'"
        )));
    }
    if image != "FULL" {
        return Err(DbError::invalid(format!(
            "the server's `binlog_row_image` is `{image}`, so it does not log whole rows; type SET GLOBAL binlog_row_image = \
             'FULL'"
        )));
    }
    Ok(())
}
