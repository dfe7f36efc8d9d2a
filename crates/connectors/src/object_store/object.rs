//! Division of events into objects: their names and their contents.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::path::Path;
use tidemill_connect::{OptionError, Options, Payload, SinkBatch, Template};
use tidemill_types::{EventId, PartitionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::shortened::shortened;

/// Bytes of the longest name of an object, in both services.
const KEY_BYTES_MAX: usize = 1024;
/// Bytes of events after which an object is closed.
const OBJECT_BYTES_MAX: usize = 64 << 20;
/// Events of one object that may be asked for.
pub(super) const FLUSH_SIZE_MAX: i64 = 1_000_000;

/// Way in which the messages of a mapper become the content of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Joining {
    /// An array of JSON.
    Array,
    /// Each is a line.
    Lines,
    /// Each has a line end of its own.
    AsTheyAre,
    /// Elements of this element of XML.
    Element(String),
    /// Texts with this between them.
    Separated(String),
    /// An object has one message.
    Single,
}

impl Joining {
    fn join(&self, messages: &[&Payload]) -> Bytes {
        let around = |start: &[u8], between: &[u8], end: &[u8]| {
            let mut out = start.to_vec();
            for (at, message) in messages.iter().enumerate() {
                if at > 0 {
                    out.extend_from_slice(between);
                }
                out.extend_from_slice(&message.bytes);
            }
            out.extend_from_slice(end);
            out.into()
        };
        match self {
            Self::Array => around(b"[", b",", b"]"),
            Self::Lines => around(b"", b"\n", b"\n"),
            Self::AsTheyAre | Self::Single => around(b"", b"", b""),
            Self::Separated(text) => around(b"", text.as_bytes(), b""),
            Self::Element(name) => {
                around(format!("<{name}>").as_bytes(), b"", format!("</{name}>").as_bytes())
            }
        }
    }
}

/// Names and contents of the objects of a sink.
#[derive(Debug)]
pub(super) struct Objects {
    /// Location of the objects; their names begin with it.
    pub place: Template,
    /// Stands between `place` and the rest: `/` for a directory.
    pub separator: &'static str,
    pub content_type: Template,
    pub flush_size: usize,
    pub joining: Joining,
    /// Stream, node and what distinguishes the sink from all others, of other data directories too.
    pub stem: String,
    pub extension: &'static str,
}

/// An object to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewObject {
    pub key: Path,
    pub content_type: String,
    pub content: Bytes,
}

/// Result of dividing a delivery into objects.
#[derive(Debug, Default)]
pub(super) struct Division {
    pub objects: Vec<NewObject>,
    /// Rows of messages that have no name, with the reason.
    pub refused: Vec<(Payload, String)>,
}

impl Objects {
    /// Divides messages into objects. Events of different partitions are never in one object, so that its first and last event
    /// say all of what is in it.
    pub(super) fn divide(&self, batch: &SinkBatch, messages: &[Payload]) -> Division {
        let mut out = Division::default();
        let mut open: BTreeMap<(PartitionId, String, String), Vec<&Payload>> = BTreeMap::new();
        for message in messages {
            let Some(id) = batch.ids.get(message.row) else { continue };
            let (place, content_type) = (
                self.place.render(&batch.rows, message.row),
                self.content_type.render(&batch.rows, message.row),
            );
            if let Err(why) = self.check(&place, &content_type) {
                out.refused.push((message.clone(), why));
                continue;
            }
            let of = open.entry((id.partition, place.clone(), content_type.clone())).or_default();
            let bytes: usize = of.iter().map(|message| message.bytes.len()).sum();
            let is_full = of.len() >= self.flush_size || bytes + message.bytes.len() > OBJECT_BYTES_MAX;
            if is_full && !of.is_empty() {
                out.objects.extend(self.object(batch, &place, &content_type, &std::mem::take(of)));
            }
            of.push(message);
        }
        for ((_, place, content_type), messages) in open {
            out.objects.extend(self.object(batch, &place, &content_type, &messages));
        }
        out
    }

    fn check(&self, place: &str, content_type: &str) -> Result<(), String> {
        let longest = self.key(place, &"9".repeat(2 * ID_BYTES));
        if longest.as_ref().len() > KEY_BYTES_MAX {
            return Err(format!(
                "the name of the object would have more than {KEY_BYTES_MAX} bytes: {}",
                shortened(place)
            ));
        }
        match content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !content_type.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "`{}` is no content type, such as application/json",
                shortened(content_type).escape_debug()
            )),
        }
    }

    fn object(
        &self,
        batch: &SinkBatch,
        place: &str,
        content_type: &str,
        messages: &[&Payload],
    ) -> Option<NewObject> {
        let first = batch.ids.get(messages.first()?.row)?;
        let end = messages.last().map(|last| last.row + last.rows - 1)?;
        let last = batch.ids.get(end)?;
        let events = match (first == last, first.partition == last.partition) {
            (true, _) => id_text(*first),
            (false, true) => format!("{}_{:012}-{:06}", id_text(*first), last.offset.0, last.row),
            // a mapper may join events of several partitions
            (false, false) => format!("{}_{}", id_text(*first), id_text(*last)),
        };
        let (content, content_type) = (self.joining.join(messages), content_type.to_owned());
        Some(NewObject { key: self.key(place, &events), content_type, content })
    }

    fn key(&self, place: &str, events: &str) -> Path {
        let Self { separator, stem, extension, .. } = self;
        Path::from(format!("{place}{separator}{stem}-{events}.{extension}"))
    }
}

/// Length of the text of an id, at least.
const ID_BYTES: usize = 24;

/// Returns an id with zeros before its numbers, so that names in their order are events in theirs.
fn id_text(id: EventId) -> String {
    format!("{:04}-{:012}-{:06}", id.partition.0, id.offset.0, id.row)
}

/// Returns what distinguishes the objects of a sink from those of others, also of those that share its events.
pub(super) fn mark(writer: &str, place: &str) -> String {
    format!("{:016x}", xxh3_64(format!("{writer}\n{place}").as_bytes()))
}

/// Returns how messages of a mapper are joined, and the extension of the name of an object.
///
/// Errors: messages of this mapper cannot be joined.
pub(super) fn joining(
    options: &Options,
    mapper: Option<&str>,
    element: &str,
    separator: Option<&str>,
) -> Result<(Joining, &'static str), OptionError> {
    let is_element = element.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && element.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if !is_element {
        let message = format!("expected the name of an element, found `{}`", shortened(element));
        return Err(OptionError::option("xml.enclosing.element", message));
    }
    let mapper = mapper.unwrap_or("passThrough").to_ascii_lowercase();
    let is_single = options.integer("flush.size") == Some(1);
    Ok(match mapper.as_str() {
        "json" => (Joining::Array, "json"),
        "xml" => (Joining::Element(element.to_owned()), "xml"),
        "csv" => (Joining::AsTheyAre, "csv"),
        "text" | "keyvalue" => {
            (separator.map_or(Joining::Lines, |text| Joining::Separated(text.to_owned())), "txt")
        }
        other if !is_single => {
            return Err(OptionError::option(
                "flush.size",
                format!(
                    "messages of the mapper `{other}` cannot be told apart when they are joined: expected 1"
                ),
            ));
        }
        "avro" => (Joining::Single, "avro"),
        _ => (Joining::Single, "bin"),
    })
}
