//! BSON values in place: their type byte and their bytes.
//!
//! Documents pass [`crate::values::validate`] once, when they enter, and are not validated again here. On damaged
//! bytes the iterator stops early; it never reads out of bounds.

use bson::raw::RawDocument;
use bson::{Bson, RawBsonRef, RawDocumentBuf};
use smallvec::SmallVec;
use tidemill_types::{Timestamp, Value};

pub(crate) use crate::values::element::{tag, value_len};

/// The document without fields.
pub(crate) const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// A value that borrows its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawValue<'a> {
    pub tag: u8,
    pub bytes: &'a [u8],
}

/// One element of a document or array: its start and end, its name without the NUL, its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawElement<'a> {
    pub start: usize,
    pub end: usize,
    pub name: &'a [u8],
    pub value: RawValue<'a>,
}

/// Iterator over the elements of a document or array, in order.
#[derive(Clone)]
pub(crate) struct Elements<'a> {
    doc: &'a [u8],
    at: usize,
}

pub(crate) fn elements(doc: &[u8]) -> Elements<'_> {
    Elements { doc, at: 4 }
}

pub(crate) fn le_i32(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|b| i32::from_le_bytes(*b))
}

pub(crate) fn le_i64(bytes: &[u8]) -> Option<i64> {
    bytes.first_chunk().map(|b| i64::from_le_bytes(*b))
}

impl<'a> Iterator for Elements<'a> {
    type Item = RawElement<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawElement<'a>> {
        let start = self.at;
        let tag = *self.doc.get(start)?;
        if tag == 0 {
            return None;
        }
        let name_at = start + 1;
        let rest = &self.doc[name_at..];
        let name_len = memchr::memchr(0, rest)?;
        let value_at = name_at + name_len + 1;
        let len = value_len(tag, &self.doc[value_at..])?;
        self.at = value_at + len;
        Some(RawElement {
            start,
            end: self.at,
            name: &rest[..name_len],
            value: RawValue { tag, bytes: &self.doc[value_at..self.at] },
        })
    }
}

/// Returns the element called `name`.
#[inline]
pub(crate) fn field<'a>(doc: &'a [u8], name: &[u8]) -> Option<RawElement<'a>> {
    elements(doc).find(|e| e.name == name)
}

impl<'a> RawValue<'a> {
    pub const NULL: RawValue<'static> = RawValue { tag: tag::NULL, bytes: &[] };

    pub fn i32(self) -> i32 {
        le_i32(self.bytes).unwrap_or_default()
    }

    pub fn i64(self) -> i64 {
        le_i64(self.bytes).unwrap_or_default()
    }

    pub fn f64(self) -> f64 {
        f64::from_bits(self.i64() as u64)
    }

    /// Returns the bytes of a string, code or symbol without length and NUL.
    pub fn text_bytes(self) -> &'a [u8] {
        self.bytes.get(4..self.bytes.len().saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the text of a string, code or symbol; `None` if it is not UTF-8.
    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.text_bytes()).ok()
    }

    /// Returns an integer, or a float without a fraction that fits.
    pub fn as_integer(self) -> Option<i64> {
        match self.tag {
            tag::INT32 => Some(self.i32().into()),
            tag::INT64 => Some(self.i64()),
            tag::DOUBLE => {
                let x = self.f64();
                (x.trunc() == x && x.abs() < 9.2e18).then_some(x as i64)
            }
            _ => None,
        }
    }

    /// Returns MongoDB's name of the type, as `$type` accepts it.
    pub fn type_name(self) -> &'static str {
        type_name(self.tag)
    }

    /// Decodes the value to a BSON tree.
    pub fn to_bson(self) -> Bson {
        let doc = self.in_document("");
        let decoded = RawDocument::from_bytes(&doc).ok().and_then(|d| d.get("").ok().flatten());
        // only damaged bytes cannot be decoded, and validation rejects those
        decoded.and_then(|v| Bson::try_from(v).ok()).unwrap_or(Bson::Undefined)
    }

    /// Returns the document `{name: value}`.
    pub fn in_document(self, name: &str) -> Vec<u8> {
        let mut doc = vec![0; 4];
        put_element(&mut doc, name.as_bytes(), self);
        close_document(&mut doc, 0);
        doc
    }
}

/// Returns MongoDB's name of a BSON type.
pub(crate) fn type_name(tag: u8) -> &'static str {
    match tag {
        tag::DOUBLE => "double",
        tag::STRING => "string",
        tag::DOCUMENT => "object",
        tag::ARRAY => "array",
        tag::BINARY => "binData",
        tag::UNDEFINED => "undefined",
        tag::OBJECT_ID => "objectId",
        tag::BOOL => "bool",
        tag::DATE => "date",
        tag::NULL => "null",
        tag::REGEX => "regex",
        tag::DB_POINTER => "dbPointer",
        tag::CODE => "javascript",
        tag::SYMBOL => "symbol",
        tag::CODE_WITH_SCOPE => "javascriptWithScope",
        tag::INT32 => "int",
        tag::TIMESTAMP => "timestamp",
        tag::INT64 => "long",
        tag::DECIMAL => "decimal",
        tag::MIN_KEY => "minKey",
        tag::MAX_KEY => "maxKey",
        _ => "unknown",
    }
}

/// Converts the value of `elem`, an element of `container`, to the form that rules read.
pub(crate) fn view<'a>(container: &'a [u8], elem: &RawElement<'a>) -> Value<'a> {
    let v = elem.value;
    match v.tag {
        tag::INT32 => Value::Int(v.i32().into()),
        tag::INT64 => Value::Int(v.i64()),
        tag::DOUBLE => Value::Float(v.f64()),
        tag::STRING => v.text().map_or(Value::Missing, Value::str),
        tag::BOOL => Value::Bool(v.bytes.first() == Some(&1)),
        tag::DATE => Value::Time(Timestamp(v.i64().saturating_mul(1000))),
        tag::NULL => Value::Null,
        tag::OBJECT_ID => v.bytes.first_chunk().map_or(Value::Missing, |bytes| {
            Value::Bson(RawBsonRef::ObjectId(bson::oid::ObjectId::from_bytes(*bytes)))
        }),
        tag::DOCUMENT => match RawDocument::from_bytes(v.bytes) {
            Ok(d) => Value::Bson(RawBsonRef::Document(d)),
            Err(_) => Value::Missing,
        },
        // the BSON library creates these values only from their container
        _ => {
            let name = std::str::from_utf8(elem.name).unwrap_or_default();
            let found = RawDocument::from_bytes(container).ok().and_then(|d| d.get(name).ok().flatten());
            found.map_or(Value::Missing, Value::from_bson)
        }
    }
}

/// A value that owns its bytes; up to 16 are inline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnedRawValue {
    pub tag: u8,
    pub bytes: SmallVec<[u8; 16]>,
}

impl OwnedRawValue {
    pub fn as_raw(&self) -> RawValue<'_> {
        RawValue { tag: self.tag, bytes: &self.bytes }
    }

    pub fn of(raw: RawValue<'_>) -> Self {
        Self { tag: raw.tag, bytes: SmallVec::from_slice(raw.bytes) }
    }

    fn scalar(tag: u8, bytes: &[u8]) -> Self {
        Self { tag, bytes: SmallVec::from_slice(bytes) }
    }

    pub fn string(text: &str) -> Self {
        let mut bytes = SmallVec::with_capacity(text.len() + 5);
        // the document limit rejects text past 2 GiB; a saturated length makes it too long for any document
        bytes.extend_from_slice(&i32::try_from(text.len() + 1).unwrap_or(i32::MAX).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        Self { tag: tag::STRING, bytes }
    }

    /// Converts a value to BSON; a missing value becomes null, a time is rounded down to milliseconds.
    pub fn from_value(value: &Value<'_>) -> Self {
        match value {
            Value::Missing | Value::Null => Self::of(RawValue::NULL),
            Value::Bool(b) => Self::scalar(tag::BOOL, &[u8::from(*b)]),
            Value::Int(n) => match i32::try_from(*n) {
                Ok(small) => Self::scalar(tag::INT32, &small.to_le_bytes()),
                Err(_) => Self::scalar(tag::INT64, &n.to_le_bytes()),
            },
            Value::Float(x) => Self::scalar(tag::DOUBLE, &x.to_le_bytes()),
            Value::Str(s) => Self::string(s),
            Value::Time(t) => Self::scalar(tag::DATE, &t.0.div_euclid(1000).to_le_bytes()),
            Value::Bson(RawBsonRef::Document(d)) => Self::scalar(tag::DOCUMENT, d.as_bytes()),
            Value::Bson(RawBsonRef::Array(a)) => Self::scalar(tag::ARRAY, a.as_bytes()),
            Value::Bson(RawBsonRef::ObjectId(id)) => Self::scalar(tag::OBJECT_ID, &id.bytes()),
            Value::Bson(other) => {
                let mut doc = RawDocumentBuf::new();
                doc.append(bson::raw::cstr!("v"), *other);
                Self::first_of(doc.as_bytes())
            }
        }
    }

    /// Converts a BSON tree. Errors: a name with a NUL inside.
    pub fn from_bson(value: &Bson) -> Result<Self, String> {
        match value {
            Bson::Int32(n) => Ok(Self::scalar(tag::INT32, &n.to_le_bytes())),
            Bson::Int64(n) => Ok(Self::scalar(tag::INT64, &n.to_le_bytes())),
            Bson::Double(x) => Ok(Self::scalar(tag::DOUBLE, &x.to_le_bytes())),
            Bson::Boolean(b) => Ok(Self::scalar(tag::BOOL, &[u8::from(*b)])),
            Bson::String(s) => Ok(Self::string(s)),
            Bson::DateTime(t) => Ok(Self::scalar(tag::DATE, &t.timestamp_millis().to_le_bytes())),
            Bson::Null => Ok(Self::of(RawValue::NULL)),
            other => {
                let raw = RawDocumentBuf::try_from(&bson::doc! { "v": other.clone() })
                    .map_err(|e| e.to_string())?;
                Ok(Self::first_of(raw.as_bytes()))
            }
        }
    }

    fn first_of(doc: &[u8]) -> Self {
        Self::of(elements(doc).next().map_or(RawValue::NULL, |e| e.value))
    }
}

/// Appends an element to an open document.
pub(crate) fn put_element(out: &mut Vec<u8>, name: &[u8], value: RawValue<'_>) {
    out.push(value.tag);
    out.extend_from_slice(name);
    out.push(0);
    out.extend_from_slice(value.bytes);
}

/// Closes the document opened with four bytes at `start`: appends its end byte and writes its length.
///
/// A document past 2 GiB gets a negative length; the document limit rejects it afterwards.
pub(crate) fn close_document(out: &mut Vec<u8>, start: usize) {
    out.push(0);
    let len = i32::try_from(out.len() - start).unwrap_or(-1);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}
