//! Reading a stream in a consumer group: entries are acknowledged when their events are durable.

use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tidemill_connect::{SourceConnector, SourceOutput};
use tidemill_types::Result;

use super::entry::{Entry, EntryId, entries, entries_read};
use super::options::RedisSettings;
use super::source::{BATCH_ENTRIES, BLOCK_MS, Start, WAITING_MAX};
use crate::receipts::Receipts;

/// Interval of a timer that is not used.
const UNUSED: Duration = Duration::from_secs(86_400);

/// Source of the entries of a group.
pub(super) struct GroupReader {
    pub settings: RedisSettings,
    pub stream: String,
    pub group: String,
    pub consumer: String,
    pub start: Start,
    pub payload_field: String,
    /// Age from which entries of other consumers are taken over.
    pub claim_idle: Option<Duration>,
}

#[async_trait]
impl SourceConnector for GroupReader {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut connection = self.settings.open().await?;
        // a request that waits for entries would hold up acknowledgements on the same connection
        let mut acknowledgements = self.settings.open().await?;
        self.create(&mut connection).await?;
        output.report_connected();
        let mut receipts: Receipts<Vec<EntryId>> = Receipts::new();
        // what an earlier connection of this consumer did not acknowledge
        let mut last = EntryId::default();
        loop {
            let found = self.read(&mut connection, Some(last)).await?;
            let Some(behind) = found.last() else { break };
            last = behind.id;
            self.hand_over(found, output, &mut receipts).await?;
            self.acknowledge(&mut receipts, 0, &mut acknowledgements).await?;
        }
        let mut claims = tokio::time::interval(self.claim_idle.unwrap_or(UNUSED));
        loop {
            // not dropped before it ends: the server has noted that this consumer has the entries
            let read = self.read(&mut connection, None);
            tokio::pin!(read);
            let found = loop {
                tokio::select! {
                    found = &mut read => break found?,
                    durable = receipts.next() => self.confirm(durable?, &mut acknowledgements).await?,
                }
            };
            self.hand_over(found, output, &mut receipts).await?;
            self.acknowledge(&mut receipts, WAITING_MAX, &mut acknowledgements).await?;
            // only while nothing of its own waits, which it would take from itself
            if self.claim_idle.is_some() && receipts.len() == 0 && claims.tick().now_or_never().is_some() {
                self.claim(&mut acknowledgements, output, &mut receipts).await?;
            }
        }
    }
}

impl GroupReader {
    /// Creates the group, and the stream, unless they exist.
    async fn create(&self, connection: &mut MultiplexedConnection) -> Result<()> {
        let start = match self.start {
            Start::Beginning => "0".to_owned(),
            Start::End => "$".to_owned(),
            // the group begins behind an id
            Start::Entry(EntryId { ms, sequence: 0 }) => {
                format!("{}-{}", ms.saturating_sub(1), if ms == 0 { 0 } else { u64::MAX })
            }
            Start::Entry(EntryId { ms, sequence }) => format!("{ms}-{}", sequence - 1),
        };
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&self.stream).arg(&self.group).arg(start).arg("MKSTREAM");
        let created: Result<(), RedisError> = command.query_async(connection).await;
        match created {
            Err(e) if e.code() != Some("BUSYGROUP") => Err(self.failed("cannot be had", &e)),
            _ => Ok(()),
        }
    }

    /// Reads entries of this consumer that it did not acknowledge, behind an id; or else new ones.
    async fn read(
        &self,
        connection: &mut MultiplexedConnection,
        behind: Option<EntryId>,
    ) -> Result<Vec<Entry>> {
        let mut command = redis::cmd("XREADGROUP");
        command.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(BATCH_ENTRIES);
        if behind.is_none() {
            command.arg("BLOCK").arg(BLOCK_MS);
        }
        command.arg("STREAMS").arg(&self.stream).arg(behind.map_or(">".to_owned(), |id| id.to_string()));
        let answer: Result<Value, RedisError> = command.query_async(connection).await;
        let answer = answer.map_err(|e| self.failed("cannot be read", &e))?;
        entries_read(answer).ok_or_else(|| self.settings.unexpected("a group cannot be read"))
    }

    /// Takes over entries that other consumers did not acknowledge.
    async fn claim(
        &self,
        connection: &mut MultiplexedConnection,
        output: &SourceOutput,
        receipts: &mut Receipts<Vec<EntryId>>,
    ) -> Result<()> {
        let idle = self.claim_idle.unwrap_or_default().as_millis().to_string();
        let mut command = redis::cmd("XAUTOCLAIM");
        command.arg(&self.stream).arg(&self.group).arg(&self.consumer).arg(idle).arg("0");
        command.arg("COUNT").arg(BATCH_ENTRIES);
        let answer: Result<Value, RedisError> = command.query_async(connection).await;
        let answer = answer.map_err(|e| self.failed("cannot take entries over", &e))?;
        let found = match answer {
            Value::Array(parts) => parts.into_iter().nth(1).and_then(entries),
            _ => None,
        };
        let found = found.ok_or_else(|| self.settings.unexpected("entries cannot be taken over"))?;
        if !found.is_empty() {
            tracing::info!(
                stream = self.stream,
                group = self.group,
                entries = found.len(),
                "entries are taken over"
            );
        }
        self.hand_over(found, output, receipts).await
    }

    async fn hand_over(
        &self,
        found: Vec<Entry>,
        output: &SourceOutput,
        receipts: &mut Receipts<Vec<EntryId>>,
    ) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let ids = found.iter().map(|entry| entry.id).collect();
        // those that were deleted are only acknowledged
        let kept = found.into_iter().filter(|entry| !entry.fields.is_empty());
        let messages = kept.map(|entry| entry.message(&self.stream, &self.payload_field)).collect();
        receipts.push(output.send(messages).await?, ids);
        Ok(())
    }

    /// Acknowledges what is durable until no more than `waiting` batches wait.
    async fn acknowledge(
        &self,
        receipts: &mut Receipts<Vec<EntryId>>,
        waiting: usize,
        connection: &mut MultiplexedConnection,
    ) -> Result<()> {
        while receipts.len() > waiting {
            self.confirm(receipts.next().await?, connection).await?;
        }
        Ok(())
    }

    async fn confirm(&self, ids: Vec<EntryId>, connection: &mut MultiplexedConnection) -> Result<()> {
        let mut command = redis::cmd("XACK");
        command.arg(&self.stream).arg(&self.group);
        for id in ids {
            command.arg(id.to_string());
        }
        let done: Result<(), RedisError> = command.query_async(connection).await;
        done.map_err(|e| self.failed("cannot acknowledge", &e))
    }

    fn failed(&self, what: &str, error: &RedisError) -> tidemill_types::Error {
        self.settings
            .failed(&format!("the group `{}` of the stream `{}` {what}", self.group, self.stream), error)
    }
}
