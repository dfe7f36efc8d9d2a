//! Tailable cursors: on a capped collection, they continue with documents inserted later.

use bson::raw::RawDocument;
use tidemill_docs::{DocBytes, Filter, HeldMemory, Key, Projection};
use tidemill_types::{ErrorKind, Value, budget};

use crate::documents::Documents;
use crate::error::{Code, CommandError, Result};

/// Position at which a tailable cursor continues.
pub(crate) struct TailPosition {
    collection: String,
    filter: Filter,
    projection: Option<Projection>,
    /// Key of the `_id` of the last document that was looked at.
    last: Key,
    /// True if reads at the end wait for new documents.
    pub waits: bool,
}

/// First documents of a tailable cursor, and the position at which it continues.
type Begun = (Vec<DocBytes>, Option<TailPosition>);

impl TailPosition {
    /// Finds the first documents. A cursor on a collection without documents does not go on.
    ///
    /// Errors: the collection is not capped.
    pub fn begin(
        documents: &Documents,
        collection: String,
        filter: Filter,
        projection: Option<Projection>,
        waits: bool,
    ) -> Result<Begun> {
        let Ok(spec) = documents.collection_spec(&collection) else { return Ok((Vec::new(), None)) };
        if spec.options.capped.is_none() {
            let message = format!(
                "error processing query: tailable cursor requested on non capped collection `{collection}`"
            );
            return Err(CommandError::new(Code::BadValue, message));
        }
        let mut tail = Self { collection, filter, projection, last: Key::default(), waits };
        let (documents, last) = tail.read(documents, None)?;
        match last {
            None => Ok((documents, None)),
            Some(last) => {
                tail.last = last;
                Ok((documents, Some(tail)))
            }
        }
    }

    /// Returns the documents that have been inserted since.
    ///
    /// Errors: the last document that was looked at is gone.
    pub fn proceed(&mut self, documents: &Documents) -> Result<Vec<DocBytes>> {
        let (documents, last) = self.read(documents, Some(&self.last))?;
        if let Some(last) = last {
            self.last = last;
        }
        Ok(documents)
    }

    /// Returns the documents behind `last` that match, and the key of the last one that there is.
    fn read(&self, documents: &Documents, last: Option<&Key>) -> Result<(Vec<DocBytes>, Option<Key>)> {
        let lost = || {
            let message =
                "the cursor's position is gone: documents behind it were deleted before it read them";
            CommandError::new(Code::CappedPositionLost, message)
        };
        let read = documents.read_collection(&self.collection, |collection| {
            let Some(newer) = collection.documents_after(last) else { return Ok(None) };
            let mut found = Vec::new();
            let mut end = None;
            let mut held = HeldMemory::default();
            for document in newer {
                budget::step()?;
                held.add(size_of::<DocBytes>())?;
                end = Some(document);
                let raw = RawDocument::from_bytes(document).map_err(bad_bson)?;
                if !self.filter.matches(raw) {
                    continue;
                }
                found.push(match &self.projection {
                    None => document.clone(),
                    Some(projection) => projection.apply_bytes(document)?,
                });
            }
            let key =
                end.and_then(|end| RawDocument::from_bytes(end).ok()).and_then(|end| end.get("_id").ok()?);
            Ok(Some((found, key.map(|id| Key::of(&Value::from_bson(id))))))
        });
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(lost()),
            // one of the partitions has all documents
            read => read?.into_iter().flatten().max_by_key(|(_, end)| end.is_some()).ok_or_else(lost),
        }
    }
}

fn bad_bson(error: bson::error::Error) -> tidemill_types::Error {
    tidemill_types::Error::invalid("not a BSON document").with_source(error)
}
