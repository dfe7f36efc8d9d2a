//! Definition of a text index, and the terms of documents by it.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tidemill_types::budget;

use super::language::Language;
use super::tokens::{Sensitivity, Tokenizer};
use crate::error::{DocsError, ErrorCode, Result};
use crate::values::display::display;
use crate::values::raw::{RawValue, elements, field, tag};

/// Largest weight of a field, as in MongoDB.
const WEIGHT_MAX: f64 = 1_000_000_000.0;
/// Terms of one document, and their bytes, as in MongoDB.
const TERMS_MAX: usize = 400_000;
const TERM_BYTES_MAX: usize = 4 << 20;
/// Path that stands for all fields.
pub(super) const ALL_FIELDS: &str = "$**";
/// Bytes of a text that count as one step.
const BYTES_PER_STEP: usize = 64;

/// Definition of a text index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TextIndexSpec {
    /// Fields with their weights; `$**` for all fields.
    pub weights: Vec<(String, f64)>,
    /// Language of documents that do not say theirs.
    pub default_language: String,
    /// Field in which a document says its language.
    pub language_override: String,
    /// Version that the creator asked for, 3 if it did not. All versions have the terms of the third here.
    pub version: i32,
}

// weights are numbers, see `TextIndexSpec::check`
impl Eq for TextIndexSpec {}

impl Default for TextIndexSpec {
    fn default() -> Self {
        Self {
            weights: Vec::new(),
            default_language: "english".into(),
            language_override: "language".into(),
            version: 3,
        }
    }
}

impl TextIndexSpec {
    /// Returns what is wrong with the definition.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.weights.is_empty() {
            return Err("a text index needs at least one field with text".into());
        }
        for (at, (path, weight)) in self.weights.iter().enumerate() {
            if !(*weight > 0.0 && *weight < WEIGHT_MAX) {
                return Err(format!(
                    "the weight of `{path}` is {weight}: expected more than 0 and less than 1000000000"
                ));
            }
            if path != ALL_FIELDS && path.split('.').any(|part| part.is_empty() || part.starts_with('$')) {
                return Err(format!(
                    "text index field {path:?}: expected a path such as `a` or `a.b`, or `$**`"
                ));
            }
            if self.weights[..at].iter().any(|(other, _)| other == path) {
                return Err(format!("duplicate text field `{path}`"));
            }
        }
        if Language::of(&self.default_language).is_none() {
            return Err(format!("default_language: {}", unsupported(&self.default_language)));
        }
        let path = self.language_override.as_str();
        if path.is_empty() || path.starts_with('$') || path.contains('.') {
            return Err(format!("language_override {path:?}: expected the name of a field"));
        }
        match self.version {
            1..=3 => Ok(()),
            other => Err(format!("textIndexVersion {other}: expected 1, 2 or 3")),
        }
    }
}

/// Returns the message for a language that is not known.
pub(super) fn unsupported(language: &str) -> String {
    let known: Vec<&str> = Language::names().collect();
    format!(
        "unsupported language: \"{language}\" for text index version 3: expected one of {}",
        known.join(", ")
    )
}

/// The fields of a text index.
#[derive(Debug, Clone)]
pub(crate) struct TextFields {
    weights: Vec<(Box<str>, f64)>,
    /// Weight of the fields that have none.
    others: Option<f64>,
    pub language: Language,
    override_field: Box<str>,
    pub version: i32,
}

/// A string of a document with its weight and language.
pub(super) struct FieldText<'d> {
    pub text: &'d str,
    pub weight: f64,
    pub language: Language,
}

impl TextFields {
    /// Reads a definition. Errors: it is not one.
    pub fn new(spec: &TextIndexSpec) -> Result<Arc<Self>, String> {
        spec.check()?;
        let others = spec.weights.iter().find(|(path, _)| path == ALL_FIELDS).map(|(_, weight)| *weight);
        let weights = spec.weights.iter().filter(|(path, _)| path != ALL_FIELDS);
        Ok(Arc::new(Self {
            weights: weights.map(|(path, weight)| (path.as_str().into(), *weight)).collect(),
            others,
            language: Language::of(&spec.default_language).unwrap_or(Language::NONE),
            override_field: spec.language_override.as_str().into(),
            version: spec.version,
        }))
    }

    /// Returns the terms of a document with their scores.
    ///
    /// Errors: a language that is not known, too many terms, work that has to end.
    pub fn scores(&self, doc: &[u8]) -> Result<HashMap<String, f64>> {
        let mut scores = HashMap::new();
        let mut bytes = 0;
        self.each_text(doc, &mut |field| {
            add_scores(&field, &mut scores, &mut bytes)?;
            Ok(true)
        })?;
        Ok(scores)
    }

    /// Returns whether a change of top-level fields for which `touches` is true may change the terms.
    pub fn depends_on(&self, touches: &impl Fn(&[u8]) -> bool) -> bool {
        let top = |path: &str| path.split('.').next().unwrap_or_default().to_owned();
        self.others.is_some()
            || touches(self.override_field.as_bytes())
            || self.weights.iter().any(|(path, _)| touches(top(path).as_bytes()))
    }

    /// Calls `each` with the strings of a document that are in the index, until it returns false.
    ///
    /// Errors: a language that is not known, and those of `each`.
    pub(super) fn each_text<'d>(
        &self,
        doc: &'d [u8],
        each: &mut dyn FnMut(FieldText<'d>) -> Result<bool>,
    ) -> Result<()> {
        self.document(&mut String::new(), doc, self.language, each).map(|_| ())
    }

    /// Documents are at most `depth_max` deep, and so is the recursion.
    fn document<'d>(
        &self,
        path: &mut String,
        doc: &'d [u8],
        around: Language,
        each: &mut dyn FnMut(FieldText<'d>) -> Result<bool>,
    ) -> Result<bool> {
        let language = self.language_of(doc)?.unwrap_or(around);
        let len = path.len();
        for e in elements(doc) {
            // the language is not part of the text
            if self.others.is_some() && e.name == self.override_field.as_bytes() {
                continue;
            }
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(e.name));
            let goes_on = !self.leads_to(path) || self.value(path, e.value, language, each)?;
            path.truncate(len);
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn value<'d>(
        &self,
        path: &mut String,
        value: RawValue<'d>,
        language: Language,
        each: &mut dyn FnMut(FieldText<'d>) -> Result<bool>,
    ) -> Result<bool> {
        match value.tag {
            tag::STRING | tag::SYMBOL => {
                let own = self.weights.iter().find(|(own, _)| **own == **path).map(|(_, weight)| *weight);
                match (own.or(self.others), value.text()) {
                    (Some(weight), Some(text)) => each(FieldText { text, weight, language }),
                    _ => Ok(true),
                }
            }
            tag::DOCUMENT => self.document(path, value.bytes, language, each),
            tag::ARRAY => {
                for e in elements(value.bytes) {
                    if !self.value(path, e.value, language, each)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn leads_to(&self, path: &str) -> bool {
        let leads =
            |own: &str| own.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.others.is_some() || self.weights.iter().any(|(own, _)| leads(own))
    }

    fn language_of(&self, doc: &[u8]) -> Result<Option<Language>> {
        let Some(named) = field(doc, self.override_field.as_bytes()).map(|e| e.value) else {
            return Ok(None);
        };
        let Some(name) = named.text().filter(|_| named.tag == tag::STRING) else {
            return Err(DocsError::new(
                ErrorCode::LanguageNotString,
                format!(
                    "found language override field `{}` in document with non-string type: {}",
                    self.override_field,
                    display(named)
                ),
            ));
        };
        Language::of(name).map(Some).ok_or_else(|| {
            DocsError::new(ErrorCode::UnknownLanguage, format!("language override unsupported: {name}"))
        })
    }
}

/// Adds the scores of the terms of a text, as MongoDB computes them: the first of equal terms counts 1, the next 1/2, then 1/4; times a
/// half and half the share of the term in the text; a tenth more for a text that is only this term.
fn add_scores(field: &FieldText<'_>, scores: &mut HashMap<String, f64>, bytes: &mut usize) -> Result<()> {
    budget::steps(1 + (field.text.len() / BYTES_PER_STEP) as u64)?;
    let tokenizer = Tokenizer::new(field.language, Sensitivity::default());
    let mut counted: HashMap<String, (f64, f64, f64)> = HashMap::new();
    let mut total = 0.0;
    for term in tokenizer.terms(field.text) {
        budget::step()?;
        let (part, count, sum) = counted.entry(term).or_insert((2.0, 0.0, 0.0));
        *part /= 2.0;
        *count += 1.0;
        *sum += *part;
        total += 1.0;
    }
    for (term, (_, count, sum)) in counted {
        let share = 0.5 * count / total + 0.5;
        let whole = field.text.len() == term.len() && field.text.eq_ignore_ascii_case(&term);
        let bonus = if whole { 1.1 } else { 1.0 };
        let score = field.weight * sum * share * bonus;
        match scores.get_mut(&term) {
            Some(known) => *known += score,
            None => {
                *bytes += term.len();
                if scores.len() >= TERMS_MAX || *bytes > TERM_BYTES_MAX {
                    let message = format!(
                        "too many unique keys for a single document to have text index: limit of {TERMS_MAX} terms and {TERM_BYTES_MAX} bytes"
                    );
                    return Err(DocsError::new(ErrorCode::TooManyTerms, message));
                }
                scores.insert(term, score);
            }
        }
    }
    Ok(())
}
