//! Values of PostgreSQL from their text form.

use tidemill_types::{FieldType, Timestamp};

use super::super::RowWriter;
use crate::text_format::{civil, micros_of_civil};

/// Numbers of built-in types, which never change.
mod oid {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const OID: u32 = 26;
    pub const JSON: u32 = 114;
    pub const FLOAT4: u32 = 700;
    pub const FLOAT8: u32 = 701;
    pub const DATE: u32 = 1082;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const NUMERIC: u32 = 1700;
    pub const JSONB: u32 = 3802;
}

/// Returns whether a type has integers of at most 64 bits.
pub(super) fn is_integer(type_oid: u32) -> bool {
    matches!(type_oid, oid::INT2 | oid::INT4 | oid::INT8)
}

/// Returns whether a type has dates or moments.
pub(super) fn is_time(type_oid: u32) -> bool {
    matches!(type_oid, oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ)
}

/// Writes a value. Types without a form of their own are texts.
pub(super) fn write(type_oid: u32, text: &str, wanted: Option<FieldType>, out: &mut RowWriter) {
    match type_oid {
        oid::BOOL => out.bool(text.starts_with('t')),
        oid::INT2 | oid::INT4 | oid::INT8 | oid::OID => out.number(text),
        oid::FLOAT4 | oid::FLOAT8 => out.float(text),
        oid::NUMERIC => out.decimal(text),
        oid::JSON | oid::JSONB => out.json(text),
        oid::BYTEA => match text.strip_prefix("\\x").and_then(from_hex) {
            Some(bytes) => out.bytes(&bytes),
            None => out.string(text),
        },
        oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ => match timestamp(text) {
            // infinite, before Christ
            None => out.string(text),
            Some(_) if type_oid == oid::DATE && !wants_time(wanted) => out.string(text),
            // a year that RFC 3339 does not have
            Some(time) if civil(time).is_none() && !wants_number(wanted) => out.string(text),
            Some(time) => out.time(time, wants_number(wanted)),
        },
        _ => out.string(text),
    }
}

fn wants_number(wanted: Option<FieldType>) -> bool {
    matches!(wanted, Some(FieldType::Int | FieldType::Long))
}

fn wants_time(wanted: Option<FieldType>) -> bool {
    matches!(wanted, Some(FieldType::Int | FieldType::Long | FieldType::Time))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Parses `2024-05-01 12:00:00.123456+00`, with or without fraction and zone, or a date. The zone is always UTC.
fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.strip_suffix("+00").unwrap_or(text);
    let (date, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let mut date = date.split('-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut clock = clock.split(':');
    let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next()?);
    let parts = [month, day, hour, minute, second].map(|part| part.parse::<u8>().ok());
    let [Some(month), Some(day), Some(hour), Some(minute), Some(second)] = parts else { return None };
    let micros: u32 = format!("{fraction:0<6}").parse().ok()?;
    let year = year.parse().ok()?;
    Some(Timestamp(micros_of_civil(year, [month, day, hour, minute, second], micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(type_oid: u32, text: &str, wanted: Option<FieldType>) -> String {
        let mut row = RowWriter::default();
        row.name("", "v");
        write(type_oid, text, wanted, &mut row);
        let bytes = row.finish();
        String::from_utf8_lossy(&bytes[5..bytes.len() - 1]).into_owned()
    }

    #[test]
    fn values_have_json_forms() {
        let long = Some(FieldType::Long);
        for (oid, text, wanted, expected) in [
            (oid::BOOL, "t", None, "true"),
            (oid::NUMERIC, "12.50", None, "12.50"),
            (oid::NUMERIC, "NaN", None, "\"NaN\""),
            (oid::BYTEA, "\\x00ff", None, "\"AP8=\""),
            (oid::DATE, "2024-02-29", None, "\"2024-02-29\""),
            (oid::DATE, "1970-01-02", long, "86400000"),
            (oid::TIMESTAMP, "2024-02-29 23:59:59.5", None, "\"2024-02-29T23:59:59.500000Z\""),
            (oid::TIMESTAMPTZ, "1970-01-01 00:00:01+00", long, "1000"),
            (oid::TIMESTAMPTZ, "infinity", None, "\"infinity\""),
            (oid::TIMESTAMP, "0044-03-15 00:00:00 BC", None, "\"0044-03-15 00:00:00 BC\""),
            (oid::TIMESTAMPTZ, "20231-01-01 00:00:00+00", None, "\"20231-01-01 00:00:00+00\""),
            (
                oid::TIMESTAMPTZ,
                "20231-01-01 00:00:00+00",
                Some(FieldType::Time),
                "\"20231-01-01 00:00:00+00\"",
            ),
            (oid::TIMESTAMP, "20231-01-01 00:00:00", long, "576261475200000"),
            (oid::DATE, "20231-01-01", None, "\"20231-01-01\""),
            (oid::TIMESTAMP, "294276-12-31 23:59:59.999999", None, "\"294276-12-31 23:59:59.999999\""),
            (oid::FLOAT8, "-0", None, "-0.0"),
            (oid::FLOAT8, "-0.5", None, "-0.5"),
            (600, "(1,2)", None, "\"(1,2)\""),
        ] {
            assert_eq!(written(oid, text, wanted), expected);
        }
    }
}
