//! Values of columns as BSON, for tables whose rows are documents.

use bson::Bson;
use bson::raw::RawBsonRef;
use tidemill_types::{FieldType, Timestamp, Value};

/// Greatest integer up to which doubles have all.
const WHOLE_MAX: i64 = 1 << 53;

/// Returns the value of a column of this type as documents have it; a missing value is null.
///
/// Errors: an object that is not JSON.
pub fn bson_of(value: &Value<'_>, ty: FieldType) -> Result<Bson, String> {
    Ok(match value {
        Value::Missing | Value::Null | Value::Bson(_) => Bson::Null,
        Value::Bool(b) => Bson::Boolean(*b),
        Value::Int(n) => match ty {
            FieldType::Float | FieldType::Double => Bson::Double(*n as f64),
            FieldType::Int => i32::try_from(*n).map_or(Bson::Int64(*n), Bson::Int32),
            _ => Bson::Int64(*n),
        },
        Value::Float(x) => match ty {
            // as a Java cast does
            FieldType::Int => Bson::Int32(*x as i32),
            FieldType::Long => Bson::Int64(*x as i64),
            _ => Bson::Double(*x),
        },
        Value::Str(text) if ty == FieldType::Object => {
            let json: serde_json::Value =
                serde_json::from_str(text).map_err(|e| format!("an object is not JSON: {e}"))?;
            Bson::try_from(json).map_err(|e| format!("an object is not extended JSON: {e}"))?
        }
        Value::Str(text) => Bson::String(text.to_string()),
        Value::Time(time) => Bson::DateTime(bson::DateTime::from_millis(time.0.div_euclid(1000))),
    })
}

/// Returns a value of a document as a column of the type has it; `None` if it cannot, or the value is null. A date is a
/// long in milliseconds, an ObjectId a string, a document or an array an object.
pub fn value_of_bson(value: RawBsonRef<'_>, ty: FieldType) -> Option<Value<'static>> {
    let whole = |value: RawBsonRef<'_>| match value {
        RawBsonRef::Int32(n) => Some(i64::from(n)),
        RawBsonRef::Int64(n) => Some(n),
        RawBsonRef::Double(x) if x.fract() == 0.0 && x.abs() <= WHOLE_MAX as f64 => Some(x as i64),
        _ => None,
    };
    match ty {
        FieldType::Bool => value.as_bool().map(Value::Bool),
        FieldType::Int => whole(value).filter(|n| i32::try_from(*n).is_ok()).map(Value::Int),
        FieldType::Long => match value {
            RawBsonRef::DateTime(time) => Some(Value::Int(time.timestamp_millis())),
            other => whole(other).map(Value::Int),
        },
        FieldType::Float | FieldType::Double => match value {
            RawBsonRef::Double(x) if ty == FieldType::Float => Some(Value::Float(f64::from(x as f32))),
            RawBsonRef::Double(x) => Some(Value::Float(x)),
            other => whole(other).filter(|n| n.abs() <= WHOLE_MAX).map(|n| Value::Float(n as f64)),
        },
        FieldType::String => match value {
            RawBsonRef::String(text) => Some(Value::Str(text.to_owned().into())),
            RawBsonRef::ObjectId(id) => Some(Value::Str(id.to_hex().into())),
            _ => None,
        },
        FieldType::Time => match value {
            RawBsonRef::DateTime(time) => {
                Some(Value::Time(Timestamp(time.timestamp_millis().saturating_mul(1000))))
            }
            _ => None,
        },
        FieldType::Object => match value {
            RawBsonRef::Null => None,
            other => {
                let json = Bson::try_from(other).ok()?.into_relaxed_extjson();
                Some(Value::Str(json.to_string().into()))
            }
        },
    }
}
