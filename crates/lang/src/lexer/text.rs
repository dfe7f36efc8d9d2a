//! Strings and names in backticks: reading and quoting.

use super::{Lexer, TokenKind, diagnostic_codes};
use crate::diagnostic::Diagnostic;

impl Lexer<'_> {
    /// Reads `"…"` or `'…'` on one line.
    pub(super) fn string(&mut self, quote: char) {
        let start = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            match self.peek() {
                None | Some('\n') => {
                    self.unterminated_string(start, quote);
                    break;
                }
                Some('\\') => value.extend(self.escape()),
                Some(c) => {
                    self.at += c.len_utf8();
                    if c == quote {
                        break;
                    }
                    value.push(c);
                }
            }
        }
        self.push(TokenKind::Str(value), start);
    }

    fn unterminated_string(&mut self, start: usize, quote: char) {
        let open = self.span(start, start + 1);
        self.sink.push(
            Diagnostic::error(diagnostic_codes::OPEN_STRING, open, "this string is not closed on its line")
                .expected([format!("`{quote}`")])
                .help(format!("write `{quote}` at its end; write `\\n` for a line break in a string")),
        );
    }

    /// Reads an escape such as `\n`. Returns `None` after a diagnostic, and for `\` at the end of a line,
    /// which is then reported as an unterminated string.
    fn escape(&mut self) -> Option<char> {
        let start = self.at;
        self.at += 1;
        let c = self.peek().filter(|c| *c != '\n')?;
        self.at += c.len_utf8();
        match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            '\\' | '"' | '\'' => Some(c),
            'u' => self.unicode_escape(start),
            _ => {
                let span = self.span(start, self.at);
                let message = format!("unknown escape `\\{}`", c.escape_debug());
                self.sink.push(
                    Diagnostic::error(diagnostic_codes::ESCAPE, span, message)
                        .expected([r"`\n`", r"`\t`", r"`\r`", r"`\\`", r#"`\"`"#, r"`\'`", r"`\u{…}`"])
                        .help(format!("write `\\\\` for a backslash: `\\\\{}`", c.escape_debug())),
                );
                None
            }
        }
    }

    /// Reads the part of `\u{1F600}` after the `u`; `start` is the offset of the backslash.
    fn unicode_escape(&mut self, start: usize) -> Option<char> {
        let found = self.rest().strip_prefix('{').and_then(|r| {
            let digits = &r[..r.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(r.len())];
            r[digits.len()..].starts_with('}').then_some(digits)
        });
        let value = found.and_then(|d| u32::from_str_radix(d, 16).ok()).and_then(char::from_u32);
        self.at += found.map_or(0, |d| d.len() + 2);
        if value.is_none() {
            let span = self.span(start, self.at);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::ESCAPE, span, "this is not the code of a character")
                    .help(r"write the code in hexadecimal between braces: `\u{20ac}`"),
            );
        }
        value
    }

    /// Reads `` `any text` `` on one line.
    pub(super) fn quoted_name(&mut self) {
        let start = self.at;
        self.at += 1;
        let begin = self.at;
        self.skip_while(|c| c != '`' && c != '\n');
        let name = self.text[begin..self.at].to_owned();
        let closed = self.peek() == Some('`');
        self.at += usize::from(closed);
        let open = self.span(start, start + 1);
        if !closed {
            self.sink.push(
                Diagnostic::error(
                    diagnostic_codes::OPEN_NAME,
                    open,
                    "this name in backticks is not closed on its line",
                )
                .expected(["`` ` ``"])
                .help("write a backtick at its end"),
            );
        } else if name.is_empty() {
            let span = self.span(start, self.at);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::EMPTY_NAME, span, "a name cannot be empty")
                    .help("write the name between the backticks"),
            );
        }
        self.push(TokenKind::Quoted(name), start);
    }
}

/// Formats `text` as a string in double quotes that the lexer reads back as `text`.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
