//! Collations: the order and equality of strings by the rules of a language.
//!
//! A collation turns a string into a sort key, whose bytes compare as the strings do. So whatever orders values by their
//! [`crate::Key`] orders strings by a collation if it has one, and by their bytes if it has none. The rules are those of
//! Unicode's CLDR; indexes are built from them anew when a checkpoint is loaded.

mod locale;

use std::fmt;
use std::sync::Arc;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{Collator, CollatorBorrowed};
use smallvec::SmallVec;

use crate::error::{DocsError, ErrorCode, Result};
use locale::CollationLocale;

/// The locale that stands for no collation.
const SIMPLE: &str = "simple";
/// Version of the rules that MongoDB lists for every collation.
const VERSION: &str = "57.1";

/// The order of strings in a language, as MongoDB's `collation` describes it. A clone shares its contents. Two are equal if all of
/// their options are.
#[derive(Clone)]
pub struct Collation(Arc<Inner>);

struct Inner {
    collator: CollatorBorrowed<'static>,
    document: RawDocumentBuf,
}

impl Collation {
    /// Reads MongoDB's document, `{ locale: "de", strength: 1, … }`. Returns `None` for the simple collation, which compares
    /// bytes.
    ///
    /// Errors: no locale, one that is not known, an option that does not exist or has another value than MongoDB allows;
    /// `NotSupported` for the order of accents from the end in a language that does not have it.
    pub fn parse(given: &RawDocument) -> Result<Option<Self>> {
        let options = GivenOptions::parse(given)?;
        if options.locale == SIMPLE {
            return match given.iter().nth(1) {
                None => Ok(None),
                Some(_) => Err(DocsError::parse("with the locale 'simple' a collation has no other fields")),
            };
        }
        let locale = CollationLocale::parse(options.locale)?;
        options.check(&locale)?;
        let mut preferences = locale.preferences();
        preferences.case_first = options.case_first;
        preferences.numeric_ordering = options.numeric.then_some(CollationNumericOrdering::True);
        let mut chosen = CollatorOptions::default();
        chosen.strength = options.strength;
        chosen.alternate_handling = options.alternate;
        chosen.max_variable = options.max_variable;
        chosen.case_level = Some(if options.case_level { CaseLevel::On } else { CaseLevel::Off });
        let collator = Collator::try_new(preferences, chosen)
            .map_err(|e| DocsError::bad_value(format!("collation for '{}': {e}", options.locale)))?;
        let document = document(&options, &collator, locale.is_backwards());
        Ok(Some(Self(Arc::new(Inner { collator, document }))))
    }

    /// Returns the collation with all of its options, as MongoDB lists it.
    pub fn document(&self) -> &RawDocument {
        &self.0.document
    }

    /// Returns bytes that compare as the strings do.
    pub(crate) fn sort_key(&self, text: &[u8]) -> SmallVec<[u8; 64]> {
        let mut key = SmallVec::new();
        let Ok(()) = self.0.collator.write_sort_key_utf8_to(text, &mut key);
        key
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.document == other.0.document
    }
}

impl Eq for Collation {}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collation({:?})", self.0.document)
    }
}

/// The options of a collation; what is `None` is as the language has it.
struct GivenOptions<'d> {
    locale: &'d str,
    case_level: bool,
    case_first: Option<CollationCaseFirst>,
    strength: Option<Strength>,
    numeric: bool,
    alternate: Option<AlternateHandling>,
    max_variable: Option<MaxVariable>,
    normalization: bool,
    backwards: Option<bool>,
}

impl<'d> GivenOptions<'d> {
    fn parse(given: &'d RawDocument) -> Result<Self> {
        let mut options = Self {
            locale: "",
            case_level: false,
            case_first: None,
            strength: None,
            numeric: false,
            alternate: None,
            max_variable: None,
            normalization: false,
            backwards: None,
        };
        for option in given {
            let (name, value) = option.map_err(|e| DocsError::new(ErrorCode::InvalidBson, e.to_string()))?;
            match name.as_str() {
                "locale" => options.locale = text("locale", value)?,
                "caseLevel" => options.case_level = flag("caseLevel", value)?,
                "caseFirst" => {
                    options.case_first = Some(match text("caseFirst", value)? {
                        "upper" => CollationCaseFirst::Upper,
                        "lower" => CollationCaseFirst::Lower,
                        "off" => CollationCaseFirst::False,
                        other => return Err(unknown("caseFirst", other, "'upper', 'lower' or 'off'")),
                    });
                }
                "strength" => options.strength = Some(strength(value)?),
                "numericOrdering" => options.numeric = flag("numericOrdering", value)?,
                "alternate" => {
                    options.alternate = Some(match text("alternate", value)? {
                        "non-ignorable" => AlternateHandling::NonIgnorable,
                        "shifted" => AlternateHandling::Shifted,
                        other => return Err(unknown("alternate", other, "'non-ignorable' or 'shifted'")),
                    });
                }
                "maxVariable" => {
                    options.max_variable = Some(match text("maxVariable", value)? {
                        "punct" => MaxVariable::Punctuation,
                        "space" => MaxVariable::Space,
                        other => return Err(unknown("maxVariable", other, "'punct' or 'space'")),
                    });
                }
                // strings are compared in their normalized form either way
                "normalization" => options.normalization = flag("normalization", value)?,
                "backwards" => options.backwards = Some(flag("backwards", value)?),
                "version" => match text("version", value)? {
                    VERSION => {}
                    other => {
                        let message =
                            format!("collation version '{other}' is not available: expected '{VERSION}'");
                        return Err(DocsError::new(ErrorCode::IncompatibleCollationVersion, message));
                    }
                },
                name => {
                    let message = format!("BSON field 'collation.{name}' is an unknown field.");
                    return Err(DocsError::new(ErrorCode::UnknownField, message));
                }
            }
        }
        match options.locale {
            "" => {
                let message = "BSON field 'collation.locale' is missing but a required field";
                Err(DocsError::new(ErrorCode::MissingField, message))
            }
            _ => Ok(options),
        }
    }

    /// Checks options that belong together.
    fn check(&self, locale: &CollationLocale) -> Result<()> {
        let orders_case = self.case_first.is_some_and(|order| order != CollationCaseFirst::False);
        let below_case = matches!(self.strength, Some(Strength::Primary | Strength::Secondary));
        if orders_case && below_case && !self.case_level {
            return Err(DocsError::bad_value(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2",
            ));
        }
        match self.backwards {
            Some(true) if self.strength == Some(Strength::Primary) => {
                Err(DocsError::bad_value("'backwards' is invalid with 'strength' of 1"))
            }
            Some(backwards) if backwards != locale.is_backwards() => Err(DocsError::new(
                ErrorCode::NotSupported,
                format!(
                    "collation {{backwards: {backwards}}} is not supported for the locale '{}': accents are compared from the end for 'fr_CA' only, and always there",
                    self.locale
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the collation with all of its options, those of the language where none were given.
fn document(
    given: &GivenOptions<'_>,
    collator: &CollatorBorrowed<'static>,
    backwards: bool,
) -> RawDocumentBuf {
    let used = collator.resolved_options();
    let strength = match used.strength {
        Strength::Primary => 1,
        Strength::Secondary => 2,
        Strength::Quaternary => 4,
        Strength::Identical => 5,
        _ => 3,
    };
    let case_first = match used.case_first {
        CollationCaseFirst::Upper => "upper",
        CollationCaseFirst::Lower => "lower",
        _ => "off",
    };
    rawdoc! {
        "locale": given.locale,
        "caseLevel": used.case_level == CaseLevel::On,
        "caseFirst": case_first,
        "strength": strength,
        "numericOrdering": given.numeric,
        "alternate": if used.alternate_handling == AlternateHandling::Shifted { "shifted" } else { "non-ignorable" },
        "maxVariable": if used.max_variable == MaxVariable::Space { "space" } else { "punct" },
        "normalization": given.normalization,
        "backwards": backwards,
        "version": VERSION,
    }
}

fn text<'d>(name: &str, value: RawBsonRef<'d>) -> Result<&'d str> {
    value.as_str().ok_or_else(|| wrong_type(name, "a string"))
}

fn flag(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(name, "a bool"))
}

fn strength(value: RawBsonRef<'_>) -> Result<Strength> {
    let level = match value {
        RawBsonRef::Int32(n) => f64::from(n),
        RawBsonRef::Int64(n) => n as f64,
        RawBsonRef::Double(n) => n,
        _ => return Err(wrong_type("strength", "a number")),
    };
    Ok(match level {
        1.0 => Strength::Primary,
        2.0 => Strength::Secondary,
        3.0 => Strength::Tertiary,
        4.0 => Strength::Quaternary,
        5.0 => Strength::Identical,
        other => return Err(unknown("strength", &other.to_string(), "1 to 5")),
    })
}

fn unknown(name: &str, found: &str, expected: &str) -> DocsError {
    let message = format!(
        "Enumeration value '{found}' for field 'collation.{name}' is not a valid value: expected {expected}"
    );
    DocsError::bad_value(message)
}

fn wrong_type(name: &str, expected: &str) -> DocsError {
    DocsError::type_mismatch(format!("BSON field 'collation.{name}' is the wrong type: expected {expected}"))
}
