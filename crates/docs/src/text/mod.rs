//! Text indexes: terms of strings in a language, and searches for them.
//!
//! A text index has an entry for each term of a document. Whether a document matches and its score are always told from the document
//! itself, by the definition of the index, so that they are the same however it was found.

mod definition;
mod language;
mod meta;
mod query;
mod tokens;

pub(crate) use definition::TextFields;
pub use definition::TextIndexSpec;
pub use meta::{mentions_meta, score_not_available, text_score, with_text_score};
pub(crate) use query::{TextQuery, no_index};
