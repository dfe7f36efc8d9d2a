//! Values of a copy, read as the types of their fields.

use jiff::tz::TimeZone;
use tidemill_types::decode::CellValue;
use tidemill_types::{Field, FieldType, Timestamp};

use crate::error::{PgError, Result, code};
use crate::values::parameters::{binary_instant, boolean, instant};

/// Reads a text; one without a zone is an instant in `zone`.
///
/// Errors: it is not UTF-8, or not a value of the field.
pub(super) fn of_text<'v>(bytes: &'v [u8], field: &Field, zone: &TimeZone) -> Result<CellValue<'v>> {
    let text = utf8(bytes)?;
    let trimmed = text.trim();
    let invalid = |code| PgError::new(code, invalid_message(field, text));
    let parsed = match field.ty {
        FieldType::String => Some(CellValue::Text(text)),
        FieldType::Object => Some(CellValue::Json(text)),
        FieldType::Bool => boolean(trimmed).map(CellValue::Bool),
        FieldType::Int | FieldType::Long => match trimmed.parse::<i64>() {
            Ok(number) if field.ty == FieldType::Long || i32::try_from(number).is_ok() => {
                Some(CellValue::Int(number))
            }
            parsed => {
                let is_number = parsed.is_ok() || trimmed.parse::<i128>().is_ok();
                return Err(match is_number {
                    true => PgError::new(
                        code::OUT_OF_RANGE,
                        format!("value \"{trimmed}\" is out of range for type {}", name(field)),
                    ),
                    false => invalid(code::INVALID_TEXT),
                });
            }
        },
        FieldType::Float | FieldType::Double => match trimmed.parse::<f64>() {
            Ok(number) if number.is_infinite() && trimmed.contains(|c: char| c.is_ascii_digit()) => {
                return Err(PgError::new(
                    code::OUT_OF_RANGE,
                    format!("\"{trimmed}\" is out of range for type {}", name(field)),
                ));
            }
            parsed => parsed.ok().map(CellValue::Float),
        },
        FieldType::Time => match instant(trimmed, zone) {
            Some(time) => Some(CellValue::Time(time)),
            None => return Err(invalid("22007")),
        },
    };
    parsed.ok_or_else(|| invalid(code::INVALID_TEXT))
}

/// Reads a value of the binary format, as the type by which the column is described.
///
/// Errors: the bytes are not such a value.
pub(super) fn of_binary<'v>(bytes: &'v [u8], field: &Field) -> Result<CellValue<'v>> {
    let incorrect = || {
        PgError::new(
            code::INVALID_BINARY,
            format!("incorrect binary data format: {} bytes are no {}", bytes.len(), name(field)),
        )
    };
    let four = || bytes.try_into().map(i32::from_be_bytes).map_err(|_| incorrect());
    let eight = || bytes.try_into().map(i64::from_be_bytes).map_err(|_| incorrect());
    Ok(match field.ty {
        FieldType::Bool => match bytes {
            [0] => CellValue::Bool(false),
            [1] => CellValue::Bool(true),
            _ => return Err(incorrect()),
        },
        FieldType::Int => CellValue::Int(four()?.into()),
        FieldType::Long => CellValue::Int(eight()?),
        FieldType::Float => CellValue::Float(f32::from_bits(four()?.cast_unsigned()).into()),
        FieldType::Double => CellValue::Float(f64::from_bits(eight()?.cast_unsigned())),
        FieldType::Time => CellValue::Time(Timestamp(binary_instant(eight()?)?)),
        FieldType::String => CellValue::Text(utf8(bytes)?),
        // the column is a text; `jsonb` begins with its version
        FieldType::Object => CellValue::Json(utf8(bytes.strip_prefix(&[1]).unwrap_or(bytes))?),
    })
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let bad: String =
            bytes[e.valid_up_to()..].iter().take(4).map(|byte| format!(" 0x{byte:02x}")).collect();
        PgError::new(code::UNTRANSLATABLE, format!("invalid byte sequence for encoding \"UTF8\":{bad}"))
    })?;
    match text.contains('\0') {
        true => Err(PgError::new(code::UNTRANSLATABLE, "invalid byte sequence for encoding \"UTF8\": 0x00")),
        false => Ok(text),
    }
}

/// Returns the name of a field's type in PostgreSQL.
fn name(field: &Field) -> &'static str {
    match field.ty {
        FieldType::Bool => "boolean",
        FieldType::Int => "integer",
        FieldType::Long => "bigint",
        FieldType::Float => "real",
        FieldType::Double => "double precision",
        FieldType::String => "text",
        FieldType::Time => "timestamp with time zone",
        FieldType::Object => "json",
    }
}

fn invalid_message(field: &Field, text: &str) -> String {
    let shown: String = text.chars().take(100).collect();
    format!("invalid input syntax for type {}: \"{shown}\"", name(field))
}
