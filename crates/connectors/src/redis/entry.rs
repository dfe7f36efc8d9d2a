//! Entries of streams, and their ids as positions.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use redis::Value;
use tidemill_connect::Message;
use tidemill_types::Timestamp;

use crate::property_text::property_text;

/// Bits of a position that have the second part of an id.
const SEQUENCE_BITS: u32 = 20;
/// Ids whose first part is below it, the year 2000, do not tell a time.
const TIME_MS_MIN: u64 = 946_684_800_000;

/// Id of an entry: milliseconds since 1970 and a number, if the server made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct EntryId {
    pub ms: u64,
    pub sequence: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

impl FromStr for EntryId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = match text.trim().split_once('-') {
            Some((ms, sequence)) => ms.parse().ok().zip(sequence.parse().ok()),
            None => text.trim().parse().ok().map(|ms| (ms, 0)),
        };
        let (ms, sequence) =
            parsed.ok_or_else(|| format!("expected an id such as 1700000000000-0, found `{text}`"))?;
        Ok(Self { ms, sequence })
    }
}

impl EntryId {
    /// Returns the id as a number of the same order; `None` if it is too large, which no id is that a server made.
    pub(super) fn number(self) -> Option<u64> {
        let fits = self.sequence >> SEQUENCE_BITS == 0 && self.ms >> (63 - SEQUENCE_BITS) == 0;
        fits.then_some(self.ms << SEQUENCE_BITS | self.sequence)
    }

    /// Returns the id with a number.
    pub(super) fn of_number(number: u64) -> Self {
        Self { ms: number >> SEQUENCE_BITS, sequence: number & ((1 << SEQUENCE_BITS) - 1) }
    }
}

/// Entry of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub id: EntryId,
    /// Names and values; none for an entry that was deleted.
    pub fields: Vec<(Bytes, Bytes)>,
}

impl Entry {
    /// Returns the message in `payload_field`, with the other fields as properties.
    pub(super) fn message(self, stream: &str, payload_field: &str) -> Message {
        let text = |bytes: &Bytes| property_text(bytes);
        let mut message = Message::default();
        message.properties.push(("stream".to_owned(), stream.to_owned()));
        message.properties.push(("id".to_owned(), self.id.to_string()));
        for (name, value) in self.fields {
            match name == payload_field.as_bytes() {
                true => message.payload = value,
                false => message.properties.push((text(&name), text(&value))),
            }
        }
        if self.id.ms >= TIME_MS_MIN {
            message.time = i64::try_from(self.id.ms).ok().and_then(|ms| ms.checked_mul(1000)).map(Timestamp);
        }
        message
    }
}

/// Returns the entries of one stream in the answer to XREAD or XREADGROUP, or `None` for another answer.
pub(super) fn entries_read(answer: Value) -> Option<Vec<Entry>> {
    match answer {
        Value::Nil => Some(vec![]),
        Value::Array(streams) => match streams.into_iter().next()? {
            Value::Array(stream) => entries(stream.into_iter().nth(1)?),
            _ => None,
        },
        Value::Map(streams) => entries(streams.into_iter().next()?.1),
        _ => None,
    }
}

/// Returns the entries in a list, or `None` if the value is not a list. Entries that were deleted may be
/// missing.
pub(super) fn entries(list: Value) -> Option<Vec<Entry>> {
    let Value::Array(list) = list else { return None };
    list.into_iter().filter(|item| !matches!(item, Value::Nil)).map(entry).collect()
}

fn entry(item: Value) -> Option<Entry> {
    let Value::Array(parts) = item else { return None };
    let mut parts = parts.into_iter();
    let id = std::str::from_utf8(&bytes(parts.next()?)?).ok()?.parse().ok()?;
    let mut fields = vec![];
    if let Some(Value::Array(list)) = parts.next() {
        let mut list = list.into_iter();
        while let (Some(name), Some(value)) = (list.next(), list.next()) {
            fields.push((bytes(name)?, bytes(value)?));
        }
    }
    Some(Entry { id, fields })
}

/// Returns a text of the server.
pub(super) fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(bytes.into()),
        Value::SimpleString(text) => Some(text.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_of_the_same_order() {
        let ids = ["0-1", "1-0", "1-7", "1700000000000-0", "1700000000000-1048575", "1700000000001-0"];
        let ids = ids.map(|text| text.parse::<EntryId>().unwrap());
        let numbers = ids.map(|id| id.number().unwrap());
        assert!(numbers.is_sorted());
        assert_eq!(numbers.map(EntryId::of_number), ids);
        assert_eq!(EntryId { ms: 1, sequence: 1 << 20 }.number(), None);
        assert_eq!(EntryId { ms: u64::MAX, sequence: 0 }.number(), None);
        assert_eq!("5".parse(), Ok(EntryId { ms: 5, sequence: 0 }));
        assert!("x-1".parse::<EntryId>().is_err());
    }

    #[test]
    fn answers_are_parsed() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let entry = Value::Array(vec![
            text("5-1"),
            Value::Array(vec![text("payload"), text("x"), text("a"), text("b")]),
        ]);
        let deleted = Value::Array(vec![text("5-2"), Value::Nil]);
        let stream = Value::Array(vec![text("s"), Value::Array(vec![entry, deleted, Value::Nil])]);
        let found = entries_read(Value::Array(vec![stream])).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[1].fields.is_empty());
        let message = found[0].clone().message("s", "payload");
        assert_eq!(
            (&*message.payload, message.property("a"), message.property("id")),
            (&b"x"[..], Some("b"), Some("5-1"))
        );
        assert_eq!(message.time, None);
        assert_eq!(entries_read(Value::Int(1)), None);
        assert_eq!(entries_read(Value::Array(vec![Value::Array(vec![text("s")])])), None);
    }
}
