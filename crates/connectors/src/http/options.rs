//! Options that several HTTP connectors have, and the form `'a:b','c:d'` of some values.

use http::{HeaderName, HeaderValue};
use tidemill_connect::{OptionError, OptionSpec, Options};

/// Joins lists of options. `N` is the sum of their lengths, which the compiler checks.
pub(crate) const fn joined<const N: usize>(parts: &[&[OptionSpec]]) -> [OptionSpec; N] {
    let mut all = [OptionSpec::text("", ""); N];
    let (mut next, mut part) = (0, 0);
    while part < parts.len() {
        let mut at = 0;
        while at < parts[part].len() {
            all[next] = parts[part][at];
            next += 1;
            at += 1;
        }
        part += 1;
    }
    assert!(next == N, "the lengths of the parts have another sum");
    all
}

/// Parses `'a:b','c:d'`; blanks around commas and missing quotes around a single pair are allowed.
///
/// Errors: a part without a colon. It is not repeated, because it may have confidential values.
pub(crate) fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let text = text.trim();
    let inside = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
    let mut parts = vec![];
    let mut rest = inside.unwrap_or(text);
    while let Some((part, behind)) = split_quoted(rest).filter(|_| inside.is_some()) {
        parts.push(part);
        rest = behind;
    }
    parts.push(rest);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    let pair = |(index, part): (usize, &str)| match part.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(format!("entry {} has no colon; expected `'name:value','name:value'`", index + 1)),
    };
    parts.enumerate().map(pair).collect()
}

/// Parses headers in the form `'name:value','name:value'`.
///
/// Errors: another form, or characters that a header cannot have.
pub(crate) fn parse_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let header = |(name, value): (String, String)| {
        let parsed_name = HeaderName::from_bytes(name.as_bytes());
        let parsed_name = parsed_name.map_err(|_| format!("`{name}` is no name of a header"))?;
        let value = HeaderValue::from_str(&value);
        Ok((
            parsed_name,
            value.map_err(|_| format!("the value of the header `{name}` has control characters"))?,
        ))
    };
    parse_pairs(text)?.into_iter().map(header).collect()
}

/// Splits at the first `','`.
fn split_quoted(text: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let quote = from + text.get(from..)?.find('\'')?;
        let behind = text[quote + 1..].trim_start();
        let behind = behind.strip_prefix(',').and_then(|behind| behind.trim_start().strip_prefix('\''));
        match behind {
            Some(behind) => return Some((&text[..quote], behind)),
            None => from = quote + 1,
        }
    }
}

/// Settings in an option of the form `'a:b','c:d'`.
pub(crate) struct Settings {
    option: &'static str,
    pairs: Vec<(String, String)>,
}

impl Settings {
    /// Parses the option and checks that all settings are among `known`.
    ///
    /// Errors: another form, an unknown setting.
    pub(crate) fn parse(
        options: &Options,
        option: &'static str,
        known: &[&str],
    ) -> Result<Self, OptionError> {
        let pairs = parse_pairs(options.get(option).unwrap_or_default());
        let pairs = pairs.map_err(|e| OptionError::option(option, e))?;
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(OptionError::option(option, format!("there is no setting `{name}`"))
                .expected(known.iter().copied())),
            None => Ok(Self { option, pairs }),
        }
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Errors: the setting is not a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, OptionError> {
        let number = self.text(name).map(|text| {
            text.parse().map_err(|_| {
                OptionError::option(
                    self.option,
                    format!("expected a whole number for `{name}`, found `{text}`"),
                )
            })
        });
        number.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_parsed() {
        for (text, expected) in [
            ("'a:b','c:d'", &[("a", "b"), ("c", "d")][..]),
            ("'a: b' , 'c:d:e'", &[("a", "b"), ("c", "d:e")]),
            ("a:it's,fine", &[("a", "it's,fine")]),
            ("'a:it's','b:x,y'", &[("a", "it's"), ("b", "x,y")]),
            ("'a:'", &[("a", "")]),
            ("", &[]),
            ("''", &[]),
        ] {
            let found = parse_pairs(text).unwrap();
            let found: Vec<(&str, &str)> = found.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(found, expected, "{text}");
        }
        let expected = "entry 2 has no colon; expected `'name:value','name:value'`";
        assert_eq!(parse_pairs("'a:b','c'").unwrap_err(), expected);
    }
}
