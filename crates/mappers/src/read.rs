//! What mappers of messages that arrive share: texts, values of fields, events.

use serde_json::Value as Json;
use tidemill_connect::{EventBuilder, Message, NamedText, OptionError, write_value};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Field, FieldType, Value, bool_from_text, repeated_key, without_bom};

/// Refuses `@attributes` for a mapper without paths.
pub(crate) fn no_attributes(attributes: &[NamedText], mapper: &str) -> Result<(), OptionError> {
    match attributes {
        [] => Ok(()),
        _ => {
            let message = format!("the mapper `{mapper}` has no paths; remove `@attributes`");
            Err(OptionError::connector(message).of_mapper())
        }
    }
}

/// Returns the text of a message without byte order mark, or rejects it.
pub(crate) fn text_of<'m>(message: &'m Message, out: &mut EventBuilder) -> Option<&'m str> {
    match std::str::from_utf8(without_bom(&message.payload)) {
        Ok(text) => Some(text),
        Err(e) => {
            let reason = format!("expected a text in UTF-8, found another byte at {}", e.valid_up_to());
            out.reject(message, reason, &message.payload);
            None
        }
    }
}

/// Adds an event whose values `value` returns, one for each field: `None` where the message lacks it, which is
/// refused if the event must be `complete`, and `Missing` for null. `text` is the part of the message with the
/// event, for rejections.
pub(crate) fn push_event(
    message: &Message,
    out: &mut EventBuilder,
    text: &[u8],
    complete: bool,
    mut value: impl FnMut(usize, &Field) -> Result<Option<FieldValue>, String>,
) {
    let schema = out.schema().clone();
    let mut values = Vec::with_capacity(schema.fields.len());
    for (index, field) in schema.fields.iter().enumerate() {
        match value(index, field) {
            Ok(Some(value)) => values.push(value),
            Ok(None) if complete => {
                return out.reject(message, format!("attribute `{}` is missing", field.name), text);
            }
            Ok(None) => values.push(FieldValue::Missing),
            Err(reason) => return out.reject(message, reason, text),
        }
    }
    if let Err(e) = out.push_values(message, &values, None) {
        out.reject(message, e, text);
    }
}

/// Returns the value of a transport property.
///
/// Errors: it does not fit the field.
pub(crate) fn property_value(
    message: &Message,
    name: &str,
    field: &Field,
) -> Result<Option<FieldValue>, String> {
    message.property(name).map(|text| parse_value(field, text)).transpose()
}

/// Parses a text as a value of a field. White space around numbers, truth values and times does not matter. An object
/// is its JSON text, or a string.
///
/// Errors: what was expected and what was found.
pub(crate) fn parse_value(field: &Field, text: &str) -> Result<FieldValue, String> {
    let trimmed = text.trim();
    let value = match field.ty {
        FieldType::String => Some(FieldValue::Text(text.to_owned())),
        FieldType::Object => Some(FieldValue::Text(object_text(field, text)?)),
        FieldType::Bool => bool_from_text(trimmed).map(FieldValue::Bool),
        FieldType::Int => trimmed.parse::<i32>().ok().map(|n| FieldValue::Int(n.into())),
        FieldType::Long => trimmed.parse().ok().map(FieldValue::Int),
        FieldType::Float | FieldType::Double => parse_float(field.ty, trimmed).map(FieldValue::Float),
        FieldType::Time => field.time_from_text(trimmed).map(FieldValue::Time),
    };
    value.ok_or_else(|| mismatch(field, &format!("`{}`", shortened(text))))
}

/// Creates the reason that a value does not fit its field.
pub(crate) fn mismatch(field: &Field, found: &str) -> String {
    format!("attribute `{}`: expected {}, found {found}", field.name, expected(field.ty))
}

/// Returns the value of a field for one of another format.
///
/// Errors: what was expected and what was found.
pub(crate) fn fit_value(field: &Field, value: &Value<'_>) -> Result<FieldValue, String> {
    let fit = match (field.ty, value) {
        (_, Value::Missing | Value::Null) => Some(FieldValue::Missing),
        (FieldType::Bool, Value::Bool(b)) => Some(FieldValue::Bool(*b)),
        (FieldType::Int, Value::Int(n)) => i32::try_from(*n).ok().map(|n| FieldValue::Int(n.into())),
        (FieldType::Long, Value::Int(n)) => Some(FieldValue::Int(*n)),
        (FieldType::Float | FieldType::Double, Value::Int(n)) => Some(FieldValue::Float(*n as f64)),
        (FieldType::Float, Value::Float(x)) => {
            (!x.is_finite() || (*x as f32).is_finite()).then_some(FieldValue::Float(*x))
        }
        (FieldType::Double, Value::Float(x)) => Some(FieldValue::Float(*x)),
        (FieldType::String, Value::Str(text)) => Some(FieldValue::Text(text.to_string())),
        (FieldType::Object, Value::Str(text)) => Some(FieldValue::Text(object_text(field, text)?)),
        (FieldType::Time, Value::Time(time)) => Some(FieldValue::Time(*time)),
        (FieldType::Time, Value::Str(text)) => field.time_from_text(text).map(FieldValue::Time),
        (FieldType::Time, Value::Int(n)) => {
            field.unit.unwrap_or_default().timestamp(*n).map(FieldValue::Time)
        }
        _ => None,
    };
    fit.ok_or_else(|| {
        let mut found = String::new();
        write_value(value, &mut found);
        mismatch(field, &format!("{} `{}`", value.type_name(), shortened(&found)))
    })
}

/// Returns the value of a field for one of JSON.
///
/// Errors: what was expected and what was found.
pub(crate) fn fit_json(field: &Field, json: &Json) -> Result<FieldValue, String> {
    match json {
        Json::Null => Ok(FieldValue::Missing),
        json if field.ty == FieldType::Object => Ok(FieldValue::Text(json.to_string())),
        Json::Bool(b) => fit_value(field, &Value::Bool(*b)),
        Json::String(text) => fit_value(field, &Value::str(text)),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(n), _) => fit_value(field, &Value::Int(n)),
            (None, Some(x)) => fit_value(field, &Value::Float(x)),
            (None, None) => Err(mismatch(field, &format!("`{number}`"))),
        },
        Json::Array(_) => Err(mismatch(field, "an array")),
        Json::Object(_) => Err(mismatch(field, "an object")),
    }
}

fn expected(ty: FieldType) -> &'static str {
    match ty {
        FieldType::Bool => "`true` or `false`",
        FieldType::Int => "a whole number of 32 bits",
        FieldType::Long => "a whole number of 64 bits",
        FieldType::Float => "a number up to 3.4e38",
        FieldType::Double => "a number up to 1.8e308",
        FieldType::String => "a text",
        FieldType::Time => "a time such as 2013-01-01T10:17:00Z, or a number since 1970",
        FieldType::Object => "any value",
    }
}

/// Parses a number within the range of the type: too large ones do not become infinity. `NaN` and `inf` are accepted.
fn parse_float(ty: FieldType, text: &str) -> Option<f64> {
    let x: f64 = text.parse().ok()?;
    let fits = x.is_finite() && (ty == FieldType::Double || (x as f32).is_finite());
    (fits || !text.bytes().any(|b| b.is_ascii_digit())).then_some(x)
}

/// Returns the JSON text of an object: the text itself if it is JSON, otherwise the text as a JSON string.
///
/// Errors: it is JSON, and an object in it has a key twice.
pub(crate) fn object_text(field: &Field, text: &str) -> Result<String, String> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => {
            check_keys(text).map_err(|e| format!("attribute `{}`: {e}", field.name))?;
            Ok(text.trim().to_owned())
        }
        Err(_) => Ok(serde_json::Value::from(text).to_string()),
    }
}

/// Checks that no object of a JSON text has a key twice, as it would depend on the reader which value counts.
fn check_keys(json: &str) -> Result<(), String> {
    match repeated_key(json) {
        None => Ok(()),
        Some(path) => Err(format!("the key `{path}` occurs twice")),
    }
}

/// Parses JSON whose objects have no key twice.
///
/// Errors: what is wrong, and where.
pub(crate) fn parse_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    let json = serde_json::from_str(text).map_err(|e| e.to_string())?;
    check_keys(text).map(|()| json)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
