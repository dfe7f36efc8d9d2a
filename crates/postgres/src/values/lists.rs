//! Lists of clients: from the text or binary format to values of the database.

use arrow_schema::{DataType, TimeUnit};
use bytes::{Buf, Bytes};
use jiff::tz::TimeZone;
use tidemill_database::{LIST_ITEMS_MAX, ListTextError, ParameterList, list_items};
use tidemill_types::Value;

use crate::error::{PgError, Result, code};
use crate::messages::input::Format;
use crate::values::parameters::{of_binary, of_text, text};
use crate::values::types::{Scalar, ScalarType};

/// Reads a list with one dimension; a text without a zone is an instant in `zone`.
///
/// Errors: the bytes are no list of such values, or a list of lists, or there are too many.
pub(super) fn decode(
    bytes: &Bytes,
    item: ScalarType,
    format: Format,
    zone: &TimeZone,
) -> Result<ParameterList> {
    let items = match format {
        Format::Text => items_of_text(text(bytes)?, item.scalar, zone)?,
        Format::Binary => items_of_binary(bytes.clone(), item)?,
    };
    Ok(ParameterList { item: arrow(item.scalar), items })
}

/// Returns the type of values that are read as those of a scalar.
fn arrow(scalar: Scalar) -> DataType {
    match scalar {
        Scalar::Bool => DataType::Boolean,
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => DataType::Int64,
        Scalar::Float4 | Scalar::Float8 => DataType::Float64,
        Scalar::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Scalar::Bytes
        | Scalar::Numeric
        | Scalar::Text
        | Scalar::Json
        | Scalar::Date
        | Scalar::Time
        | Scalar::Timestamp
        | Scalar::Interval => DataType::Utf8,
    }
}

fn items_of_text(text: &str, item: Scalar, zone: &TimeZone) -> Result<Vec<Value<'static>>> {
    let items = list_items(text).map_err(|error| match error {
        ListTextError::Malformed => {
            let shown: String = text.chars().take(100).collect();
            PgError::new(code::INVALID_TEXT, format!("malformed array literal: \"{shown}\": {error}"))
        }
        ListTextError::Nested => nested(),
        ListTextError::TooLong => too_long(),
    })?;
    let value = |item_text: Option<String>| match item_text {
        Some(item_text) => of_text(&item_text, item, zone),
        None => Ok(Value::Null),
    };
    items.into_iter().map(value).collect()
}

fn nested() -> PgError {
    PgError::not_supported("lists of lists are not supported: send a list of values")
}

fn too_long() -> PgError {
    PgError::new(code::TOO_LARGE, format!("a list has at most {LIST_ITEMS_MAX} values: send it in parts"))
}

/// Reads dimensions, whether there are nulls, the oid of the values, their number and the number of the first; then each with its length.
fn items_of_binary(mut bytes: Bytes, item: ScalarType) -> Result<Vec<Value<'static>>> {
    let malformed =
        || PgError::new(code::INVALID_BINARY, "the bytes are no list in the binary format".to_owned());
    let number = |bytes: &mut Bytes| bytes.try_get_i32().map_err(|_| malformed());
    let dimensions = number(&mut bytes)?;
    let has_nulls = number(&mut bytes)?;
    let oid = number(&mut bytes)?.cast_unsigned();
    if !(0..=6).contains(&dimensions) || !(0..=1).contains(&has_nulls) {
        return Err(malformed());
    }
    if oid != item.oid {
        return Err(PgError::new(
            "42804",
            format!(
                "the list has values of the type with oid {oid}: expected {} ({})",
                item.scalar.name(),
                item.oid
            ),
        ));
    }
    match dimensions {
        0 if bytes.is_empty() => return Ok(Vec::new()),
        0 => return Err(malformed()),
        1 => {}
        _ => return Err(nested()),
    }
    let count = usize::try_from(number(&mut bytes)?).map_err(|_| malformed())?;
    number(&mut bytes)?;
    if count > LIST_ITEMS_MAX {
        return Err(too_long());
    }
    // each has a length
    if count > bytes.len() / size_of::<i32>() {
        return Err(malformed());
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number(&mut bytes)?;
        items.push(match usize::try_from(length) {
            Ok(length) if length <= bytes.len() => of_binary(&bytes.split_to(length), item)?,
            Err(_) if length == -1 => Value::Null,
            _ => return Err(malformed()),
        });
    }
    match bytes.is_empty() {
        true => Ok(items),
        false => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_database::Parameter;

    use super::*;
    use crate::values::parameters;
    use crate::values::types::{ParameterType, PgType};

    fn list(item: Scalar, bytes: Vec<u8>, format: Format) -> Result<Parameter> {
        let ty = ParameterType::of_oid(PgType::Array(item).oid());
        parameters::decode(1, Some(&bytes.into()), ty, format, &TimeZone::UTC)
    }

    fn binary(numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn lists_are_read_in_both_formats() {
        for (item, text, expected) in [
            (Scalar::Text, "{a,NULL,\"b, c\"}", "[\"a\", null, \"b, c\"]"),
            (Scalar::Int4, "{ 1, -2 }", "[1, -2]"),
            (Scalar::Float8, "{1.5,NaN}", "[1.5, NaN]"),
            (Scalar::Bool, "{t,f,NULL}", "[true, false, null]"),
            (Scalar::Numeric, "{1.50}", "[\"1.50\"]"),
            (Scalar::Int8, "{}", "[]"),
        ] {
            let found = list(item, text.into(), Format::Text).unwrap();
            assert_eq!(found.to_string(), expected, "{text}");
        }
        let found = list(Scalar::Int4, binary(&[1, 1, 23, 3, 1, 4, 7, -1, 4, -9]), Format::Binary).unwrap();
        assert_eq!(found.to_string(), "[7, null, -9]");
        let none = list(Scalar::Int4, binary(&[0, 0, 23]), Format::Binary).unwrap();
        let Parameter::List(none) = none else { panic!("{none}") };
        assert!(none.item == DataType::Int64 && none.items.is_empty());
        let time = list(Scalar::TimestampTz, "{2024-05-01 12:00+02}".into(), Format::Text).unwrap();
        let Parameter::List(time) = time else { panic!("{time}") };
        assert!(matches!(time.items.as_slice(), [Value::Time(_)]), "{time:?}");
    }

    #[test]
    fn what_is_no_list_of_such_values_is_refused() {
        for (text, state, part) in [
            ("1,2", code::INVALID_TEXT, "malformed array literal: \"1,2\""),
            ("{1,x}", code::INVALID_TEXT, "invalid input syntax for type integer: \"x\""),
            ("{{1}}", code::NOT_SUPPORTED, "lists of lists"),
            ("{3000000000}", code::OUT_OF_RANGE, "out of range for type integer"),
        ] {
            let error = list(Scalar::Int4, text.into(), Format::Text).unwrap_err();
            assert!(error.code == state && error.message.contains(part), "{text}: {}", error.message);
        }
        for (numbers, state) in [
            (&[1, 0, 20, 1, 1, 4, 7][..], "42804"),
            (&[2, 0, 23, 1, 1, 1, 1, 4, 7], code::NOT_SUPPORTED),
            (&[1, 0, 23, 2, 1, 4, 7], code::INVALID_BINARY),
            (&[1, 0, 23, 1, 1, 4, 7, 0], code::INVALID_BINARY),
            (&[1, 0, 23, 1, 1, 2, 7], code::INVALID_BINARY),
            (&[1, 0, 23, 1, 1, -2], code::INVALID_BINARY),
            (&[1, 0, 23, -1, 1], code::INVALID_BINARY),
            (&[1, 0, 23, i32::MAX, 1], code::TOO_LARGE),
            (&[0, 0], code::INVALID_BINARY),
            (&[7, 0, 23], code::INVALID_BINARY),
        ] {
            let error = list(Scalar::Int4, binary(numbers), Format::Binary).unwrap_err();
            assert_eq!(error.code, state, "{numbers:?}: {}", error.message);
        }
    }
}
