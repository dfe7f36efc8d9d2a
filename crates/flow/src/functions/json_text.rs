//! Conversions between values and JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::object::DEPTH_MAX;
use crate::columns::value::{Key, OpaqueValue, Value};

/// Maximum length of the excerpt of invalid JSON in an error message, in bytes.
const SHOWN_BYTES: usize = 60;

/// Converts JSON to a value: objects to maps, arrays to lists, numbers to the first of int, long, double that
/// fits.
pub(crate) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => i32::try_from(n).map_or(Value::Long(n), Value::Int),
            (None, Some(n)) => Value::Double(n),
            _ => Value::Null,
        },
        Json::String(s) => Value::text(s),
        Json::Array(items) => Value::Object(OpaqueValue::list(items.iter().map(from_json).collect())),
        Json::Object(entries) => {
            let entries = entries.iter().map(|(k, v)| (Key(Value::text(k)), from_json(v)));
            Value::Object(OpaqueValue::map(entries.collect()))
        }
    }
}

/// Converts a value to JSON: keys become strings, sets become arrays, non-finite numbers become null.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::from(*n),
        Value::Long(n) => Json::from(*n),
        // via its own shortest decimal form; that of the equal double has more digits
        Value::Float(n) => n.to_string().parse::<f64>().map_or(Json::Null, Json::from),
        Value::Double(n) => Json::from(*n),
        Value::Str(s) => Json::String(s.to_string()),
        Value::Object(OpaqueValue::List(items)) => Json::Array(items.lock().iter().map(to_json).collect()),
        Value::Object(OpaqueValue::Map(entries)) => {
            Json::Object(entries.lock().iter().map(|(k, v)| (k.0.to_string(), to_json(v))).collect())
        }
        Value::Object(OpaqueValue::Set(items)) => {
            Json::Array(items.lock().keys().map(|k| to_json(&k.0)).collect())
        }
        Value::Object(OpaqueValue::Json(json)) => Json::clone(json),
    }
}

/// Parses JSON, or JSON5 if that fails: unquoted names, single quotes, trailing commas. Strict JSON is hard
/// to write inside a SiddhiQL string.
pub(crate) fn read_json(text: &str) -> Result<Json, String> {
    let strict = match serde_json::from_str(text) {
        Ok(json) => return Ok(json),
        Err(e) => e,
    };
    // the JSON5 parser does not bound the nesting
    let lenient = (nesting(text) <= DEPTH_MAX).then(|| json5::from_str(text).ok()).flatten();
    lenient.ok_or_else(|| {
        let start = &text[..text.floor_char_boundary(SHOWN_BYTES)];
        format!("`{start}{}` is not valid JSON: {strict}", if start.len() < text.len() { "…" } else { "" })
    })
}

/// Parses JSON leniently, as [`read_json`] does, and converts it to a value.
pub(crate) fn parse_lenient(text: &str) -> Result<Value, String> {
    read_json(text).map(|json| from_json(&json))
}

/// Returns the nesting depth of brackets, ignoring those in strings. If there are comments, it counts all
/// opening brackets instead, as an upper bound.
fn nesting(text: &str) -> usize {
    let comments = text.contains("//") || text.contains("/*");
    let mut quote = None;
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) if !comments => {}
            (None, '"' | '\'') => quote = Some(c),
            (_, '[' | '{') => depth += 1,
            (_, ']' | '}') if !comments => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Formats a value as the JSON of Siddhi's `map` extension: decimals without trailing zeros (`5.0` is `5`).
///
/// Errors: a number is not finite.
pub(crate) fn plain_json(value: &Value) -> Result<String, String> {
    let mut out = String::new();
    write_plain(value, &mut out)?;
    Ok(out)
}

fn write_plain(value: &Value, out: &mut String) -> Result<(), String> {
    match value {
        Value::Float(_) | Value::Double(_) => {
            let text = value.to_string();
            if text.ends_with(|c: char| c.is_ascii_alphabetic()) {
                return Err(format!("JSON has no {text}"));
            }
            let short = text.trim_end_matches('0').trim_end_matches('.');
            out.push_str(if text.contains('E') { &text } else { short });
        }
        Value::Object(OpaqueValue::List(items)) => {
            let items = items.lock();
            sequence(out, '[', ']', items.iter(), write_plain)?;
        }
        Value::Object(OpaqueValue::Set(items)) => {
            let items = items.lock();
            sequence(out, '[', ']', items.keys(), |item, out| write_plain(&item.0, out))?;
        }
        Value::Object(OpaqueValue::Map(entries)) => {
            let entries = entries.lock();
            sequence(out, '{', '}', entries.iter(), |(key, value), out| {
                let _ = write!(out, "{}:", Json::String(key.0.to_string()));
                write_plain(value, out)
            })?;
        }
        other => {
            let _ = write!(out, "{}", to_json(other));
        }
    }
    Ok(())
}

fn sequence<I: Iterator>(
    out: &mut String,
    open: char,
    close: char,
    items: I,
    mut write: impl FnMut(I::Item, &mut String) -> Result<(), String>,
) -> Result<(), String> {
    out.push(open);
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(item, out)?;
    }
    out.push(close);
    Ok(())
}

/// Returns the JSON of an argument: strings are parsed, other values converted.
pub(crate) fn json_of(value: &Value) -> Result<Arc<Json>, String> {
    Ok(match value {
        Value::Str(text) => Arc::new(read_json(text)?),
        Value::Object(OpaqueValue::Json(json)) => json.clone(),
        other => Arc::new(to_json(other)),
    })
}

/// Converts a value to JSON as recorded runs represent it: lists, maps and sets are objects with their kind as the key.
pub fn tagged_json(value: &Value) -> Json {
    let decimal = |n: f64| match n {
        n if n.is_nan() => json!("NaN"),
        n if n.is_infinite() => json!(if n > 0.0 { "Infinity" } else { "-Infinity" }),
        n => json!(n),
    };
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => json!(b),
        Value::Int(n) => json!(n),
        Value::Long(n) => json!(n),
        // by way of its text, because the `f64` nearest to 0.1f is not 0.1
        Value::Float(n) => n.to_string().parse().map_or(Json::Null, decimal),
        Value::Double(n) => decimal(*n),
        Value::Str(s) => json!(s.as_ref()),
        Value::Object(OpaqueValue::List(list)) => {
            json!({ "list": list.lock().iter().map(tagged_json).collect::<Vec<_>>() })
        }
        Value::Object(OpaqueValue::Map(map)) => {
            let map = map.lock();
            let entries = map.iter().map(|(k, v)| (k.0.to_string(), tagged_json(v)));
            json!({ "map": entries.collect::<serde_json::Map<_, _>>() })
        }
        Value::Object(OpaqueValue::Set(set)) => {
            let mut items: Vec<Json> = set.lock().keys().map(|k| tagged_json(&k.0)).collect();
            items.sort_by_key(Json::to_string);
            json!({ "set": items })
        }
        Value::Object(OpaqueValue::Json(json)) => json.as_ref().clone(),
    }
}
