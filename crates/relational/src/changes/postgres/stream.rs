//! The stream of changes.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tidemill_types::Timestamp;
use tokio::time::Instant;

use super::super::{ChangeOperation, ChangeSettings, ChangedRow, LogItem, RowWriter};
use super::output::{self, Before, Cells, ColumnValue, RelationMessage, ReplicationMessage};
use super::setup::{SourceTable, literal, lsn, quote};
use super::values;
use super::wire::Wire;
use crate::error::DbError;

/// Interval at which the position is reported to the server, which gives up after `wal_sender_timeout`,
/// 60 seconds by default.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// A server that has not answered for so long is lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Microseconds from 1970 to 2000, where PostgreSQL's times start.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// State of the stream.
pub(super) struct Stream {
    /// Position at which reading begins. That it was handed over does not mean that it is durable.
    start: u64,
    /// Position that the server may forget everything before; 0 until one is known, which the server passes over.
    confirmed: u64,
    relation: Option<RelationMessage>,
    in_transaction: bool,
    last_status: Instant,
    last_message: Instant,
}

impl Default for Stream {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            start: 0,
            confirmed: 0,
            relation: None,
            in_transaction: false,
            last_status: now,
            last_message: now,
        }
    }
}

impl Stream {
    pub(super) fn start_at(&mut self, position: u64) {
        self.start = position;
    }

    pub(super) async fn start(&mut self, wire: &mut Wire, settings: &ChangeSettings) -> Result<(), DbError> {
        let names = literal(&quote(&settings.publication));
        let sql = format!(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {names})",
            quote(&settings.slot),
            lsn(self.start),
        );
        wire.start(&sql).await?;
        wire.await_copy(b'W').await?;
        (self.last_status, self.last_message) = (Instant::now(), Instant::now());
        Ok(())
    }

    pub(super) async fn confirm(&mut self, wire: &mut Wire, position: u64) -> Result<(), DbError> {
        self.confirmed = self.confirmed.max(position);
        self.send_status(wire, false).await
    }

    /// Tells the server that this side lives, while nothing is read.
    pub(super) async fn keep_alive(&mut self, wire: &mut Wire) -> Result<(), DbError> {
        self.last_message = Instant::now();
        self.send_status(wire, false).await
    }

    async fn send_status(&mut self, wire: &mut Wire, wants_answer: bool) -> Result<(), DbError> {
        let mut status = BytesMut::with_capacity(64);
        status.put_u8(b'd');
        status.put_u32(4 + 34);
        status.put_u8(b'r');
        for _ in ["written", "flushed", "applied"] {
            status.put_u64(self.confirmed);
        }
        // the time, which matters only for display at the server
        status.put_i64(0);
        status.put_u8(wants_answer.into());
        self.last_status = Instant::now();
        wire.send(&status).await
    }

    pub(super) async fn next(
        &mut self,
        wire: &mut Wire,
        table: &SourceTable,
        settings: &ChangeSettings,
    ) -> Result<LogItem, DbError> {
        loop {
            let Ok(frame) = tokio::time::timeout_at(self.last_status + STATUS_INTERVAL, wire.read()).await
            else {
                if self.last_message.elapsed() > ANSWER_TIMEOUT {
                    return Err(DbError::unavailable("the server does not answer any more"));
                }
                self.send_status(wire, true).await?;
                continue;
            };
            let frame = frame?;
            self.last_message = Instant::now();
            let item = match frame.tag {
                b'd' => self.take(frame.body, wire, table, settings).await?,
                b'c' => return Err(DbError::unavailable("the server ended the replication")),
                _ => None,
            };
            if let Some(item) = item {
                return Ok(item);
            }
        }
    }

    async fn take(
        &mut self,
        mut body: Bytes,
        wire: &mut Wire,
        table: &SourceTable,
        settings: &ChangeSettings,
    ) -> Result<Option<LogItem>, DbError> {
        let cut = |_| DbError::unavailable("the server sent a message that ends too early");
        match body.try_get_u8().map_err(cut)? {
            b'w' if body.len() >= 24 => {
                body.advance(24);
                self.change(output::parse(body)?, table, settings)
            }
            b'k' => {
                let end = body.try_get_u64().map_err(cut)?;
                body.try_get_u64().map_err(cut)?;
                if body.try_get_u8().map_err(cut)? == 1 {
                    self.send_status(wire, false).await?;
                }
                Ok((!self.in_transaction).then_some(LogItem::Progress(end)))
            }
            _ => Ok(None),
        }
    }

    fn change(
        &mut self,
        message: ReplicationMessage,
        table: &SourceTable,
        settings: &ChangeSettings,
    ) -> Result<Option<LogItem>, DbError> {
        let is_own = |relation: u32| self.relation.as_ref().filter(|own| own.oid == relation);
        Ok(match message {
            ReplicationMessage::Begin { commit, micros } => {
                self.in_transaction = true;
                let time = Timestamp(micros.saturating_add(EPOCH_MICROS));
                Some(LogItem::Begin { id: commit, time })
            }
            ReplicationMessage::Commit { end } => {
                self.in_transaction = false;
                Some(LogItem::Commit(end))
            }
            ReplicationMessage::Relation(relation) => {
                if relation.schema == table.schema && relation.name == table.name {
                    self.relation = Some(relation);
                }
                None
            }
            ReplicationMessage::Insert { relation, after } if settings.wants(ChangeOperation::Insert) => {
                is_own(relation)
                    .map(|own| row(own, ChangeOperation::Insert, None, Some(after), table, settings))
            }
            ReplicationMessage::Update { relation, before, after }
                if settings.wants(ChangeOperation::Update) =>
            {
                is_own(relation)
                    .map(|own| row(own, ChangeOperation::Update, before, Some(after), table, settings))
            }
            ReplicationMessage::Delete { relation, before } if settings.wants(ChangeOperation::Delete) => {
                is_own(relation)
                    .map(|own| row(own, ChangeOperation::Delete, Some(before), None, table, settings))
            }
            _ => None,
        })
    }
}

fn row(
    relation: &RelationMessage,
    operation: ChangeOperation,
    before: Option<Before>,
    after: Option<Cells>,
    table: &SourceTable,
    settings: &ChangeSettings,
) -> LogItem {
    let mut out = RowWriter::default();
    let mut key = None;
    let is_full = matches!(before, Some(Before::Row(_)));
    let old = before.map(|(Before::Key(cells) | Before::Row(cells))| cells);
    let cell =
        |cells: &Option<Cells>, index: usize| cells.as_ref().and_then(|cells| cells.get(index).cloned());
    for (index, column) in relation.columns.iter().enumerate() {
        let (was, is) = (cell(&old, index), cell(&after, index));
        let wanted = |prefix: &str| settings.wanted.get(&format!("{prefix}{}", column.name)).copied();
        let mut write = |prefix: &str, cell: &ColumnValue| match cell {
            ColumnValue::Null => out.name(prefix, &column.name).null(),
            ColumnValue::Unchanged => {}
            ColumnValue::Text(text) => {
                let out = out.name(prefix, &column.name);
                values::write(column.type_oid, &String::from_utf8_lossy(text), wanted(prefix), out);
            }
        };
        let is = match (is, &was) {
            (Some(ColumnValue::Unchanged), Some(was)) if is_full => Some(was.clone()),
            (is, _) => is,
        };
        if table.key_name() == Some(&column.name)
            && let Some(ColumnValue::Text(text)) = is.as_ref().or(was.as_ref())
        {
            key = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        }
        if let Some(is) = &is {
            write("", is);
        }
        match (was, is) {
            _ if operation == ChangeOperation::Insert => {}
            (Some(was), _) if is_full || column.is_key => write("before_", &was),
            // the key did not change
            (None, Some(is)) if column.is_key => write("before_", &is),
            _ => {}
        }
    }
    LogItem::Row(ChangedRow { operation, json: out.finish(), key })
}
