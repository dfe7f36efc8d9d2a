//! Events from JSON.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use serde_json_path::JsonPath;
use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::{Field, FieldType, StreamSchema, without_bom};

use crate::read::parse_json;

/// Type of the mapper of JSON messages that arrive.
pub(crate) struct JsonSourceType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("enclosing.element", "JSON path of the object or array with the events."),
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event that lacks an attribute is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag(
        "event.grouping.enabled",
        "true",
        "Has no effect: an array of events is read in any case.",
    ),
];

impl SourceMapperType for JsonSourceType {
    fn name(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "JSON objects, by default `{\"event\": {…}}`, or values at JSON paths."
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
        let written = options.get("enclosing.element").filter(|path| path.trim() != "$");
        let enclosing = written.map(parse_path).transpose();
        let enclosing = enclosing.map_err(|e| OptionError::option("enclosing.element", e).of_mapper())?;
        let complete = options.flag("fail.on.missing.attribute");
        let mapper = match attributes.is_empty() {
            true => JsonSource { complete, ..default_source() },
            false => paths_source(attributes, schema, complete)?,
        };
        Ok(Box::new(JsonSource { enclosing, ..mapper }))
    }
}

/// Returns the mapper without options.
pub(crate) fn default_source() -> JsonSource {
    JsonSource { enclosing: None, complete: true, attributes: None }
}

/// Returns the mapper of values at JSON paths.
///
/// Errors: wrong attributes.
pub(crate) fn paths_source(
    attributes: &[NamedText],
    schema: &StreamSchema,
    complete: bool,
) -> Result<JsonSource, OptionError> {
    let attributes = Some(resolve_attributes(attributes, schema, ValuePath::parse)?);
    Ok(JsonSource { enclosing: None, complete, attributes })
}

/// Parses a JSON path; one without `$` starts at the event.
fn parse_path(text: &str) -> Result<JsonPath, String> {
    let text = text.trim();
    let path = match text.chars().next() {
        Some('$') => text.to_owned(),
        Some('[') => format!("${text}"),
        _ => format!("$.{text}"),
    };
    JsonPath::parse(&path).map_err(|e| format!("`{text}` is not a JSON path: {e}"))
}

/// Path of an attribute's value.
struct ValuePath {
    path: JsonPath,
    /// True if the path may select several values, which become an array.
    is_open: bool,
}

impl ValuePath {
    fn parse(text: &str) -> Result<Self, String> {
        let mut quote = None;
        let mut brackets = 0;
        let mut is_open = text.contains("..");
        for c in text.chars() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (Some(_), _) => {}
                (None, '\'' | '"') => quote = Some(c),
                (None, '[') => brackets += 1,
                (None, ']') => brackets -= 1,
                (None, '*') => is_open = true,
                (None, '?' | ':' | ',') => is_open |= brackets > 0,
                _ => {}
            }
        }
        Ok(Self { path: parse_path(text)?, is_open })
    }

    /// Returns the value in an event; `None` if it is missing.
    fn find(&self, event: &Json, field: &Field) -> Result<Option<Json>, String> {
        let found = self.path.query(event).all();
        match (found.as_slice(), self.is_open, field.ty) {
            (found, true, FieldType::String | FieldType::Object) => {
                Ok(Some(Json::from_iter(found.iter().map(|found| (*found).clone()))))
            }
            ([], ..) => Ok(None),
            ([one], ..) => Ok(Some((*one).clone())),
            (several, ..) => Err(format!("the path of `{}` selects {} values", field.name, several.len())),
        }
    }
}

/// Mapper of JSON messages.
pub(crate) struct JsonSource {
    enclosing: Option<JsonPath>,
    complete: bool,
    attributes: Option<Vec<AttributeSource<ValuePath>>>,
}

impl SourceMapper for JsonSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let text = without_bom(&message.payload).trim_ascii();
        if self.enclosing.is_none() && self.attributes.is_none() {
            return self.map_plain(message, text, out);
        }
        let parsed = std::str::from_utf8(text).map_err(|e| e.to_string()).and_then(parse_json::<Json>);
        let json = match parsed {
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
                Json::Array(all) if all.is_empty() => out.reject(message, "the array has no event", text),
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
            Ok(all) if all.is_empty() => out.reject(message, "the array has no event", text),
            Ok(all) => all.iter().for_each(|event| self.map_object(message, event.get().as_bytes(), out)),
            Err(e) => out.reject(message, format!("not valid JSON: {e}"), text),
        }
    }

    fn map_object(&self, message: &Message, text: &[u8], out: &mut EventBuilder) {
        let text = without_envelope(text, out.schema());
        let pushed =
            out.push_json(message, text, self.complete).or_else(|e| match with_texts(text, out.schema()) {
                Some(text) => out.push_json(message, text.as_bytes(), self.complete),
                None => Err(e),
            });
        if let Err(e) = pushed {
            out.reject(message, e, text);
        }
    }

    /// Adds the event of a JSON value.
    pub(crate) fn map_value(&self, message: &Message, event: &Json, out: &mut EventBuilder) {
        let Some(attributes) = &self.attributes else {
            return self.map_object(message, event.to_string().as_bytes(), out);
        };
        let mut object = Map::new();
        let schema = out.schema().clone();
        for (source, field) in attributes.iter().zip(&schema.fields) {
            let value = match source {
                AttributeSource::Property(name) => Ok(message.property(name).map(Json::from)),
                AttributeSource::Path(path) => path.find(event, field),
            };
            match value {
                Ok(Some(value)) => drop(object.insert(field.name.clone(), converted(field.ty, value))),
                Ok(None) if !self.complete => {}
                Ok(None) => {
                    let reason = format!("attribute `{}` is missing", field.name);
                    return out.reject(message, reason, event.to_string().as_bytes());
                }
                Err(reason) => return out.reject(message, reason, event.to_string().as_bytes()),
            }
        }
        if let Err(e) = out.push_json(message, Json::Object(object).to_string().as_bytes(), false) {
            out.reject(message, e, event.to_string().as_bytes());
        }
    }
}

/// Returns the object below `event` of a message in the default form, otherwise the message. If the stream has an
/// attribute `event`, the object below has one too.
fn without_envelope<'t>(text: &'t [u8], schema: &StreamSchema) -> &'t [u8] {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        event: &'a RawValue,
    }
    let inside = |text: &'t [u8]| {
        let inside = text.trim_ascii_start().strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
        inside.is_some_and(|inside| inside.starts_with(b"\"event\""))
    };
    if !inside(text) {
        return text;
    }
    match serde_json::from_slice::<Envelope<'t>>(text) {
        Ok(Envelope { event }) if schema.field_index("event").is_none() => event.get().as_bytes(),
        Ok(Envelope { event }) if serde_json::from_str::<Envelope<'_>>(event.get()).is_ok() => {
            event.get().as_bytes()
        }
        _ => text,
    }
}

/// Returns the object with the JSON texts of numbers, truth values, arrays and objects for attributes that
/// are strings, or `None` if the object has no such value.
fn with_texts(text: &[u8], schema: &StreamSchema) -> Option<String> {
    let Entries(entries) = serde_json::from_slice(text).ok()?;
    let mut changed = false;
    let mut object = String::from("{");
    for (name, raw) in entries {
        let is_string = schema.fields.iter().any(|f| f.name == name && f.ty == FieldType::String);
        let value = match raw.get() {
            raw if !is_string || raw.starts_with('"') || raw == "null" => Cow::Borrowed(raw),
            raw => {
                changed = true;
                Cow::Owned(Json::from(raw).to_string())
            }
        };
        if object.len() > 1 {
            object.push(',');
        }
        object += &Json::from(name).to_string();
        object.push(':');
        object += &value;
    }
    object.push('}');
    changed.then_some(object)
}

/// Entries of an object in order, also those with the same name.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = Entries<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = vec![];
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor)
    }
}

/// Converts a value that was found elsewhere: texts to numbers and truth values, everything to texts, as the type of
/// the field says.
fn converted(ty: FieldType, value: Json) -> Json {
    match (ty, value) {
        (FieldType::String, value @ (Json::String(_) | Json::Null)) => value,
        (FieldType::String, value) => Json::from(value.to_string()),
        (FieldType::Object | FieldType::Time, value) => value,
        (FieldType::Bool, Json::String(text)) => match text.trim() {
            t if t.eq_ignore_ascii_case("true") => Json::Bool(true),
            t if t.eq_ignore_ascii_case("false") => Json::Bool(false),
            _ => Json::String(text),
        },
        (_, Json::String(text)) => {
            serde_json::from_str(text.trim()).ok().filter(Json::is_number).unwrap_or(Json::String(text))
        }
        (_, value) => value,
    }
}
