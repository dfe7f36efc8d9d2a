//! Keys: BSON values as bytes whose order is MongoDB's order of values.
//!
//! A key starts with the rank of its type, so values of different types order as MongoDB orders types:
//! MinKey, undefined, null, numbers, strings, documents, arrays, binary, object ids, booleans, dates,
//! timestamps, regular expressions, pointers, code, MaxKey. The rest of a key is self-terminating, so keys
//! can be concatenated.
//!
//! Numbers of all four types share one form: the largest double that is not above the number, then either 0,
//! if that equals the number, or 1 and the exact decimal digits. So 1, 1.0 and Decimal128 1.00 have equal
//! keys, and no integer or decimal is rounded.

use std::fmt;

use smallvec::SmallVec;
use tidemill_types::Value;

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::values::decimal;
use crate::values::raw::{OwnedRawValue, RawValue, elements, le_i32, tag};

/// Buffer of a [`Key`]; up to 24 bytes are inline.
pub(crate) type KeyBuf = SmallVec<[u8; 24]>;

/// A value, or several concatenated, in MongoDB's order. Up to 24 bytes are stored inline: most numbers, all
/// dates, object ids and UUIDs, and strings of up to 21 bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(pub(crate) KeyBuf);

impl Clone for Key {
    /// Copies the bytes at once; the derived method would push them one by one.
    fn clone(&self) -> Self {
        Self(KeyBuf::from_slice(&self.0))
    }
}

impl Key {
    /// Returns the key of a value that owns its bytes. Errors: it cannot be encoded as BSON.
    pub fn of_bson(value: &bson::Bson) -> Result<Self> {
        let raw = bson::RawBson::try_from(value.clone())
            .map_err(|e| DocsError::new(ErrorCode::InvalidBson, e.to_string()))?;
        Ok(Self::of(&Value::from_bson(raw.as_raw_bson_ref())))
    }

    /// Returns the key of a value that owns its bytes, with strings in the order of a collation. Errors: as [`Self::of_bson`].
    pub fn of_bson_by(value: &bson::Bson, collation: Option<&Collation>) -> Result<Self> {
        let Some(collation) = collation else { return Self::of_bson(value) };
        let raw = bson::RawBson::try_from(value.clone())
            .map_err(|e| DocsError::new(ErrorCode::InvalidBson, e.to_string()))?;
        Ok(Self::of_by(&Value::from_bson(raw.as_raw_bson_ref()), Some(collation)))
    }

    /// Returns the key of a value, with strings in the order of a collation; a missing value has the key of null.
    pub fn of_by(value: &Value<'_>, collation: Option<&Collation>) -> Self {
        match collation {
            None => Self::of(value),
            collation => Self::of_raw_by(OwnedRawValue::from_value(value).as_raw(), collation),
        }
    }

    /// Returns the key of a value; a missing value has the key of null.
    pub fn of(value: &Value<'_>) -> Self {
        let mut buf = KeyBuf::new();
        match value {
            Value::Int(n) => {
                buf.push(rank(tag::INT64));
                put_integer(&mut buf, *n);
            }
            Value::Str(s) => {
                buf.push(rank(tag::STRING));
                put_text(&mut buf, s.as_bytes());
            }
            other => put(&mut buf, OwnedRawValue::from_value(other).as_raw()),
        }
        Self(buf)
    }

    pub(crate) fn of_raw(raw: RawValue<'_>) -> Self {
        let mut buf = KeyBuf::new();
        put(&mut buf, raw);
        Self(buf)
    }

    pub(crate) fn of_raw_by(raw: RawValue<'_>, collation: Option<&Collation>) -> Self {
        let mut buf = KeyBuf::new();
        put_by(&mut buf, raw, collation);
        Self(buf)
    }

    /// Returns the bytes, which compare like the values.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes allocated on the heap.
    pub fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.len() } else { 0 }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str(")")
    }
}

/// Returns the rank of a type in MongoDB's order. 0 is reserved for the end of documents and arrays.
pub(crate) fn rank(tag: u8) -> u8 {
    match tag {
        tag::MIN_KEY => 1,
        tag::UNDEFINED => 2,
        tag::NULL => 5,
        tag::INT32 | tag::INT64 | tag::DOUBLE | tag::DECIMAL => 10,
        tag::STRING | tag::SYMBOL => 15,
        tag::DOCUMENT => 20,
        tag::ARRAY => 25,
        tag::BINARY => 30,
        tag::OBJECT_ID => 35,
        tag::BOOL => 40,
        tag::DATE => 45,
        tag::TIMESTAMP => 47,
        tag::REGEX => 50,
        tag::DB_POINTER => 55,
        tag::CODE => 60,
        tag::CODE_WITH_SCOPE => 65,
        _ => 0xF0,
    }
}

/// Appends the key of `raw`.
pub(crate) fn put(buf: &mut KeyBuf, raw: RawValue<'_>) {
    put_by(buf, raw, None);
}

/// Appends the key of `raw`, with strings in the order of a collation.
#[inline]
pub(crate) fn put_by(buf: &mut KeyBuf, raw: RawValue<'_>, collation: Option<&Collation>) {
    buf.push(rank(raw.tag));
    put_payload(buf, raw, collation);
}

/// Appends the key of `raw` for a descending field: every byte is inverted.
pub(crate) fn put_descending(buf: &mut KeyBuf, raw: RawValue<'_>, collation: Option<&Collation>) {
    let start = buf.len();
    put_by(buf, raw, collation);
    buf[start..].iter_mut().for_each(|b| *b = !*b);
}

/// Returns whether the key of a value depends on the collation.
pub(crate) fn has_strings(raw: RawValue<'_>) -> bool {
    match raw.tag {
        tag::STRING | tag::SYMBOL => true,
        tag::DOCUMENT | tag::ARRAY => elements(raw.bytes).any(|e| has_strings(e.value)),
        _ => false,
    }
}

fn put_payload(buf: &mut KeyBuf, raw: RawValue<'_>, collation: Option<&Collation>) {
    match raw.tag {
        tag::INT32 => put_integer(buf, raw.i32().into()),
        tag::INT64 => put_integer(buf, raw.i64()),
        tag::DOUBLE => put_double(buf, raw.f64()),
        tag::DECIMAL => put_decimal(buf, raw),
        tag::STRING | tag::SYMBOL => match collation {
            None => put_text(buf, raw.text_bytes()),
            Some(collation) => put_text(buf, &collation.sort_key(raw.text_bytes())),
        },
        tag::CODE => put_text(buf, raw.text_bytes()),
        tag::DOCUMENT => put_elements(buf, raw.bytes, true, collation),
        tag::ARRAY => put_elements(buf, raw.bytes, false, collation),
        // length, then subtype, then contents, as MongoDB orders them
        tag::BINARY => {
            let len = le_i32(raw.bytes).unwrap_or_default();
            buf.extend_from_slice(&len.to_be_bytes());
            buf.extend_from_slice(raw.bytes.get(4..).unwrap_or_default());
        }
        tag::OBJECT_ID | tag::BOOL => buf.extend_from_slice(raw.bytes),
        tag::DATE => buf.extend_from_slice(&((raw.i64() as u64) ^ (1 << 63)).to_be_bytes()),
        tag::TIMESTAMP => buf.extend_from_slice(&raw.i64().to_be_bytes()),
        tag::REGEX => raw.bytes.split(|b| *b == 0).take(2).for_each(|part| put_text(buf, part)),
        tag::DB_POINTER => {
            let len = u32::try_from(raw.bytes.len()).unwrap_or(u32::MAX);
            buf.extend_from_slice(&len.to_be_bytes());
            buf.extend_from_slice(raw.bytes);
        }
        tag::CODE_WITH_SCOPE => put_code_with_scope(buf, raw.bytes),
        _ => {}
    }
}

fn put_code_with_scope(buf: &mut KeyBuf, bytes: &[u8]) {
    let code_len = le_i32(bytes.get(4..).unwrap_or_default()).unwrap_or_default();
    let end = 8 + usize::try_from(code_len).unwrap_or_default();
    put_text(buf, bytes.get(8..end.saturating_sub(1)).unwrap_or_default());
    put_elements(buf, bytes.get(end..).unwrap_or_default(), true, None);
}

/// Appends the contents, with a NUL inside escaped as `00 FF`, then `00 01`. A shorter string comes first,
/// and no string runs into the value after it.
fn put_text(buf: &mut KeyBuf, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(0, rest) {
        buf.extend_from_slice(&rest[..at]);
        buf.extend_from_slice(&[0, 0xFF]);
        rest = &rest[at + 1..];
    }
    buf.extend_from_slice(rest);
    buf.extend_from_slice(&[0, 1]);
}

/// Appends elements in the order in which MongoDB compares them: type, then name, then value.
fn put_elements(buf: &mut KeyBuf, doc: &[u8], with_names: bool, collation: Option<&Collation>) {
    for e in elements(doc) {
        buf.push(rank(e.value.tag));
        if with_names {
            put_text(buf, e.name);
        }
        put_payload(buf, e.value, collation);
    }
    buf.push(0);
}

/// Integers up to this magnitude convert to a double without loss.
const EXACT: i64 = 1 << 53;

fn put_integer(buf: &mut KeyBuf, n: i64) {
    if (-EXACT..=EXACT).contains(&n) {
        put_double(buf, n as f64);
        return;
    }
    let floor = floor_of_integer(n);
    // compared as i128, in which doubles near the ends of the i64 range are exact
    if floor as i128 == i128::from(n) {
        put_double(buf, floor);
    } else {
        put_ordered(buf, floor);
        buf.push(1);
        let digits = n.unsigned_abs().to_string();
        decimal::put_digits(buf, n < 0, digits.as_bytes(), digits.len() as i32);
    }
}

/// Returns the largest double that is not above `n`.
fn floor_of_integer(n: i64) -> f64 {
    let near = n as f64;
    if near as i128 > i128::from(n) { near.next_down() } else { near }
}

fn put_double(buf: &mut KeyBuf, x: f64) {
    put_ordered(buf, x);
    buf.push(0);
}

/// Appends eight bytes that order as doubles do; NaN comes first, -0.0 equals 0.0.
fn put_ordered(buf: &mut KeyBuf, x: f64) {
    let bits = if x.is_nan() {
        0
    } else {
        let b = (x + 0.0).to_bits();
        if b >> 63 == 1 { !b } else { b | (1 << 63) }
    };
    buf.extend_from_slice(&bits.to_be_bytes());
}

fn put_decimal(buf: &mut KeyBuf, raw: RawValue<'_>) {
    let Some(bytes) = raw.bytes.first_chunk() else {
        return;
    };
    match decimal::DecimalValue::decode(*bytes) {
        decimal::DecimalValue::Nan => put_double(buf, f64::NAN),
        decimal::DecimalValue::Infinite { negative } => {
            put_double(buf, if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        decimal::DecimalValue::Finite(d) => {
            let (floor, exact) = d.floor();
            if exact {
                put_double(buf, floor);
            } else {
                put_ordered(buf, floor);
                buf.push(1);
                decimal::put_digits(buf, d.negative, &d.digits, d.point);
            }
        }
    }
}

#[cfg(test)]
mod tests;
