//! Events from Protobuf.

use std::sync::Arc;

use prost_reflect::{
    DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions, Value as Proto,
};
use serde_json::Value as Json;
use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, StreamSchema, Value};

use super::{OPTIONS, find_field, is_compound, message_type};
use crate::read::{fit_json, fit_value, mismatch, property_value, push_event};
use crate::write::missing_field;

/// Type of the mapper of Protobuf messages that arrive.
pub(crate) struct ProtobufSourceType;

impl SourceMapperType for ProtobufSourceType {
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
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        let message = message_type(options)?;
        let fields = match attributes.is_empty() {
            true => schema
                .fields
                .iter()
                .map(|field| FieldPath::parse(&field.name, &message).map(AttributeSource::Path))
                .collect::<Result<_, _>>()
                .map_err(missing_field)?,
            false => resolve_attributes(attributes, schema, |path| FieldPath::parse(path, &message))?,
        };
        Ok(Box::new(ProtobufSource { message, fields }))
    }
}

/// Field of a message, or of one inside of it.
struct FieldPath {
    outer: Vec<FieldDescriptor>,
    field: FieldDescriptor,
}

impl FieldPath {
    /// Parses names that are joined by dots.
    ///
    /// Errors: a name that is not a field, a part that is not a message.
    fn parse(text: &str, message: &MessageDescriptor) -> Result<Self, String> {
        let mut outer: Vec<FieldDescriptor> = vec![];
        let mut message = message.clone();
        let mut names = text.trim().split('.').peekable();
        loop {
            let field = find_field(&message, names.next().unwrap_or_default())?;
            if names.peek().is_none() {
                return Ok(Self { outer, field });
            }
            message = match field.kind() {
                Kind::Message(inner) if !is_repeated(&field) => inner,
                _ => return Err(format!("the field `{}` is no single message", field.name())),
            };
            outer.push(field);
        }
    }
}

fn is_repeated(field: &FieldDescriptor) -> bool {
    field.is_list() || field.is_map()
}

struct ProtobufSource {
    message: MessageDescriptor,
    fields: Vec<AttributeSource<FieldPath>>,
}

impl SourceMapper for ProtobufSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let proto = match DynamicMessage::decode(self.message.clone(), message.payload.clone()) {
            Ok(proto) => proto,
            Err(e) => {
                let reason = format!("not a message of the type `{}`: {e}", self.message.full_name());
                return out.reject(message, reason, &message.payload);
            }
        };
        push_event(message, out, &message.payload, false, |index, field| match &self.fields[index] {
            AttributeSource::Property(name) => property_value(message, name, field),
            AttributeSource::Path(path) => value(&proto, &path.outer, &path.field, field),
        });
    }
}

/// Returns the value of a field; `None` if the message says that it is not set.
fn value(
    message: &DynamicMessage,
    outer: &[FieldDescriptor],
    inner: &FieldDescriptor,
    field: &Field,
) -> Result<Option<FieldValue>, String> {
    if let Some((first, outer)) = outer.split_first() {
        return match message.get_field(first).as_ref() {
            Proto::Message(set) if message.has_field(first) => value(set, outer, inner, field),
            _ => Ok(None),
        };
    }
    if inner.supports_presence() && !message.has_field(inner) {
        return Ok(None);
    }
    let scalar = message.get_field(inner);
    let scalar = match scalar.as_ref() {
        _ if is_compound(inner) => return compound(message, inner, field).map(Some),
        Proto::Bool(b) => Value::Bool(*b),
        Proto::I32(n) => Value::Int((*n).into()),
        Proto::I64(n) => Value::Int(*n),
        Proto::U32(n) => Value::Int((*n).into()),
        Proto::U64(n) => match (i64::try_from(*n), field.ty) {
            (Ok(n), _) => Value::Int(n),
            (Err(_), FieldType::Double | FieldType::Float) => Value::Float(*n as f64),
            (Err(_), _) => return Err(mismatch(field, &format!("`{n}`"))),
        },
        Proto::F32(x) => Value::Float((*x).into()),
        Proto::F64(x) => Value::Float(*x),
        Proto::String(text) => Value::str(text),
        Proto::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::Str(text.to_owned().into()),
            Err(_) => return Err(mismatch(field, "bytes that are no UTF-8")),
        },
        Proto::EnumNumber(number) => match (inner.kind(), field.ty) {
            (Kind::Enum(names), FieldType::String | FieldType::Object) => {
                let name = names.get_value(*number).map(|value| value.name().to_owned());
                Value::Str(name.unwrap_or_else(|| number.to_string()).into())
            }
            _ => Value::Int((*number).into()),
        },
        _ => return Err(mismatch(field, "a value of another type")),
    };
    fit_value(field, &scalar).map(Some)
}

/// Returns a list, a map or a message: JSON, except for times.
fn compound(message: &DynamicMessage, inner: &FieldDescriptor, field: &Field) -> Result<FieldValue, String> {
    let options = SerializeOptions::new();
    let options =
        options.stringify_64_bit_integers(false).use_proto_field_name(true).skip_default_fields(false);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options);
    let json = json.map_err(|e| format!("attribute `{}`: the value has no JSON form: {e}", field.name))?;
    match (json.get(inner.name()).unwrap_or(&Json::Null), field.ty) {
        (json @ (Json::Array(_) | Json::Object(_)), FieldType::String) => {
            Ok(FieldValue::Text(json.to_string()))
        }
        (json, _) => fit_json(field, json),
    }
}
