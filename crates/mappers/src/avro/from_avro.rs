//! Values of fields from Avro.

use apache_avro::types::Value as Avro;
use serde_json::Value as Json;
use tidemill_types::decode::FieldValue;
use tidemill_types::{EpochUnit, Field, FieldType, Value};

use crate::read::{fit_value, mismatch};

/// Returns the value of a field.
///
/// Errors: what was expected and what was found.
pub(super) fn field_value(field: &Field, avro: &Avro) -> Result<FieldValue, String> {
    let fit = |value: &Value<'_>| fit_value(field, value);
    // an instant is a number where the attribute is one
    let instant = |number: i64, unit: EpochUnit| match (field.ty, unit.timestamp(number)) {
        (FieldType::Time, Some(time)) => Ok(FieldValue::Time(time)),
        _ => fit(&Value::Int(number)),
    };
    match avro {
        Avro::Null => Ok(FieldValue::Missing),
        Avro::Union(_, inner) => field_value(field, inner),
        Avro::Boolean(b) => fit(&Value::Bool(*b)),
        Avro::Int(n) | Avro::Date(n) | Avro::TimeMillis(n) => fit(&Value::Int((*n).into())),
        Avro::Long(n) | Avro::TimeMicros(n) => fit(&Value::Int(*n)),
        Avro::Float(x) => fit(&Value::Float((*x).into())),
        Avro::Double(x) => fit(&Value::Float(*x)),
        Avro::String(text) | Avro::Enum(_, text) => fit(&Value::str(text)),
        Avro::Uuid(uuid) => fit(&Value::str(&uuid.as_hyphenated().to_string())),
        Avro::TimestampMillis(n) | Avro::LocalTimestampMillis(n) => instant(*n, EpochUnit::Millis),
        Avro::TimestampMicros(n) | Avro::LocalTimestampMicros(n) => instant(*n, EpochUnit::Micros),
        Avro::TimestampNanos(n) | Avro::LocalTimestampNanos(n) => instant(*n, EpochUnit::Nanos),
        Avro::Bytes(bytes) | Avro::Fixed(_, bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => fit(&Value::str(text)),
            Err(_) => Err(mismatch(field, "bytes that are no UTF-8")),
        },
        other if matches!(field.ty, FieldType::String | FieldType::Object) => {
            Ok(FieldValue::Text(json(other)?.to_string()))
        }
        _ => Err(mismatch(field, "a list, a map, a record or a decimal number")),
    }
}

/// Returns a value as JSON.
///
/// Errors: a number that JSON cannot represent.
pub(super) fn json(avro: &Avro) -> Result<Json, String> {
    Json::try_from(avro.clone()).map_err(|e| format!("the value has no JSON form: {e}"))
}
