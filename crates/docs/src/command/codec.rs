//! Commands as BSON documents, the form in which the log stores them.
//!
//! Example: `{ op: "update", c: COLLECTION, filter: {…}, update: {…}, multi: true, upsert: false }`.
//! Documents are embedded as received, and are read without a copy.

use bson::oid::ObjectId;
use bson::raw::RawDocument;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::StoreLimits;
use crate::sequence::{self, Sequence};
use crate::spec::BsonDocument;
use crate::values::raw::{OwnedRawValue, RawValue, close_document, elements, le_i32, put_element, tag};

use super::{DocumentCommand, Modification};

/// Limit on the bytes of a command: room for a request of many documents.
pub(crate) const COMMAND_BYTES_MAX: usize = 512 << 20;

impl DocumentCommand {
    /// Encodes the command for the log.
    ///
    /// Errors: a command of more than 512 MiB; a filter, update or document whose bytes are no document.
    pub fn to_bytes(&self) -> Result<Bytes> {
        let mut out = CommandWriter(vec![0; 4]);
        match self {
            Self::Insert { collection, docs, ordered } => {
                out.head("insert", collection);
                out.keyed();
                out.flag("ordered", *ordered);
                out.docs(docs)?;
            }
            Self::Update { collection, filter, update, multi, upsert, upsert_id } => {
                out.head("update", collection);
                out.keyed();
                out.doc("filter", filter)?;
                out.doc("update", update)?;
                out.flag("multi", *multi);
                out.upsert(*upsert, *upsert_id);
            }
            Self::Replace { collection, filter, doc, upsert, upsert_id } => {
                out.head("replace", collection);
                out.keyed();
                out.doc("filter", filter)?;
                out.doc("doc", doc)?;
                out.upsert(*upsert, *upsert_id);
            }
            Self::Delete { collection, filter, multi } => {
                out.head("delete", collection);
                out.keyed();
                out.doc("filter", filter)?;
                out.flag("multi", *multi);
            }
            Self::FindAndModify { collection, filter, sort, change, upsert, upsert_id } => {
                out.head("find_and_modify", collection);
                out.keyed();
                out.doc("filter", filter)?;
                if let Some(sort) = sort {
                    out.doc("sort", sort)?;
                }
                match change {
                    Modification::Update(update) => out.doc("update", update)?,
                    Modification::Replace(doc) => out.doc("doc", doc)?,
                    Modification::Remove => {}
                }
                out.upsert(*upsert, *upsert_id);
            }
            Self::CreateIndex { collection, index } => {
                out.head("create_index", collection);
                out.serialized("index", index)?;
            }
            Self::DropIndex { collection, name } => {
                out.head("drop_index", collection);
                out.text("name", name);
            }
            Self::CreateCollection(spec) => {
                out.head("create", &spec.name);
                out.serialized("spec", spec)?;
            }
            Self::Drop { collection } => out.head("drop", collection),
            Self::EndDatabase { prefix } => out.head("end_database", prefix),
            Self::Rename { collection, to, drop_target } => {
                out.head("rename", collection);
                out.text("to", to);
                out.flag("drop_target", *drop_target);
            }
            Self::Modify { collection, change } => {
                out.head("modify", collection);
                out.serialized("change", change)?;
            }
            Self::Expire { collection } => out.head("expire", collection),
            Self::Unvalidated(inner) => {
                let inner = inner.to_bytes()?;
                // everything but the end of the document
                out.0 = inner[..inner.len().saturating_sub(1)].to_vec();
                out.flag("unvalidated", true);
            }
            Self::BeforeIdentity(_) => {
                return Err(DocsError::bad_value(
                    "a command from before the check of keys is not written again",
                ));
            }
            Self::Collated { collation, command } => {
                let inner = command.to_bytes()?;
                out.0 = inner[..inner.len().saturating_sub(1)].to_vec();
                out.doc("collation", collation.bytes())?;
            }
            Self::First { documents, command } => {
                let inner = command.to_bytes()?;
                out.0 = inner[..inner.len().saturating_sub(1)].to_vec();
                let documents = documents.cast_signed().to_le_bytes();
                put_element(&mut out.0, b"first", RawValue { tag: tag::INT64, bytes: &documents });
            }
            Self::Sequenced { sequences, command } => {
                let inner = command.to_bytes()?;
                out.0 = inner[..inner.len().saturating_sub(1)].to_vec();
                out.sequences(sequences);
            }
        }
        let mut bytes = out.0;
        if bytes.len() >= COMMAND_BYTES_MAX {
            return Err(DocsError::new(
                ErrorCode::DocumentTooLarge,
                format!(
                    "command of {} bytes: limit of {COMMAND_BYTES_MAX} bytes; send fewer documents at once",
                    bytes.len()
                ),
            ));
        }
        close_document(&mut bytes, 0);
        Ok(bytes.into())
    }

    /// Decodes a command encoded by [`Self::to_bytes`]; documents share `bytes`.
    ///
    /// Errors: not BSON, an unknown operation, a missing or unknown field.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self> {
        let limits = StoreLimits { document_bytes_max: COMMAND_BYTES_MAX + 1, ..StoreLimits::default() };
        // an embedded document may be as deep as a document of its own
        let limits = StoreLimits { depth_max: limits.depth_max + 2, ..limits };
        crate::values::validate::check(bytes, &limits)
            .map_err(|e| DocsError::new(e.error_code(), format!("document command: {e}")))?;
        let mut fields = CommandFields { bytes, found: elements(bytes).map(|e| (e.name, e.value)).collect() };
        let op = fields.text("op")?;
        let collection = fields.text("c")?;
        let unvalidated = fields.take("unvalidated", tag::BOOL)?.is_some_and(|flag| flag.bytes == [1]);
        let collation = fields.optional_doc("collation")?;
        let keyed = fields.take("keyed", tag::BOOL)?.is_some();
        let sequences = fields.take("sequences", tag::BINARY)?;
        let sequences = sequences.map(|value| sequence::decode(value.bytes.get(5..).unwrap_or_default()));
        let sequences = sequences.transpose()?;
        let first = fields.take("first", tag::INT64)?.map(|value| value.i64().cast_unsigned());
        let command = match op.as_str() {
            "insert" => Self::Insert { collection, ordered: fields.flag("ordered")?, docs: fields.docs()? },
            "update" => Self::Update {
                collection,
                filter: fields.doc("filter")?,
                update: fields.doc("update")?,
                multi: fields.flag("multi")?,
                upsert: fields.flag("upsert")?,
                upsert_id: fields.upsert_id()?,
            },
            "replace" => Self::Replace {
                collection,
                filter: fields.doc("filter")?,
                doc: fields.doc("doc")?,
                upsert: fields.flag("upsert")?,
                upsert_id: fields.upsert_id()?,
            },
            "delete" => {
                Self::Delete { collection, filter: fields.doc("filter")?, multi: fields.flag("multi")? }
            }
            "find_and_modify" => Self::FindAndModify {
                collection,
                filter: fields.doc("filter")?,
                sort: fields.optional_doc("sort")?,
                change: match (fields.optional_doc("update")?, fields.optional_doc("doc")?) {
                    (Some(update), None) => Modification::Update(update),
                    (None, Some(doc)) => Modification::Replace(doc),
                    (None, None) => Modification::Remove,
                    (Some(_), Some(_)) => {
                        return Err(DocsError::parse("document command find_and_modify: two changes"));
                    }
                },
                upsert: fields.flag("upsert")?,
                upsert_id: fields.upsert_id()?,
            },
            "create_index" => Self::CreateIndex { collection, index: fields.deserialized("index")? },
            "drop_index" => Self::DropIndex { collection, name: fields.text("name")? },
            "create" => Self::CreateCollection(fields.deserialized("spec")?),
            "drop" => Self::Drop { collection },
            "end_database" => Self::EndDatabase { prefix: collection },
            "rename" => {
                Self::Rename { collection, to: fields.text("to")?, drop_target: fields.flag("drop_target")? }
            }
            "modify" => Self::Modify { collection, change: fields.deserialized("change")? },
            "expire" => Self::Expire { collection },
            other => {
                return Err(DocsError::parse(format!(
                    "document command: unknown operation {other:?}: was it written by a newer version?"
                )));
            }
        };
        match fields.found.first() {
            None => {
                let collation = collation.as_deref().map(RawDocument::from_bytes).transpose();
                let collation =
                    collation.map_err(|e| DocsError::new(ErrorCode::InvalidBson, e.to_string()))?;
                let command = command.with_collation(collation.map(BsonDocument::new));
                let command = match (sequences, first) {
                    (Some(sequences), _) => command.with_sequences(sequences),
                    (None, Some(documents)) => command.with_first(documents),
                    (None, None) => command,
                };
                let command = if unvalidated { command.without_validation() } else { command };
                let wrote_before = !keyed && command.writes_documents();
                Ok(if wrote_before { Self::BeforeIdentity(Box::new(command)) } else { command })
            }
            Some((name, _)) => Err(DocsError::parse(format!(
                "document command {op}: unknown field {:?}: was it written by a newer version?",
                String::from_utf8_lossy(name)
            ))),
        }
    }
}

struct CommandWriter(Vec<u8>);

impl CommandWriter {
    fn head(&mut self, op: &str, collection: &str) {
        self.text("op", op);
        self.text("c", collection);
    }

    /// Says that `_id` and key of documents of entities are compared, and that the steps of the command are counted.
    fn keyed(&mut self) {
        self.flag("keyed", true);
    }

    fn text(&mut self, name: &str, text: &str) {
        put_element(&mut self.0, name.as_bytes(), OwnedRawValue::string(text).as_raw());
    }

    fn flag(&mut self, name: &str, value: bool) {
        put_element(&mut self.0, name.as_bytes(), RawValue { tag: tag::BOOL, bytes: &[u8::from(value)] });
    }

    fn upsert(&mut self, upsert: bool, id: Option<ObjectId>) {
        self.flag("upsert", upsert);
        if let Some(id) = id {
            put_element(&mut self.0, b"upsert_id", RawValue { tag: tag::OBJECT_ID, bytes: &id.bytes() });
        }
    }

    fn sequences(&mut self, sequences: &[Sequence]) {
        // length and subtype, as binary values begin
        let mut value = vec![0; 5];
        sequence::encode(sequences, &mut value);
        let length = (value.len() - 5) as u32;
        value[..4].copy_from_slice(&length.to_le_bytes());
        put_element(&mut self.0, b"sequences", RawValue { tag: tag::BINARY, bytes: &value });
    }

    fn doc(&mut self, name: &str, doc: &DocBytes) -> Result<()> {
        // the contents are validated on input; a wrong length would corrupt the command
        if le_i32(doc).and_then(|n| usize::try_from(n).ok()) != Some(doc.len()) || doc.last() != Some(&0) {
            return Err(DocsError::new(
                ErrorCode::InvalidBson,
                format!("{name}: expected a document, found {} other bytes", doc.len()),
            ));
        }
        put_element(&mut self.0, name.as_bytes(), RawValue { tag: tag::DOCUMENT, bytes: doc });
        Ok(())
    }

    fn docs(&mut self, docs: &[DocBytes]) -> Result<()> {
        self.0.push(tag::ARRAY);
        self.0.extend_from_slice(b"docs\0");
        let start = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        for (i, doc) in docs.iter().enumerate() {
            self.doc(&i.to_string(), doc)?;
        }
        close_document(&mut self.0, start);
        Ok(())
    }

    fn serialized(&mut self, name: &str, value: &impl Serialize) -> Result<()> {
        let doc = bson::serialize_to_vec(value).map_err(|e| DocsError::bad_value(format!("{name}: {e}")))?;
        self.doc(name, &doc.into())
    }
}

struct CommandFields<'b> {
    bytes: &'b Bytes,
    found: Vec<(&'b [u8], RawValue<'b>)>,
}

impl<'b> CommandFields<'b> {
    fn take(&mut self, name: &str, kind: u8) -> Result<Option<RawValue<'b>>> {
        let Some(at) = self.found.iter().position(|(n, _)| *n == name.as_bytes()) else {
            return Ok(None);
        };
        let (_, value) = self.found.swap_remove(at);
        if value.tag != kind {
            return Err(DocsError::parse(format!(
                "document command: field `{name}`: expected {}, found {}",
                crate::values::raw::type_name(kind),
                value.type_name()
            )));
        }
        Ok(Some(value))
    }

    fn require(&mut self, name: &str, kind: u8) -> Result<RawValue<'b>> {
        self.take(name, kind)?
            .ok_or_else(|| DocsError::parse(format!("document command: field `{name}` is missing")))
    }

    fn text(&mut self, name: &str) -> Result<String> {
        Ok(self.require(name, tag::STRING)?.text().unwrap_or_default().to_owned())
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        Ok(self.require(name, tag::BOOL)?.bytes == [1])
    }

    fn doc(&mut self, name: &str) -> Result<DocBytes> {
        let value = self.require(name, tag::DOCUMENT)?;
        Ok(self.bytes.slice_ref(value.bytes))
    }

    fn optional_doc(&mut self, name: &str) -> Result<Option<DocBytes>> {
        Ok(self.take(name, tag::DOCUMENT)?.map(|value| self.bytes.slice_ref(value.bytes)))
    }

    fn docs(&mut self) -> Result<Vec<DocBytes>> {
        elements(self.require("docs", tag::ARRAY)?.bytes)
            .map(|e| match e.value.tag {
                tag::DOCUMENT => Ok(self.bytes.slice_ref(e.value.bytes)),
                _ => Err(DocsError::parse(format!(
                    "document command: expected documents, found {}",
                    e.value.type_name()
                ))),
            })
            .collect()
    }

    fn upsert_id(&mut self) -> Result<Option<ObjectId>> {
        let id = self.take("upsert_id", tag::OBJECT_ID)?;
        Ok(id.and_then(|v| v.bytes.first_chunk()).map(|b| ObjectId::from_bytes(*b)))
    }

    fn deserialized<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        let value = self.require(name, tag::DOCUMENT)?;
        bson::deserialize_from_slice(value.bytes)
            .map_err(|e| DocsError::parse(format!("document command: field `{name}`: {e}")))
    }
}
