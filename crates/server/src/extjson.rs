//! MongoDB's Extended JSON: any form is accepted, the relaxed form is written, both in field order.
//!
//! The `bson` crate converts the type wrappers (`{"$oid": …}`, `{"$date": …}`). This module keeps fields in
//! the order in which they were sent, rejects duplicate fields instead of dropping one of them, and writes
//! stored bytes as JSON without an intermediate document tree.

use std::fmt;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, Serialize, SerializeMap, SerializeSeq, Serializer};

/// Keys of objects that represent a value of another type.
const WRAPPERS: [&str; 17] = [
    "$oid",
    "$symbol",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$code",
    "$scope",
    "$timestamp",
    "$regularExpression",
    "$dbPointer",
    "$date",
    "$maxKey",
    "$minKey",
    "$undefined",
];

/// A value parsed from Extended JSON. Integers become 32-bit if they fit, else 64-bit; larger ones are
/// rejected.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExtValue(pub Bson);

/// A document parsed from Extended JSON.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExtDocument(pub Document);

impl ExtDocument {
    /// Encodes the document as BSON.
    pub fn into_raw(self) -> Result<RawDocumentBuf, crate::error::ApiError> {
        RawDocumentBuf::try_from(&self.0).map_err(|e| {
            crate::error::ApiError::invalid(format!("the document cannot be stored as BSON: {e}"))
        })
    }
}

impl<'de> Deserialize<'de> for ExtDocument {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match ExtValue::deserialize(d)?.0 {
            Bson::Document(document) => Ok(Self(document)),
            other => Err(de::Error::custom(format!("expected an object, found {}", type_name(&other)))),
        }
    }
}

impl<'de> Deserialize<'de> for ExtValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ValueVisitor).map(Self)
    }
}

fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::Document(_) => "an object",
        Bson::Array(_) => "an array",
        Bson::String(_) => "a string",
        Bson::Boolean(_) => "a boolean",
        Bson::Null => "null",
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => "a number",
        _ => "a value of another type",
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Bson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Bson, E> {
        Ok(Bson::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Bson, E> {
        Ok(Bson::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Bson, E> {
        Ok(i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Bson, E> {
        let value = i64::try_from(value).map_err(|_| {
            E::custom(format!(
                "integer {value} is above 9223372036854775807: send it as a string or a double"
            ))
        })?;
        self.visit_i64(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Bson, E> {
        Ok(Bson::Double(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Bson, E> {
        Ok(Bson::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Bson, E> {
        Ok(Bson::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Bson, A::Error> {
        let mut values = Vec::new();
        while let Some(ExtValue(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Bson::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bson, A::Error> {
        let mut document = Document::new();
        while let Some(key) = map.next_key::<String>()? {
            if WRAPPERS.contains(&key.as_str()) {
                if document.is_empty() {
                    return wrapped(key, map);
                }
                return Err(de::Error::custom(format!(
                    "`{key}` stands for a value: expected no fields beside it"
                )));
            }
            if document.contains_key(&key) {
                return Err(de::Error::custom(format!("field `{key}` occurs twice")));
            }
            let ExtValue(value) = map.next_value()?;
            document.insert(key, value);
        }
        Ok(Bson::Document(document))
    }
}

/// Parses the rest of an object whose first key is the wrapper `key`.
fn wrapped<'de, A: MapAccess<'de>>(key: String, mut map: A) -> Result<Bson, A::Error> {
    let mut object = serde_json::Map::new();
    let wrapper = key.clone();
    object.insert(key, map.next_value()?);
    while let Some((key, value)) = map.next_entry()? {
        object.insert(key, value);
    }
    match Bson::try_from(object) {
        // a wrapper that the crate does not recognize remains a document, such as `$date` with an invalid
        // number
        Ok(Bson::Document(_)) => {
            Err(de::Error::custom(format!("`{wrapper}` has a value it cannot stand for")))
        }
        Ok(value) => Ok(value),
        Err(e) => Err(de::Error::custom(format!("`{wrapper}`: {}", e.kind))),
    }
}

/// Stored document that serializes as relaxed Extended JSON, in field order.
///
/// Errors: serialization fails on damaged BSON and describes the damage.
pub(crate) struct RelaxedDocument<'a>(pub &'a RawDocument);

impl Serialize for RelaxedDocument<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        for element in self.0 {
            let (name, value) = element.map_err(ser::Error::custom)?;
            map.serialize_entry(name.as_str(), &RelaxedValue(value))?;
        }
        map.end()
    }
}

/// Stored value that serializes as relaxed Extended JSON.
pub(crate) struct RelaxedValue<'a>(pub RawBsonRef<'a>);

impl Serialize for RelaxedValue<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RawBsonRef::Document(document) => RelaxedDocument(document).serialize(s),
            RawBsonRef::Array(array) => {
                let mut seq = s.serialize_seq(None)?;
                for value in array {
                    seq.serialize_element(&Self(value.map_err(ser::Error::custom)?))?;
                }
                seq.end()
            }
            RawBsonRef::String(text) => s.serialize_str(text),
            RawBsonRef::Int32(n) => s.serialize_i32(n),
            RawBsonRef::Int64(n) => s.serialize_i64(n),
            RawBsonRef::Double(x) if x.is_finite() => s.serialize_f64(x),
            RawBsonRef::Boolean(b) => s.serialize_bool(b),
            RawBsonRef::Null => s.serialize_unit(),
            other => Bson::try_from(other).map_err(ser::Error::custom)?.into_relaxed_extjson().serialize(s),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Document, String> {
        serde_json::from_str::<ExtDocument>(text).map(|d| d.0).map_err(|e| e.to_string())
    }

    fn round_trip(text: &str) -> String {
        let raw = ExtDocument(read(text).unwrap()).into_raw().unwrap();
        serde_json::to_string(&RelaxedDocument(&raw)).unwrap()
    }

    #[test]
    fn what_is_read_is_written_the_same_and_in_order() {
        for text in [
            r#"{"z":1,"a":{"y":[1,-2,3000000000],"b":null},"m":true,"d":1.0,"t":"ü"}"#,
            r#"{"_id":{"$oid":"65f0c0ffee65f0c0ffee65f0"},"at":{"$date":"2013-01-01T10:00:00Z"}}"#,
            r#"{"n":{"$numberDouble":"NaN"},"dec":{"$numberDecimal":"1.50"}}"#,
            r#"{"b":{"$binary":{"base64":"AQI=","subType":"00"}},"r":{"$regularExpression":{"options":"i","pattern":"^a"}}}"#,
            r#"{"min":{"$minKey":1},"max":{"$maxKey":1},"ts":{"$timestamp":{"i":2,"t":1}}}"#,
        ] {
            assert_eq!(round_trip(text), text);
        }
        assert_eq!(round_trip(r#"{"n":{"$numberLong":"5"}}"#), r#"{"n":5}"#);
        assert_eq!(read(r#"{"n":-5}"#).unwrap().get("n"), Some(&Bson::Int32(-5)));
    }

    #[test]
    fn operators_are_no_wrappers() {
        assert_eq!(
            round_trip(r#"{"$set":{"a":1},"$unset":{"b":""}}"#),
            r#"{"$set":{"a":1},"$unset":{"b":""}}"#
        );
    }

    #[test]
    fn ambiguous_and_wrong_objects_are_refused() {
        for (text, expected) in [
            (r#"{"a":1,"a":2}"#, "field `a` occurs twice"),
            (r#"{"x":{"a":1,"$oid":"65f0c0ffee65f0c0ffee65f0"}}"#, "no fields beside it"),
            (r#"{"x":{"$oid":"65f0c0ffee65f0c0ffee65f0","a":1}}"#, "$oid"),
            (r#"{"x":{"$oid":"zz"}}"#, "$oid"),
            (r#"{"x":{"$numberInt":7}}"#, "$numberInt"),
            (r#"{"x":{"$date":"yesterday"}}"#, "$date"),
            (r#"{"x":9223372036854775808}"#, "above 9223372036854775807"),
            ("[1]", "expected an object, found an array"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        let deep = "[".repeat(500);
        assert!(read(&format!("{{\"a\":{deep}")).unwrap_err().contains("recursion"));
    }
}
