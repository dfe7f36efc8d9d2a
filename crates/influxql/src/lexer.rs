//! Tokens of InfluxQL with their places.
//!
//! A `/` is an operator or begins a regular expression, depending on where it stands, so the parser asks for one or the other.

use crate::error::{Expected, ParseError, Place};
use crate::keywords::is_keyword;
use crate::syntax::TEXT_BYTES_MAX;

/// Token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InfluxToken {
    /// Identifier without quotes that is a keyword in this place or a name.
    Word(String),
    /// Identifier in double quotes.
    Quoted(String),
    /// Text in single quotes.
    Text(String),
    /// Whole number; `None` if it is beyond 64 bits.
    Integer(Option<i64>),
    /// Number with a point.
    Number(f64),
    /// Duration in nanoseconds.
    Duration(i64),
    /// Regular expression between slashes.
    Regex(String),
    /// Bound parameter: the name behind `$`.
    Parameter(String),
    /// Operator or punctuation.
    Symbol(&'static str),
    /// Text or quoted name without its end, or with a character that does not exist in InfluxQL.
    Bad(String),
    /// End of the text.
    End,
}

impl InfluxToken {
    /// Returns the token as an error shows it.
    pub fn shown(&self) -> String {
        match self {
            Self::Word(word) => match is_keyword(word) {
                true => word.to_ascii_uppercase(),
                false => word.clone(),
            },
            Self::Quoted(text) | Self::Text(text) | Self::Bad(text) => text.clone(),
            Self::Integer(Some(value)) => value.to_string(),
            Self::Integer(None) => "a number beyond 64 bits".to_owned(),
            Self::Number(value) => value.to_string(),
            Self::Duration(value) => crate::print::duration(*value),
            Self::Regex(text) => text.clone(),
            Self::Parameter(name) => format!("${name}"),
            Self::Symbol(symbol) => (*symbol).to_owned(),
            Self::End => "EOF".to_owned(),
        }
    }
}

const SYMBOLS: &[&str] = &[
    "::", "=~", "!~", "!=", "<>", "<=", ">=", "(", ")", ",", ";", ".", ":", "+", "-", "*", "/", "%", "&",
    "|", "^", "=", "<", ">",
];

/// Reader of tokens.
#[derive(Debug, Clone)]
pub(crate) struct TokenReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TokenReader<'a> {
    /// Creates a reader.
    ///
    /// Errors: a text that is too long.
    pub fn new(text: &'a str) -> Result<Self, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(ParseError::said(format!(
                "the query has {} bytes, at most {TEXT_BYTES_MAX} are allowed",
                text.len()
            )));
        }
        if let Some(at) = text.find('\0') {
            return Err(ParseError::said(format!("the query has the character NUL at byte {at}")));
        }
        Ok(Self { text, at: 0 })
    }

    /// Returns the offset of the next byte.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Continues at an offset that [`Self::offset`] returned.
    pub fn rewind(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns the text between two offsets.
    pub fn slice(&self, start: usize, end: usize) -> &'a str {
        &self.text[start..end]
    }

    /// Returns line and character of an offset; the end of the text counts as one character further, as in InfluxDB.
    pub fn place(&self, offset: usize) -> Place {
        let before = &self.text[..offset];
        let line = before.matches('\n').count() as u32;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let character = before[start..].chars().count() as u32 + u32::from(offset == self.text.len());
        Place { line: line + 1, character: character + 1 }
    }

    /// Returns an error that shows a token and its place.
    pub fn unexpected(
        &self,
        token: &InfluxToken,
        offset: usize,
        expected: impl Into<Expected>,
    ) -> ParseError {
        let mut place = self.place(offset);
        // InfluxDB counts what stands in quotes from the character before
        if matches!(token, InfluxToken::Quoted(_) | InfluxToken::Text(_) | InfluxToken::Bad(_))
            && place.character > 1
        {
            place.character -= 1;
        }
        ParseError::unexpected(token.shown(), expected.into(), place)
    }

    /// Skips white space and comments.
    pub fn skip_space(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("--") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                self.at += trimmed.find("*/").map_or(trimmed.len(), |at| at + 2);
            } else {
                return;
            }
        }
    }

    /// Reads a regular expression if one begins here.
    ///
    /// Errors: one without its end.
    pub fn regex(&mut self) -> Result<Option<InfluxToken>, ParseError> {
        self.skip_space();
        let start = self.at;
        let Some(rest) = self.text[start..].strip_prefix('/') else { return Ok(None) };
        let mut pattern = String::new();
        let mut characters = rest.char_indices();
        while let Some((at, c)) = characters.next() {
            match c {
                '/' => {
                    self.at = start + 1 + at + 1;
                    return Ok(Some(InfluxToken::Regex(pattern)));
                }
                '\\' => match characters.next() {
                    Some((_, '/')) => pattern.push('/'),
                    Some((_, other)) => {
                        pattern.push('\\');
                        pattern.push(other);
                    }
                    None => break,
                },
                '\n' => break,
                c => pattern.push(c),
            }
        }
        Err(self.unexpected(&InfluxToken::Bad(rest.chars().take(64).collect()), start, "regex"))
    }

    /// Reads the next token. Returns it with the offset of its start.
    ///
    /// Errors: a duration with a unit that does not exist, or beyond 64 bits.
    pub fn next(&mut self) -> Result<(InfluxToken, usize), ParseError> {
        self.skip_space();
        let start = self.at;
        let rest = &self.text[start..];
        let Some(first) = rest.chars().next() else { return Ok((InfluxToken::End, start)) };
        let token = match first {
            '"' => self.quoted('"'),
            '\'' => self.quoted('\''),
            '$' => self.parameter(),
            c if c.is_ascii_alphabetic() || c == '_' => InfluxToken::Word(self.word()),
            c if c.is_ascii_digit() => self.number()?,
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => self.number()?,
            c => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    self.at += symbol.len();
                    InfluxToken::Symbol(if *symbol == "<>" { "!=" } else { symbol })
                }
                None => {
                    self.at += c.len_utf8();
                    InfluxToken::Bad(c.to_string())
                }
            },
        };
        Ok((token, start))
    }

    fn word(&mut self) -> String {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn parameter(&mut self) -> InfluxToken {
        self.at += 1;
        if self.text[self.at..].starts_with('"') {
            return match self.quoted('"') {
                InfluxToken::Quoted(name) => InfluxToken::Parameter(name),
                other => other,
            };
        }
        InfluxToken::Parameter(self.word())
    }

    fn quoted(&mut self, quote: char) -> InfluxToken {
        let rest = &self.text[self.at + 1..];
        let mut text = String::new();
        let mut characters = rest.char_indices();
        while let Some((at, c)) = characters.next() {
            if c == quote {
                self.at += 1 + at + 1;
                return if quote == '"' { InfluxToken::Quoted(text) } else { InfluxToken::Text(text) };
            }
            match c {
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, c @ ('\\' | '"' | '\''))) => text.push(c),
                    _ => {
                        self.at = self.text.len();
                        return InfluxToken::Bad(text);
                    }
                },
                '\n' => break,
                c => text.push(c),
            }
        }
        self.at = self.text.len();
        InfluxToken::Bad(text)
    }

    fn number(&mut self) -> Result<InfluxToken, ParseError> {
        let rest = &self.text[self.at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let behind = &rest[digits..];
        if let Some(fraction) = behind.strip_prefix('.') {
            let fraction = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            let end = digits + 1 + fraction;
            self.at += end;
            let number: Option<f64> = format!("0{}0", &rest[..end]).parse().ok();
            return match number.filter(|number| number.is_finite()) {
                Some(number) => Ok(InfluxToken::Number(number)),
                None => {
                    Err(ParseError::said("unable to parse number: it is beyond 64-bit floats".to_owned()))
                }
            };
        }
        if !behind.starts_with(|c: char| c.is_alphabetic()) {
            self.at += digits;
            return Ok(InfluxToken::Integer(rest[..digits].parse().ok()));
        }
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let text = &rest[..end];
        let value = duration(text).ok_or_else(|| ParseError::said("invalid duration".to_owned()))?;
        self.at += end;
        Ok(InfluxToken::Duration(value))
    }
}

/// Parses a duration such as `1h30m`. Returns nanoseconds.
pub(crate) fn duration(text: &str) -> Option<i64> {
    let (mut total, mut rest) = (0_i64, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        let units = &rest[digits..];
        let end = units.find(|c: char| c.is_ascii_digit()).unwrap_or(units.len());
        let unit = match &units[..end] {
            "ns" => 1,
            "u" | "µ" | "μ" | "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "w" => 604_800_000_000_000,
            _ => return None,
        };
        total = total.checked_add(count.checked_mul(unit)?)?;
        rest = &units[end..];
    }
    (!text.is_empty()).then_some(total)
}
