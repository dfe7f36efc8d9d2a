//! Words of a text of SQL: enough to split it into statements and to understand those that the front end answers.
//!
//! Any text has tokens. A quote or comment without an end reaches to the end of the text, and the database tells its error.

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Name or keyword without quotes, or a number: letters, digits, `_`, `$`, `.` inside of numbers.
    Word,
    /// Name in double quotes or backticks.
    QuotedName,
    /// Text in single quotes, with the letter before it, or in dollar quotes.
    Text,
    /// `$1`.
    Parameter,
    /// One other character.
    Symbol,
}

/// A token: where it is in the text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
}

/// Returns the tokens of a text, without white space and comments.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token> {
    Lexer { bytes: text.as_bytes(), at: 0 }
}

/// Returns the places of the statements in a text: what stands between semicolons and has a token.
pub(crate) fn statements(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut tokens = tokens(text);
    std::iter::from_fn(move || {
        let mut range: Option<(usize, usize)> = None;
        for token in tokens.by_ref() {
            let is_end = token.kind == TokenKind::Symbol && &text[token.start..token.end] == ";";
            match &mut range {
                Some(_) if is_end => break,
                None if is_end => {}
                Some((_, end)) => *end = token.end,
                None => range = Some((token.start, token.end)),
            }
        }
        range
    })
}

struct Lexer<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Option<Token> {
        self.skip_space();
        let start = self.at;
        let first = *self.bytes.get(start)?;
        let kind = match first {
            b'\'' => self.quoted(b'\'', false),
            b'"' | b'`' => {
                self.quoted(first, false);
                TokenKind::QuotedName
            }
            b'e' | b'E' if self.peek(1) == b'\'' => {
                self.at += 1;
                self.quoted(b'\'', true)
            }
            b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if self.peek(1) == b'\'' => {
                self.at += 1;
                self.quoted(b'\'', false)
            }
            b'$' if self.peek(1).is_ascii_digit() => {
                self.at += 1;
                self.skip_while(|byte| byte.is_ascii_digit());
                TokenKind::Parameter
            }
            b'$' => self.dollar_quoted(),
            b'0'..=b'9' => {
                self.number();
                TokenKind::Word
            }
            first if is_name(first) => {
                self.skip_while(|byte| is_name(byte) || byte.is_ascii_digit() || byte == b'$');
                TokenKind::Word
            }
            _ => {
                self.at += 1;
                TokenKind::Symbol
            }
        };
        Some(Token { kind, start, end: self.at })
    }

    fn skip_while(&mut self, belongs: impl Fn(u8) -> bool) {
        while self.bytes.get(self.at).is_some_and(|byte| belongs(*byte)) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            match (self.peek(0), self.peek(1)) {
                (b'-', b'-') => self.skip_while(|byte| byte != b'\n'),
                (b'/', b'*') => self.skip_comment(),
                _ => return,
            }
        }
    }

    /// Skips a comment with the comments inside of it.
    fn skip_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
        self.at = self.bytes.len();
    }

    fn quoted(&mut self, quote: u8, has_escapes: bool) -> TokenKind {
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += 1;
            if has_escapes && *byte == b'\\' {
                self.at = (self.at + 1).min(self.bytes.len());
            } else if *byte == quote {
                if self.peek(0) != quote {
                    break;
                }
                self.at += 1;
            }
        }
        TokenKind::Text
    }

    /// Skips `$tag$ … $tag$`, or a `$` that begins no text.
    fn dollar_quoted(&mut self) -> TokenKind {
        let start = self.at;
        self.at += 1;
        self.skip_while(|byte| is_name(byte) || byte.is_ascii_digit());
        if self.peek(0) != b'$' {
            self.at = start + 1;
            return TokenKind::Symbol;
        }
        self.at += 1;
        let tag = &self.bytes[start..self.at];
        let rest = &self.bytes[self.at..];
        let end = rest.windows(tag.len()).position(|window| window == tag);
        self.at = end.map_or(self.bytes.len(), |end| self.at + end + tag.len());
        TokenKind::Text
    }

    fn number(&mut self) {
        loop {
            self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
            let is_exponent = matches!(self.bytes[self.at - 1], b'e' | b'E')
                && matches!(self.peek(0), b'+' | b'-')
                && self.peek(1).is_ascii_digit();
            if !is_exponent {
                return;
            }
            self.at += 1;
        }
    }
}

impl Iterator for Lexer<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        self.token()
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(text: &str) -> Vec<&str> {
        statements(text).map(|(start, end)| &text[start..end]).collect()
    }

    #[test]
    fn semicolons_split_outside_of_quotes_and_comments() {
        assert_eq!(split(" ; select 1;; select 2 -- ; no\n ;"), ["select 1", "select 2"]);
        for one in [
            "select ';', \";\", `;`, E'\\';', $$;$$, $t$;$$;$t$",
            "select 'it''s;' /* ; /* ; */ ; */ + 1",
            "select ';",
            "select $x$;$x",
            "select 1 /* ;",
        ] {
            assert_eq!(split(one).len(), 1, "{one}");
        }
        assert_eq!(split("select 'a\\'; select 'b'"), ["select 'a\\'", "select 'b'"]);
    }

    #[test]
    fn words_numbers_and_parameters_are_tokens() {
        let text = "FETCH -5 FROM \"a b\" $1 $x 1.5e-3 é";
        let found: Vec<&str> = tokens(text).map(|token| &text[token.start..token.end]).collect();
        assert_eq!(found, ["FETCH", "-", "5", "FROM", "\"a b\"", "$1", "$", "x", "1.5e-3", "é"]);
    }

    proptest! {
        #[test]
        fn tokens_lie_in_order_on_borders_of_characters(text in "[a-z'\"$;/*\\-\\\\é1-9 \n]{0,40}") {
            let mut before = 0;
            for token in tokens(&text) {
                prop_assert!(before <= token.start && token.start < token.end && token.end <= text.len());
                prop_assert!(text.get(token.start..token.end).is_some());
                before = token.end;
            }
        }
    }
}
