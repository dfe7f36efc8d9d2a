//! JSON: `{"event": {"symbol": "a", "price": 1.5}}`, an array of such, or a form of the user's own.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use serde_json_path::JsonPath;
use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionPlace, OptionSpec, Options,
    Payload, RefusedRow, SinkMapper, SinkMapperType, SourceMapper, SourceMapperType, Template,
    resolve_attributes,
};
use tidemill_types::{FieldType, StreamSchema, Value, row_value, value_json};

/// Type of the mapper of JSON messages that arrive.
pub(crate) struct JsonSourceType;

/// Type of the mapper of JSON messages that leave.
pub(crate) struct JsonSinkType;

const SOURCE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("enclosing.element", "JSON path of the object or array with the events."),
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag("event.grouping.enabled", "true", "Accepted; an array of events is always read."),
];

const SINK_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("enclosing.element", "Names, joined by dots, of objects around the events."),
    OptionSpec::flag("validate.json", "false", "Whether a payload that is not JSON is refused."),
    OptionSpec::flag(
        "event.grouping.enabled",
        "false",
        "Whether events that leave together become one message, an array.",
    ),
    OptionSpec::flag("enable.null.attribute.value", "false", "Whether attributes that are null are written."),
];

impl SourceMapperType for JsonSourceType {
    fn name(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "JSON objects, by default `{\"event\": {…}}`, or values at JSON paths."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SOURCE_OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        attributes: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SourceMapper>, OptionError> {
        let path = |text: &str| parse_path(text);
        let enclosing = options.get("enclosing.element").filter(|path| *path != "$").map(path).transpose();
        let enclosing = enclosing.map_err(|e| OptionError::option("enclosing.element", e).of_mapper())?;
        let complete = options.flag("fail.on.missing.attribute");
        let attributes = match attributes.is_empty() {
            true => None,
            false => Some(resolve_attributes(attributes, schema, parse_path)?),
        };
        Ok(Box::new(JsonSource { enclosing, complete, attributes }))
    }
}

/// Parses a JSON path; one without `$` starts at the event.
fn parse_path(text: &str) -> Result<JsonPath, String> {
    let text = text.trim();
    let path = match text.starts_with('$') {
        true => text.to_owned(),
        false => format!("$.{text}"),
    };
    JsonPath::parse(&path).map_err(|e| format!("`{text}` is not a JSON path: {e}"))
}

struct JsonSource {
    enclosing: Option<JsonPath>,
    complete: bool,
    attributes: Option<Vec<AttributeSource<JsonPath>>>,
}

impl SourceMapper for JsonSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let text = message.payload.trim_ascii();
        if self.enclosing.is_none() && self.attributes.is_none() {
            return self.map_plain(message, text, out);
        }
        let json: Json = match serde_json::from_slice(text) {
            Ok(json) => json,
            Err(e) => return out.reject(message, format!("not valid JSON: {e}"), text),
        };
        let found = match &self.enclosing {
            None => vec![&json],
            Some(path) => path.query(&json).all(),
        };
        if found.is_empty() {
            return out.reject(message, "the message has no enclosing element", text);
        }
        for found in found {
            match found {
                Json::Array(all) => all.iter().for_each(|event| self.map_value(message, event, out)),
                event => self.map_value(message, event, out),
            }
        }
    }
}

impl JsonSource {
    /// Maps a message whose events have the names of the attributes, without building a tree.
    fn map_plain(&self, message: &Message, text: &[u8], out: &mut EventBuilder) {
        if text.first() != Some(&b'[') {
            return self.map_object(message, text, out);
        }
        match serde_json::from_slice::<Vec<&RawValue>>(text) {
            Ok(all) => all.iter().for_each(|event| self.map_object(message, event.get().as_bytes(), out)),
            Err(e) => out.reject(message, format!("not valid JSON: {e}"), text),
        }
    }

    fn map_object(&self, message: &Message, text: &[u8], out: &mut EventBuilder) {
        let text = if out.schema().field_index("event").is_none() { without_envelope(text) } else { text };
        if let Err(e) = out.push_json(message, text, self.complete) {
            out.reject(message, e, text);
        }
    }

    fn map_value(&self, message: &Message, event: &Json, out: &mut EventBuilder) {
        let text = || event.to_string();
        let Some(attributes) = &self.attributes else {
            return self.map_object(message, text().as_bytes(), out);
        };
        let mut object = Map::new();
        for (index, source) in attributes.iter().enumerate() {
            let field = &out.schema().fields[index];
            let value = match source {
                AttributeSource::Property(name) => message.property(name).map(|text| typed(text, field.ty)),
                AttributeSource::Path(path) => path.query(event).first().cloned(),
            };
            match value {
                Some(value) => drop(object.insert(field.name.clone(), value)),
                None if self.complete => {
                    let reason = format!("attribute `{}` is missing", field.name);
                    return out.reject(message, reason, text().as_bytes());
                }
                None => {}
            }
        }
        if let Err(e) = out.push_json(message, Json::Object(object).to_string().as_bytes(), false) {
            out.reject(message, e, text().as_bytes());
        }
    }
}

/// Returns the object below `event` of a message in the default form, otherwise the message.
fn without_envelope(text: &[u8]) -> &[u8] {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        event: &'a RawValue,
    }
    let inside = text.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    if !inside.is_some_and(|inside| inside.starts_with(b"\"event\"")) {
        return text;
    }
    serde_json::from_slice::<Envelope<'_>>(text).map_or(text, |envelope| envelope.event.get().as_bytes())
}

/// Returns the JSON value of a transport property, which is a text, for a field of this type.
fn typed(text: &str, ty: FieldType) -> Json {
    match ty {
        FieldType::String | FieldType::Object | FieldType::Time => Json::from(text),
        _ => serde_json::from_str(text).unwrap_or_else(|_| Json::from(text)),
    }
}

impl SinkMapperType for JsonSinkType {
    fn name(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "JSON objects, by default `{\"event\": {…}}`, or a template."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SINK_OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        let at_payload =
            |message: String| OptionError { place: OptionPlace::Payload, message, expected: vec![] };
        let template = match payload {
            [] => None,
            [NamedText { name: None, text }] => Some(Template::parse(text, schema).map_err(at_payload)?),
            _ => return Err(at_payload("expected one template".into()).expected(["@payload('…')"])),
        };
        let enclosing = options.get("enclosing.element").map(|path| {
            let path = path.trim_start_matches('$').trim_start_matches('.');
            path.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        });
        Ok(Box::new(JsonSink {
            schema: schema.clone(),
            template,
            enclosing: enclosing.unwrap_or_default(),
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
        let mut events: Vec<(usize, String)> = vec![];
        for row in 0..rows.num_rows() {
            match self.event(rows, row) {
                Ok(text) => events.push((row, text)),
                Err(reason) => refused.push(RefusedRow { row, reason }),
            }
        }
        if !self.grouped || events.len() != rows.num_rows() || events.len() == 1 {
            let payload = |(row, text): (usize, String)| Payload {
                bytes: Bytes::from(self.enclosed(&text)),
                row,
                rows: 1,
            };
            return events.into_iter().map(payload).collect();
        }
        let texts: Vec<String> = events.into_iter().map(|(_, text)| text).collect();
        let bytes = Bytes::from(self.enclosed(&format!("[{}]", texts.join(","))));
        vec![Payload { bytes, row: 0, rows: rows.num_rows() }]
    }
}

impl JsonSink {
    fn event(&self, rows: &RecordBatch, row: usize) -> Result<String, String> {
        let Some(template) = &self.template else {
            let mut text = String::from("{\"event\":{");
            let mut first = true;
            for (index, field) in self.schema.fields.iter().enumerate() {
                let value = row_value(rows, index, row);
                if value.is_absent() && !self.nulls {
                    continue;
                }
                if !std::mem::take(&mut first) {
                    text.push(',');
                }
                text.push_str(&Json::from(field.name.as_str()).to_string());
                text.push(':');
                text.push_str(&field_json(field.ty, &value));
            }
            text.push_str("}}");
            return Ok(text);
        };
        let text = template.render_with(rows, row, &|value, out| match value {
            Value::Str(text) => {
                // inside of the quotes that the template has
                let quoted = Json::from(text.as_ref()).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
            other => tidemill_connect::write_value(other, out),
        });
        if self.validated {
            serde_json::from_str::<&RawValue>(&text).map_err(|e| format!("the payload is not JSON: {e}"))?;
        }
        Ok(text)
    }

    fn enclosed(&self, text: &str) -> String {
        let quoted = self.enclosing.iter().map(|name| Json::from(name.as_str()).to_string());
        let open: String = quoted.map(|name| format!("{{{name}:")).collect();
        format!("{open}{text}{}", "}".repeat(self.enclosing.len()))
    }
}

/// Returns the JSON text of a field's value: an object is its own JSON text.
fn field_json(ty: FieldType, value: &Value<'_>) -> String {
    match (ty, value) {
        (FieldType::Object, Value::Str(text)) if serde_json::from_str::<&RawValue>(text).is_ok() => {
            text.to_string()
        }
        _ => value_json(value).to_string(),
    }
}
