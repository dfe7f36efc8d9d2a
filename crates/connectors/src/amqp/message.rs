//! Messages as they arrive: bodies of any type of AMQP as text or bytes, and their properties.

use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::types::messaging::{Body, Message as AmqpMessage, MessageId};
use fe2o3_amqp::types::primitives::{SimpleValue, Value};
use serde_json::{Map, Number, Value as Json};
use tidemill_connect::Message;

/// Encoding of bytes as text.
const BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::STANDARD;

/// Returns a message that arrived, with its properties.
pub(super) fn message(delivery: Delivery<Body<Value>>) -> Message {
    let message = delivery.into_message();
    let properties = properties(&message);
    Message { properties, ..Message::new(payload(message.body)) }
}

/// Returns a body as bytes: texts and bytes as they are, maps and lists as JSON.
fn payload(body: Body<Value>) -> Vec<u8> {
    match body {
        Body::Value(value) => match value.0 {
            Value::String(text) => text.into_bytes(),
            Value::Binary(bytes) => bytes.into_vec(),
            Value::Null => vec![],
            value => text_of(&json(&value)).into_bytes(),
        },
        Body::Data(parts) => parts.into_iter().flat_map(|part| part.0.into_vec()).collect(),
        Body::Sequence(parts) => {
            let all = parts.iter().flat_map(|part| part.0.iter().map(json)).collect();
            Json::Array(all).to_string().into_bytes()
        }
        Body::Empty => vec![],
    }
}

/// Returns a text as it is and anything else as JSON.
fn text_of(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Returns a value of AMQP as JSON: bytes as base64, keys other than texts as their text.
fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(x) => Json::Bool(*x),
        Value::Ubyte(x) => Json::from(*x),
        Value::Ushort(x) => Json::from(*x),
        Value::Uint(x) => Json::from(*x),
        Value::Ulong(x) => Json::from(*x),
        Value::Byte(x) => Json::from(*x),
        Value::Short(x) => Json::from(*x),
        Value::Int(x) => Json::from(*x),
        Value::Long(x) => Json::from(*x),
        // by its shortest text, so that 55.6 does not become 55.599998474121094
        Value::Float(x) => x.0.to_string().parse().map_or(Json::Null, float),
        Value::Double(x) => float(x.0),
        Value::Char(x) => Json::String(x.to_string()),
        Value::Timestamp(x) => Json::from(x.milliseconds()),
        Value::Uuid(x) => Json::String(uuid(x.as_inner())),
        Value::Binary(bytes) => Json::String(base64::Engine::encode(&BASE64, bytes)),
        Value::String(text) => Json::String(text.clone()),
        Value::Symbol(text) => Json::String(text.as_str().to_owned()),
        Value::List(list) => Json::Array(list.iter().map(json).collect()),
        Value::Array(array) => Json::Array(array.0.iter().map(json).collect()),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| (text_of(&json(key)), json(value)));
            Json::Object(entries.collect::<Map<_, _>>())
        }
        Value::Described(described) => json(&described.value),
        // decimals are bytes, for which no arithmetic is available here
        value => Json::String(format!("{value:?}")),
    }
}

/// Returns a number, or null for what JSON has no number for.
fn float(x: f64) -> Json {
    Number::from_f64(x).map_or(Json::Null, Json::Number)
}

fn uuid(bytes: &[u8; 16]) -> String {
    uuid::Uuid::from_bytes(*bytes).to_string()
}

fn id_text(id: &MessageId) -> String {
    match id {
        MessageId::Ulong(x) => x.to_string(),
        MessageId::Uuid(x) => uuid(x.as_inner()),
        MessageId::Binary(bytes) => base64::Engine::encode(&BASE64, bytes),
        MessageId::String(text) => text.clone(),
    }
}

fn properties(message: &AmqpMessage<Body<Value>>) -> Vec<(String, String)> {
    let mut all = vec![];
    let mut add = |name: &str, value: Option<String>| all.extend(value.map(|value| (name.to_owned(), value)));
    let header = message.header.clone().unwrap_or_default();
    add("redelivered", Some((header.delivery_count > 0).to_string()));
    add("priority", Some(header.priority.0.to_string()));
    add("persistent", Some(header.durable.to_string()));
    if let Some(of) = &message.properties {
        add("message.id", of.message_id.as_ref().map(id_text));
        add("correlation.id", of.correlation_id.as_ref().map(id_text));
        add("destination", of.to.clone());
        add("reply.to", of.reply_to.clone());
        add("subject", of.subject.clone());
        add("content.type", of.content_type.as_ref().map(|text| text.as_str().to_owned()));
        add("content.encoding", of.content_encoding.as_ref().map(|text| text.as_str().to_owned()));
        add("timestamp", of.creation_time.as_ref().map(|time| time.milliseconds().to_string()));
        add("group.id", of.group_id.clone());
    }
    if let Some(of) = &message.application_properties {
        for (name, value) in of.0.iter() {
            add(name, property_text(value));
        }
    }
    all
}

/// Returns a property of the application as text; `None` for those without a text.
fn property_text(value: &SimpleValue) -> Option<String> {
    Some(match value {
        SimpleValue::Bool(x) => x.to_string(),
        SimpleValue::Ubyte(x) => x.to_string(),
        SimpleValue::Ushort(x) => x.to_string(),
        SimpleValue::Uint(x) => x.to_string(),
        SimpleValue::Ulong(x) => x.to_string(),
        SimpleValue::Byte(x) => x.to_string(),
        SimpleValue::Short(x) => x.to_string(),
        SimpleValue::Int(x) => x.to_string(),
        SimpleValue::Long(x) => x.to_string(),
        SimpleValue::Float(x) => x.to_string(),
        SimpleValue::Double(x) => x.to_string(),
        SimpleValue::Char(x) => x.to_string(),
        SimpleValue::Timestamp(x) => x.milliseconds().to_string(),
        SimpleValue::Uuid(x) => uuid(x.as_inner()),
        SimpleValue::String(text) => text.clone(),
        SimpleValue::Symbol(text) => text.as_str().to_owned(),
        _ => return None,
    })
}
