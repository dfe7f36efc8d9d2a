//! Properties of messages.

use lapin::message::Delivery;
use lapin::types::AMQPValue;
use tidemill_connect::Message;

use crate::property_text::property_text;

/// Returns a message that arrived, with its properties.
pub(super) fn message(delivery: Delivery) -> Message {
    let mut properties = vec![
        ("exchange".to_owned(), delivery.exchange.to_string()),
        ("routing.key".to_owned(), delivery.routing_key.to_string()),
        ("redelivered".to_owned(), delivery.redelivered.to_string()),
    ];
    let of = &delivery.properties;
    let named = [
        ("content.type", of.content_type()),
        ("content.encoding", of.content_encoding()),
        ("correlation.id", of.correlation_id()),
        ("reply.to", of.reply_to()),
        ("expiration", of.expiration()),
        ("message.id", of.message_id()),
        ("user.id", of.user_id()),
        ("app.id", of.app_id()),
    ];
    for (name, value) in named {
        properties.extend(value.as_ref().map(|value| (name.to_owned(), value.to_string())));
    }
    properties.extend(of.priority().map(|priority| ("priority".to_owned(), priority.to_string())));
    properties.extend(of.timestamp().map(|seconds| ("timestamp".to_owned(), seconds.to_string())));
    for (name, value) in of.headers().iter().flat_map(|headers| headers.inner()) {
        properties.extend(header_text(value).map(|text| (name.to_string(), text)));
    }
    Message { properties, ..Message::new(delivery.data) }
}

/// Returns the value of a header as text; `None` for lists and tables.
fn header_text(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::Boolean(x) => x.to_string(),
        AMQPValue::ShortShortInt(x) => x.to_string(),
        AMQPValue::ShortShortUInt(x) => x.to_string(),
        AMQPValue::ShortInt(x) => x.to_string(),
        AMQPValue::ShortUInt(x) => x.to_string(),
        AMQPValue::LongInt(x) => x.to_string(),
        AMQPValue::LongUInt(x) => x.to_string(),
        AMQPValue::LongLongInt(x) => x.to_string(),
        AMQPValue::Float(x) => x.to_string(),
        AMQPValue::Double(x) => x.to_string(),
        AMQPValue::Timestamp(x) => x.to_string(),
        AMQPValue::ShortString(text) => text.to_string(),
        AMQPValue::LongString(text) => property_text(text.as_bytes()),
        _ => return None,
    })
}
