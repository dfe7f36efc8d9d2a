//! Values and JSON.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value as Json;

use super::object::DEPTH_MAX;
use crate::value::{Key, Object, Value};

/// How much of a text is shown when it is no JSON.
const SHOWN_BYTES: usize = 60;

/// JSON as values: objects as maps, arrays as lists, numbers as int, long or double, whichever holds them first.
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
        Json::Array(items) => Value::Object(Object::list(items.iter().map(from_json).collect())),
        Json::Object(entries) => {
            let entries = entries.iter().map(|(k, v)| (Key(Value::text(k)), from_json(v)));
            Value::Object(Object::map(entries.collect()))
        }
    }
}

/// A value as JSON: keys become texts, sets arrays, numbers that are not finite null.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::from(*n),
        Value::Long(n) => Json::from(*n),
        // by its own shortest text, not by that of the equal double
        Value::Float(n) => n.to_string().parse::<f64>().map_or(Json::Null, Json::from),
        Value::Double(n) => Json::from(*n),
        Value::Str(s) => Json::String(s.to_string()),
        Value::Object(Object::List(items)) => Json::Array(items.lock().iter().map(to_json).collect()),
        Value::Object(Object::Map(entries)) => {
            Json::Object(entries.lock().iter().map(|(k, v)| (k.0.to_string(), to_json(v))).collect())
        }
        Value::Object(Object::Set(items)) => {
            Json::Array(items.lock().keys().map(|k| to_json(&k.0)).collect())
        }
        Value::Object(Object::Json(json)) => Json::clone(json),
    }
}

/// Reads JSON, also written as people write it: names without quotes, single quotes, commas at the end. In SiddhiQL
/// texts JSON is hard to write otherwise.
pub(crate) fn read_json(text: &str) -> Result<Json, String> {
    let strict = match serde_json::from_str(text) {
        Ok(json) => return Ok(json),
        Err(e) => e,
    };
    // the lenient reader knows no bound of its own
    let lenient = (nesting(text) <= DEPTH_MAX).then(|| json5::from_str(text).ok()).flatten();
    lenient.ok_or_else(|| {
        let start = &text[..text.floor_char_boundary(SHOWN_BYTES)];
        format!("`{start}{}` is no JSON: {strict}", if start.len() < text.len() { "…" } else { "" })
    })
}

/// [`read_json`] as values.
pub(crate) fn parse_lenient(text: &str) -> Result<Value, String> {
    read_json(text).map(|json| from_json(&json))
}

/// How deep brackets lie in each other, those in texts and comments left out; with comments, all that open count.
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

/// A value as JSON the way the `map` extension writes it: decimals without zeros at their end (`5.0` is `5`).
///
/// Errors: a number that is not finite.
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
        Value::Object(Object::List(items)) => {
            let items = items.lock();
            sequence(out, '[', ']', items.iter(), write_plain)?;
        }
        Value::Object(Object::Set(items)) => {
            let items = items.lock();
            sequence(out, '[', ']', items.keys(), |item, out| write_plain(&item.0, out))?;
        }
        Value::Object(Object::Map(entries)) => {
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

/// The JSON that an argument is: a text is read, an object is taken as it is.
pub(crate) fn json_of(value: &Value) -> Result<Arc<Json>, String> {
    Ok(match value {
        Value::Str(text) => Arc::new(read_json(text)?),
        Value::Object(Object::Json(json)) => json.clone(),
        other => Arc::new(to_json(other)),
    })
}
