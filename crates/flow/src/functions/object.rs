//! Access to lists and maps in functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::json_text::from_json;
use crate::columns::value::{Key, OpaqueValue, Value};

/// Items of a list; other values may share them.
pub(crate) type List = Arc<Mutex<Vec<Value>>>;

/// Entries of a map; other values may share them.
pub(crate) type Map = Arc<Mutex<BTreeMap<Key, Value>>>;

/// Maximum nesting depth of lists and maps.
pub(crate) const DEPTH_MAX: usize = 128;

/// Returns argument `i` as a list.
pub(crate) fn list(args: &[Value], i: usize) -> Result<List, String> {
    match args.get(i) {
        Some(Value::Object(OpaqueValue::List(list))) => Ok(list.clone()),
        Some(Value::Object(OpaqueValue::Json(json))) if json.is_array() => list(&[from_json(json)], 0),
        Some(other) => Err(format!("argument {} must be a list, found `{other}`", i + 1)),
        None => Err(format!("argument {} is missing", i + 1)),
    }
}

/// Returns argument `i` as a map.
pub(crate) fn map(args: &[Value], i: usize) -> Result<Map, String> {
    match args.get(i) {
        Some(Value::Object(OpaqueValue::Map(map))) => Ok(map.clone()),
        Some(Value::Object(OpaqueValue::Json(json))) if json.is_object() => map(&[from_json(json)], 0),
        Some(other) => Err(format!("argument {} must be a map, found `{other}`", i + 1)),
        None => Err(format!("argument {} is missing", i + 1)),
    }
}

/// Returns whether `value` is a list or a JSON array.
pub(crate) fn is_list(value: &Value) -> bool {
    match value {
        Value::Object(OpaqueValue::List(_)) => true,
        Value::Object(OpaqueValue::Json(json)) => json.is_array(),
        _ => false,
    }
}

/// Returns whether `value` is a map or a JSON object.
pub(crate) fn is_map(value: &Value) -> bool {
    match value {
        Value::Object(OpaqueValue::Map(_)) => true,
        Value::Object(OpaqueValue::Json(json)) => json.is_object(),
        _ => false,
    }
}

/// Returns whether `a` and `b` have one type and are equal. Lists and maps compare by content.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(OpaqueValue::List(a)), Value::Object(OpaqueValue::List(b))) => {
            if Arc::ptr_eq(a, b) {
                return true;
            }
            // hold one lock at a time: either list may contain the other
            let (a, b) = (a.lock().clone(), b.lock().clone());
            a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(OpaqueValue::Map(a)), Value::Object(OpaqueValue::Map(b))) => {
            if Arc::ptr_eq(a, b) {
                return true;
            }
            let (a, b) = (a.lock().clone(), b.lock().clone());
            a.len() == b.len() && a.iter().zip(&b).all(|((k, a), (l, b))| k == l && equal(a, b))
        }
        (Value::Object(OpaqueValue::Json(json)), other) | (other, Value::Object(OpaqueValue::Json(json)))
            if json.is_array() || json.is_object() =>
        {
            match other {
                Value::Object(OpaqueValue::Json(other)) => json == other,
                other => equal(&from_json(json), other),
            }
        }
        _ => Key(a.clone()) == Key(b.clone()),
    }
}

/// Checks that `value` may be inserted into `target`: it does not contain `target` at any depth, and is not
/// nested too deeply.
pub(crate) fn check_insertable<T>(value: &Value, target: &Arc<Mutex<T>>) -> Result<(), String> {
    check_reach(value, Arc::as_ptr(target).cast(), 0)
}

/// Errors: `value` is nested more deeply than [`DEPTH_MAX`].
pub(crate) fn check_depth(value: &Value) -> Result<(), String> {
    check_reach(value, std::ptr::null(), 0)
}

/// Creates a list. Errors: the items are nested too deeply.
pub(crate) fn new_list(items: Vec<Value>) -> Result<Value, String> {
    items.iter().try_for_each(|v| check_reach(v, std::ptr::null(), 1))?;
    Ok(Value::Object(OpaqueValue::list(items)))
}

/// Creates a map. Errors: the entries are nested too deeply.
pub(crate) fn new_map(entries: BTreeMap<Key, Value>) -> Result<Value, String> {
    entries.iter().try_for_each(|(k, v)| {
        check_reach(&k.0, std::ptr::null(), 1).and(check_reach(v, std::ptr::null(), 1))
    })?;
    Ok(Value::Object(OpaqueValue::map(entries)))
}

fn check_reach(value: &Value, target: *const (), depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("lists and maps are nested deeper than {DEPTH_MAX} levels"));
    }
    let itself = || "a list or map cannot contain itself".to_owned();
    match value {
        Value::Object(OpaqueValue::List(list)) if Arc::as_ptr(list).cast() == target => Err(itself()),
        Value::Object(OpaqueValue::List(list)) => {
            list.lock().iter().try_for_each(|v| check_reach(v, target, depth + 1))
        }
        Value::Object(OpaqueValue::Map(map)) if Arc::as_ptr(map).cast() == target => Err(itself()),
        Value::Object(OpaqueValue::Map(map)) => map.lock().iter().try_for_each(|(k, v)| {
            check_reach(&k.0, target, depth + 1)?;
            check_reach(v, target, depth + 1)
        }),
        _ => Ok(()),
    }
}
