//! Patterns of objects in grants.

use std::fmt;
use std::str::FromStr;

use tidemill_types::{Error, Result, did_you_mean};

use crate::resource::{KINDS, Resource, SERVER};

/// Pattern of objects:
///
/// ```text
/// pattern = "*"              every object, and the server
///         | "server"         the server: metrics, statements, backups, users
///         | KIND ":" NAME    objects of a kind; each * in NAME stands for any characters, also for none
/// KIND    = "stream" | "collection" | "table" | "system" | "rule" | "query"
/// ```
///
/// `stream:Orders*` matches `Orders` and `OrdersLate`. Names of collections begin with their database:
/// `collection:docs.orders`, `collection:sales.*`. Upper and lower case differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of every object, and of the server.
    pub fn everything() -> Self {
        Self("*".to_owned())
    }

    /// Returns whether the pattern matches the object.
    pub fn matches(&self, resource: &Resource<'_>) -> bool {
        match self.0.split_once(':') {
            None => self.is_everything() || self.0 == resource.kind(),
            Some((kind, name)) => {
                kind == resource.kind() && glob(name.as_bytes(), resource.name().as_bytes())
            }
        }
    }

    /// Returns whether the pattern is that of every object.
    pub fn is_everything(&self) -> bool {
        self.0 == "*"
    }

    /// Returns kind and name of a pattern of objects that have names.
    pub fn kind_and_name(&self) -> Option<(&str, &str)> {
        self.0.split_once(':')
    }
}

/// Returns whether `text` is `glob`, in which each `*` stands for any bytes.
///
/// Time: the product of both lengths at most; no recursion. After a mismatch, the last `*` takes one more byte, which finds a
/// match if there is one: an earlier `*` need not take more, as what follows it was found already.
fn glob(glob: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star = None;
    while read < text.len() {
        match glob.get(at) {
            Some(b'*') => {
                last_star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == text[read] => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                at = star + 1;
                read = taken + 1;
            }
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Pattern {
    type Err = Error;

    /// Parses a pattern.
    ///
    /// Errors: `Invalid` for an unknown kind, an empty name, a collection without a database, and control characters.
    fn from_str(text: &str) -> Result<Self> {
        let expected =
            "expected `*`, `server`, or a kind and a name such as stream:Orders* or collection:docs.orders";
        if text.is_empty() || text.chars().any(char::is_control) || text.trim() != text {
            return Err(Error::invalid(format!("{text:?} is not a pattern: {expected}")));
        }
        let Some((kind, name)) = text.split_once(':') else {
            return match text {
                "*" | SERVER => Ok(Self(text.to_owned())),
                _ => Err(Error::invalid(format!("`{text}` is not a pattern: {expected}"))),
            };
        };
        if !KINDS.contains(&kind) {
            return Err(Error::invalid(format!(
                "`{text}`: there is no kind `{kind}`{}",
                did_you_mean(kind, KINDS)
            )));
        }
        if name.is_empty() {
            return Err(Error::invalid(format!(
                "`{text}`: the name is missing: `{kind}:*` matches all of them"
            )));
        }
        if kind == "collection" && !name.contains(['.', '*']) {
            return Err(Error::invalid(format!(
                "`{text}`: the database is missing: expected collection:DATABASE.NAME, for example collection:docs.{name}"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, resource: &Resource<'_>) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(resource)
    }

    #[test]
    fn patterns_match_kind_and_name() {
        let orders = Resource::stream("Orders");
        for (pattern, expected) in [
            ("*", true),
            ("stream:*", true),
            ("stream:Orders", true),
            ("stream:Orders*", true),
            ("stream:*ders", true),
            ("stream:O*d*s", true),
            ("stream:orders", false),
            ("stream:Order", false),
            ("stream:Orders?", false),
            ("collection:*", false),
            ("server", false),
        ] {
            assert_eq!(matches(pattern, &orders), expected, "{pattern}");
        }
        assert!(matches("server", &Resource::SERVER) && matches("*", &Resource::SERVER));
        assert!(!matches("stream:*", &Resource::SERVER));
        assert!(matches("collection:docs.*", &Resource::collection("orders")));
        assert!(!matches("collection:docs.*", &Resource::collection("docs2/orders")));
    }

    #[test]
    fn collections_of_the_server_are_matched_by_patterns_of_the_server() {
        let undelivered =
            [Resource::collection("tidemill.undelivered"), Resource::namespace("docs.tidemill.undelivered")];
        for (pattern, expected) in [
            ("*", true),
            ("server", true),
            ("collection:*", false),
            ("collection:docs.*", false),
            ("collection:docs.tidemill.*", false),
            ("collection:docs.tidemill.undelivered", false),
        ] {
            for resource in &undelivered {
                assert_eq!(matches(pattern, resource), expected, "{pattern} {resource}");
            }
        }
    }

    #[test]
    fn all_collections_of_a_database_are_covered_by_patterns_of_all_only() {
        let sales = Resource::database("sales");
        for (pattern, expected) in [
            ("collection:sales.*", true),
            ("collection:*", true),
            ("collection:*.*", true),
            ("collection:sales.a*", false),
            ("collection:sales.orders", false),
            ("collection:other.*", false),
        ] {
            assert_eq!(matches(pattern, &sales), expected, "{pattern}");
        }
    }

    #[test]
    fn wrong_patterns_are_refused_with_what_was_meant() {
        for (text, hint) in [
            ("", "stream:Orders*"),
            ("Orders", "stream:Orders*"),
            ("streams:Orders", "`stream`"),
            ("stream:", "stream:*"),
            ("collection:orders", "collection:docs.orders"),
            ("stream:a\n", "is not a pattern"),
            (" *", "is not a pattern"),
        ] {
            let error = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text:?}: {error}");
        }
    }

    /// The definition, by recursion.
    fn slow(glob: &[u8], text: &[u8]) -> bool {
        match glob.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|taken| slow(rest, &text[taken..])),
            Some((byte, rest)) => {
                text.split_first().is_some_and(|(first, left)| first == byte && slow(rest, left))
            }
        }
    }

    proptest! {
        #[test]
        fn globs_match_as_defined(pattern in "[ab*]{0,8}", text in "[ab*]{0,10}") {
            prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
