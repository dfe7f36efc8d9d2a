//! Writes BSON as relaxed Extended JSON, directly from the bytes.
//!
//! Source: MongoDB Extended JSON v2, relaxed form: numbers as numbers, dates of the years 1970 to 9999 as
//! `{"$date":"2013-01-01T10:17:00Z"}`, ObjectIds as `{"$oid":"…"}`.

use std::fmt::Write;

use tidemill_types::Timestamp;

use super::raw_bson::{Raw, elements, tag};

/// Nesting levels that are written; stored documents have fewer.
const DEPTH_MAX: usize = 200;

/// The last millisecond of the year 9999.
const DATE_MAX_MS: i64 = 253_402_300_799_999;

/// Appends the document as JSON.
pub(super) fn write_document(out: &mut String, document: &[u8]) {
    write_fields(out, document, 0);
}

/// Appends the value as JSON.
pub(super) fn write_value(out: &mut String, value: Raw<'_>) {
    write_nested(out, value, 0);
}

fn write_fields(out: &mut String, document: &[u8], depth: usize) {
    out.push('{');
    for (index, (name, value)) in elements(document).enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(out, &String::from_utf8_lossy(name));
        out.push(':');
        write_nested(out, value, depth + 1);
    }
    out.push('}');
}

fn write_nested(out: &mut String, value: Raw<'_>, depth: usize) {
    match value.tag {
        _ if depth > DEPTH_MAX => out.push_str("\"…\""),
        tag::STRING => write_text(out, &value.text()),
        tag::INT32 => put(out, format_args!("{}", value.i32())),
        tag::INT64 => put(out, format_args!("{}", value.i64())),
        tag::DOUBLE if value.f64().is_finite() => put(out, format_args!("{:?}", value.f64())),
        tag::BOOL => out.push_str(if value.bool() { "true" } else { "false" }),
        tag::NULL => out.push_str("null"),
        tag::DATE => write_date(out, value.i64()),
        tag::OBJECT_ID => {
            out.push_str("{\"$oid\":\"");
            write_hex(out, value.bytes);
            out.push_str("\"}");
        }
        tag::DOCUMENT => write_fields(out, value.bytes, depth),
        tag::ARRAY => {
            out.push('[');
            for (index, (_, item)) in elements(value.bytes).enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_nested(out, item, depth + 1);
            }
            out.push(']');
        }
        _ => match value.to_bson() {
            Some(tree) => put(out, format_args!("{}", tree.into_relaxed_extjson())),
            None => out.push_str("null"),
        },
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes any text");
}

fn write_text(out: &mut String, text: &str) {
    const PLAIN: fn(&u8) -> bool = |b| *b >= 0x20 && *b != b'"' && *b != b'\\';
    if text.as_bytes().iter().all(PLAIN) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    put(out, format_args!("{}", serde_json::Value::from(text)));
}

fn write_date(out: &mut String, millis: i64) {
    if !(0..=DATE_MAX_MS).contains(&millis) {
        put(out, format_args!("{{\"$date\":{{\"$numberLong\":\"{millis}\"}}}}"));
        return;
    }
    let seconds = Timestamp(millis / 1000 * 1_000_000).to_string();
    out.push_str("{\"$date\":\"");
    out.push_str(seconds.trim_end_matches('Z'));
    if millis % 1000 != 0 {
        put(out, format_args!(".{:03}", millis % 1000));
    }
    out.push_str("Z\"}");
}

/// Appends the bytes as lower-case hex digits.
pub(super) fn write_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)].into());
        out.push(DIGITS[usize::from(byte & 15)].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Bson, doc};

    #[test]
    fn agrees_with_the_bson_library() {
        let document = doc! {
            "_id": bson::oid::ObjectId::from_bytes([7; 12]),
            "text": "a \"quoted\" line\nand é", "int": 7, "long": i64::MAX, "double": 1.5, "whole": 2.0, "big": 1e300,
            "nan": f64::NAN, "yes": true, "none": Bson::Null,
            "date": bson::DateTime::from_millis(1_357_035_420_000), "ms": bson::DateTime::from_millis(1_357_035_420_123),
            "old": bson::DateTime::from_millis(-1), "nested": { "array": [1, { "x": [] }, "s"], "empty": {} },
            "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2, 3] },
            "regex": bson::Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("i").into() },
            "timestamp": bson::Timestamp { time: 1, increment: 2 }, "key with \"quote\"": 1,
        };
        let bytes = bson::serialize_to_vec(&document).unwrap();
        let mut out = String::new();
        write_document(&mut out, &bytes);
        let ours: serde_json::Value = serde_json::from_str(&out).expect(&out);
        assert_eq!(ours, Bson::Document(document).into_relaxed_extjson());
    }
}
