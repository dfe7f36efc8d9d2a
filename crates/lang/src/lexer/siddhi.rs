//! String literals, numbers, function bodies and variables of SiddhiQL.

use super::{Lexer, TokenKind, diagnostic_codes, is_word_part};
use crate::diagnostic::Diagnostic;

/// Delimiter of a string that may contain any character.
const TRIPLE: &str = "\"\"\"";

impl Lexer<'_> {
    /// Reads the string, number, body or variable that begins with `c`. Returns false if none begins there.
    pub(super) fn siddhi_value(&mut self, c: char) -> bool {
        let rest = self.rest();
        let fraction = c == '.' && rest[1..].starts_with(|d: char| d.is_ascii_digit());
        if c.is_ascii_digit() || fraction {
            self.typed_number();
        } else if rest.starts_with(TRIPLE) {
            self.triple_text();
        } else if c == '"' || c == '\'' {
            self.plain_text(c);
        } else if c == '{' {
            self.body();
        } else if rest.starts_with("${") {
            self.variable();
        } else {
            return false;
        }
        true
    }

    /// Reads `'…'` or `"…"`: one line, no control characters, no escapes; between single quotes no double
    /// quotes either.
    fn plain_text(&mut self, quote: char) {
        let start = self.at;
        let rest = &self.rest()[1..];
        let length = rest.find([quote, '\n']).unwrap_or(rest.len());
        if !rest[length..].starts_with(quote) {
            return self.unterminated_text(quote, rest[..length].trim_end());
        }
        let value = rest[..length].to_owned();
        self.at += 1 + length + 1;
        if let Some((at, c)) = value.char_indices().find(|(_, c)| u32::from(*c) < 0x20 || *c == '"') {
            let place = self.span(start + 1 + at, start + 1 + at + c.len_utf8());
            let what = if c == '"' { "double quotes" } else { "control characters" };
            let kind = if quote == '"' { "double" } else { "single" };
            self.sink.push(
                Diagnostic::error(
                    diagnostic_codes::TEXT_CHARACTER,
                    place,
                    format!("a string in {kind} quotes cannot contain {what}"),
                )
                .help("write three double quotes at both ends: `\"\"\"…\"\"\"`"),
            );
        }
        self.push(TokenKind::Str(value), start);
    }

    /// Reports `'…` without a closing quote; its value is `rest`, the rest of the line.
    fn unterminated_text(&mut self, quote: char, rest: &str) {
        let start = self.at;
        self.at += 1 + rest.len();
        // `'it\'s'` ends at the second quote, and the third one opens another string
        let before = &self.text[..start];
        let line = &before[before.rfind('\n').unwrap_or(0)..];
        let help = if quote == '\'' && line.contains("\\'") {
            "a string has no escapes: write double quotes around one that contains `'`".to_owned()
        } else {
            format!("write `{quote}` at its end; write `{TRIPLE}` around a string of several lines")
        };
        let open = self.span(start, start + 1);
        self.sink.push(
            Diagnostic::error(diagnostic_codes::OPEN_STRING, open, "this string is not closed on its line")
                .expected([format!("`{quote}`")])
                .help(help),
        );
        self.push(TokenKind::Str(rest.to_owned()), start);
    }

    /// Reads `"""…"""`, which may contain any character.
    fn triple_text(&mut self) {
        let start = self.at;
        let begin = start + TRIPLE.len();
        let length = self.text[begin..].find(TRIPLE);
        let end = length.map_or(self.text.len(), |length| begin + length);
        self.at = (end + TRIPLE.len()).min(self.text.len());
        if length.is_none() {
            let open = self.span(start, begin);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::OPEN_STRING, open, "this string is not closed")
                    .expected([format!("`{TRIPLE}`")])
                    .help(format!("write `{TRIPLE}` where the string ends")),
            );
        }
        self.push(TokenKind::Str(self.text[begin..end].to_owned()), start);
    }

    /// Reads `5`, `5L`, `5.5`, `.5`, `1e3`, `5d`, `5.5f`, `5.f`, `5.e3`.
    fn typed_number(&mut self) {
        let start = self.at;
        self.skip_while(|c| c.is_ascii_digit());
        let mut whole = true;
        if self.followed_by_digit(".") {
            self.at += 1;
            self.skip_while(|c| c.is_ascii_digit());
            whole = false;
        } else if self.is_point_without_digits() {
            self.at += 1;
            whole = false;
        }
        for exponent in ["e", "E", "e-", "E-", "e+", "E+"] {
            if self.followed_by_digit(exponent) {
                self.at += exponent.len();
                self.skip_while(|c| c.is_ascii_digit());
                whole = false;
                break;
            }
        }
        let digits = &self.text[start..self.at];
        let kind = match self.number_suffix() {
            Some('f') => digits.parse().map(TokenKind::Single).ok(),
            Some('d') => digits.parse().map(TokenKind::Float).ok(),
            Some(_) if whole => digits.parse().map(TokenKind::Long).ok(),
            Some(_) => {
                self.at -= 1;
                digits.parse().map(TokenKind::Float).ok()
            }
            None if whole => digits.parse().map(TokenKind::Int).ok(),
            None => digits.parse().map(TokenKind::Float).ok(),
        };
        // parsing fails only for integers beyond 64 bits: a fraction too large becomes infinite
        let kind = kind.unwrap_or_else(|| {
            let message = format!("the number is larger than {}", i64::MAX);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::NUMBER, self.span(start, self.at), message)
                    .help("write it with a decimal point: `1.0` is a double"),
            );
            TokenKind::Long(0)
        });
        self.push(kind, start);
    }

    /// Returns whether a point follows that is followed directly by an exponent or by the suffix of a decimal
    /// type.
    fn is_point_without_digits(&self) -> bool {
        let Some(rest) = self.rest().strip_prefix('.') else { return false };
        let mut behind = rest.chars();
        match (behind.next(), behind.next(), behind.next()) {
            (Some('f' | 'F' | 'd' | 'D'), next, _) => !next.is_some_and(is_word_part),
            (Some('e' | 'E'), Some('+' | '-'), digit) => digit.is_some_and(|d| d.is_ascii_digit()),
            (Some('e' | 'E'), Some(digit), _) => digit.is_ascii_digit(),
            _ => false,
        }
    }

    /// Advances past a number's type suffix and returns it in lower case. `5days` has none.
    fn number_suffix(&mut self) -> Option<char> {
        let mut rest = self.rest().chars();
        let suffix = rest.next()?.to_ascii_lowercase();
        if !matches!(suffix, 'l' | 'f' | 'd') || rest.next().is_some_and(is_word_part) {
            return None;
        }
        self.at += 1;
        Some(suffix)
    }

    /// Reads `{ … }` with balanced braces. Braces in single-line strings and in comments do not count.
    fn body(&mut self) {
        let start = self.at;
        let mut open = 0_usize;
        while let Some(c) = self.peek() {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.skip_while(|c| c != '\n');
                continue;
            }
            if let Some(comment) = rest.strip_prefix("/*") {
                self.at += comment.find("*/").map_or(rest.len(), |length| length + 4);
                continue;
            }
            self.at += c.len_utf8();
            match c {
                '{' => open += 1,
                '}' if open == 1 => {
                    let body = self.text[start + 1..self.at - 1].to_owned();
                    return self.push(TokenKind::Body(body), start);
                }
                '}' => open -= 1,
                '"' | '\'' => self.at += quoted_length(&rest[1..], c).unwrap_or(0),
                '\\' => self.at += self.peek().map_or(0, char::len_utf8),
                _ => {}
            }
        }
        let brace = self.span(start, start + 1);
        self.sink.push(
            Diagnostic::error(diagnostic_codes::OPEN_BODY, brace, "this body is not closed")
                .expected(["`}`"])
                .help("write `}` where it ends"),
        );
        self.push(TokenKind::Body(self.text[start + 1..].to_owned()), start);
    }

    /// Reports a `${NAME}` that was not substituted and treats it as a name.
    fn variable(&mut self) {
        let start = self.at;
        self.at += 2;
        self.skip_while(is_word_part);
        self.at += usize::from(self.peek() == Some('}'));
        let written = &self.text[start..self.at];
        let span = self.span(start, self.at);
        self.sink.push(
            Diagnostic::error(diagnostic_codes::VARIABLE, span, format!("variable `{written}` has no value"))
                .help("set a variable of this name, or write the value itself"),
        );
        self.push(TokenKind::Quoted(written.to_owned()), start);
    }
}

/// Returns the number of bytes up to and including `quote` if it occurs on this line; a backslash escapes the
/// next character.
fn quoted_length(text: &str, quote: char) -> Option<usize> {
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\n' => return None,
            '\\' => {
                characters.next();
            }
            _ if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}
