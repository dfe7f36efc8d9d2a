//! Languages of texts: their stems and stop words.

use std::collections::HashSet;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

/// A language with its names in MongoDB: the long one, and the code of ISO 639-1.
struct Known {
    name: &'static str,
    code: &'static str,
    algorithm: Algorithm,
    stop_words: LazyLock<HashSet<&'static str>>,
}

macro_rules! languages {
    ($($name:literal $code:literal $algorithm:ident $words:literal),* $(,)?) => {
        static KNOWN: [Known; 15] = [$(Known {
            name: $name,
            code: $code,
            algorithm: Algorithm::$algorithm,
            stop_words: LazyLock::new(|| {
                stop_words::lookup($words).unwrap_or_default().iter().copied().collect()
            }),
        }),*];
    };
}

languages! {
    "danish" "da" Danish "da",
    "dutch" "nl" Dutch "nl",
    "english" "en" English "en",
    "finnish" "fi" Finnish "fi",
    "french" "fr" French "fr",
    "german" "de" German "de",
    "hungarian" "hu" Hungarian "hu",
    "italian" "it" Italian "it",
    "norwegian" "nb" Norwegian "no",
    "portuguese" "pt" Portuguese "pt",
    "romanian" "ro" Romanian "ro",
    "russian" "ru" Russian "ru",
    "spanish" "es" Spanish "es",
    "swedish" "sv" Swedish "sv",
    "turkish" "tr" Turkish "tr",
}

/// The language of a text, which decides about stems and stop words.
#[derive(Clone, Copy)]
pub(crate) struct Language(Option<&'static Known>);

impl std::fmt::Debug for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Language {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Language {
    /// Words are taken as they are.
    pub const NONE: Self = Self(None);

    /// Returns the language of a name, `english` or `en`, in any case; `None` if it is not known.
    pub fn of(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        if name == "none" {
            return Some(Self::NONE);
        }
        let is_named =
            |known: &&Known| known.name == name || known.code == name || (known.code == "nb" && name == "no");
        KNOWN.iter().find(is_named).map(|known| Self(Some(known)))
    }

    pub fn name(self) -> &'static str {
        self.0.map_or("none", |known| known.name)
    }

    /// Returns the names that are known.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|known| known.name).chain(["none"])
    }

    /// Returns whether an apostrophe is a part of words.
    pub fn has_apostrophes(self) -> bool {
        self.name() == "english"
    }

    /// Returns whether a word in lower case says nothing.
    pub fn is_stop_word(self, word: &str) -> bool {
        self.0.is_some_and(|known| known.stop_words.contains(word))
    }

    pub fn stemmer(self) -> Option<Stemmer> {
        self.0.map(|known| Stemmer::create(known.algorithm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_stop_words() {
        for known in &KNOWN {
            assert!(known.stop_words.len() > 20, "{}", known.name);
        }
        assert!(Language::of("EN").unwrap().is_stop_word("the"));
        assert_eq!(Language::of("de").unwrap().name(), "german");
        assert!(Language::of("klingon").is_none() && Language::of("none").unwrap().stemmer().is_none());
    }
}
