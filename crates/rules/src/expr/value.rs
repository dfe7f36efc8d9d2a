//! Values during rule evaluation: those of documents and events, and spans of time.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use bson::raw::{RawBson, RawDocument};
use bson::{Bson, RawBsonRef};
use tidemill_types::{Duration, Timestamp, Value};

/// A value. Strings and documents are borrowed from the event or document, unless an expression computed
/// them.
#[derive(Debug, Clone)]
pub enum RuleValue<'a> {
    /// The field does not exist, or the value could not be computed.
    Missing,
    /// The field exists and is null.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of any width.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>),
    /// Microseconds since the Unix epoch, UTC.
    Time(i64),
    /// A span of time in microseconds.
    Span(i64),
    /// A document, an array, or a BSON type that has no variant of its own.
    Bson(RawBsonRef<'a>),
    /// A computed document, array or other BSON value.
    Owned(Box<RawBson>),
}

impl<'a> RuleValue<'a> {
    /// Wraps a borrowed string.
    pub fn str(text: &'a str) -> Self {
        Self::Str(Cow::Borrowed(text))
    }

    /// Wraps a computed string.
    pub fn text(text: String) -> Self {
        Self::Str(Cow::Owned(text))
    }

    /// Converts a BSON value; documents and arrays stay borrowed.
    pub fn from_bson(value: RawBsonRef<'a>) -> Self {
        match value {
            RawBsonRef::Null | RawBsonRef::Undefined => Self::Null,
            RawBsonRef::Boolean(b) => Self::Bool(b),
            RawBsonRef::Int32(n) => Self::Int(n.into()),
            RawBsonRef::Int64(n) => Self::Int(n),
            RawBsonRef::Double(x) => Self::Float(x),
            RawBsonRef::String(s) => Self::str(s),
            RawBsonRef::DateTime(t) => Self::Time(t.timestamp_millis().saturating_mul(1000)),
            other => Self::Bson(other),
        }
    }

    /// Converts a value of the document store.
    #[inline]
    pub fn from_value(value: Value<'a>) -> Self {
        match value {
            Value::Missing => Self::Missing,
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(b),
            Value::Int(n) => Self::Int(n),
            Value::Float(x) => Self::Float(x),
            Value::Str(s) => Self::Str(s),
            Value::Time(t) => Self::Time(t.0),
            Value::Bson(v) => Self::Bson(v),
        }
    }

    /// Converts an owned BSON value.
    pub fn from_raw(value: RawBson) -> RuleValue<'static> {
        let scalar = match RuleValue::from_bson(value.as_raw_bson_ref()) {
            RuleValue::Bson(_) => None,
            other => Some(other.into_owned()),
        };
        scalar.unwrap_or_else(|| RuleValue::Owned(Box::new(value)))
    }

    /// Converts to a value of the document store. A span becomes its milliseconds.
    pub fn to_value(&self) -> Value<'_> {
        match self {
            Self::Missing => Value::Missing,
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(*b),
            Self::Int(n) => Value::Int(*n),
            Self::Float(x) => Value::Float(*x),
            Self::Str(s) => Value::str(s),
            Self::Time(t) => Value::Time(Timestamp(*t)),
            Self::Span(d) => match span_millis(*d) {
                Ok(ms) => Value::Int(ms),
                Err(ms) => Value::Float(ms),
            },
            Self::Bson(v) => Value::Bson(*v),
            Self::Owned(v) => Value::Bson(v.as_raw_bson_ref()),
        }
    }

    /// Returns whether the value is missing or null.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// Returns the value as a condition; `None`, that is missing, if it is not a boolean.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns a document, array or other BSON value, borrowed or owned.
    pub fn as_bson(&self) -> Option<RawBsonRef<'_>> {
        match self {
            Self::Bson(v) => Some(*v),
            Self::Owned(v) => Some(v.as_raw_bson_ref()),
            _ => None,
        }
    }

    /// Returns the name of the value's type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Span(_) => "a span of time",
            Self::Missing => "missing",
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Str(_) => "text",
            Self::Time(_) => "a time",
            Self::Bson(_) | Self::Owned(_) => match self.as_bson() {
                Some(RawBsonRef::Document(_)) => "an object",
                Some(RawBsonRef::Array(_)) => "an array",
                _ => "a BSON value of another type",
            },
        }
    }

    /// Compares two values; `None` if their types do not compare.
    ///
    /// A number beside a span comes from a document, which stores spans as milliseconds, and is read as such.
    pub fn compare(&self, other: &RuleValue<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Span(a), RuleValue::Span(b)) => Some(a.cmp(b)),
            (Self::Span(a), RuleValue::Int(_) | RuleValue::Float(_)) => Some(a.cmp(&other.as_span()?)),
            (Self::Int(_) | Self::Float(_), RuleValue::Span(b)) => Some(self.as_span()?.cmp(b)),
            (Self::Span(_), _) | (_, RuleValue::Span(_)) => None,
            (Self::Int(a), RuleValue::Int(b)) => Some(a.cmp(b)),
            (Self::Time(a), RuleValue::Time(b)) => Some(a.cmp(b)),
            (Self::Str(a), RuleValue::Str(b)) => Some(a.as_ref().cmp(b.as_ref())),
            _ => self.to_value().compare(&other.to_value()),
        }
    }

    /// Returns the microseconds of a span, or of a number of milliseconds.
    pub fn as_span(&self) -> Option<i64> {
        match self {
            Self::Span(d) => Some(*d),
            Self::Int(ms) => ms.checked_mul(1000),
            Self::Float(ms) => {
                let micros = (ms * 1000.0).round();
                (micros.abs() < 9.2e18).then_some(micros as i64)
            }
            _ => None,
        }
    }

    /// Converts a number to a float.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// Converts to a value that borrows nothing.
    pub fn into_owned(self) -> RuleValue<'static> {
        match self {
            Self::Missing => RuleValue::Missing,
            Self::Null => RuleValue::Null,
            Self::Bool(b) => RuleValue::Bool(b),
            Self::Int(n) => RuleValue::Int(n),
            Self::Float(x) => RuleValue::Float(x),
            Self::Str(s) => RuleValue::text(s.into_owned()),
            Self::Time(t) => RuleValue::Time(t),
            Self::Span(d) => RuleValue::Span(d),
            Self::Bson(v) => RuleValue::Owned(Box::new(v.into())),
            Self::Owned(v) => RuleValue::Owned(v),
        }
    }

    /// Converts to the BSON value to store in a document: spans become milliseconds, times are rounded down
    /// to milliseconds. `None` when the value is missing.
    pub fn to_raw_bson(&self) -> Option<RawBson> {
        Some(match self {
            Self::Missing => return None,
            Self::Null => RawBson::Null,
            Self::Bool(b) => RawBson::Boolean(*b),
            Self::Int(n) => int_bson(*n),
            Self::Float(x) => RawBson::Double(*x),
            Self::Str(s) => RawBson::String(s.clone().into_owned()),
            Self::Time(t) => RawBson::DateTime(bson::DateTime::from_millis(t.div_euclid(1000))),
            Self::Span(d) => match span_millis(*d) {
                Ok(ms) => int_bson(ms),
                Err(ms) => RawBson::Double(ms),
            },
            Self::Bson(v) => RawBson::from(*v),
            Self::Owned(v) => v.as_ref().clone(),
        })
    }

    /// Converts to JSON for users and for fields of type `object`: times as RFC 3339, spans as milliseconds.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Missing | Self::Null => serde_json::Value::Null,
            Self::Bool(b) => (*b).into(),
            Self::Int(n) => (*n).into(),
            Self::Float(x) => (*x).into(),
            Self::Str(s) => s.as_ref().into(),
            Self::Time(t) => Timestamp(*t).to_string().into(),
            Self::Span(d) => match span_millis(*d) {
                Ok(ms) => ms.into(),
                Err(ms) => ms.into(),
            },
            Self::Bson(v) => bson_json(*v),
            Self::Owned(v) => bson_json(v.as_raw_bson_ref()),
        }
    }
}

/// Chooses the integer type that MongoDB's own tools would choose.
fn int_bson(n: i64) -> RawBson {
    i32::try_from(n).map_or(RawBson::Int64(n), RawBson::Int32)
}

/// Converts microseconds to milliseconds: `Ok` if whole, else `Err` with a fraction.
fn span_millis(micros: i64) -> Result<i64, f64> {
    if micros % 1000 == 0 { Ok(micros / 1000) } else { Err(micros as f64 / 1000.0) }
}

/// Converts BSON to plain JSON: dates as RFC 3339 strings, object ids as hex, types without a JSON form as
/// Extended JSON.
pub fn bson_json(value: RawBsonRef<'_>) -> serde_json::Value {
    match value {
        RawBsonRef::Document(d) => document_json(d),
        RawBsonRef::Array(a) => a.into_iter().flatten().map(bson_json).collect(),
        RawBsonRef::DateTime(t) => Timestamp(t.timestamp_millis().saturating_mul(1000)).to_string().into(),
        RawBsonRef::ObjectId(id) => id.to_hex().into(),
        other => Bson::try_from(other).map_or(serde_json::Value::Null, Bson::into_relaxed_extjson),
    }
}

/// Converts a document to plain JSON, see [`bson_json`].
pub fn document_json(doc: &RawDocument) -> serde_json::Value {
    let fields = doc.iter().flatten().map(|(name, value)| (name.as_str().to_owned(), bson_json(value)));
    serde_json::Value::Object(fields.collect())
}

impl fmt::Display for RuleValue<'_> {
    /// Formats the value as explanations show it: strings in quotes, times as RFC 3339, spans with their
    /// unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Span(d) => Duration(*d).fmt(f),
            Self::Bson(_) | Self::Owned(_) => self.to_json().fmt(f),
            other => other.to_value().fmt(f),
        }
    }
}
