//! JSON: `{"event": {"symbol": "a", "price": 1.5}}`, an array of such, or a form of the user's own.

mod sink;
mod source;

use serde_json::value::RawValue;
use tidemill_types::{FieldType, Value, value_json};

pub(crate) use self::sink::{JsonSinkType, rendered};
pub(crate) use self::source::{JsonSource, JsonSourceType, default_source, paths_source};

/// Returns the JSON text of a field's value: an object is its own JSON text.
pub(crate) fn field_json(ty: FieldType, value: &Value<'_>) -> String {
    match (ty, value) {
        (FieldType::Object, Value::Str(text)) if serde_json::from_str::<&RawValue>(text).is_ok() => {
            text.to_string()
        }
        _ => value_json(value).to_string(),
    }
}
