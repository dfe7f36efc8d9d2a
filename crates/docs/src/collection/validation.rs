//! Validation of documents by the filter of their collection.

use std::sync::Arc;

use super::Collection;
use crate::DocBytes;
use crate::error::{DocsError, Result};
use crate::filter::Filter;
use crate::spec::{CollectionOptions, ValidationAction, ValidationLevel};
use crate::values::raw::{OwnedRawValue, RawValue, close_document, elements, field, put_element, tag};

/// The filter that documents of a collection must match.
#[derive(Debug)]
pub(crate) struct Validator {
    filter: Filter,
    source: DocBytes,
    level: ValidationLevel,
}

impl Validator {
    /// Returns the validator that the options ask for; `None` if nothing is refused.
    ///
    /// Errors: the validator is not a filter.
    pub fn new(options: &CollectionOptions) -> Result<Option<Arc<Self>>> {
        let refuses = options.validation_level != ValidationLevel::Off
            && options.validation_action == ValidationAction::Error;
        let Some(source) = options.validator.as_ref().filter(|_| refuses) else { return Ok(None) };
        let filter = Filter::parse_by(source.as_raw(), options.parsed_collation()?.as_ref())?;
        Ok(Some(Arc::new(Self { filter, source: source.bytes().clone(), level: options.validation_level })))
    }
}

impl Collection {
    /// Checks a document that is to be stored in place of `before`. Errors: it does not match the validator.
    pub(super) fn validate(&self, doc: &[u8], before: Option<&[u8]>) -> Result<()> {
        let Some(validator) = self.validator.as_ref().filter(|_| !self.bypass_validation) else {
            return Ok(());
        };
        // an expression without a value holds for no document, but work that has to end says nothing about the document
        let is_valid = |doc: &[u8]| match validator.filter.test(doc) {
            Err(error) if error.ends_work() => Err(error),
            tested => Ok(tested.unwrap_or(false)),
        };
        if is_valid(doc)? {
            return Ok(());
        }
        let was_valid = before.map_or(Ok(true), is_valid)?;
        if validator.level == ValidationLevel::Moderate && !was_valid {
            return Ok(());
        }
        Err(DocsError::document_validation(failure(doc, &validator.source)))
    }
}

/// Describes the failure: `{ failingDocumentId, details: { operatorName, specifiedAs, reason } }`.
fn failure(doc: &[u8], validator: &DocBytes) -> DocBytes {
    let first = elements(validator).next().map_or(&b""[..], |e| e.name);
    let operator = match first.starts_with(b"$") {
        true => String::from_utf8_lossy(first).into_owned(),
        // conditions on several fields, or on one
        false => "$and".to_owned(),
    };
    let mut details = vec![0; 4];
    put_element(&mut details, b"operatorName", OwnedRawValue::string(&operator).as_raw());
    put_element(&mut details, b"specifiedAs", RawValue { tag: tag::DOCUMENT, bytes: validator });
    put_element(&mut details, b"reason", OwnedRawValue::string("the document does not match").as_raw());
    close_document(&mut details, 0);
    let mut info = vec![0; 4];
    if let Some(id) = field(doc, b"_id") {
        put_element(&mut info, b"failingDocumentId", id.value);
    }
    put_element(&mut info, b"details", RawValue { tag: tag::DOCUMENT, bytes: &details });
    close_document(&mut info, 0);
    info.into()
}
