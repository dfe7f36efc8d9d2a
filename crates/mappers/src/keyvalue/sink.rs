//! Pairs from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
};
use tidemill_types::{FieldType, StreamSchema};

use super::{DELIMITER, Layout, SEPARATOR, pairs};
use crate::write::{PayloadValue, messages, payload_error, value_text};

/// Type of the mapper of pairs that leave.
pub(crate) struct KeyValueSinkType;

const OPTIONS: &[OptionSpec] = &[DELIMITER, SEPARATOR];

impl SinkMapperType for KeyValueSinkType {
    fn name(&self) -> &'static str {
        "keyvalue"
    }

    fn summary(&self) -> &'static str {
        "Pairs such as `symbol:'WSO2',price:55.6`, by default with the names of the attributes as keys."
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
        let mut entries = vec![];
        for (column, field) in schema.fields.iter().enumerate().filter(|_| payload.is_empty()) {
            entries.push((field.name.clone(), PayloadValue::Column(column)));
        }
        for NamedText { name, text } in payload {
            let Some(name) = name else {
                let error = payload_error(format!("the text `{text}` has no key"));
                return Err(error.expected([format!("@payload(key='{text}')")]));
            };
            if entries.iter().any(|(known, _)| known == name) {
                return Err(payload_error(format!("the key `{name}` is written twice")));
            }
            entries.push((name.clone(), PayloadValue::parse(text, schema).map_err(payload_error)?));
        }
        let layout = Layout::new(options)?;
        Ok(Box::new(KeyValueSink { schema: schema.clone(), layout, entries }))
    }
}

struct KeyValueSink {
    schema: Arc<StreamSchema>,
    layout: Layout,
    entries: Vec<(String, PayloadValue)>,
}

impl SinkMapper for KeyValueSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| {
            let mut text = String::new();
            for (key, value) in &self.entries {
                let (value, quoted) = match value {
                    PayloadValue::Template(template) => (template.render(rows, row), true),
                    PayloadValue::Column(column) => match value_text(rows, *column, row) {
                        None => ("null".to_owned(), false),
                        Some(value) => (value, self.schema.fields[*column].ty == FieldType::String),
                    },
                };
                pairs::write(key, &value, quoted, &self.layout, &mut text);
            }
            Ok(text)
        };
        messages(rows, refused, false, event, |texts| Ok(Bytes::from(texts.concat())))
    }
}
