//! Bytes from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::{BufMut, Bytes};
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
};
use tidemill_types::{FieldType, StreamSchema, Timestamp, Value, column, row_value};

use super::check_types;
use crate::write::{GROUPING, messages, no_payload};

/// Type of the mapper of bytes that leave.
pub(crate) struct BinarySinkType;

impl SinkMapperType for BinarySinkType {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn summary(&self) -> &'static str {
        "Bytes of the values in the order of the attributes."
    }

    fn options(&self) -> &'static [OptionSpec] {
        const { &[GROUPING] }
    }

    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        no_payload(payload, self.name())?;
        check_types(schema)?;
        let grouped = options.flag("event.grouping.enabled");
        Ok(Box::new(BinarySink { schema: schema.clone(), grouped }))
    }
}

struct BinarySink {
    schema: Arc<StreamSchema>,
    grouped: bool,
}

impl SinkMapper for BinarySink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let time = rows.schema_ref().index_of(column::TIME).ok();
        let event = |row| {
            let time = match time.map(|time| row_value(rows, time, row)) {
                Some(Value::Time(time)) => time,
                _ => Timestamp(0),
            };
            self.event(rows, row, time)
        };
        let message = |events: Vec<Vec<u8>>| {
            let mut bytes = vec![];
            bytes.put_i32(i32::try_from(events.len()).map_err(|_| "too many events".to_owned())?);
            bytes.extend(events.concat());
            Ok(Bytes::from(bytes))
        };
        messages(rows, refused, self.grouped, event, message)
    }
}

impl BinarySink {
    fn event(&self, rows: &RecordBatch, row: usize, time: Timestamp) -> Result<Vec<u8>, String> {
        let mut bytes = vec![];
        bytes.put_i64(time.micros().div_euclid(1000));
        for (column, field) in self.schema.fields.iter().enumerate() {
            match (field.ty, row_value(rows, column, row)) {
                (FieldType::Bool, Value::Bool(b)) => bytes.put_u8(b.into()),
                (FieldType::Int, Value::Int(n)) => bytes.put_i32(n as i32),
                (FieldType::Long, Value::Int(n)) => bytes.put_i64(n),
                (FieldType::Float, Value::Float(x)) => bytes.put_f32(x as f32),
                (FieldType::Double, Value::Float(x)) => bytes.put_f64(x),
                (FieldType::Time, Value::Time(time)) => bytes.put_i64(time.micros()),
                (FieldType::String, Value::Str(text)) => {
                    let length = i32::try_from(text.len());
                    bytes.put_i32(length.map_err(|_| format!("attribute `{}` is too long", field.name))?);
                    bytes.extend(text.as_bytes());
                }
                _ => return Err(format!("attribute `{}` is null, which has no binary form", field.name)),
            }
        }
        Ok(bytes)
    }
}
