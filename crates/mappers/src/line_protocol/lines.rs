//! Cutting of a text into lines. A text in quotes may have line ends.

use influxdb_line_protocol::split_lines;

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
            let line = match rest.starts_with('#') {
                // quotes mean nothing in a comment
                true => rest.split('\n').next().unwrap_or(rest),
                false => split_lines(rest).next().unwrap_or(rest),
            };
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
    use super::*;

    #[test]
    fn texts_in_quotes_may_have_line_ends_and_comments_may_have_quotes() {
        let text = "a n=1\r\n\n# it's \"one =\"\n  b t=\"x\ny\",n=2i 5\nc n=3";
        let found: Vec<_> = lines(text).map(|line| (line.number, line.offset, line.text)).collect();
        assert_eq!(found, [(0, 0, "a n=1"), (3, 25, "b t=\"x\ny\",n=2i 5"), (5, 42, "c n=3")]);
        assert_eq!(lines("\n\n").count(), 0);
        assert_eq!(lines("#").count(), 0);
    }
}
