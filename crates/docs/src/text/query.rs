//! `$text`: words, phrases and what must not be there.

use std::sync::{Arc, OnceLock};

use hashbrown::HashSet;
use tidemill_types::budget;

use super::definition::{TextFields, unsupported};
use super::language::Language;
use super::tokens::{Sensitivity, Tokenizer, folded};
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::CLAUSES_MAX;
use crate::values::display::display;
use crate::values::raw::{RawValue, elements, tag};

/// A condition on the words of a document.
#[derive(Debug)]
pub(crate) struct TextQuery {
    search: SearchText,
    language: Option<Language>,
    sensitivity: Sensitivity,
    /// The terms for the index of a collection, once it is known.
    bound: OnceLock<BoundText>,
}

/// A search text, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
struct SearchText {
    words: String,
    negated_words: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

/// A query for the fields of an index.
#[derive(Debug)]
struct BoundText {
    fields: Arc<TextFields>,
    /// Terms of the index, each once.
    terms: Vec<String>,
    /// Terms in comparable form: a document must have one of `wanted`, and none of `negated`.
    wanted: HashSet<String>,
    negated: HashSet<String>,
}

/// Returns the error for a search without an index.
pub(crate) fn no_index() -> DocsError {
    DocsError::new(ErrorCode::TextIndexMissing, "text index required for $text query")
}

impl TextQuery {
    /// Reads `{ $search, $language, $caseSensitive, $diacriticSensitive }`.
    ///
    /// Errors: no search text, a language that is not known, other fields.
    pub fn parse(operand: RawValue<'_>) -> Result<Self> {
        if operand.tag != tag::DOCUMENT {
            return Err(DocsError::bad_value(format!("$text expects an object, found {}", display(operand))));
        }
        let wrong = |name: &str, expected: &str, found: RawValue<'_>| {
            DocsError::type_mismatch(format!("$text: {name} must be {expected}, found {}", display(found)))
        };
        let (mut search, mut language, mut sensitivity) = (None, None, Sensitivity::default());
        for option in elements(operand.bytes) {
            let value = option.value;
            let text = value.text().filter(|_| value.tag == tag::STRING);
            let flag = (value.tag == tag::BOOL).then_some(value.bytes == [1]);
            match option.name {
                b"$search" => search = Some(text.ok_or_else(|| wrong("$search", "a string", value))?),
                b"$language" => {
                    let name = text.ok_or_else(|| wrong("$language", "a string", value))?;
                    language =
                        Some(Language::of(name).ok_or_else(|| DocsError::bad_value(unsupported(name)))?);
                }
                b"$caseSensitive" => {
                    sensitivity.case = flag.ok_or_else(|| wrong("$caseSensitive", "a bool", value))?;
                }
                b"$diacriticSensitive" => {
                    sensitivity.diacritics =
                        flag.ok_or_else(|| wrong("$diacriticSensitive", "a bool", value))?;
                }
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(DocsError::bad_value(format!(
                        "extra fields in $text: {other}: expected $search, $language, $caseSensitive or $diacriticSensitive"
                    )));
                }
            }
        }
        let Some(search) = search else {
            return Err(DocsError::type_mismatch("$text: missing required field $search, a string"));
        };
        Ok(Self { search: SearchText::parse(search), language, sensitivity, bound: OnceLock::new() })
    }

    /// Makes the query one for the fields of an index. Errors: too many words.
    pub fn bind(&self, fields: &Arc<TextFields>) -> Result<()> {
        if self.bound.get().is_some() {
            return Ok(());
        }
        let language = self.language.unwrap_or(fields.language);
        let terms = |text: &str, sensitivity: Sensitivity| -> Result<Vec<String>> {
            let tokenizer = Tokenizer::new(language, sensitivity);
            let terms: Vec<String> = tokenizer.terms(text).take(CLAUSES_MAX + 1).collect();
            match terms.len() > CLAUSES_MAX {
                true => Err(DocsError::bad_value(format!("$text with more than {CLAUSES_MAX} words"))),
                false => Ok(terms),
            }
        };
        let mut unique = terms(&self.search.words, Sensitivity::default())?;
        unique.sort_unstable();
        unique.dedup();
        let bound = BoundText {
            fields: fields.clone(),
            terms: unique,
            wanted: terms(&self.search.words, self.sensitivity)?.into_iter().collect(),
            negated: terms(&self.search.negated_words, self.sensitivity)?.into_iter().collect(),
        };
        let _ = self.bound.set(bound);
        Ok(())
    }

    fn bound(&self) -> Result<&BoundText> {
        self.bound.get().ok_or_else(no_index)
    }

    /// Returns the terms in order. A document that matches has at least one of them.
    pub fn terms(&self) -> &[String] {
        self.bound.get().map_or(&[], |bound| &bound.terms)
    }

    /// Returns for an explanation the terms and phrases that must not be there, and the phrases that must.
    pub fn other_parts(&self) -> (Vec<&String>, &[String], &[String]) {
        let mut negated: Vec<&String> =
            self.bound.get().map_or(Vec::new(), |bound| bound.negated.iter().collect());
        negated.sort_unstable();
        (negated, &self.search.phrases, &self.search.negated_phrases)
    }

    /// Returns whether a document has what is searched.
    ///
    /// Errors: no index is known; the document says a language that is not known; the work has to end.
    pub fn matches(&self, doc: &[u8]) -> Result<bool> {
        let bound = self.bound()?;
        if bound.terms.is_empty() {
            return Ok(false);
        }
        let (mut is_wanted, mut is_negated) = (false, false);
        let search = &self.search;
        let (mut missing, mut unwanted) = (vec![true; search.phrases.len()], false);
        let fold = |phrases: &[String]| -> Vec<String> {
            phrases.iter().map(|phrase| folded(phrase, self.sensitivity)).collect()
        };
        let (phrases, negated_phrases) = (fold(&search.phrases), fold(&search.negated_phrases));
        bound.fields.each_text(doc, &mut |field| {
            let tokenizer = Tokenizer::new(field.language, self.sensitivity);
            for term in tokenizer.terms(field.text) {
                budget::step()?;
                is_wanted |= bound.wanted.contains(&term);
                is_negated |= bound.negated.contains(&term);
            }
            if !phrases.is_empty() || !negated_phrases.is_empty() {
                budget::steps(field.text.len() as u64 / 64)?;
                let text = folded(field.text, self.sensitivity);
                for (phrase, missing) in phrases.iter().zip(&mut missing) {
                    *missing &= !text.contains(phrase.as_str());
                }
                unwanted |= negated_phrases.iter().any(|phrase| text.contains(phrase.as_str()));
            }
            Ok(!is_negated && !unwanted)
        })?;
        Ok(is_wanted && !is_negated && !unwanted && !missing.contains(&true))
    }

    /// Returns the score of a document: the sum of those of the terms that are searched.
    ///
    /// Errors: as [`Self::matches`].
    pub fn score(&self, doc: &[u8]) -> Result<f64> {
        let bound = self.bound()?;
        let scores = bound.fields.scores(doc)?;
        Ok(bound.terms.iter().filter_map(|term| scores.get(term)).sum())
    }
}

impl SearchText {
    /// Takes a search text apart. `-` before a word or a phrase negates it up to the next space; words of phrases are searched, too.
    fn parse(search: &str) -> Self {
        let mut found = Self::default();
        let (mut in_phrase, mut negates, mut phrase_at, mut after_space) = (false, false, 0, true);
        for (at, c) in search.char_indices() {
            match c {
                '"' if in_phrase => {
                    let phrase = search[phrase_at..at].to_owned();
                    match negates {
                        true => found.negated_phrases.push(phrase),
                        false => found.phrases.push(phrase),
                    }
                    in_phrase = false;
                    found.put(' ', negates, false);
                }
                '"' => {
                    (in_phrase, phrase_at) = (true, at + 1);
                    found.put(' ', negates, false);
                }
                '-' if !in_phrase && after_space => negates = true,
                c if c.is_whitespace() => {
                    if !in_phrase {
                        negates = false;
                    }
                    found.put(c, negates, in_phrase);
                }
                c => found.put(c, negates, in_phrase),
            }
            after_space = c.is_whitespace() && !in_phrase;
        }
        found
    }

    fn put(&mut self, c: char, negates: bool, in_phrase: bool) {
        match (negates, in_phrase) {
            (false, _) => self.words.push(c),
            (true, false) => self.negated_words.push(c),
            // words of a phrase that must not be there may be there by themselves
            (true, true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String, Vec<String>, Vec<String>) {
        let found = SearchText::parse(text);
        let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        (tidy(&found.words), tidy(&found.negated_words), found.phrases, found.negated_phrases)
    }

    fn expected(
        words: &str,
        negated: &str,
        phrases: &[&str],
        negated_phrases: &[&str],
    ) -> (String, String, Vec<String>, Vec<String>) {
        let owned = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
        (words.into(), negated.into(), owned(phrases), owned(negated_phrases))
    }

    #[test]
    fn a_search_text_is_taken_apart() {
        assert_eq!(parsed("a b"), expected("a b", "", &[], &[]));
        assert_eq!(parsed("a -b c"), expected("a c", "b", &[], &[]));
        assert_eq!(parsed("pre-owned - c"), expected("pre-owned c", "", &[], &[]));
        assert_eq!(parsed("-pre-owned"), expected("", "pre-owned", &[], &[]));
        assert_eq!(parsed("\"ssl cert\" key"), expected("ssl cert key", "", &["ssl cert"], &[]));
        assert_eq!(parsed("a -\"b c\" d"), expected("a d", "", &[], &["b c"]));
        assert_eq!(parsed("\"a -b\""), expected("a -b", "", &["a -b"], &[]));
        assert_eq!(parsed("\"open"), expected("open", "", &[], &[]));
    }
}
