//! Words of a text as an index has them: without case, stop words, endings and accents.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use rust_stemmers::Stemmer;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::language::Language;

/// Characters between words: those of the properties of Unicode that MongoDB's third version of text indexes names.
static DELIMITER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let properties =
        r"[\p{Dash}\p{Hyphen}\p{Pattern_Syntax}\p{Quotation_Mark}\p{Terminal_Punctuation}\p{White_Space}]";
    Regex::new(properties).ok()
});

/// Bytes of a word; what is behind does not tell words apart.
const WORD_BYTES_MAX: usize = 256;

/// Differences between letters that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sensitivity {
    pub case: bool,
    pub diacritics: bool,
}

/// Makes terms of texts in one language.
pub(crate) struct Tokenizer {
    language: Language,
    stemmer: Option<Stemmer>,
    sensitivity: Sensitivity,
}

impl Tokenizer {
    pub fn new(language: Language, sensitivity: Sensitivity) -> Self {
        Self { language, stemmer: language.stemmer(), sensitivity }
    }

    /// Iterates over the terms of a text, in order.
    pub fn terms<'t>(&'t self, text: &'t str) -> impl Iterator<Item = String> + 't {
        words(text, self.language.has_apostrophes()).filter_map(|word| self.term(word))
    }

    fn term(&self, word: &str) -> Option<String> {
        let lower = word.to_lowercase();
        if self.language.is_stop_word(&lower) {
            return None;
        }
        let kept = if self.sensitivity.case { word } else { &lower };
        let mut end = kept.len().min(WORD_BYTES_MAX);
        while !kept.is_char_boundary(end) {
            end -= 1;
        }
        // stems know accents
        let stem = match &self.stemmer {
            Some(stemmer) => stemmer.stem(&kept[..end]),
            None => Cow::Borrowed(&kept[..end]),
        };
        let term = match self.sensitivity.diacritics {
            true => stem.into_owned(),
            false => without_accents(&stem).into_owned(),
        };
        (!term.is_empty()).then_some(term)
    }
}

/// Iterates over the words of a text.
pub(super) fn words(text: &str, apostrophes: bool) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(|c: char| !is_delimiter(c, apostrophes))?;
        let word = &rest[start..];
        let end = word.find(|c: char| is_delimiter(c, apostrophes)).unwrap_or(word.len());
        rest = &word[end..];
        Some(&word[..end])
    })
}

fn is_delimiter(c: char, apostrophes: bool) -> bool {
    match c {
        '\'' => !apostrophes,
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
        c if c.is_ascii() => !c.is_ascii_control() || c.is_whitespace(),
        c => DELIMITER.as_ref().is_some_and(|delimiter| delimiter.is_match(c.encode_utf8(&mut [0; 4]))),
    }
}

/// Returns a text without marks over and under its letters.
pub(super) fn without_accents(text: &str) -> Cow<'_, str> {
    match text.is_ascii() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.nfd().filter(|c| !is_combining_mark(*c)).nfc().collect()),
    }
}

/// Returns a text as phrases are looked for in it.
pub(super) fn folded(text: &str, sensitivity: Sensitivity) -> String {
    let text = if sensitivity.case { Cow::Borrowed(text) } else { Cow::Owned(text.to_lowercase()) };
    match sensitivity.diacritics {
        true => text.into_owned(),
        false => without_accents(&text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(language: &str, text: &str) -> Vec<String> {
        Tokenizer::new(Language::of(language).unwrap(), Sensitivity::default()).terms(text).collect()
    }

    #[test]
    fn the_delimiters_are_known() {
        assert!(DELIMITER.is_some());
        assert!(is_delimiter('–', false) && is_delimiter('«', false) && is_delimiter('。', false));
        assert!(!is_delimiter('ü', false) && !is_delimiter('語', false));
    }

    #[test]
    fn words_lose_case_endings_and_accents() {
        assert_eq!(
            terms("english", "The Running dogs' cafés, and foxes-jumped!"),
            ["run", "dog", "cafe", "fox", "jump"]
        );
        assert_eq!(terms("none", "The Running dogs"), ["the", "running", "dogs"]);
        assert_eq!(terms("german", "Die Häuser der Stadt"), ["haus", "stadt"]);
        assert_eq!(terms("french", "Les élèves mangeaient"), ["elev", "mang"]);
        assert_eq!(terms("english", "snake_case a.b 3.14"), ["snake_cas", "b", "3", "14"]);
    }
}
