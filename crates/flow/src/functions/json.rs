//! `json:` Functions that read and change JSON strings and objects by path.

use serde_json::Value as Json;

use super::compile_cache::CompileCache;
use super::java::number::{parse_double, parse_float, parse_int, parse_whole};
use super::json_path::CompiledPath;
use super::json_text::{from_json, json_of, read_json, to_json};
use super::library::{NamespaceRegistrar, NullPolicy, ScalarFn, text};
use super::object::check_depth;
use crate::columns::value::Value;
use crate::expr::ArgumentType;

pub(super) fn register(json: &mut NamespaceRegistrar<'_>) {
    get(json, "getBool", "string|object json, string path -> bool", |found| {
        let text = one(found)?;
        let known = text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false");
        known.then(|| Value::Bool(text.eq_ignore_ascii_case("true")))
    });
    get(json, "getInt", "string|object json, string path -> int", |found| {
        parse_int(&one(found)?, 10).ok().map(Value::Int)
    });
    get(json, "getLong", "string|object json, string path -> long", |found| {
        parse_whole(&one(found)?, 10).ok().map(Value::Long)
    });
    get(json, "getFloat", "string|object json, string path -> float", |found| {
        parse_float(&one(found)?).ok().map(Value::Float)
    });
    get(json, "getDouble", "string|object json, string path -> double", |found| {
        parse_double(&one(found)?).ok().map(Value::Double)
    });
    get(json, "getString", "string|object json, string path -> string", |found| match found {
        Json::Null => None,
        Json::String(text) => Some(Value::text(&text)),
        other => Some(Value::text(&other.to_string())),
    });
    get(json, "getObject", "string|object json, string path -> object", |found| match found {
        Json::Array(items) if items.len() == 1 => items.first().map(from_json),
        other => Some(from_json(&other)),
    });
    json.build("isExists", &["string|object json, string path -> bool"], NullPolicy::Fail, |args| {
        let paths = CompileCache::of(args, 1, CompiledPath::compile)?;
        Ok(Box::new(move |args, _| {
            let path = paths.get(text(args, 1)?)?;
            Ok(Value::Bool(!path.find(&*json_of(&args[0])?).is_empty()))
        }))
    });
    let form = "string|object json, string path, any element, string key? -> object";
    json.build("setElement", &[form], NullPolicy::Fail, set_element);
    json.add("toObject", &["string json -> object"], NullPolicy::Fail, |args| {
        Ok(read_json(text(args, 0)?).map_or(Value::Null, |json| from_json(&json)))
    });
    json.add("toString", &["string|object json, bool escape? -> string"], NullPolicy::Fail, |args| {
        let text = to_json(&args[0]).to_string();
        let escape = args.get(1).is_some_and(Value::is_true);
        Ok(Value::text(&if escape { for_html(&text) } else { text }))
    });
}

/// Registers a function that reads the value at a path: null if the path finds nothing or `take` rejects the
/// value.
fn get(
    json: &mut NamespaceRegistrar<'_>,
    name: &'static str,
    form: &'static str,
    take: fn(Json) -> Option<Value>,
) {
    json.build(name, &[form], NullPolicy::Fail, move |args| {
        let paths = CompileCache::of(args, 1, CompiledPath::compile)?;
        Ok(Box::new(move |args, _| {
            let path = paths.get(text(args, 1)?)?;
            Ok(path.read(&*json_of(&args[0])?).and_then(take).unwrap_or_default())
        }))
    });
}

/// Returns the string form of a single value; an array of one item counts as that item.
fn one(found: Json) -> Option<String> {
    match found {
        Json::Null => None,
        Json::String(text) => Some(text),
        Json::Array(mut items) if items.len() == 1 => match items.pop()? {
            Json::Null => None,
            Json::String(text) => Some(text),
            item => Some(item.to_string()),
        },
        Json::Array(_) => None,
        other => Some(other.to_string()),
    }
}

/// Appends an element to the array at a path, inserts it into the object there under a key, or replaces the
/// value there. JSON in which the path finds nothing is returned unchanged.
fn set_element(args: &[ArgumentType]) -> Result<Box<ScalarFn>, String> {
    let paths = CompileCache::of(args, 1, CompiledPath::compile)?;
    Ok(Box::new(move |args, _| {
        let mut json = Json::clone(&*json_of(&args[0])?);
        let path = paths.get(text(args, 1)?)?;
        let key = args.get(3).and_then(Value::as_str);
        let plain = to_json(&args[2]);
        let read = args[2].as_str().and_then(|t| read_json(t).ok()).filter(|j| j.is_object() || j.is_array());
        for pointer in path.pointers(&json) {
            let Some(place) = json.pointer_mut(&pointer) else { continue };
            let parsed = || read.clone().unwrap_or_else(|| plain.clone());
            match (place, key) {
                (Json::Array(items), _) => items.push(parsed()),
                (Json::Object(entries), Some(key)) => drop(entries.insert(key.to_owned(), parsed())),
                (other, Some(_)) => {
                    return Err(format!("expected a JSON object to add a key to, found `{other}`"));
                }
                (place, None) => *place = plain.clone(),
            }
        }
        let changed = from_json(&json);
        check_depth(&changed)?;
        Ok(changed)
    }))
}

/// Escapes the characters that are special in HTML.
fn for_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '=' | '\'' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}
