//! Messages as they are: their bytes are the one attribute of an event.
//!
//! An attribute of type object has them as `{"$binary":{"base64":"…","subType":"00"}}`, the form that bytes have in JSON of documents.

use std::sync::Arc;

use arrow_array::RecordBatch;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value as Json;
use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
    SourceMapper, SourceMapperType,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{FieldType, StreamSchema, Value, row_value};

use crate::read::no_attributes;
use crate::write::{messages, no_payload};

const NAME: &str = "binaryPassThrough";

/// Type of the mapper of bytes that arrive.
pub(crate) struct BinaryPassThroughSourceType;

/// Type of the mapper of bytes that leave.
pub(crate) struct BinaryPassThroughSinkType;

/// Returns an error unless the stream has one attribute that can be bytes.
fn check_schema(schema: &StreamSchema) -> Result<(), OptionError> {
    match schema.fields.as_slice() {
        [field] if matches!(field.ty, FieldType::Object | FieldType::String) => Ok(()),
        _ => Err(OptionError::connector(format!(
            "the mapper `{NAME}` needs a stream of one attribute of type object"
        ))
        .of_mapper()
        .expected([format!("define stream {} (bytes object)", schema.name)])),
    }
}

impl SourceMapperType for BinaryPassThroughSourceType {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "The bytes of a message as the one attribute of an event."
    }

    fn create(
        &self,
        _: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        check_schema(schema)?;
        no_attributes(attributes, NAME)?;
        Ok(Box::new(BinaryPassThroughSource))
    }
}

struct BinaryPassThroughSource;

impl SourceMapper for BinaryPassThroughSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        if message.has_no_value {
            return out.reject(message, "expected bytes", b"");
        }
        let is_text = out.schema().fields.first().is_some_and(|field| field.ty == FieldType::String);
        let value = match (is_text, std::str::from_utf8(&message.payload)) {
            (true, Ok(text)) => text.to_owned(),
            (true, Err(_)) => {
                let reason = "a string has no bytes that are not UTF-8: declare the attribute as object";
                return out.reject(message, reason, &message.payload);
            }
            (false, _) => {
                let base64 = STANDARD.encode(&message.payload);
                format!(r#"{{"$binary":{{"base64":"{base64}","subType":"00"}}}}"#)
            }
        };
        if let Err(e) = out.push_values(message, &[FieldValue::Text(value)], None) {
            out.reject(message, e, &message.payload);
        }
    }
}

impl SinkMapperType for BinaryPassThroughSinkType {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "The bytes in the one attribute of an event."
    }

    fn create(
        &self,
        _: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        check_schema(schema)?;
        no_payload(payload, NAME)?;
        let is_text = schema.fields.first().is_some_and(|field| field.ty == FieldType::String);
        Ok(Box::new(BinaryPassThroughSink { is_text }))
    }
}

struct BinaryPassThroughSink {
    is_text: bool,
}

impl SinkMapper for BinaryPassThroughSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| match row_value(rows, 0, row) {
            Value::Str(text) if self.is_text => Ok(text.as_bytes().to_vec()),
            Value::Str(text) => bytes_of(&text),
            _ => Err("the attribute is null, which is no bytes".to_owned()),
        };
        messages(rows, refused, false, event, |mut all| Ok(Bytes::from(all.swap_remove(0))))
    }
}

/// Returns the bytes of an object. A JSON string is its text.
fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || {
        let shown: String = text.chars().take(80).collect();
        format!(
            "expected bytes, {{\"$binary\":{{\"base64\":\"…\",\"subType\":\"00\"}}}} or a string, found {shown}"
        )
    };
    match serde_json::from_str(text).map_err(|_| wrong())? {
        Json::String(text) => Ok(text.into_bytes()),
        json => {
            let base64 = json.pointer("/$binary/base64").and_then(Json::as_str).ok_or_else(wrong)?;
            STANDARD.decode(base64).map_err(|_| wrong())
        }
    }
}
