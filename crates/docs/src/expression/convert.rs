//! Types and conversions.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Uuid};
use jiff::tz::TimeZone;

use super::{EvalValue, Expression, is_nullish};
use crate::error::{DocsError, ErrorCode, Result};
use crate::values::decimal_math;

/// Returns the name of a value's type, as `$type` gives it.
pub(super) fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::Binary(_) => "binData",
        Bson::Undefined => "undefined",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::DbPointer(_) => "dbPointer",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::Symbol(_) => "symbol",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::Int32(_) => "int",
        Bson::Timestamp(_) => "timestamp",
        Bson::Int64(_) => "long",
        Bson::Decimal128(_) => "decimal",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
    }
}

pub(super) fn type_of(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let name = arguments.first().and_then(Option::as_ref).map_or("missing", type_name);
    Ok(Some(Bson::String(name.to_owned())))
}

pub(super) fn is_number(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let number = matches!(
        arguments.first(),
        Some(Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)))
    );
    Ok(Some(Bson::Boolean(number)))
}

/// Converts a value that is not null; `None` if it cannot be.
fn converted(name: &str, arguments: &[EvalValue], convert: fn(&Bson) -> Option<Bson>) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(value)) if !is_nullish(&Some(value.clone())) => match convert(value) {
            Some(value) => Ok(Some(value)),
            None => {
                let message = format!("{name} cannot convert the {} {value}", type_name(value));
                Err(DocsError::new(ErrorCode::ConversionFailure, message))
            }
        },
        _ => Ok(Some(Bson::Null)),
    }
}

pub(super) fn to_bool(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| Some(Bson::Boolean(Expression::is_true(&Some(value.clone())))))
}

pub(super) fn to_double(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| {
        Some(Bson::Double(match value {
            Bson::Double(n) => *n,
            Bson::Int32(n) => (*n).into(),
            Bson::Int64(n) => *n as f64,
            Bson::Boolean(flag) => f64::from(u8::from(*flag)),
            Bson::DateTime(at) => at.timestamp_millis() as f64,
            Bson::Decimal128(n) => decimal_math::to_double(*n),
            Bson::String(text) => text.parse().ok()?,
            _ => return None,
        }))
    })
}

/// Returns the whole number that a value stands for, without its fraction.
fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(n) => Some((*n).into()),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) => (n.is_finite() && n.abs() < 9.2e18).then_some(*n as i64),
        Bson::Boolean(flag) => Some((*flag).into()),
        Bson::DateTime(at) => Some(at.timestamp_millis()),
        Bson::Decimal128(n) => decimal_math::to_whole(*n),
        Bson::String(text) => text.parse().ok(),
        _ => None,
    }
}

pub(super) fn to_int(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| match value {
        Bson::DateTime(_) => None,
        value => whole(value).and_then(|n| i32::try_from(n).ok()).map(Bson::Int32),
    })
}

pub(super) fn to_long(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| whole(value).map(Bson::Int64))
}

pub(super) fn to_string(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| {
        Some(Bson::String(match value {
            Bson::String(text) => text.clone(),
            Bson::Int32(n) => n.to_string(),
            Bson::Int64(n) => n.to_string(),
            Bson::Double(n) if n.is_nan() => "NaN".to_owned(),
            Bson::Double(n) if n.is_infinite() => if *n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            Bson::Double(n) => n.to_string(),
            Bson::Decimal128(n) => n.to_string(),
            Bson::Boolean(flag) => flag.to_string(),
            Bson::ObjectId(id) => id.to_hex(),
            Bson::DateTime(at) => {
                let text = at.try_to_rfc3339_string().ok()?;
                // always with milliseconds
                match text.contains('.') {
                    true => text,
                    false => text.replace('Z', ".000Z"),
                }
            }
            _ => return None,
        }))
    })
}

pub(super) fn to_decimal(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| {
        Some(Bson::Decimal128(match value {
            Bson::Decimal128(n) => *n,
            Bson::Double(n) => decimal_math::of_double(*n),
            Bson::String(text) => text.parse().ok()?,
            value => decimal_math::of_whole(whole(value)?),
        }))
    })
}

pub(super) fn to_date(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| match value {
        Bson::DateTime(_) => Some(value.clone()),
        Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => {
            Some(Bson::DateTime(DateTime::from_millis(whole(value)?)))
        }
        Bson::ObjectId(id) => Some(Bson::DateTime(id.timestamp())),
        Bson::Timestamp(at) => Some(Bson::DateTime(DateTime::from_millis(i64::from(at.time) * 1000))),
        Bson::String(text) => {
            super::date_format::iso(text, &TimeZone::UTC, false).map(|at| super::dates::date(&at))
        }
        _ => None,
    })
}

pub(super) fn to_object_id(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| match value {
        Bson::ObjectId(_) => Some(value.clone()),
        Bson::String(text) => ObjectId::parse_str(text).ok().map(Bson::ObjectId),
        _ => None,
    })
}

pub(super) fn to_uuid(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    converted(name, arguments, |value| match value {
        Bson::Binary(binary) if binary.subtype == BinarySubtype::Uuid => Some(value.clone()),
        Bson::String(text) => {
            let bytes = Uuid::parse_str(text).ok()?.bytes().to_vec();
            Some(Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes }))
        }
        _ => None,
    })
}

/// `$convert`: input, to, onError, onNull.
pub(super) fn convert(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let target = match arguments.get(1) {
        Some(Some(Bson::Document(options))) => options.get("type").cloned(),
        target => target.cloned().flatten(),
    };
    let to = match &target {
        Some(Bson::String(to)) => to.as_str(),
        Some(Bson::Int32(number)) => match number {
            1 => "double",
            2 => "string",
            5 => "binData",
            7 => "objectId",
            8 => "bool",
            9 => "date",
            16 => "int",
            18 => "long",
            19 => "decimal",
            _ => "",
        },
        None | Some(Bson::Null) => return Ok(Some(Bson::Null)),
        Some(_) => "",
    };
    let function = match to {
        "double" => to_double,
        "string" => to_string,
        "objectId" => to_object_id,
        "bool" => to_bool,
        "date" => to_date,
        "int" => to_int,
        "long" => to_long,
        "decimal" => to_decimal,
        "binData" => to_uuid,
        _ => {
            let target = target.map_or_else(String::new, |target| target.to_string());
            return Err(DocsError::bad_value(format!(
                "{name}: {target} is not a type that values convert to"
            )));
        }
    };
    let input = arguments.first().cloned().flatten();
    if is_nullish(&input) {
        return Ok(arguments.get(3).cloned().flatten().or(Some(Bson::Null)));
    }
    match (function(name, &[input]), arguments.get(2).cloned().flatten()) {
        (Err(_), Some(value)) => Ok(Some(value)),
        (converted, _) => converted,
    }
}
