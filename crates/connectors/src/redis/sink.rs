//! Streams and channels as a sink.
//!
//! Entries of a stream are added in a transaction with the position behind them, if the position is still the one that this sink has
//! read or written last: of two processes that deliver events of one partition, such as a former owner of the partition and the
//! present one, only one adds them. The other one reads the position again, and stops if it has a later epoch.

use std::collections::BTreeMap;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    PartitionEpochs, Payload, SinkBatch, SinkConnector, SinkPositions, SinkType, Template, is_later_owner,
};
use tidemill_types::{Error, EventId, PartitionId, Result};

use super::options::{RedisSettings, redis_options};

/// Messages that are sent at once.
const BATCH_MESSAGES: usize = 1000;
/// Largest message: what the server takes as one value by default.
const MESSAGE_BYTES_MAX: usize = 512 << 20;

/// Type of the sink `redis`.
pub(crate) struct RedisSinkType;

const OPTIONS: &[OptionSpec] = redis_options![
    OptionSpec::text("stream", "Key of the stream to which messages are added.").dynamic(),
    OptionSpec::text("channel", "Channel to which messages are published.").dynamic(),
    OptionSpec::integer(
        "maxlen",
        1,
        i64::MAX,
        "Number of entries that the stream keeps, approximately; default: all."
    ),
    OptionSpec::text(
        "position.key",
        "Key of the hash with the last event that the stream has; default: `tidemill:position:` and the name of the sink."
    ),
];

impl SinkType for RedisSinkType {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn summary(&self) -> &'static str {
        "Adds messages to Redis streams, exactly once, or publishes them to channels, at most once."
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let template = |name: &str| context.template(options, name);
        let target = match (options.get("stream"), options.get("channel")) {
            (Some(_), None) => Target::Stream {
                key: template("stream")?,
                entries_max: options.integer("maxlen"),
                payload_field: options.text("payload.field").to_owned(),
                position_key: options
                    .get("position.key")
                    .map_or_else(|| format!("tidemill:position:{}", context.writer), str::to_owned),
            },
            (None, Some(_)) => {
                for name in ["maxlen", "position.key", "payload.field"] {
                    if options.is_written(name) {
                        return Err(OptionError::option(name, "channels have no entries; write `stream`"));
                    }
                }
                Target::Channel(template("channel")?)
            }
            _ => return Err(OptionError::connector("write either `stream` or `channel`")),
        };
        Ok(Box::new(RedisSink {
            settings: RedisSettings::of_connector(options, context)?,
            target,
            connection: None,
            positions: BTreeMap::new(),
            owned: PartitionEpochs::new(),
        }))
    }
}

struct RedisSink {
    settings: RedisSettings,
    target: Target,
    connection: Option<MultiplexedConnection>,
    /// Fields of the hash with the positions, as they were read and written.
    positions: BTreeMap<String, String>,
    owned: PartitionEpochs,
}

/// Beginning of the name of the field with the epoch of the owner of a partition.
const EPOCH_FIELD: &str = "epoch:";

enum Target {
    Stream { key: Template, entries_max: Option<i64>, payload_field: String, position_key: String },
    Channel(Template),
}

#[async_trait]
impl SinkConnector for RedisSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        let mut connection = self.settings.open().await?;
        let delivered = self.read_positions(&mut connection).await?.map(|positions| positions.delivered);
        self.connection = Some(connection);
        Ok(delivered)
    }

    async fn own(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        self.owned.clone_from(partitions);
        let mut positions = self.read_positions(&mut connection).await?;
        if let Some(positions) = &mut positions {
            positions
                .later_owners
                .retain(|id, epoch| partitions.get(id).is_some_and(|own| is_later_owner(*epoch, *own)));
        }
        self.connection = Some(connection);
        Ok(positions)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let messages = batch.messages_from(progress).to_vec();
        for messages in messages.chunks(BATCH_MESSAGES) {
            let refusals = self.send(&mut connection, batch, messages).await?;
            for (message, refusal) in messages.iter().zip(refusals) {
                match refusal {
                    Some(reason) => progress.refused(message, &reason),
                    None => progress.took(message),
                }
            }
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        self.connection = None;
    }
}

impl RedisSink {
    /// Reads the last event of each partition that the stream has, with the epochs of the owners; `None` for a channel.
    async fn read_positions(
        &mut self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<SinkPositions>> {
        let Target::Stream { position_key, .. } = &self.target else { return Ok(None) };
        let what = format!("the positions in `{position_key}` cannot be read");
        let found: RedisResult<BTreeMap<String, String>> =
            redis::cmd("HGETALL").arg(position_key).query_async(connection).await;
        self.positions = found.map_err(|e| self.settings.failed(&what, &e))?;
        let wrong = |e: &dyn std::fmt::Display| {
            Error::invalid(format!("Redis at {}: {what}: {e}", self.settings.address))
        };
        let mut read = SinkPositions::default();
        for (field, text) in &self.positions {
            match field.strip_prefix(EPOCH_FIELD) {
                Some(partition) => {
                    let partition = PartitionId(partition.parse().map_err(|e| wrong(&e))?);
                    read.later_owners.insert(partition, text.parse().map_err(|e| wrong(&e))?);
                }
                None => {
                    let id: EventId = text.parse().map_err(|e: Error| wrong(&e.message()))?;
                    read.delivered.insert(id.partition, id);
                }
            }
        }
        Ok(Some(read))
    }

    /// Begins to watch the positions of partitions, which must be those that were read or written last.
    ///
    /// Errors: they are others, or the connection fails.
    async fn watch_positions<'f>(
        &self,
        connection: &mut MultiplexedConnection,
        key: &str,
        fields: impl Iterator<Item = &'f String> + Clone,
    ) -> Result<()> {
        let mut pipe = redis::pipe();
        pipe.cmd("WATCH").arg(key).ignore();
        let command = pipe.cmd("HMGET").arg(key);
        fields.clone().for_each(|field| _ = command.arg(field));
        let found: RedisResult<(Vec<Option<String>>,)> = pipe.query_async(connection).await;
        let (found,) = found.map_err(|e| self.settings.failed("positions cannot be read", &e))?;
        let is_same = fields.zip(&found).all(|(field, found)| self.positions.get(field) == found.as_ref());
        if is_same { Ok(()) } else { Err(self.overtaken(key)) }
    }

    fn overtaken(&self, key: &str) -> Error {
        Error::unavailable(format!(
            "Redis at {}: another process writes the positions in `{key}` at the same time; they are read again",
            self.settings.address
        ))
    }

    /// Sends messages, with the position behind them in the same transaction if they are entries of a stream. Returns
    /// why each is refused, if it is.
    async fn send(
        &mut self,
        connection: &mut MultiplexedConnection,
        batch: &SinkBatch,
        messages: &[Payload],
    ) -> Result<Vec<Option<String>>> {
        let mut refusals = vec![None; messages.len()];
        // numbers of the messages that are sent
        let mut sent = vec![];
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        for (number, message) in messages.iter().enumerate() {
            if message.bytes.len() > MESSAGE_BYTES_MAX {
                let bytes = message.bytes.len();
                refusals[number] =
                    Some(format!("the message has {bytes} bytes; Redis takes {MESSAGE_BYTES_MAX}"));
                continue;
            }
            sent.push(number);
            match &self.target {
                Target::Stream { key, entries_max, payload_field, .. } => {
                    let command = pipe.cmd("XADD").arg(key.render(&batch.rows, message.row));
                    if let Some(max) = entries_max {
                        command.arg("MAXLEN").arg("~").arg(*max);
                    }
                    command.arg("*").arg(payload_field).arg(&*message.bytes);
                }
                Target::Channel(channel) => {
                    pipe.cmd("PUBLISH").arg(channel.render(&batch.rows, message.row)).arg(&*message.bytes);
                }
            }
        }
        let positions = self.positions_behind(batch, messages);
        if let Target::Stream { position_key, .. } = &self.target {
            self.watch_positions(connection, position_key, positions.keys()).await?;
            pipe.atomic();
            let command = pipe.cmd("HSET").arg(position_key);
            for (field, value) in &positions {
                command.arg(field).arg(value);
            }
        }
        let failed = |e: &RedisError| self.settings.failed("messages cannot be sent", e);
        let answers: Option<Vec<RedisResult<Value>>> =
            pipe.query_async(connection).await.map_err(|e| failed(&e))?;
        let Some(answers) = answers else {
            return Err(match &self.target {
                Target::Stream { position_key, .. } => self.overtaken(position_key),
                Target::Channel(channel) => Error::unavailable(format!("no answer about {channel:?}")),
            });
        };
        if let Some(Err(e)) = answers.get(sent.len()) {
            return Err(failed(e));
        }
        for (number, answer) in sent.into_iter().zip(answers) {
            refusals[number] = answer.err().map(|e| format!("Redis refuses the message: {e}"));
        }
        self.positions.extend(positions);
        Ok(refusals)
    }

    /// Returns the fields of the hash with the positions behind messages.
    fn positions_behind(&self, batch: &SinkBatch, messages: &[Payload]) -> BTreeMap<String, String> {
        let mut fields = BTreeMap::new();
        for (partition, id) in last_events(batch, messages) {
            fields.insert(partition.to_string(), id.to_string());
            if let Some(epoch) = self.owned.get(&partition).filter(|epoch| **epoch > 0) {
                fields.insert(format!("{EPOCH_FIELD}{partition}"), epoch.to_string());
            }
        }
        fields
    }
}

/// Returns the last event of each partition among those of messages.
fn last_events(batch: &SinkBatch, messages: &[Payload]) -> BTreeMap<PartitionId, EventId> {
    let ids = messages.iter().flat_map(|message| batch.ids.iter().skip(message.row).take(message.rows));
    ids.map(|id| (id.partition, *id)).collect()
}
