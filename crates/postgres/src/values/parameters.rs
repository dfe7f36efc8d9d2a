//! Values of parameters: from the text or binary format of their type to values of the database.
//!
//! The database has numbers, texts and instants, and reads texts as what their place expects. So dates, times, intervals and decimals
//! become the text of their value, which says all of it. Lists have values of one of these kinds.

use std::fmt::Write;

use bytes::Bytes;
use jiff::Timestamp as Instant;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tidemill_database::Parameter;
use tidemill_types::{Timestamp, Value};

use crate::error::{PgError, Result, code};
use crate::messages::input::Format;
use crate::values::times::{DAY_MICROS, Day, EPOCH_DAYS, EPOCH_MICROS, SECOND_MICROS};
use crate::values::types::{JSONB, OID, ParameterType, ReadAs, Scalar, ScalarType};
use crate::values::{lists, numeric};

/// Reads the value of parameter `number`, from 1; a text without a zone is an instant in `zone`.
///
/// Errors: the bytes are not a value of the type, or the database has no such values.
pub(crate) fn decode(
    number: usize,
    value: Option<&Bytes>,
    ty: ParameterType,
    format: Format,
    zone: &TimeZone,
) -> Result<Parameter> {
    let Some(bytes) = value else { return Ok(Value::Null.into()) };
    let Some(read_as) = ty.read_as else {
        return Err(PgError::not_supported(format!(
            "parameter ${number}: values of the type with oid {} are not supported: send a text, a number, a time or a list of them, or \
             write the value into the statement",
            ty.oid
        )));
    };
    let decoded = match (read_as, format) {
        (ReadAs::Scalar(ty), Format::Text) => {
            text(bytes).and_then(|text| of_text(text, ty.scalar, zone)).map(Parameter::Value)
        }
        (ReadAs::Scalar(ty), Format::Binary) => of_binary(bytes, ty).map(Parameter::Value),
        (ReadAs::List(item), format) => lists::decode(bytes, item, format, zone).map(Parameter::List),
    };
    decoded.map_err(|error| PgError { message: format!("parameter ${number}: {}", error.message), ..error })
}

/// Reads a text as a value of a type.
///
/// Errors: it cannot be one.
pub(crate) fn of_text(text: &str, ty: Scalar, zone: &TimeZone) -> Result<Value<'static>> {
    let invalid = || {
        let shown: String = text.chars().take(100).collect();
        PgError::new(code::INVALID_TEXT, format!("invalid input syntax for type {}: \"{shown}\"", ty.name()))
    };
    let own = || Ok(Value::Str(text.to_owned().into()));
    let trimmed = text.trim();
    match ty {
        Scalar::Bool => boolean(trimmed).map(Value::Bool).ok_or_else(invalid),
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => {
            let number: i128 = trimmed.parse().map_err(|_| invalid())?;
            let fits = match ty {
                Scalar::Int2 => i16::try_from(number).is_ok(),
                Scalar::Int4 => i32::try_from(number).is_ok(),
                _ => true,
            };
            i64::try_from(number).ok().filter(|_| fits).map(Value::Int).ok_or_else(|| {
                PgError::new(
                    code::OUT_OF_RANGE,
                    format!("value \"{trimmed}\" is out of range for type {}", ty.name()),
                )
            })
        }
        Scalar::Float4 | Scalar::Float8 => {
            let number: f64 = trimmed.parse().map_err(|_| invalid())?;
            let has_digits = trimmed.contains(|c: char| c.is_ascii_digit());
            if number.is_infinite() && has_digits {
                return Err(PgError::new(
                    code::OUT_OF_RANGE,
                    format!("\"{trimmed}\" is out of range for type {}", ty.name()),
                ));
            }
            Ok(Value::Float(number))
        }
        Scalar::Numeric => {
            let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
            let is_decimal = digits.contains(|c: char| c.is_ascii_digit())
                && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
                && digits.matches('.').count() <= 1;
            match (is_decimal, trimmed.parse::<f64>()) {
                (true, _) => Ok(Value::Str(trimmed.to_owned().into())),
                // `1e3`
                (false, Ok(number)) if number.is_finite() => Ok(Value::Str(number.to_string().into())),
                _ => Err(invalid()),
            }
        }
        Scalar::TimestampTz => {
            instant(trimmed, zone).map(Value::Time).ok_or_else(|| PgError { code: "22007", ..invalid() })
        }
        Scalar::Bytes => match trimmed.strip_prefix("\\x") {
            Some(digits) => {
                let pairs = digits.as_bytes().chunks(2);
                let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
                let bytes: Option<Vec<u8>> = bytes.collect();
                bytes.filter(|_| digits.len().is_multiple_of(2)).ok_or_else(invalid).and_then(of_bytes)
            }
            None if !text.contains('\\') => own(),
            None => Err(invalid()),
        },
        Scalar::Text | Scalar::Json | Scalar::Date | Scalar::Time | Scalar::Timestamp | Scalar::Interval => {
            own()
        }
    }
}

/// Returns whether a text is true or false, by any beginning of the words that PostgreSQL takes.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| word.starts_with(&text));
    match text.as_str() {
        "" | "o" => None,
        "1" => Some(true),
        "0" => Some(false),
        _ if is(&["true", "yes", "on"]) => Some(true),
        _ if is(&["false", "no", "off"]) => Some(false),
        _ => None,
    }
}

/// Returns the instant of a text such as `2024-05-01 12:00:00+02`, `2024-05-01T10:00Z` or `2024-05-01`.
pub(crate) fn instant(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let micros = |instant: Instant| Timestamp(instant.as_microsecond());
    // hours alone are an offset for PostgreSQL, and not for the library
    let with_minutes = || {
        let at = text.rfind(['+', '-']).filter(|at| *at > 10)?;
        (text.len() - at == 3).then(|| format!("{text}:00"))
    };
    let parsed = text.parse::<Instant>().ok().or_else(|| with_minutes()?.parse().ok());
    if let Some(instant) = parsed {
        return Some(micros(instant));
    }
    let civil: DateTime = text.parse().ok()?;
    Some(micros(zone.to_ambiguous_zoned(civil).compatible().ok()?.timestamp()))
}

pub(super) fn text(bytes: &Bytes) -> Result<&str> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|e| {
        PgError::new(code::UNTRANSLATABLE, format!("invalid byte sequence for encoding \"UTF8\": {e}"))
    })?;
    match text.contains('\0') {
        true => Err(PgError::new(code::UNTRANSLATABLE, "a text has the character U+0000")),
        false => Ok(text),
    }
}

fn of_bytes(bytes: Vec<u8>) -> Result<Value<'static>> {
    let text = String::from_utf8(bytes);
    text.map(|text| Value::Str(text.into())).map_err(|_| {
        PgError::not_supported("bytes that are not UTF-8 are not supported as a value: write decode('…', 'hex') into the statement")
    })
}

/// Reads a value of the binary format.
pub(super) fn of_binary(bytes: &Bytes, ScalarType { oid, scalar: ty }: ScalarType) -> Result<Value<'static>> {
    let malformed = || {
        PgError::new(
            code::INVALID_BINARY,
            format!("{} bytes are no value of type {} in the binary format", bytes.len(), ty.name()),
        )
    };
    let big = |bytes: &[u8]| -> Result<i64> {
        let value: [u8; 8] = bytes.try_into().map_err(|_| malformed())?;
        Ok(i64::from_be_bytes(value))
    };
    let small = |bytes: &[u8]| -> Result<i32> {
        let value: [u8; 4] = bytes.try_into().map_err(|_| malformed())?;
        Ok(i32::from_be_bytes(value))
    };
    Ok(match ty {
        Scalar::Bool => match bytes.as_ref() {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err(malformed()),
        },
        Scalar::Int2 => {
            let value: [u8; 2] = bytes.as_ref().try_into().map_err(|_| malformed())?;
            Value::Int(i16::from_be_bytes(value).into())
        }
        Scalar::Int4 => Value::Int(small(bytes)?.into()),
        Scalar::Int8 if oid == OID => Value::Int(small(bytes)?.cast_unsigned().into()),
        Scalar::Int8 => Value::Int(big(bytes)?),
        Scalar::Float4 => Value::Float(f32::from_bits(small(bytes)?.cast_unsigned()).into()),
        Scalar::Float8 => Value::Float(f64::from_bits(big(bytes)?.cast_unsigned())),
        Scalar::Numeric => Value::Str(numeric::decode(bytes)?.into()),
        Scalar::Text => Value::Str(text(bytes)?.to_owned().into()),
        Scalar::Json => match (oid, bytes.split_first()) {
            (JSONB, Some((1, _))) => Value::Str(text(&bytes.slice(1..))?.to_owned().into()),
            (JSONB, _) => return Err(malformed()),
            _ => Value::Str(text(bytes)?.to_owned().into()),
        },
        Scalar::Bytes => of_bytes(bytes.to_vec())?,
        Scalar::Date => {
            let days = i64::from(small(bytes)?) + i64::from(EPOCH_DAYS);
            Value::Str(day_text(days)?.into())
        }
        Scalar::Time => {
            let micros = big(bytes)?;
            if !(0..DAY_MICROS).contains(&micros) {
                return Err(PgError::new(code::TIME_OUT_OF_RANGE, "a time of the day is out of range"));
            }
            Value::Str(time_text(micros).into())
        }
        Scalar::Timestamp | Scalar::TimestampTz => {
            let micros = binary_instant(big(bytes)?)?;
            if ty == Scalar::TimestampTz {
                return Ok(Value::Time(Timestamp(micros)));
            }
            let day = day_text(micros.div_euclid(DAY_MICROS))?;
            Value::Str(format!("{day}T{}", time_text(micros.rem_euclid(DAY_MICROS))).into())
        }
        Scalar::Interval => {
            let (Some(micros), Some(days), Some(months), 16) =
                (bytes.get(..8), bytes.get(8..12), bytes.get(12..16), bytes.len())
            else {
                return Err(malformed());
            };
            Value::Str(interval_text(small(months)?, small(days)?, big(micros)?).into())
        }
    })
}

/// Returns the microseconds since 1970 of a binary instant or time.
///
/// Errors: it is infinite.
pub(crate) fn binary_instant(since_2000: i64) -> Result<i64> {
    let is_infinite = since_2000 == i64::MIN;
    since_2000.checked_add(EPOCH_MICROS).filter(|_| !is_infinite).ok_or_else(infinite)
}

fn infinite() -> PgError {
    PgError::new(
        code::TIME_OUT_OF_RANGE,
        "infinite times, and those after the year 294246, are not supported",
    )
}

/// Returns a day as text, for which it must have four digits of a year.
fn day_text(days: i64) -> Result<String> {
    let Day { year, month, day } = Day::after_1970(days);
    match (1..=9_999).contains(&year) {
        true => Ok(format!("{year:04}-{month:02}-{day:02}")),
        false => Err(PgError::new(
            code::TIME_OUT_OF_RANGE,
            format!("a date in the year {year}: expected one from 1 to 9999"),
        )),
    }
}

fn time_text(micros: i64) -> String {
    let seconds = micros / SECOND_MICROS;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:06}", micros % SECOND_MICROS)
}

fn interval_text(months: i32, days: i32, micros: i64) -> String {
    let mut text = String::new();
    // a string takes all that is written
    let _ = write!(text, "{months} months {days} days ");
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    let _ = write!(text, "{sign}{}.{:06} seconds", micros / 1_000_000, micros % 1_000_000);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(ty: Scalar, bytes: &'static [u8], format: Format) -> Result<Parameter> {
        let bytes = Bytes::from_static(bytes);
        decode(1, Some(&bytes), ParameterType::of_oid(ty.oid()), format, &TimeZone::UTC)
    }

    #[test]
    fn texts_are_read_as_values_of_their_type() {
        for (ty, text, expected) in [
            (Scalar::Bool, "t", "true"),
            (Scalar::Bool, "OFF", "false"),
            (Scalar::Int2, " -7 ", "-7"),
            (Scalar::Float8, "-Infinity", "-inf"),
            (Scalar::Numeric, "-0012.50", "\"-0012.50\""),
            (Scalar::Numeric, "1e3", "\"1000\""),
            (Scalar::Bytes, "\\x6162", "\"ab\""),
            (Scalar::Date, "2024-02-29", "\"2024-02-29\""),
        ] {
            let found = value(ty, text.as_bytes(), Format::Text).unwrap();
            assert_eq!(found.to_string(), expected, "{ty:?} {text}");
        }
        for (ty, text, state) in [
            (Scalar::Bool, "o", code::INVALID_TEXT),
            (Scalar::Int2, "40000", code::OUT_OF_RANGE),
            (Scalar::Int8, "9223372036854775808", code::OUT_OF_RANGE),
            (Scalar::Int4, "4.5", code::INVALID_TEXT),
            (Scalar::Float8, "1e400", code::OUT_OF_RANGE),
            (Scalar::Numeric, "NaN", code::INVALID_TEXT),
            (Scalar::TimestampTz, "noon", "22007"),
            (Scalar::Bytes, "\\xfff", code::INVALID_TEXT),
            (Scalar::Bytes, "\\xff", code::NOT_SUPPORTED),
            (Scalar::Text, "a\0", code::UNTRANSLATABLE),
        ] {
            let bytes = text.as_bytes();
            let error = value(ty, bytes, Format::Text).unwrap_err();
            assert_eq!(error.code, state, "{ty:?} {text}: {}", error.message);
            assert!(error.message.starts_with("parameter $1: "));
        }
    }

    #[test]
    fn instants_without_an_offset_are_in_the_zone_of_the_session() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let noon = Timestamp(1_714_557_600_000_000);
        for text in [
            "2024-05-01 12:00:00",
            "2024-05-01 12:00:00+02",
            "2024-05-01T10:00:00Z",
            "2024-05-01 10:00:00+00:00",
        ] {
            assert_eq!(instant(text, &berlin), Some(noon), "{text}");
        }
        assert_eq!(instant("2024-05-01", &TimeZone::UTC), Some(Timestamp(1_714_521_600_000_000)));
    }

    #[test]
    fn binary_values_are_checked_for_their_length() {
        let interval = [0, 0, 0, 0, 0, 0x0f, 0x42, 0x41, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff];
        let interval = value(Scalar::Interval, Box::leak(Box::new(interval)), Format::Binary).unwrap();
        assert_eq!(interval.to_string(), "\"-1 months 2 days 1.000001 seconds\"");
        assert_eq!(
            value(Scalar::Date, &[0, 0, 0, 59], Format::Binary).unwrap().to_string(),
            "\"2000-02-29\""
        );
        for (ty, bytes) in [
            (Scalar::Bool, &[2][..]),
            (Scalar::Int4, &[0, 0, 1]),
            (Scalar::Float8, &[0; 4]),
            (Scalar::Interval, &[0; 15]),
            (Scalar::Time, &[0xff; 8]),
            (Scalar::TimestampTz, &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (Scalar::TimestampTz, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
            (Scalar::Date, &[0x7f, 0xff, 0xff, 0xff]),
        ] {
            assert!(value(ty, bytes, Format::Binary).is_err(), "{ty:?} {bytes:?}");
        }
        let point = ParameterType::of_oid(600);
        let error = decode(2, Some(&Bytes::new()), point, Format::Text, &TimeZone::UTC).unwrap_err();
        assert_eq!((error.code, error.message.contains("$2")), (code::NOT_SUPPORTED, true));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>, oid in 0_u32..4000, is_binary: bool) {
            let format = if is_binary { Format::Binary } else { Format::Text };
            let _ = decode(1, Some(&bytes.into()), ParameterType::of_oid(oid), format, &TimeZone::UTC);
        }
    }
}
