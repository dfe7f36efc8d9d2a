//! The keys of a document in a text index: the values of the fields before the text, and a term.

use std::sync::Arc;

use smallvec::SmallVec;
use tidemill_types::budget;

use super::{IndexKeys, put_field};
use crate::error::{DocsError, ErrorCode, Result};
use crate::spec::{Direction, IndexSpec};
use crate::text::TextFields;
use crate::values::key::{Key, KeyBuf, put};
use crate::values::path::Path;
use crate::values::path_values::{array_on, key_values};
use crate::values::raw::{OwnedRawValue, RawValue};

/// An index of terms.
#[derive(Debug)]
pub(crate) struct TextIndex {
    pub fields: Arc<TextFields>,
    /// Fields before the text; a search says their values.
    pub prefix: Vec<(Path, Direction)>,
}

impl TextIndex {
    /// Reads a definition; `None` if it is one of another index. Errors: it is not right.
    pub fn new(spec: &IndexSpec) -> Result<Option<Self>> {
        let Some(text) = &spec.text else { return Ok(None) };
        let fields = TextFields::new(text).map_err(|why| spec.refused(why))?;
        let prefix = spec.fields.iter().take_while(|(path, _)| spec.kind_of(path).is_none());
        Ok(Some(Self {
            fields,
            prefix: prefix.map(|(path, direction)| (Path::new(path), *direction)).collect(),
        }))
    }

    /// Returns the keys of a document, in order; none without terms.
    ///
    /// Errors: an array in a field before the text; those of terms.
    pub fn keys(&self, name: &str, doc: &[u8]) -> Result<IndexKeys> {
        let scores = self.fields.scores(doc)?;
        if scores.is_empty() {
            return Ok(IndexKeys::new());
        }
        let mut prefix = KeyBuf::new();
        for (path, direction) in &self.prefix {
            if array_on(doc, path) {
                let message =
                    format!("index `{name}`: Field '{path}' of text index contains an array in a document");
                return Err(DocsError::new(ErrorCode::TextPrefixArray, message));
            }
            let value = key_values(doc, path).first().copied().unwrap_or(RawValue::NULL);
            put_field(&mut prefix, value, *direction, None);
        }
        budget::steps(scores.len() as u64)?;
        let mut keys: SmallVec<[Key; 1]> =
            scores.keys().map(|term| Key(with_term(prefix.clone(), term))).collect();
        keys.sort_unstable();
        Ok(keys)
    }
}

/// Returns the key of a term behind the values of other fields.
pub(crate) fn with_term(mut key: KeyBuf, term: &str) -> KeyBuf {
    put(&mut key, OwnedRawValue::string(term).as_raw());
    key
}
