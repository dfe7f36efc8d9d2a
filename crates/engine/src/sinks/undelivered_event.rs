//! Documents of events that sinks could not deliver.

use bson::raw::RawDocument;
use bson::{Bson, Document};
use tidemill_docs::get_path;
use tidemill_types::{Error, Result, Timestamp, Value};

/// Collection with the documents.
pub const COLLECTION: &str = "tidemill.undelivered";

/// Event that a sink could not deliver.
#[derive(Debug, Clone, PartialEq)]
pub struct UndeliveredEvent {
    /// Id of its document.
    pub id: String,
    /// Name of the sink.
    pub sink: String,
    /// Stream of the event.
    pub stream: String,
    /// The event as JSON.
    pub event: String,
    /// Why the other side refused it.
    pub reason: String,
    /// When it was refused.
    pub time: Timestamp,
}

impl UndeliveredEvent {
    /// Reads a document of [`COLLECTION`].
    ///
    /// Errors: `Invalid` if it is not an undelivered event.
    pub fn read(document: &[u8]) -> Result<Self> {
        let document = RawDocument::from_bytes(document).map_err(bad_bson)?;
        let text = |field: &str| match get_path(document, field) {
            Value::Str(text) => Ok(text.into_owned()),
            other => Err(Error::invalid(format!("`{field}` is {} instead of a string", other.type_name()))),
        };
        let event = document.get_document("event").map_err(bad_bson)?;
        let event = Document::try_from(event).map_err(bad_bson)?;
        let time = match get_path(document, "time") {
            Value::Time(time) => time,
            _ => Timestamp(0),
        };
        Ok(Self {
            id: text("_id")?,
            sink: text("sink")?,
            stream: text("stream")?,
            event: Bson::Document(event).into_relaxed_extjson().to_string(),
            reason: text("reason")?,
            time,
        })
    }
}

fn bad_bson(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("not a document of an undelivered event").with_source(e)
}
