//! What a message gets from its event: exchange, routing key and properties.

use lapin::BasicProperties;
use lapin::types::ShortString;
use tidemill_connect::{ConnectorContext, OptionError, Options, Payload, SinkBatch, Template};
use tidemill_types::Timestamp;

use super::client::Exchange;
use super::options::{EXCHANGE_TYPES, parse_headers, short_option, short_string};

/// Makes exchange, routing key and properties of messages.
pub(super) struct Renderer {
    /// Name of the sink, which begins the ids of its messages.
    name: String,
    exchange: Template,
    kind: Template,
    is_durable: Template,
    is_auto_delete: Template,
    routing_key: Template,
    headers: Template,
    priority: Template,
    correlation_id: Option<Template>,
    message_id: Option<Template>,
    /// Seconds since 1970; `None` for the current time.
    timestamp: Option<u64>,
    /// Properties that all messages have.
    properties: BasicProperties,
}

/// Exchange, routing key and properties of a message.
pub(super) struct Rendered {
    pub exchange: Exchange,
    pub routing_key: ShortString,
    pub properties: BasicProperties,
}

impl Renderer {
    /// Reads the options.
    pub(super) fn new(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let template = |name: &str| context.template(options, name);
        let optional = |name: &str| options.is_written(name).then(|| template(name)).transpose();
        let mut properties = BasicProperties::default()
            .with_delivery_mode(options.integer("delivery.mode").map_or(2, |mode| mode as u8));
        if options.is_written("content.type") {
            properties = properties.with_content_type(short_option(options, "content.type")?);
        }
        if options.is_written("content.encoding") {
            properties = properties.with_content_encoding(short_option(options, "content.encoding")?);
        }
        if options.is_written("reply.to") {
            properties = properties.with_reply_to(short_option(options, "reply.to")?);
        }
        if options.is_written("expiration") {
            let expiration = short_option(options, "expiration")?;
            if expiration.as_str().parse::<u32>().is_err() {
                let wrong = format!("expected milliseconds, found `{expiration}`");
                return Err(OptionError::option("expiration", wrong));
            }
            properties = properties.with_expiration(expiration);
        }
        if options.is_written("user.id") {
            properties = properties.with_user_id(short_option(options, "user.id")?);
        }
        if options.is_written("app.id") {
            properties = properties.with_app_id(short_option(options, "app.id")?);
        }
        let renderer = Self {
            name: context.writer.clone(),
            exchange: template("exchange.name")?,
            kind: template("exchange.type")?,
            is_durable: template("exchange.durable.enabled")?,
            is_auto_delete: template("exchange.autodelete.enabled")?,
            routing_key: template("routing.key")?,
            headers: template("headers")?,
            priority: template("priority")?,
            correlation_id: optional("correlation.id")?,
            message_id: optional("message.id")?,
            timestamp: options.get("timestamp").map(parse_day).transpose()?,
            properties,
        };
        let constants = [("exchange.name", &renderer.exchange), ("routing.key", &renderer.routing_key)];
        for (name, text) in constants.into_iter().filter_map(|(name, of)| Some((name, of.constant()?))) {
            short_string(text).map_err(|e| OptionError::option(name, e))?;
        }
        if let Some(headers) = renderer.headers.constant() {
            parse_headers(headers).map_err(|e| OptionError::option("headers", e))?;
        }
        Ok(renderer)
    }

    /// Returns the exchange of all messages; `None` if it depends on the event.
    pub(super) fn constant_exchange(&self) -> Option<Exchange> {
        exchange(
            self.exchange.constant()?,
            self.kind.constant()?,
            self.is_durable.constant()?,
            self.is_auto_delete.constant()?,
        )
        .ok()
    }

    /// Returns what a message gets. Errors: why it cannot be sent.
    pub(super) fn render(&self, batch: &SinkBatch, message: &Payload) -> Result<Rendered, String> {
        let of = |template: &Template| template.render(&batch.rows, message.row);
        let short = |what: &str, text: &str| short_string(text).map_err(|e| format!("`{what}`: {e}"));
        let exchange =
            exchange(&of(&self.exchange), &of(&self.kind), &of(&self.is_durable), &of(&self.is_auto_delete))?;
        let headers = parse_headers(&of(&self.headers)).map_err(|e| format!("`headers`: {e}"))?;
        let priority = of(&self.priority);
        let priority = priority
            .trim()
            .parse()
            .ok()
            .filter(|n| *n <= 9)
            .ok_or_else(|| format!("`priority` is `{priority}`; expected a number from 0 to 9"))?;
        let mut properties = self.properties.clone().with_headers(headers).with_priority(priority);
        match &self.message_id {
            Some(template) => properties = properties.with_message_id(short("message.id", &of(template))?),
            None => {
                let first = batch.ids.get(message.row).map(ToString::to_string).unwrap_or_default();
                // the name of a sink may be too long for an id, which is then left out
                if let Ok(id) = short_string(&format!("{}/{first}", self.name)) {
                    properties = properties.with_message_id(id);
                }
            }
        }
        if let Some(correlation_id) = &self.correlation_id {
            properties = properties.with_correlation_id(short("correlation.id", &of(correlation_id))?);
        }
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        properties = properties.with_timestamp(self.timestamp.unwrap_or_else(|| now().as_secs()));
        Ok(Rendered { exchange, routing_key: short("routing.key", &of(&self.routing_key))?, properties })
    }
}

fn exchange(name: &str, kind: &str, is_durable: &str, is_auto_delete: &str) -> Result<Exchange, String> {
    let flag = |option: &str, text: &str| match text.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("`{option}` is `{text}`; expected true or false")),
    };
    let kind = kind.trim().to_ascii_lowercase();
    if !EXCHANGE_TYPES.contains(&kind.as_str()) {
        return Err(format!("`exchange.type` is `{kind}`; expected {}", EXCHANGE_TYPES.join(", ")));
    }
    Ok(Exchange {
        name: short_string(name).map_err(|e| format!("`exchange.name`: {e}"))?,
        kind,
        is_durable: flag("exchange.durable.enabled", is_durable)?,
        is_auto_delete: flag("exchange.autodelete.enabled", is_auto_delete)?,
    })
}

/// Returns the first second of a day `dd/MM/yyyy`, UTC.
fn parse_day(text: &str) -> Result<u64, OptionError> {
    let mut parts = text.trim().split('/');
    let iso = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(day), Some(month), Some(year), None) => format!("{year:0>4}-{month:0>2}-{day:0>2}T00:00:00Z"),
        _ => String::new(),
    };
    let time = Timestamp::parse(&iso).ok();
    time.and_then(|time| u64::try_from(time.0 / 1_000_000).ok()).ok_or_else(|| {
        OptionError::option("timestamp", format!("expected a day `dd/MM/yyyy`, found `{text}`"))
    })
}
