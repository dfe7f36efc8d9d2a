//! Events from pairs.

use std::sync::Arc;

use serde_json::{Map, Value as Json};
use tidemill_connect::{
    AttributeSource, EventBuilder, Message, NamedText, OptionError, OptionSpec, Options, SourceMapper,
    SourceMapperType, resolve_attributes,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, StreamSchema};

use super::pairs::{self, PairText};
use super::{DELIMITER, Layout, SEPARATOR};
use crate::read::{fit_json, parse_json, parse_value, property_value, push_event, text_of};

/// Type of the mapper of pairs that arrive.
pub(crate) struct KeyValueSourceType;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::flag(
        "fail.on.missing.attribute",
        "true",
        "Whether an event in which an attribute is missing or null is rejected; otherwise the attribute is null.",
    ),
    OptionSpec::flag(
        "implicit.cast.enable",
        "false",
        "Has no effect: values are read as the types of their attributes in any case.",
    ),
    DELIMITER,
    SEPARATOR,
];

impl SourceMapperType for KeyValueSourceType {
    fn name(&self) -> &'static str {
        "keyvalue"
    }

    fn summary(&self) -> &'static str {
        "Pairs such as `symbol:'WSO2',price:55.6`, or a JSON object."
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
        let keys = match attributes.is_empty() {
            true => {
                let own = schema.fields.iter().map(|field| AttributeSource::Path(field.name.clone()));
                own.collect()
            }
            false => resolve_attributes(attributes, schema, |key| Ok(key.to_owned()))?,
        };
        let complete = options.flag("fail.on.missing.attribute");
        Ok(Box::new(KeyValueSource { layout: Layout::new(options)?, complete, keys }))
    }
}

struct KeyValueSource {
    layout: Layout,
    complete: bool,
    keys: Vec<AttributeSource<String>>,
}

/// Values by their keys.
enum Pairs {
    Texts(Vec<(String, PairText)>),
    Json(Map<String, Json>),
}

impl SourceMapper for KeyValueSource {
    fn map(&mut self, message: &Message, out: &mut EventBuilder) {
        let Some(text) = text_of(message, out) else { return };
        let pairs = match text.trim_start().starts_with('{') {
            true => parse_json(text).map(Pairs::Json).map_err(|e| format!("not a JSON object: {e}")),
            false => pairs::parse(text, &self.layout).map(Pairs::Texts),
        };
        let pairs = match pairs {
            Ok(pairs) => pairs,
            Err(reason) => return out.reject(message, reason, text.as_bytes()),
        };
        push_event(message, out, text.as_bytes(), self.complete, |index, field| match &self.keys[index] {
            AttributeSource::Property(name) => property_value(message, name, field),
            AttributeSource::Path(key) => match pairs.value(key, field)? {
                Some(FieldValue::Missing) | None => Ok(None),
                value => Ok(value),
            },
        });
    }
}

impl Pairs {
    fn value(&self, key: &str, field: &Field) -> Result<Option<FieldValue>, String> {
        match self {
            Self::Texts(all) => match all.iter().find(|(known, _)| known == key) {
                Some((_, PairText { text, quoted })) if *quoted || text != "null" => {
                    parse_value(field, text).map(Some)
                }
                _ => Ok(None),
            },
            Self::Json(all) => match (all.get(key), field.ty) {
                (None, _) => Ok(None),
                (Some(Json::String(text)), ty) if ty != FieldType::Object => {
                    parse_value(field, text).map(Some)
                }
                (Some(json), FieldType::String) if !json.is_null() => {
                    Ok(Some(FieldValue::Text(json.to_string())))
                }
                (Some(json), _) => fit_json(field, json).map(Some),
            },
        }
    }
}
