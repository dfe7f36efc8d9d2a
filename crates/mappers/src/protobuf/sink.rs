//! Protobuf from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value as Proto};
use serde_json::{Map, Value as Json};
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
};
use tidemill_types::{EpochUnit, Field, FieldType, StreamSchema, Value, row_value, value_json};

use super::{OPTIONS, find_field, is_compound, message_type};
use crate::write::{PayloadValue, messages, missing_field, payload_error};

/// Type of the mapper of Protobuf messages that leave.
pub(crate) struct ProtobufSinkType;

impl SinkMapperType for ProtobufSinkType {
    fn name(&self) -> &'static str {
        "protobuf"
    }

    fn summary(&self) -> &'static str {
        "Protobuf messages, by default with the names of the attributes."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        let message = message_type(options)?;
        let mut entries = vec![];
        for (column, field) in schema.fields.iter().enumerate().filter(|_| payload.is_empty()) {
            let found = find_field(&message, &field.name).map_err(missing_field)?;
            entries.push((found, PayloadValue::Column(column)));
        }
        for NamedText { name, text } in payload {
            let Some(name) = name else {
                let error = payload_error(format!("the text `{text}` has no field"));
                return Err(error.expected([format!("@payload(field='{text}')")]));
            };
            let field = find_field(&message, name).map_err(payload_error)?;
            if entries.iter().any(|(known, _)| *known == field) {
                return Err(payload_error(format!("the field `{name}` is written twice")));
            }
            entries.push((field, PayloadValue::parse(text, schema).map_err(payload_error)?));
        }
        Ok(Box::new(ProtobufSink { schema: schema.clone(), message, entries }))
    }
}

struct ProtobufSink {
    schema: Arc<StreamSchema>,
    message: MessageDescriptor,
    entries: Vec<(FieldDescriptor, PayloadValue)>,
}

impl SinkMapper for ProtobufSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| self.event(rows, row).map(|message| message.encode_to_vec());
        messages(rows, refused, false, event, |parts| Ok(Bytes::from(parts.concat())))
    }
}

impl ProtobufSink {
    fn event(&self, rows: &RecordBatch, row: usize) -> Result<DynamicMessage, String> {
        let text = Field::new("", FieldType::String);
        let mut scalars = vec![];
        // lists, maps and messages are converted from JSON by the rules of Protobuf
        let mut compounds = Map::new();
        for (target, value) in &self.entries {
            let rendered;
            let (field, value) = match value {
                PayloadValue::Column(column) => (&self.schema.fields[*column], row_value(rows, *column, row)),
                PayloadValue::Template(template) => {
                    rendered = template.render(rows, row);
                    (&text, Value::str(&rendered))
                }
            };
            let error = |e: String| format!("field `{}`: {e}", target.name());
            if value.is_absent() {
                if !target.supports_presence() && !is_compound(target) {
                    return Err(error("the attribute is null; declare the field `optional` for that".into()));
                }
            } else if is_compound(target) {
                let json = match &value {
                    Value::Str(text) => {
                        serde_json::from_str(text).unwrap_or_else(|_| Json::from(text.as_ref()))
                    }
                    value => value_json(value),
                };
                compounds.insert(target.name().to_owned(), json);
            } else {
                scalars.push((target, scalar(target, field, &value).map_err(error)?));
            }
        }
        let mut message = match compounds.is_empty() {
            true => DynamicMessage::new(self.message.clone()),
            false => DynamicMessage::deserialize(self.message.clone(), Json::Object(compounds))
                .map_err(|e| format!("an object does not fit its field: {e}"))?,
        };
        for (target, value) in scalars {
            message.try_set_field(target, value).map_err(|e| format!("field `{}`: {e}", target.name()))?;
        }
        Ok(message)
    }
}

fn scalar(target: &FieldDescriptor, field: &Field, value: &Value<'_>) -> Result<Proto, String> {
    let integer = match value {
        Value::Int(n) => Some(*n),
        Value::Time(time) => match field.unit.unwrap_or_default() {
            EpochUnit::Seconds => Some(time.micros().div_euclid(1_000_000)),
            EpochUnit::Millis => Some(time.micros().div_euclid(1000)),
            EpochUnit::Micros => Some(time.micros()),
            EpochUnit::Nanos => time.micros().checked_mul(1000),
        },
        _ => None,
    };
    let proto = match (target.kind(), value) {
        (Kind::Bool, Value::Bool(b)) => Some(Proto::Bool(*b)),
        (Kind::Int32 | Kind::Sint32 | Kind::Sfixed32, _) => {
            integer.and_then(|n| n.try_into().ok()).map(Proto::I32)
        }
        (Kind::Int64 | Kind::Sint64 | Kind::Sfixed64, _) => integer.map(Proto::I64),
        (Kind::Uint32 | Kind::Fixed32, _) => integer.and_then(|n| n.try_into().ok()).map(Proto::U32),
        (Kind::Uint64 | Kind::Fixed64, _) => integer.and_then(|n| n.try_into().ok()).map(Proto::U64),
        (Kind::Float, Value::Float(x)) => Some(Proto::F32(*x as f32)),
        (Kind::Double, Value::Float(x)) => Some(Proto::F64(*x)),
        (Kind::Float, Value::Int(n)) => Some(Proto::F32(*n as f32)),
        (Kind::Double, Value::Int(n)) => Some(Proto::F64(*n as f64)),
        (Kind::String, Value::Str(text)) => Some(Proto::String(text.to_string())),
        (Kind::String, Value::Time(time)) => Some(Proto::String(time.to_string())),
        (Kind::Bytes, Value::Str(text)) => Some(Proto::Bytes(Bytes::copy_from_slice(text.as_bytes()))),
        (Kind::Enum(names), Value::Str(text)) => {
            names.get_value_by_name(text).map(|value| Proto::EnumNumber(value.number()))
        }
        (Kind::Enum(_), _) => integer.and_then(|n| n.try_into().ok()).map(Proto::EnumNumber),
        _ => None,
    };
    proto.ok_or_else(|| format!("expected {:?}, found {} {value}", target.kind(), value.type_name()))
}
