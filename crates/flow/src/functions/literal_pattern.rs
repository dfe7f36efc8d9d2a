//! Patterns that are little more than a text: they are looked for at the speed of memory.

use memchr::memmem::Finder;

/// What makes more than a text of a pattern.
const META: [char; 13] = ['^', '$', '|', '?', '*', '+', '(', ')', '[', ']', '{', '}', '\\'];
/// Groups and dots that may stand for nothing: whether such a pattern matches anywhere does not depend on them.
const ANY: [&str; 2] = ["(.*)", ".*"];

/// A text, in which dots may stand for any character but a line end, to be found anywhere.
pub(super) struct LiteralPattern {
    /// Finds what stands before the first dot.
    finder: Finder<'static>,
    /// What stands behind each of its dots.
    rest: Vec<String>,
    /// Whether [`ANY`] stood before or behind it.
    open: bool,
}

/// One that is a text and nothing else.
pub(super) struct ExactText<'l>(&'l Finder<'static>);

impl LiteralPattern {
    /// The pattern as a text; none where it is more.
    pub(super) fn of(pattern: &str) -> Option<Self> {
        let stripped = ANY.iter().find_map(|any| pattern.strip_prefix(any)).unwrap_or(pattern);
        let stripped = ANY.iter().find_map(|any| stripped.strip_suffix(any)).unwrap_or(stripped);
        let mut parts = vec![String::new()];
        let mut chars = stripped.chars();
        while let Some(c) = chars.next() {
            let c = match c {
                // letters and digits behind a backslash mean something
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

    /// Whether it is anywhere in a text.
    pub(super) fn is_in(&self, text: &str) -> bool {
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
            // the next place may overlap this one; a character's first byte is never inside another character
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

    /// As one that matches itself only.
    pub(super) fn plain(&self) -> Option<ExactText<'_>> {
        (!self.open && self.rest.is_empty()).then_some(ExactText(&self.finder))
    }
}

impl ExactText<'_> {
    /// The text with every occurrence, or the first, replaced; none where there is none.
    pub(super) fn replace(&self, text: &str, by: &str, all: bool) -> Option<String> {
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

/// What Java's `.` does not match.
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
            let rewritten = crate::functions::java_regex_syntax::rewrite(&pattern, false).unwrap();
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
