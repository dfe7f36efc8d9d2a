//! Encoding of outcomes, for checkpoints and for other processes.

use bson::cstr;
use bson::raw::{CStr, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;

use super::{CommandOutcome, DocumentError};
use crate::DocBytes;
use crate::error::{DocsError, DuplicateKey, ErrorCode, ErrorDetails};

impl CommandOutcome {
    /// Appends the fields of the outcome to a document, errors excepted.
    pub fn append_to(&self, out: &mut RawDocumentBuf) {
        let Self { inserted, matched, modified, deleted, upserted_id, before, after, errors: _ } = self;
        out.append(cstr!("counts"), {
            let mut counts = RawArrayBuf::new();
            [inserted, matched, modified, deleted].into_iter().for_each(|n| counts.push(n.cast_signed()));
            counts
        });
        if let Some(id) = upserted_id.clone().and_then(|id| RawBson::try_from(id).ok()) {
            out.append(cstr!("upserted"), id);
        }
        append_document(out, cstr!("before"), before.as_ref());
        append_document(out, cstr!("after"), after.as_ref());
    }

    /// Reads the fields that [`Self::append_to`] appended; `None` for another document.
    pub fn from_document(document: &RawDocument) -> Option<Self> {
        let counts = document.get_array("counts").ok()?.into_iter();
        let counts: Vec<u64> =
            counts.map(|n| Some(n.ok()?.as_i64()?.cast_unsigned())).collect::<Option<_>>()?;
        let [inserted, matched, modified, deleted] = counts.try_into().ok()?;
        let upserted_id = document.get("upserted").ok()?.map(bson::Bson::try_from).transpose().ok()?;
        Some(Self {
            inserted,
            matched,
            modified,
            deleted,
            upserted_id,
            before: document_of(document, "before"),
            after: document_of(document, "after"),
            errors: Vec::new(),
        })
    }

    /// Encodes the outcome with its errors.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = RawDocumentBuf::new();
        self.append_to(&mut out);
        let mut errors = RawArrayBuf::new();
        self.errors.iter().for_each(|error| errors.push(encode_error(error)));
        out.append(cstr!("errors"), errors);
        out.into_bytes()
    }

    /// Decodes what [`Self::to_bytes`] encoded; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let document = RawDocument::from_bytes(bytes).ok()?;
        let error = |error: bson::error::Result<RawBsonRef<'_>>| decode_error(error.ok()?.as_document()?);
        let errors = document.get_array("errors").ok()?.into_iter().map(error).collect::<Option<_>>()?;
        Some(Self { errors, ..Self::from_document(document)? })
    }
}

fn append_document(out: &mut RawDocumentBuf, name: &CStr, document: Option<&DocBytes>) {
    if let Some(document) = document.and_then(|d| RawDocument::from_bytes(d).ok()) {
        out.append(name, document);
    }
}

fn document_of(from: &RawDocument, name: &str) -> Option<DocBytes> {
    from.get_document(name).ok().map(|document| Bytes::copy_from_slice(document.as_bytes()))
}

fn encode_error(error: &DocumentError) -> RawDocumentBuf {
    let DocumentError { index, error } = error;
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("index"), i64::try_from(*index).unwrap_or(i64::MAX));
    out.append(cstr!("code"), error.error_code() as i32);
    out.append(cstr!("message"), error.message());
    match error.details() {
        None => {}
        Some(ErrorDetails::Validation(info)) => append_document(&mut out, cstr!("validation"), Some(info)),
        Some(ErrorDetails::DuplicateKey(key)) => {
            out.append(cstr!("collection"), key.collection.as_str());
            out.append(cstr!("unique"), key.index.as_str());
            append_document(&mut out, cstr!("pattern"), Some(&key.key_pattern));
            append_document(&mut out, cstr!("value"), Some(&key.key_value));
        }
    }
    out
}

fn decode_error(error: &RawDocument) -> Option<DocumentError> {
    let code = ErrorCode::try_from(error.get_i32("code").ok()?).ok()?;
    let text = |name: &str| error.get_str(name).ok().map(str::to_owned);
    let details = match (document_of(error, "validation"), text("unique")) {
        (Some(info), _) => Some(ErrorDetails::Validation(info)),
        (None, Some(index)) => Some(ErrorDetails::DuplicateKey(DuplicateKey {
            collection: text("collection")?,
            index,
            key_pattern: document_of(error, "pattern")?,
            key_value: document_of(error, "value")?,
        })),
        (None, None) => None,
    };
    let index = usize::try_from(error.get_i64("index").ok()?).ok()?;
    Some(DocumentError { index, error: DocsError::new(code, text("message")?).with_details(details) })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn outcomes_round_trip_with_their_errors() {
        let document = |n: i32| Some(DocBytes::from(rawdoc! { "_id": n }.into_bytes()));
        let key = DuplicateKey {
            collection: "c".into(),
            index: "a_1".into(),
            key_pattern: document(1).unwrap(),
            key_value: document(2).unwrap(),
        };
        let error = |index, error| DocumentError { index, error };
        let outcome = CommandOutcome {
            inserted: 1,
            matched: 2,
            modified: 3,
            deleted: 4,
            upserted_id: Some(bson::Bson::String("x".into())),
            before: document(5),
            after: document(6),
            errors: vec![
                error(0, DocsError::duplicate_key(key)),
                error(7, DocsError::document_validation(document(8).unwrap())),
                error(9, DocsError::new(ErrorCode::TextIndexMissing, "no index")),
            ],
        };
        assert_eq!(CommandOutcome::from_bytes(&outcome.to_bytes()), Some(outcome));
        assert_eq!(CommandOutcome::from_bytes(b"other"), None);
    }
}
