//! Messages as they come in and go out.

use bytes::Bytes;
use tidemill_types::Timestamp;

/// Message that arrived, before a mapper makes events of it.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Content.
    pub payload: Bytes,
    /// Transport properties, such as headers, which `trp:name` selects.
    pub properties: Vec<(String, String)>,
    /// Event time if the transport knows it and the event says nothing else.
    pub time: Option<Timestamp>,
    /// Position of the message in its split; 0 without one.
    pub number: u64,
    /// True if the message has no value, as opposed to an empty one: in Kafka a tombstone.
    pub has_no_value: bool,
}

impl Message {
    /// Creates a message without properties.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }

    /// Returns the value of a transport property. Case does not matter, as in HTTP.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Message that a mapper made of events, before a connector sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Content.
    pub bytes: Bytes,
    /// First of its rows in the batch.
    pub row: usize,
    /// Number of its rows, at least 1.
    pub rows: usize,
}
