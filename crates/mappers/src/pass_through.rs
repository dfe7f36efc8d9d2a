//! The mapper of streams that are written without `@map`: events as they are.
//!
//! A message is the event as JSON, with its values in the order of the attributes:
//! `{"timestamp":"2024-05-01T12:00:00Z","data":["IBM",55.6,100]}`. Names do not matter between this sink and this
//! source, as where events are passed within one process. Messages of other programs, which have no such form, are read
//! by the names of the attributes, as the mapper `json` does.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
    SourceMapper, SourceMapperType, shown_value,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, StreamSchema, Timestamp, Value, column, row_value, without_bom};

use crate::json;
use crate::read::{fit_json, no_attributes, object_text};
use crate::write::{messages, no_payload};

/// Type of the mapper of events that arrive as they are.
pub(crate) struct PassThroughSourceType;

/// Type of the mapper of events that leave as they are.
pub(crate) struct PassThroughSinkType;

impl SourceMapperType for PassThroughSourceType {
    fn name(&self) -> &'static str {
        "passThrough"
    }

    fn summary(&self) -> &'static str {
        "Events of the sink mapper `passThrough`, by position, or JSON objects, by name; used without `@map`."
    }

    fn create(
        &self,
        _: &Options,
        attributes: &[NamedText],
        _: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        no_attributes(attributes, self.name())
            .map_err(|e| e.expected(["@map(type='json', @attributes(…))"]))?;
        Ok(Box::new(PassThroughSource { json: json::default_source() }))
    }
}

struct PassThroughSource {
    json: json::JsonSource,
}

/// Event in the form that the sink mapper writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainEvent<'a> {
    timestamp: Option<&'a str>,
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

impl SourceMapper for PassThroughSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let text = without_bom(&message.payload).trim_ascii();
        let Ok(event) = serde_json::from_slice::<PlainEvent<'_>>(text) else {
            return self.json.map(message, out);
        };
        let schema = out.schema().clone();
        let read = || -> Result<_, String> {
            let (expected, found) = (schema.fields.len(), event.data.len());
            if expected != found {
                return Err(format!("expected {expected} values in `data`, found {found}"));
            }
            let time = event.timestamp.map(Timestamp::parse).transpose().map_err(|e| e.to_string())?;
            let cells = schema.fields.iter().zip(&event.data);
            Ok((cells.map(|(field, raw)| cell(field, raw.get())).collect::<Result<Vec<_>, _>>()?, time))
        };
        let pushed = read()
            .and_then(|(values, time)| out.push_values(message, &values, time).map_err(|e| e.to_string()));
        if let Err(reason) = pushed {
            out.reject(message, reason, text);
        }
    }
}

fn cell(field: &Field, raw: &str) -> Result<FieldValue, String> {
    match (field.ty, raw) {
        (FieldType::Object, raw) if raw != "null" => Ok(FieldValue::Text(object_text(field, raw)?)),
        (FieldType::Float | FieldType::Double, "\"NaN\"") => Ok(FieldValue::Float(f64::NAN)),
        (FieldType::Float | FieldType::Double, "\"Infinity\"") => Ok(FieldValue::Float(f64::INFINITY)),
        (FieldType::Float | FieldType::Double, "\"-Infinity\"") => Ok(FieldValue::Float(f64::NEG_INFINITY)),
        (_, raw) => fit_json(field, &serde_json::from_str(raw).map_err(|e| e.to_string())?),
    }
}

impl SinkMapperType for PassThroughSinkType {
    fn name(&self) -> &'static str {
        "passThrough"
    }

    fn summary(&self) -> &'static str {
        "Events as they are: `{\"timestamp\":\"…\",\"data\":[…]}`, by position; used without `@map`."
    }

    fn create(
        &self,
        _: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        no_payload(payload, self.name())?;
        Ok(Box::new(PassThroughSink { schema: schema.clone() }))
    }
}

struct PassThroughSink {
    schema: Arc<StreamSchema>,
}

impl SinkMapper for PassThroughSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let time = rows.schema_ref().index_of(column::TIME).ok();
        let event = |row| {
            let mut text = String::from("{");
            if let Some(Value::Time(time)) = time.map(|time| row_value(rows, time, row)) {
                text += &format!("\"timestamp\":\"{time}\",");
            }
            let cells = self.schema.fields.iter().enumerate();
            let cells = cells.map(|(column, field)| match shown_value(rows, column, row) {
                Value::Float(x) if x.is_nan() => "\"NaN\"".to_owned(),
                Value::Float(x) if x.is_infinite() && x > 0.0 => "\"Infinity\"".to_owned(),
                Value::Float(x) if x.is_infinite() => "\"-Infinity\"".to_owned(),
                value => json::field_json(field.ty, &value),
            });
            text += &format!("\"data\":[{}]}}", cells.collect::<Vec<_>>().join(","));
            Ok(text)
        };
        messages(rows, refused, false, event, |mut texts| Ok(Bytes::from(texts.swap_remove(0))))
    }
}
