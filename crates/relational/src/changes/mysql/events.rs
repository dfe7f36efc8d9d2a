//! Events of the log.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt;
use mysql_async::BinlogStream;
use mysql_async::binlog::EventType;
use mysql_async::binlog::events::{Event, EventData, QueryEvent, RotateEvent, RowsEventData, TableMapEvent};
use mysql_async::binlog::row::BinlogRow;
use mysql_async::binlog::value::BinlogValue;
use tidemill_types::Timestamp;
use tokio::time::Instant;

use super::super::{ChangeOperation, ChangeSettings, ChangedRow, LogItem, RowWriter};
use super::snapshot::integer;
use super::table::MySqlTable;
use super::{FILE_END, position_in, values};
use crate::drivers::mysql::error;
use crate::error::DbError;

/// A server that has sent nothing for so long, not even a sign of life, is lost.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Types of events of MariaDB that are compressed.
const COMPRESSED: std::ops::RangeInclusive<u8> = 165..=171;

/// The stream of events, with what of it is not returned yet.
pub(super) struct Events {
    stream: BinlogStream,
    /// Number of the file, and the place in it behind the last event.
    file: u64,
    place: u64,
    /// Place at which the transaction begins that is being read.
    transaction: Option<u64>,
    /// Place of the event that announces a transaction.
    announced: Option<u64>,
    ready: VecDeque<LogItem>,
    last_event: Instant,
    /// Set once the server has described the format of the events.
    is_described: bool,
    /// Event with rows of the table, whose columns have to be read anew first.
    held: Option<Event>,
    /// Set when the table may have been altered since its columns were read.
    is_altered: bool,
}

impl Events {
    pub(super) fn new(stream: BinlogStream, file: u64, place: u64) -> Self {
        Self {
            stream,
            file,
            place,
            transaction: None,
            announced: None,
            ready: VecDeque::new(),
            last_event: Instant::now(),
            is_described: false,
            held: None,
            is_altered: false,
        }
    }

    /// Returns what comes next, or `None` if the columns of the table have to be read anew before. Dropping the future loses
    /// nothing.
    pub(super) async fn next(
        &mut self,
        table: &MySqlTable,
        settings: &ChangeSettings,
    ) -> Result<Option<LogItem>, DbError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.held.is_some() {
                return Ok(None);
            }
            let event = match tokio::time::timeout_at(self.last_event + SILENCE_MAX, self.stream.next()).await
            {
                Err(_) => return Err(DbError::unavailable("the server does not answer any more")),
                Ok(None) => return Err(DbError::unavailable("the server ended the replication")),
                Ok(Some(event)) => event.map_err(stream_error)?,
            };
            self.last_event = Instant::now();
            self.take(event, table, settings)?;
        }
    }

    /// Goes on with columns that were read anew.
    ///
    /// Errors: they still are others than those in the log, so the table was altered again after these rows.
    pub(super) fn table_is_known(
        &mut self,
        table: &MySqlTable,
        settings: &ChangeSettings,
    ) -> Result<(), DbError> {
        self.is_altered = false;
        let Some(event) = self.held.take() else { return Ok(()) };
        self.take_rows(event, table, settings)?;
        if self.held.is_none() {
            return Ok(());
        }
        Err(DbError::invalid(format!(
            "the log has rows of the table `{}` that have not its {} columns; such rows, from before it was altered, cannot be \
             read: give the source another name to begin anew",
            table.name,
            table.columns.len()
        )))
    }

    fn take(&mut self, event: Event, table: &MySqlTable, settings: &ChangeSettings) -> Result<(), DbError> {
        let header = event.header();
        let raw = header.event_type_raw();
        if COMPRESSED.contains(&raw) {
            return Err(DbError::invalid(
                "the server compresses its log, which cannot be read; type SET GLOBAL log_bin_compress = OFF",
            ));
        }
        let end = self.end_of(header.log_pos());
        let start = end.saturating_sub(header.event_size().into());
        match header.event_type() {
            // the first event repeats what was asked for, and may have a checksum that the reader does not know of yet
            Ok(EventType::ROTATE_EVENT) if !self.is_described => return Ok(()),
            Ok(EventType::FORMAT_DESCRIPTION_EVENT) => self.is_described = true,
            Ok(EventType::ROTATE_EVENT) => {
                let rotate: RotateEvent<'_> = event.read_event().map_err(unreadable)?;
                let file =
                    super::BinlogFile::parse(rotate.name().into_owned()).ok_or_else(super::bad_file)?;
                (self.file, self.place) = (file.number, rotate.position());
                self.ready.push_back(LogItem::Progress(position_in(self.file, self.place)));
                return Ok(());
            }
            Ok(
                EventType::GTID_EVENT | EventType::ANONYMOUS_GTID_EVENT | EventType::GTID_TAGGED_LOG_EVENT,
            ) => self.announced = Some(start),
            Ok(EventType::QUERY_EVENT) => {
                let query: QueryEvent<'_> = event.read_event().map_err(unreadable)?;
                self.take_query(&query.query(), start, end, header.timestamp(), table);
            }
            Ok(EventType::XID_EVENT) => self.commit(end),
            Ok(
                EventType::WRITE_ROWS_EVENT
                | EventType::UPDATE_ROWS_EVENT
                | EventType::DELETE_ROWS_EVENT
                | EventType::WRITE_ROWS_EVENT_V1
                | EventType::UPDATE_ROWS_EVENT_V1
                | EventType::DELETE_ROWS_EVENT_V1
                | EventType::PARTIAL_UPDATE_ROWS_EVENT,
            ) => self.take_rows(event, table, settings)?,
            _ => {}
        }
        self.place = self.place.max(end);
        Ok(())
    }

    /// Returns the place behind an event. The log has only 32 bits of it, which a large transaction exceeds.
    fn end_of(&self, log_pos: u32) -> u64 {
        match u64::from(log_pos) {
            // events that the server makes for this stream have no place
            0 => self.place,
            end if end < self.place => FILE_END,
            end => end,
        }
    }

    fn take_query(&mut self, query: &str, start: u64, end: u64, seconds: u32, table: &MySqlTable) {
        let word = query.trim_start();
        let is = |expected: &str| word.eq_ignore_ascii_case(expected);
        if is("BEGIN") || word.get(..9).is_some_and(|word| word.eq_ignore_ascii_case("XA START ")) {
            let start = self.announced.take().unwrap_or(start);
            self.transaction = Some(start);
            let time = Timestamp(i64::from(seconds) * 1_000_000);
            self.ready.push_back(LogItem::Begin { id: position_in(self.file, start), time });
        } else if is("COMMIT") || is("ROLLBACK") {
            self.commit(end);
        } else if self.transaction.is_none() {
            // a statement that is a transaction of its own, such as ALTER TABLE
            self.announced = None;
            self.is_altered |= query.contains(&table.name);
            self.ready.push_back(LogItem::Progress(position_in(self.file, end)));
        }
    }

    fn commit(&mut self, end: u64) {
        self.announced = None;
        let position = position_in(self.file, end);
        self.ready.push_back(match self.transaction.take() {
            Some(_) => LogItem::Commit(position),
            None => LogItem::Progress(position),
        });
    }
}

impl Events {
    /// Takes the rows of an event if they are of the table. Holds the event if the table has other columns.
    fn take_rows(
        &mut self,
        event: Event,
        table: &MySqlTable,
        settings: &ChangeSettings,
    ) -> Result<(), DbError> {
        let own = table_id(&event).and_then(|id| self.stream.get_tme(id)).filter(|map| is_of(map, table));
        let Some(map) = own else { return Ok(()) };
        if self.is_altered || map.columns_count() != table.columns.len() as u64 {
            self.held = Some(event);
            return Ok(());
        }
        let Some(data) = event.read_data().map_err(unreadable)? else { return Ok(()) };
        let EventData::RowsEvent(rows) = data else { return Ok(()) };
        let operation = match &rows {
            RowsEventData::WriteRowsEvent(_) | RowsEventData::WriteRowsEventV1(_) => ChangeOperation::Insert,
            RowsEventData::DeleteRowsEvent(_) | RowsEventData::DeleteRowsEventV1(_) => {
                ChangeOperation::Delete
            }
            RowsEventData::UpdateRowsEvent(_) | RowsEventData::UpdateRowsEventV1(_) => {
                ChangeOperation::Update
            }
            RowsEventData::PartialUpdateRowsEvent(_) => {
                return Err(DbError::invalid(
                    "the server logs only parts of JSON documents; type SET GLOBAL binlog_row_value_options = ''",
                ));
            }
        };
        if !settings.wants(operation) {
            return Ok(());
        }
        for row in rows.rows(map) {
            let (before, after) = row.map_err(unreadable)?;
            self.ready.push_back(LogItem::Row(changed(operation, before, after, table, settings)));
        }
        Ok(())
    }
}

fn is_of(map: &TableMapEvent<'_>, table: &MySqlTable) -> bool {
    map.table_name_raw() == table.name.as_bytes() && map.database_name_raw() == table.database.as_bytes()
}

fn changed(
    operation: ChangeOperation,
    before: Option<BinlogRow>,
    after: Option<BinlogRow>,
    table: &MySqlTable,
    settings: &ChangeSettings,
) -> ChangedRow {
    let mut out = RowWriter::default();
    let mut key = None;
    for (prefix, row) in [("before_", before), ("", after)] {
        let Some(mut row) = row else { continue };
        for (index, column) in table.columns.iter().enumerate() {
            let Some(value) = row.take(index) else { continue };
            if table.integer_key() == Some(index)
                && let BinlogValue::Value(value) = &value
            {
                key = integer(value);
            }
            let wanted = settings.wanted.get(&format!("{prefix}{}", column.name)).copied();
            values::write_logged(column, value, wanted, out.name(prefix, &column.name));
        }
    }
    ChangedRow { operation, json: out.finish(), key }
}

/// Returns the number of the table whose rows an event has.
fn table_id(event: &Event) -> Option<u64> {
    let bytes = event.data().get(..6)?;
    Some(bytes.iter().rev().fold(0, |id, byte| id << 8 | u64::from(*byte)))
}

fn unreadable(e: std::io::Error) -> DbError {
    DbError::invalid(format!("an event of the log cannot be read: {e}"))
}

fn stream_error(e: mysql_async::Error) -> DbError {
    let e = error(e);
    match e.code.as_str() {
        // the file was deleted while it was read, or the position is not valid
        "1236" => DbError::invalid(format!(
            "the log cannot be read where the source was read up to ({}); give the source another name to begin anew",
            e.message
        )),
        _ => e,
    }
}
