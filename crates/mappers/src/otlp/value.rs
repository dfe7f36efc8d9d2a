//! Values of messages as those of columns: attributes as JSON objects, ids as hexadecimal text, times.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tidemill_types::Timestamp;

use super::messages::common::{AnyValue, KeyValue, Value};
use crate::telemetry::{JsonText, instant_text};

/// Returns attributes as a JSON object, with their keys in order; of a key that occurs twice, the last value. `None` without attributes.
pub(super) fn attributes(attributes: &[KeyValue]) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut text = JsonText::new();
    write_object(attributes, &mut text);
    Some(text.finish())
}

pub(super) fn write_object(attributes: &[KeyValue], text: &mut JsonText) {
    let mut sorted: Vec<&KeyValue> = attributes.iter().collect();
    // stable: the last one of equal keys stays the last
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    text.raw("{");
    let mut is_first = true;
    for (n, pair) in sorted.iter().enumerate() {
        if sorted.get(n + 1).is_some_and(|next| next.key == pair.key) {
            continue;
        }
        text.raw(if is_first { "" } else { "," });
        is_first = false;
        text.text(&pair.key);
        text.raw(":");
        write_value(pair.value.as_ref(), text);
    }
    text.raw("}");
}

/// Writes a value: bytes as Base64, an empty one as null.
fn write_value(value: Option<&AnyValue>, text: &mut JsonText) {
    match value.and_then(|value| value.value.as_ref()) {
        None => text.raw("null"),
        Some(Value::Text(value)) => text.text(value),
        Some(Value::Bool(value)) => text.raw(if *value { "true" } else { "false" }),
        Some(Value::Int(n)) => text.integer(n),
        Some(Value::Double(x)) => text.float(*x),
        Some(Value::ArrayValue(array)) => {
            text.array(&array.values, |text, value| write_value(Some(value), text))
        }
        Some(Value::Keys(list)) => write_object(&list.values, text),
        Some(Value::Bytes(bytes)) => text.text(&BASE64_STANDARD.encode(bytes)),
    }
}

/// Returns a value as JSON, and its text if it is one. `None` for an empty one.
pub(super) fn body(value: Option<&AnyValue>) -> Option<LogBody<'_>> {
    match value?.value.as_ref()? {
        Value::Text(text) => Some(LogBody::Text(text)),
        _ => {
            let mut text = JsonText::new();
            write_value(value, &mut text);
            Some(LogBody::Json(text.finish()))
        }
    }
}

/// Body of a log record.
pub(super) enum LogBody<'b> {
    Text(&'b str),
    Json(String),
}

/// Returns the text of an attribute.
pub(super) fn text_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<Cow<'a, str>> {
    let found = attributes.iter().rev().find(|pair| pair.key == key)?;
    match body(found.value.as_ref())? {
        LogBody::Text(text) => Some(text.into()),
        LogBody::Json(json) => Some(json.into()),
    }
}

/// Returns an id as hexadecimal digits.
pub(super) fn hex(id: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * id.len());
    for byte in id {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns whether an id stands for a missing one: it has no bytes, or all of them are 0.
pub(super) fn is_no_id(id: &[u8]) -> bool {
    id.iter().all(|byte| *byte == 0)
}

/// Instant in nanoseconds since 1970, with what is below a microsecond beside it. 0 means that it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instant {
    pub time: Timestamp,
    pub nanos: i64,
}

impl Instant {
    /// Errors: it is after the year 2262, as negative times are that were sent by mistake.
    pub(super) fn of(name: &str, nanos: u64) -> Result<Option<Self>, String> {
        match i64::try_from(nanos) {
            Ok(0) => Ok(None),
            Ok(nanos) => Ok(Some(Self { time: Timestamp(nanos / 1000), nanos: nanos % 1000 })),
            Err(_) => Err(format!(
                "{name}: expected nanoseconds since 1970, up to the year 2262, found {nanos} (as a signed number {})",
                nanos as i64
            )),
        }
    }
}

/// Adds an instant to JSON, if it is known.
pub(super) fn write_instant(nanos: u64, text: &mut JsonText) {
    match nanos {
        0 => text.raw("null"),
        nanos => text.text(&instant_text(nanos)),
    }
}

/// Returns the name with this number, or the number.
pub(super) fn name_of(names: &[&'static str], number: i32) -> Cow<'static, str> {
    let known = usize::try_from(number).ok().and_then(|n| names.get(n));
    known.map_or_else(|| number.to_string().into(), |name| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::messages::common::{ArrayValue, KeyValueList};

    fn pair(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }

    #[test]
    fn attributes_are_objects_in_order_of_keys() {
        let list = vec![
            pair("z", Value::Bytes(vec![0, 255])),
            pair("a", Value::Int(i64::MIN)),
            KeyValue { key: "none".into(), value: None },
            pair("a", Value::Int(i64::MAX)),
            pair(
                "list",
                Value::ArrayValue(ArrayValue {
                    values: vec![
                        AnyValue { value: Some(Value::Double(0.1)) },
                        AnyValue { value: Some(Value::Double(f64::NEG_INFINITY)) },
                        AnyValue { value: None },
                    ],
                }),
            ),
            pair(
                "in",
                Value::Keys(KeyValueList {
                    values: vec![pair("x", Value::Bool(true)), pair("x", Value::Text("\"".into()))],
                }),
            ),
        ];
        let json = r#"{"a":9223372036854775807,"in":{"x":"\""},"list":[0.1,"-Infinity",null],"none":null,"z":"AP8="}"#;
        assert_eq!(attributes(&list).unwrap(), json);
        assert_eq!(attributes(&[]), None);
    }

    #[test]
    fn times_are_within_the_range_of_signed_nanoseconds() {
        let instant = |nanos| Instant::of("time", nanos);
        assert_eq!(instant(0), Ok(None));
        assert_eq!(instant(1_234_567), Ok(Some(Instant { time: Timestamp(1234), nanos: 567 })));
        assert!(instant(i64::MAX as u64).is_ok());
        let error = instant(-1_i64 as u64).unwrap_err();
        assert!(error.ends_with("found 18446744073709551615 (as a signed number -1)"), "{error}");
    }
}
