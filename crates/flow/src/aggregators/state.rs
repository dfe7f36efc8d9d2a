//! Encoding of values in saved accumulators: JSON that preserves types and the bits of floating-point
//! numbers.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use crate::columns::value::{Key, OpaqueValue, Value};

/// Encodes a value for a checkpoint.
pub(crate) fn encode(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Str(s) => Json::String(s.to_string()),
        Value::Int(n) => json!({ "int": n }),
        Value::Long(n) => json!({ "long": n }),
        Value::Float(n) => json!({ "float": n.to_bits() }),
        Value::Double(n) => json!({ "double": n.to_bits() }),
        Value::Object(OpaqueValue::List(items)) => {
            json!({ "list": items.lock().iter().map(encode).collect::<Vec<_>>() })
        }
        Value::Object(OpaqueValue::Map(entries)) => {
            let entries = entries.lock();
            json!({ "map": entries.iter().map(|(k, v)| (encode(&k.0), encode(v))).collect::<Vec<_>>() })
        }
        Value::Object(OpaqueValue::Set(items)) => {
            json!({ "set": items.lock().keys().map(|k| encode(&k.0)).collect::<Vec<_>>() })
        }
        Value::Object(OpaqueValue::Json(json)) => json!({ "json": Json::clone(json) }),
    }
}

/// Decodes a saved value; `None` if it is not readable.
pub(crate) fn decode(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::String(s) => Value::text(s),
        Json::Object(tagged) => {
            let (tag, inner) = tagged.iter().next()?;
            match tag.as_str() {
                "int" => Value::Int(inner.as_i64()?.try_into().ok()?),
                "long" => Value::Long(inner.as_i64()?),
                "float" => Value::Float(f32::from_bits(inner.as_u64()?.try_into().ok()?)),
                "double" => Value::Double(f64::from_bits(inner.as_u64()?)),
                "list" => {
                    let items = inner.as_array()?.iter().map(decode).collect::<Option<_>>()?;
                    Value::Object(OpaqueValue::list(items))
                }
                "map" => {
                    let entry = |e: &Json| Some((Key(decode(e.get(0)?)?), decode(e.get(1)?)?));
                    Value::Object(OpaqueValue::map(
                        inner.as_array()?.iter().map(entry).collect::<Option<_>>()?,
                    ))
                }
                "set" => {
                    let item = |i: &Json| Some((Key(decode(i)?), 1));
                    let items = inner.as_array()?.iter().map(item).collect::<Option<_>>()?;
                    Value::Object(OpaqueValue::Set(Arc::new(Mutex::new(items))))
                }
                "json" => Value::Object(OpaqueValue::Json(Arc::new(inner.clone()))),
                _ => return None,
            }
        }
        _ => return None,
    })
}
