//! The document of a filter, for another process that finds documents for this one.

use bson::raw::{RawDocument, RawDocumentBuf};
use memchr::memmem;

use super::Filter;
use crate::collation::Collation;

/// Words of filters that depend on more than their document: variables, random numbers, scripts. `$$` begins a variable.
const NOT_REPEATABLE: [&[u8]; 5] = [b"$$", b"$rand", b"$sampleRate", b"$where", b"$function"];

/// A filter as it was parsed.
#[derive(Debug)]
pub(crate) struct FilterSource {
    document: RawDocumentBuf,
    collation: Option<Collation>,
}

impl Filter {
    /// Returns the filter with the document and the collation that it was parsed from, for [`Self::source`].
    pub fn with_source(self, document: &RawDocument, collation: Option<&Collation>) -> Self {
        let source = FilterSource { document: document.to_owned(), collation: collation.cloned() };
        Self { source: Some(source.into()), ..self }
    }

    /// Returns the document of the filter, and its collation. Documents that match it match the filter, wherever they are evaluated. `None` if
    /// that is not known, and if the filter would match other documents when it is evaluated a second time.
    pub fn source(&self) -> Option<(&RawDocument, Option<&Collation>)> {
        let source = self.source.as_deref()?;
        let bytes = source.document.as_bytes();
        let is_repeatable = NOT_REPEATABLE.iter().all(|word| memmem::find(bytes, word).is_none());
        is_repeatable.then(|| (&*source.document, source.collation.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_filter_has_its_document_unless_it_depends_on_more() {
        let source = |document: &RawDocument| {
            let filter = Filter::parse(&rawdoc! {}).unwrap().with_source(document, None);
            filter.source().map(|(document, _)| document.to_owned())
        };
        let plain = rawdoc! { "a": { "$gt": 1 }, "$expr": { "$eq": ["$a", "$b"] } };
        assert_eq!(source(&plain), Some(plain.clone()));
        for depends in [
            rawdoc! { "$expr": { "$lt": ["$a", "$$NOW"] } },
            rawdoc! { "$expr": { "$lt": [{ "$rand": {} }, 0.5] } },
            rawdoc! { "$where": "true" },
        ] {
            assert_eq!(source(&depends), None, "{depends:?}");
        }
    }
}
