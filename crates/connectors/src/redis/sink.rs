//! Streams and channels as a sink.

use std::collections::BTreeMap;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, RedisResult, Value};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template,
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
        }))
    }
}

struct RedisSink {
    settings: RedisSettings,
    target: Target,
    connection: Option<MultiplexedConnection>,
}

enum Target {
    Stream { key: Template, entries_max: Option<i64>, payload_field: String, position_key: String },
    Channel(Template),
}

#[async_trait]
impl SinkConnector for RedisSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        let mut connection = self.settings.open().await?;
        let delivered = match &self.target {
            Target::Stream { position_key, .. } => Some(self.delivered(&mut connection, position_key).await?),
            Target::Channel(_) => None,
        };
        self.connection = Some(connection);
        Ok(delivered)
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
    /// Returns the last event of each partition that the stream has.
    async fn delivered(&self, connection: &mut MultiplexedConnection, key: &str) -> Result<DeliveredEvents> {
        let what = format!("the positions in `{key}` cannot be read");
        let found: RedisResult<BTreeMap<String, String>> =
            redis::cmd("HGETALL").arg(key).query_async(connection).await;
        let found = found.map_err(|e| self.settings.failed(&what, &e))?;
        let parsed = found.values().map(|text| {
            let id: EventId = text.parse()?;
            Ok((id.partition, id))
        });
        parsed.collect::<Result<_>>().map_err(|e| {
            Error::invalid(format!("Redis at {}: {what}: {}", self.settings.address, e.message()))
        })
    }

    /// Sends messages, with the position behind them in the same transaction if they are entries of a stream. Returns
    /// why each is refused, if it is.
    async fn send(
        &self,
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
        if let Target::Stream { position_key, .. } = &self.target {
            pipe.atomic();
            let command = pipe.cmd("HSET").arg(position_key);
            for (partition, id) in last_events(batch, messages) {
                command.arg(partition.to_string()).arg(id.to_string());
            }
        }
        let failed = |e: &RedisError| self.settings.failed("messages cannot be sent", e);
        let answers: Vec<RedisResult<Value>> = pipe.query_async(connection).await.map_err(|e| failed(&e))?;
        if let Some(Err(e)) = answers.get(sent.len()) {
            return Err(failed(e));
        }
        for (number, answer) in sent.into_iter().zip(answers) {
            refusals[number] = answer.err().map(|e| format!("Redis refuses the message: {e}"));
        }
        Ok(refusals)
    }
}

/// Returns the last event of each partition among those of messages.
fn last_events(batch: &SinkBatch, messages: &[Payload]) -> BTreeMap<PartitionId, EventId> {
    let ids = messages.iter().flat_map(|message| batch.ids.iter().skip(message.row).take(message.rows));
    ids.map(|id| (id.partition, *id)).collect()
}
