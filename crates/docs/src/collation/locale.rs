//! The locales of collations, in the form that MongoDB has from ICU: `de`, `de_AT`, `de@collation=phonebook`.

use icu_collator::CollatorPreferences;
use icu_locale_core::{LanguageIdentifier, Locale};

use crate::error::{DocsError, Result};

/// Languages whose order of strings is known.
const LANGUAGES: &[&str] = &[
    "af", "am", "ar", "as", "az", "be", "bg", "bn", "br", "bs", "ca", "chr", "cs", "cy", "da", "de", "dsb",
    "ee", "el", "en", "eo", "es", "et", "fa", "fi", "fil", "fo", "fr", "ga", "gl", "gu", "ha", "he", "hi",
    "hr", "hsb", "hu", "hy", "id", "ig", "is", "it", "ja", "ka", "kk", "km", "kn", "ko", "kok", "ku", "ky",
    "lb", "ln", "lo", "lt", "lv", "mk", "ml", "mn", "mr", "ms", "mt", "my", "nb", "ne", "nl", "nn", "no",
    "om", "or", "pa", "pl", "ps", "pt", "ro", "ru", "si", "sk", "sl", "sq", "sr", "sv", "sw", "ta", "te",
    "th", "tk", "to", "tr", "ug", "uk", "ur", "uz", "vi", "wo", "yi", "yo", "zh", "zu",
];

/// Further orders of a language: its code, the name that MongoDB has for the order, and that of BCP 47.
const VARIANTS: &[(&str, &str, &str)] = &[
    ("ar", "compat", "compat"),
    ("bn", "traditional", "trad"),
    ("de", "phonebook", "phonebk"),
    ("es", "traditional", "trad"),
    ("fi", "traditional", "trad"),
    ("ja", "unihan", "unihan"),
    ("kn", "traditional", "trad"),
    ("ko", "unihan", "unihan"),
    ("si", "dictionary", "dict"),
    ("sv", "traditional", "trad"),
    ("vi", "traditional", "trad"),
    ("zh", "pinyin", "pinyin"),
    ("zh", "stroke", "stroke"),
    ("zh", "unihan", "unihan"),
    ("zh", "zhuyin", "zhuyin"),
];

/// A locale whose order of strings is known.
pub(super) struct CollationLocale(Locale);

impl CollationLocale {
    /// Errors: `BadValue` for another language, or an order that the language does not have.
    pub fn parse(given: &str) -> Result<Self> {
        let (base, keywords) = given.split_once('@').map_or((given, None), |(b, k)| (b, Some(k)));
        let id: LanguageIdentifier = base.replace('_', "-").parse().map_err(|_| invalid(given))?;
        let language = id.language;
        if !LANGUAGES.contains(&language.as_str()) {
            return Err(invalid(given));
        }
        let Some(keywords) = keywords else { return Ok(Self(id.into())) };
        let name = keywords.strip_prefix("collation=").ok_or_else(|| invalid(given))?;
        let mut variants = VARIANTS.iter().filter(|(of, ..)| *of == language.as_str());
        // the standard order of a language has a name as well
        let variant = match name {
            "standard" => Some("standard"),
            name => variants.clone().find(|(_, known, _)| *known == name).map(|(.., bcp47)| *bcp47),
        };
        let Some(variant) = variant else {
            let known: Vec<&str> =
                variants.by_ref().map(|(_, known, _)| *known).chain(["standard"]).collect();
            return Err(DocsError::bad_value(format!(
                "Field 'locale' is invalid in a collation: '{given}': the orders of '{language}' are {}",
                known.join(", ")
            )));
        };
        let locale = format!("{id}-u-co-{variant}").parse().map_err(|_| invalid(given))?;
        Ok(Self(locale))
    }

    pub fn preferences(&self) -> CollatorPreferences {
        CollatorPreferences::from(&self.0)
    }

    /// Returns whether accents are compared from the end of a string.
    pub fn is_backwards(&self) -> bool {
        let id = &self.0.id;
        id.language.as_str() == "fr" && id.region.is_some_and(|region| region.as_str() == "CA")
    }
}

fn invalid(given: &str) -> DocsError {
    DocsError::bad_value(format!(
        "Field 'locale' is invalid in a collation: '{given}': expected 'simple' or a language such as 'en', 'de_AT' or 'de@collation=phonebook'"
    ))
}
