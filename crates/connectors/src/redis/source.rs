//! Streams and channels as a source.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::channels::ChannelReader;
use super::entry::{EntryId, entries, entries_read};
use super::group::GroupReader;
use super::options::{RedisSettings, redis_options};
use crate::pairs::parse_names;
use crate::receipts::Receipts;

/// Entries that are read at once.
pub(super) const BATCH_ENTRIES: usize = 1000;
/// Time in milliseconds for which a request waits for new entries.
pub(super) const BLOCK_MS: usize = 1000;
/// Batches that may wait until they are durable.
pub(super) const WAITING_MAX: usize = 32;

/// Type of the source `redis`.
pub(crate) struct RedisSourceType;

const OPTIONS: &[OptionSpec] = redis_options![
    OptionSpec::text("stream", "Key of a stream."),
    OptionSpec::text("channel", "Channels of publish and subscribe, with commas; those with `*`, `?` or `[` are patterns."),
    OptionSpec::text("start", "Where the first start begins: `beginning`, `end`, or the id of an entry.").default("beginning"),
    OptionSpec::text("group", "Consumer group: sources with the same one share the entries."),
    OptionSpec::text("consumer", "Name in the group; default: one made of the name of the source."),
    OptionSpec::duration("claim.idle", "Age from which entries of the group that other consumers did not acknowledge are taken over; 0 for never.")
        .default("5 min"),
];

impl SourceType for RedisSourceType {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn summary(&self) -> &'static str {
        "Entries of a Redis stream, exactly once, or at least once in a consumer group; messages of channels, at most once."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let settings = RedisSettings::of_connector(options, context)?;
        let (stream, channels) = match (options.get("stream"), options.get("channel")) {
            (Some(stream), None) if !stream.is_empty() => (stream.to_owned(), vec![]),
            (None, Some(channels)) => (String::new(), parse_names(channels)),
            _ => return Err(OptionError::connector("write either `stream` or `channel`")),
        };
        if stream.is_empty() {
            if channels.is_empty() {
                return Err(OptionError::option("channel", "expected channels with commas"));
            }
            for name in ["start", "group", "consumer", "claim.idle"] {
                if options.is_written(name) {
                    return Err(OptionError::option(
                        name,
                        "channels have no entries that are kept; write `stream`",
                    ));
                }
            }
            return Ok(Box::new(ChannelReader { settings, channels }));
        }
        let start = Start::parse(options.text("start")).map_err(|e| OptionError::option("start", e))?;
        let payload_field = options.text("payload.field").to_owned();
        let Some(group) = options.get("group") else {
            for name in ["consumer", "claim.idle"] {
                if options.is_written(name) {
                    return Err(OptionError::option(name, "it needs `group`"));
                }
            }
            return Ok(Box::new(StreamReader { settings, stream, start, payload_field }));
        };
        // the same one after a restart, so that the server knows what it did not acknowledge
        let own = || format!("tidemill-{:016x}", xxh3_64(context.name.as_bytes()));
        Ok(Box::new(GroupReader {
            settings,
            stream,
            group: group.to_owned(),
            consumer: options.get("consumer").map_or_else(own, str::to_owned),
            start,
            payload_field,
            claim_idle: options.duration("claim.idle").filter(|idle| *idle > Duration::ZERO),
        }))
    }
}

/// Position at which the first start begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Beginning,
    End,
    /// At this entry.
    Entry(EntryId),
}

impl Start {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "beginning" => Ok(Self::Beginning),
            "end" => Ok(Self::End),
            id => id.parse().map(Self::Entry).map_err(|e| format!("{e}, or `beginning` or `end`")),
        }
    }
}

/// Reads a stream alone and in order, from the position that the log has.
struct StreamReader {
    settings: RedisSettings,
    stream: String,
    start: Start,
    payload_field: String,
}

#[async_trait]
impl SourceConnector for StreamReader {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut connection = self.settings.open().await?;
        let split: Arc<str> = self.stream.as_str().into();
        let mut position = self.position(&mut connection, &split, output).await?;
        let mut receipts: Receipts<()> = Receipts::new();
        loop {
            while receipts.len() >= WAITING_MAX {
                receipts.next().await?;
            }
            let what = format!("the stream `{}` cannot be read", self.stream);
            let mut command = redis::cmd("XREAD");
            command.arg("COUNT").arg(BATCH_ENTRIES).arg("BLOCK").arg(BLOCK_MS).arg("STREAMS");
            command.arg(&self.stream).arg(EntryId::of_number(position.saturating_sub(1)).to_string());
            let answer = self.settings.ask(&mut connection, &command, &what).await?;
            output.report_connected();
            let found = entries_read(answer).ok_or_else(|| self.settings.unexpected(&what))?;
            let mut messages = Vec::with_capacity(found.len());
            for entry in found {
                let number = self.number(entry.id)?;
                position = number + 1;
                messages.push(Message { number, ..entry.message(&self.stream, &self.payload_field) });
            }
            if !messages.is_empty() {
                receipts.push(output.send_split(&split, messages, position).await?, ());
            }
        }
    }
}

impl StreamReader {
    /// Returns where to read: where the log says, otherwise where the options say.
    async fn position(
        &self,
        connection: &mut MultiplexedConnection,
        split: &Arc<str>,
        output: &SourceOutput,
    ) -> Result<u64> {
        if let Some(position) = output.position(split) {
            return Ok(position);
        }
        let position = match self.start {
            Start::Beginning => 0,
            Start::Entry(id) => self.number(id)?,
            Start::End => {
                let what = format!("the stream `{}` cannot be read", self.stream);
                let mut command = redis::cmd("XREVRANGE");
                command.arg(&self.stream).arg("+").arg("-").arg("COUNT").arg(1);
                let answer = self.settings.ask(connection, &command, &what).await?;
                let last = entries(answer).ok_or_else(|| self.settings.unexpected(&what))?;
                match last.first() {
                    Some(entry) => self.number(entry.id)? + 1,
                    None => 0,
                }
            }
        };
        // stored without events: a crash before the first entry must not choose another start
        output.send_split(split, vec![], position).await?;
        Ok(position)
    }

    fn number(&self, id: EntryId) -> Result<u64> {
        id.number().ok_or_else(|| {
            Error::invalid(format!(
                "Redis at {}: the stream `{}` has the entry {id}, whose id is larger than those that the server makes; \
                 read the stream with `group`",
                self.settings.address, self.stream
            ))
        })
    }
}
