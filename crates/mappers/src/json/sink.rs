//! JSON from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType, Template,
    shown_value, write_value,
};
use tidemill_types::{FieldType, StreamSchema, Value};

use super::field_json;
use crate::write::{GROUPING, check_number, messages, single_template};

/// Type of the mapper of JSON messages that leave.
pub(crate) struct JsonSinkType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("enclosing.element", "Names, joined by dots, of objects around the events."),
    OptionSpec::flag(
        "validate.json",
        "false",
        "Whether an event is refused if its template gives no valid JSON.",
    ),
    GROUPING,
    OptionSpec::flag(
        "enable.null.attribute.value",
        "false",
        "Whether attributes that are null are written; otherwise they are left out.",
    ),
];

impl SinkMapperType for JsonSinkType {
    fn name(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "JSON objects, by default `{\"event\": {…}}`, or a template."
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
        let path = options.text("enclosing.element").trim_start_matches('$');
        let names = path.split('.').filter(|name| !name.is_empty()).map(str::to_owned);
        Ok(Box::new(JsonSink {
            schema: schema.clone(),
            template: single_template(payload, schema)?,
            enclosing: names.collect(),
            grouped: options.flag("event.grouping.enabled"),
            nulls: options.flag("enable.null.attribute.value"),
            validated: options.flag("validate.json"),
        }))
    }
}

struct JsonSink {
    schema: Arc<StreamSchema>,
    template: Option<Template>,
    enclosing: Vec<String>,
    grouped: bool,
    nulls: bool,
    validated: bool,
}

impl SinkMapper for JsonSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| match &self.template {
            None => self.default_form(rows, row),
            Some(template) => {
                let text = rendered(template, &self.schema, rows, row);
                if self.validated {
                    serde_json::from_str::<&RawValue>(&text)
                        .map_err(|e| format!("the payload is not JSON: {e}"))?;
                }
                Ok(text)
            }
        };
        let message = |texts: Vec<String>| {
            Ok(Bytes::from(match texts.as_slice() {
                [text] => self.enclosed(text),
                texts => self.enclosed(&format!("[{}]", texts.join(","))),
            }))
        };
        messages(rows, refused, self.grouped, event, message)
    }
}

impl JsonSink {
    fn default_form(&self, rows: &RecordBatch, row: usize) -> Result<String, String> {
        let mut text = String::from("{\"event\":{");
        let mut first = true;
        for (index, field) in self.schema.fields.iter().enumerate() {
            let value = shown_value(rows, index, row);
            if value.is_absent() && !self.nulls {
                continue;
            }
            check_number(&field.name, &value, "JSON")?;
            if !std::mem::take(&mut first) {
                text.push(',');
            }
            text += &Json::from(field.name.as_str()).to_string();
            text.push(':');
            text += &field_json(field.ty, &value);
        }
        Ok(text + "}}")
    }

    fn enclosed(&self, text: &str) -> String {
        let quoted = self.enclosing.iter().map(|name| Json::from(name.as_str()).to_string());
        let open: String = quoted.map(|name| format!("{{{name}:")).collect();
        format!("{open}{text}{}", "}".repeat(self.enclosing.len()))
    }
}

/// Replaces the placeholders of a template for JSON: texts as within the quotes that the template has, objects as they
/// are.
pub(crate) fn rendered(template: &Template, schema: &StreamSchema, rows: &RecordBatch, row: usize) -> String {
    let is_object = |column: usize| schema.fields[column].ty == FieldType::Object;
    template.render_with(rows, row, &|column, value, out| match value {
        Value::Str(_) if is_object(column) => out.push_str(&field_json(FieldType::Object, value)),
        Value::Str(text) => {
            let quoted = Json::from(text.as_ref()).to_string();
            out.push_str(&quoted[1..quoted.len() - 1]);
        }
        other => write_value(other, out),
    })
}
