//! Patterns that are almost plain strings, matched by substring search instead of the regex engine.

use memchr::memmem::Finder;

/// Characters with a special meaning in a pattern; none of them may occur unescaped.
const META: [char; 13] = ['^', '$', '|', '?', '*', '+', '(', ')', '[', ']', '{', '}', '\\'];
/// Prefixes and suffixes that also match nothing: whether the pattern matches anywhere does not depend on
/// them.
const ANY: [&str; 2] = ["(.*)", ".*"];

/// String to find anywhere, in which a dot stands for any character but a line end.
pub(in crate::functions) struct LiteralPattern {
    /// Finds the part before the first dot.
    finder: Finder<'static>,
    /// The parts after each dot.
    rest: Vec<String>,
    /// True if a prefix or suffix of [`ANY`] was stripped.
    open: bool,
}

/// Pattern without dots and without a stripped prefix or suffix.
pub(in crate::functions) struct ExactText<'l>(&'l Finder<'static>);

impl LiteralPattern {
    /// Converts a pattern, or returns `None` if it needs the regex engine.
    pub(in crate::functions) fn of(pattern: &str) -> Option<Self> {
        let stripped = ANY.iter().find_map(|any| pattern.strip_prefix(any)).unwrap_or(pattern);
        let stripped = ANY.iter().find_map(|any| stripped.strip_suffix(any)).unwrap_or(stripped);
        let mut parts = vec![String::new()];
        let mut chars = stripped.chars();
        while let Some(c) = chars.next() {
            let c = match c {
                // an escaped letter or digit is a regex construct
                '\\' => Some(chars.next().filter(char::is_ascii_punctuation)?),
                '.' => None,
                c if META.contains(&c) => return None,
                c => Some(c),
            };
            match (c, parts.last_mut()) {
                (Some(c), Some(part)) => part.push(c),
                _ => parts.push(String::new()),
            }
        }
        let first = parts.remove(0);
        if first.is_empty() {
            return None;
        }
        let finder = Finder::new(first.as_bytes()).into_owned();
        Some(Self { finder, rest: parts, open: stripped.len() < pattern.len() })
    }

    /// Returns whether `text` contains a match.
    pub(in crate::functions) fn is_in(&self, text: &str) -> bool {
        let length = self.finder.needle().len();
        let mut found = self.finder.find_iter(text.as_bytes());
        if self.rest.is_empty() {
            return found.next().is_some();
        }
        let mut from = 0;
        while let Some(at) = self.finder.find(&text.as_bytes()[from..]) {
            if self.continues(&text[from + at + length..]) {
                return true;
            }
            // the next match may overlap this one; UTF-8 keeps the first byte of a character out of other
            // characters
            from += at + text[from + at..].chars().next().map_or(1, char::len_utf8);
        }
        false
    }

    fn continues(&self, mut text: &str) -> bool {
        self.rest.iter().all(|part| {
            let mut chars = text.chars();
            let dot = chars.next().is_some_and(|c| !is_line_end(c));
            let behind = chars.as_str().strip_prefix(part.as_str());
            text = behind.unwrap_or_default();
            dot && behind.is_some()
        })
    }

    /// Returns the pattern as a plain string, or `None` if it has dots or a stripped prefix or suffix.
    pub(in crate::functions) fn plain(&self) -> Option<ExactText<'_>> {
        (!self.open && self.rest.is_empty()).then_some(ExactText(&self.finder))
    }
}

impl ExactText<'_> {
    /// Replaces every occurrence, or only the first; returns `None` without an occurrence.
    pub(in crate::functions) fn replace(&self, text: &str, by: &str, all: bool) -> Option<String> {
        let mut found = self.0.find_iter(text.as_bytes()).take(if all { usize::MAX } else { 1 }).peekable();
        found.peek()?;
        let mut out = String::with_capacity(text.len() + by.len());
        let mut from = 0;
        for at in found {
            out.push_str(&text[from..at]);
            out.push_str(by);
            from = at + self.0.needle().len();
        }
        out.push_str(&text[from..]);
        Some(out)
    }
}

/// Returns whether Java's `.` does not match `c`.
fn is_line_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_that_are_more_than_texts_are_left_alone() {
        for pattern in
            ["", "a+", "a|b", "^a", "[a]", r"\d", "a(.)b", "(.*)", ".", "a{2}", "(?i)a", "(.*)a(.*)b", r"a\"]
        {
            assert!(LiteralPattern::of(pattern).is_none(), "{pattern}");
        }
        for pattern in ["a", r"a\.b", "a.b", "(.*)a", ".*a.*", "é€"] {
            assert!(LiteralPattern::of(pattern).is_some(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn they_match_what_the_machine_matches(
            pattern in r"(\(\.\*\)|\.\*)?[ab@][ab.]{0,4}(\\\.)?(\(\.\*\)|\.\*)?",
            text in "[ab@.é\u{85}\n]{0,12}",
        ) {
            let Some(literal) = LiteralPattern::of(&pattern) else { return Ok(()) };
            let rewritten = crate::functions::java::java_regex_syntax::rewrite(&pattern, false).unwrap();
            let regex = fancy_regex::Regex::new(&rewritten).unwrap();
            prop_assert_eq!(literal.is_in(&text), regex.is_match(&text).unwrap());
            if let Some(plain) = literal.plain() {
                let all = regex.replace_all(&text, "x");
                prop_assert_eq!(plain.replace(&text, "x", true).unwrap_or(text.clone()), all.as_ref());
                let first = regex.replace(&text, "x");
                prop_assert_eq!(plain.replace(&text, "x", false).unwrap_or(text.clone()), first.as_ref());
            }
        }
    }
}
