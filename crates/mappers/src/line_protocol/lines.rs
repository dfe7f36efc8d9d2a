//! Cutting of a text into lines. A text in quotes may have line ends.

use influxdb_line_protocol::split_lines;
use memchr::{memchr, memchr2};

/// Line of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextLine<'t> {
    /// Number of its first line, from 0.
    pub number: u64,
    /// Position of its first byte.
    pub offset: usize,
    /// Content without white space around it, never empty.
    pub text: &'t str,
}

/// Returns the lines of a text that are neither empty nor comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = TextLine<'_>> {
    let (mut at, mut number) = (0, 0);
    std::iter::from_fn(move || {
        loop {
            let rest = &text[at..];
            let begin = rest.len() - rest.trim_start_matches(is_space).len();
            number += count_ends(&rest[..begin]);
            let rest = &rest[begin..];
            at += begin;
            if rest.is_empty() {
                return None;
            }
            let up_to_end = &rest[..memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len())];
            // quotes mean nothing in a comment
            let is_plain = rest.starts_with('#') || memchr2(b'"', b'\\', up_to_end.as_bytes()).is_none();
            let line = if is_plain { up_to_end } else { split_lines(rest).next().unwrap_or(rest) };
            let found = TextLine { number, offset: at, text: line.trim_end_matches(is_space) };
            number += count_ends(line);
            at += line.len();
            if !rest.starts_with('#') {
                return Some(found);
            }
        }
    })
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\0'
}

fn count_ends(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_in_quotes_may_have_line_ends_and_comments_may_have_quotes() {
        let text = "a n=1\r\n\n# it's \"one =\"\n  b t=\"x\ny\",n=2i 5\nc n=3";
        let found: Vec<_> = lines(text).map(|line| (line.number, line.offset, line.text)).collect();
        assert_eq!(found, [(0, 0, "a n=1"), (3, 25, "b t=\"x\ny\",n=2i 5"), (5, 42, "c n=3")]);
        assert_eq!(lines("\n\n").count(), 0);
        assert_eq!(lines("#").count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5000))]

        #[test]
        fn lines_end_where_those_of_the_crate_end(text in "([a=, \\\\\"\n]{0,6}){0,4}") {
            // white space is not part of a line, and begins the next one for the crate
            let first = lines(&text).next();
            let begin = text.len() - text.trim_start_matches(is_space).len();
            let expected = split_lines(&text[begin..]).next().map(|line| line.trim_end_matches(is_space));
            prop_assert_eq!(first.map_or("", |line| line.text), expected.unwrap_or(""));
        }
    }
}
