//! Events from bytes.

use std::sync::Arc;

use bytes::{Buf, TryGetError};
use tidemill_connect::{
    EventBuilder, Message, NamedText, OptionError, Options, SourceMapper, SourceMapperType,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{EpochUnit, FieldType, StreamSchema, Timestamp};

use super::check_types;
use crate::read::no_attributes;

/// Type of the mapper of bytes that arrive.
pub(crate) struct BinarySourceType;

impl SourceMapperType for BinarySourceType {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn summary(&self) -> &'static str {
        "Bytes of the values in the order of the attributes."
    }

    fn create(
        &self,
        _: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        check_types(schema)?;
        no_attributes(attributes, self.name())?;
        Ok(Box::new(BinarySource))
    }
}

struct BinarySource;

/// Why an event cannot be read.
enum BadEvent {
    /// The bytes end too early, so that nothing behind can be read either.
    Truncated,
    /// A value does not fit; the next event can be read.
    Value(String),
}

impl From<TryGetError> for BadEvent {
    fn from(_: TryGetError) -> Self {
        Self::Truncated
    }
}

impl SourceMapper for BinarySource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let mut bytes: &[u8] = &message.payload;
        let count = match bytes.try_get_i32() {
            Ok(count) if count > 0 => count,
            Ok(count) => {
                let reason = format!("expected a number of events above 0, found {count}");
                return out.reject(message, reason, &message.payload);
            }
            Err(_) => {
                let reason = "expected the number of events in 4 bytes, found the end";
                return out.reject(message, reason, &message.payload);
            }
        };
        let schema = out.schema().clone();
        for number in 1..=count {
            let start = bytes;
            match read_event(&mut bytes, &schema) {
                Ok((values, time)) => {
                    if let Err(e) = out.push_values(message, &values, time) {
                        out.reject(message, e, &start[..start.len() - bytes.len()]);
                    }
                }
                Err(BadEvent::Value(reason)) => {
                    out.reject(message, reason, &start[..start.len() - bytes.len()]);
                }
                Err(BadEvent::Truncated) => {
                    return out.reject(message, format!("the bytes end in event {number} of {count}"), start);
                }
            }
        }
        if !bytes.is_empty() {
            let reason = format!("bytes behind the last event: {}", bytes.len());
            out.reject(message, reason, bytes);
        }
    }
}

fn read_event(
    bytes: &mut &[u8],
    schema: &StreamSchema,
) -> Result<(Vec<FieldValue>, Option<Timestamp>), BadEvent> {
    let ms = bytes.try_get_i64()?;
    let mut problem = None;
    let time = EpochUnit::Millis.timestamp(ms);
    if time.is_none() {
        problem = Some(format!("the time {ms} of the event is outside of the years -9999 to 9999"));
    }
    let mut values = vec![];
    for field in &schema.fields {
        let mut refuse = |found: String| problem = Some(format!("attribute `{}`: {found}", field.name));
        values.push(match field.ty {
            FieldType::Bool => match bytes.try_get_u8()? {
                0 => FieldValue::Bool(false),
                1 => FieldValue::Bool(true),
                other => {
                    refuse(format!("expected the byte 0 or 1, found {other}"));
                    FieldValue::Missing
                }
            },
            FieldType::Int => FieldValue::Int(bytes.try_get_i32()?.into()),
            FieldType::Long => FieldValue::Int(bytes.try_get_i64()?),
            FieldType::Float => FieldValue::Float(bytes.try_get_f32()?.into()),
            FieldType::Double => FieldValue::Float(bytes.try_get_f64()?),
            FieldType::Time => {
                let us = bytes.try_get_i64()?;
                match EpochUnit::Micros.timestamp(us) {
                    Some(time) => FieldValue::Time(time),
                    None => {
                        refuse(format!("{us} is outside of the years -9999 to 9999"));
                        FieldValue::Missing
                    }
                }
            }
            FieldType::String | FieldType::Object => {
                let length = bytes.try_get_i32()?;
                let length = usize::try_from(length).map_err(|_| BadEvent::Truncated)?;
                let text = bytes.get(..length).ok_or(BadEvent::Truncated)?;
                bytes.advance(length);
                match std::str::from_utf8(text) {
                    Ok(text) => FieldValue::Text(text.to_owned()),
                    Err(e) => {
                        refuse(format!("expected UTF-8, found another byte at {}", e.valid_up_to()));
                        FieldValue::Missing
                    }
                }
            }
        });
    }
    match problem {
        None => Ok((values, time)),
        Some(reason) => Err(BadEvent::Value(reason)),
    }
}
