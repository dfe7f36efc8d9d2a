//! Tokens of a statement, taken one after the other.

use super::{Command, PlacedName};
use crate::error::{PgError, Result};
use crate::lexer::{Token, TokenKind};

/// Tokens of a statement, and the next of them.
pub(super) struct Words<'t> {
    pub text: &'t str,
    pub tokens: &'t [Token],
    pub at: usize,
}

impl<'t> Words<'t> {
    pub(super) fn token(&self, ahead: usize) -> Option<&'t str> {
        let token = self.tokens.get(self.at + ahead)?;
        self.text.get(token.start..token.end)
    }

    pub(super) fn kind(&self) -> Option<TokenKind> {
        self.tokens.get(self.at).map(|token| token.kind)
    }

    /// Returns a token in capital letters; empty behind the last one.
    pub(super) fn upper(&self, ahead: usize) -> String {
        self.token(ahead).unwrap_or_default().to_ascii_uppercase()
    }

    pub(super) fn is(&self, keyword: &str) -> bool {
        self.token(0).is_some_and(|token| token.eq_ignore_ascii_case(keyword))
    }

    pub(super) fn take(&mut self, keyword: &str) -> bool {
        let is = self.is(keyword);
        self.at += usize::from(is);
        is
    }

    /// Skips one of these, if it is there.
    pub(super) fn skip(&mut self, keywords: &[&str]) {
        let _ = keywords.iter().any(|keyword| self.take(keyword));
    }

    pub(super) fn keyword(&mut self, keyword: &str) -> Result<()> {
        match self.take(keyword) {
            true => Ok(()),
            false => Err(self.expected(keyword)),
        }
    }

    /// Returns the error for the next token.
    pub(super) fn expected(&self, what: &str) -> PgError {
        let found = self.token(0).map_or("the end of the statement".to_owned(), |token| format!("`{token}`"));
        let start = self.tokens.get(self.at).map_or(self.text.len(), |token| token.start);
        let position = self.text.get(..start).map(|before| before.chars().count() + 1);
        PgError { position, ..PgError::syntax(format!("expected {what}, found {found}")) }
    }

    pub(super) fn end(&self) -> Result<()> {
        match self.token(0) {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the statement")),
        }
    }

    /// Takes a name. Without quotes, it is in lower case.
    pub(super) fn name(&mut self) -> Result<String> {
        let name = match (self.kind(), self.token(0)) {
            (Some(TokenKind::Word), Some(word)) if !word.starts_with(|c: char| c.is_ascii_digit()) => {
                word.to_lowercase()
            }
            (Some(TokenKind::QuotedName), Some(quoted)) => unquoted(quoted),
            _ => return Err(self.expected("a name")),
        };
        self.at += 1;
        Ok(name)
    }

    /// Takes a name as it is written, without its quotes, with its place.
    pub(super) fn placed_name(&mut self) -> Result<PlacedName> {
        let start = self.tokens.get(self.at).map_or(self.text.len(), |token| token.start);
        let written = (self.kind(), self.token(0));
        let name = self.name()?;
        let name = match written {
            (Some(TokenKind::Word), Some(word)) => word.to_owned(),
            _ => name,
        };
        let position = self.text.get(..start).map_or(1, |before| before.chars().count() + 1);
        Ok(PlacedName { name, position })
    }

    pub(super) fn named(&mut self, at: usize, command: fn(String) -> Command) -> Result<Command> {
        self.at = at;
        let name = self.name()?;
        self.end().map(|()| command(name))
    }

    pub(super) fn all_or_name(&mut self) -> Result<Option<String>> {
        let is_all = self.kind() == Some(TokenKind::Word) && self.is("ALL");
        let name = self.name()?;
        self.end().map(|()| Some(name).filter(|_| !is_all))
    }

    /// Takes the name of a setting, which may have a dot or two words.
    pub(super) fn setting_name(&mut self) -> Result<String> {
        if self.is("TIME") && self.upper(1) == "ZONE" {
            self.at += 2;
            return Ok("TimeZone".to_owned());
        }
        let mut name = self.name()?;
        while self.take(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    /// Takes a text in quotes, a name or a number.
    pub(super) fn value(&mut self) -> Result<String> {
        let sign = match self.token(0) {
            Some("-") => "-",
            _ => "",
        };
        self.at += usize::from(!sign.is_empty());
        let value = match (self.kind(), self.token(0)) {
            (Some(TokenKind::Text), Some(text)) => {
                literal(text).ok_or_else(|| self.expected("a text in single quotes"))?
            }
            (Some(TokenKind::QuotedName), Some(quoted)) => unquoted(quoted),
            (Some(TokenKind::Word), Some(word)) => word.to_owned(),
            (Some(TokenKind::Symbol), Some("+")) => {
                self.at += 1;
                return self.value();
            }
            _ => return Err(self.expected("a value")),
        };
        self.at += 1;
        Ok(format!("{sign}{value}"))
    }

    /// Returns the text from the next token to the end.
    pub(super) fn rest(&self) -> Result<&'t str> {
        let start = self.tokens.get(self.at).ok_or_else(|| self.expected("a statement"))?.start;
        Ok(&self.text[start..])
    }
}

/// Returns the name inside of quotes.
pub(super) fn unquoted(quoted: &str) -> String {
    let quote = quoted.chars().next().unwrap_or('"');
    let inner = quoted.strip_prefix(quote).unwrap_or(quoted);
    let inner = inner.strip_suffix(quote).unwrap_or(inner);
    inner.replace(&format!("{quote}{quote}"), &quote.to_string())
}

/// Returns the text of a literal; `None` for one with escapes, and for one without an end.
pub(super) fn literal(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('$') {
        let tag = &text[..=rest.find('$')? + 1];
        return text.strip_prefix(tag)?.strip_suffix(tag).map(str::to_owned);
    }
    let (text, has_escapes) = match text.strip_prefix(['E', 'e']) {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    if !has_escapes {
        return Some(inner.replace("''", "'"));
    }
    let mut out = String::new();
    let mut characters = inner.chars();
    while let Some(c) = characters.next() {
        match c {
            '\'' => out.push(characters.next()?),
            '\\' => out.push(match characters.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                c if c.is_ascii_alphanumeric() => return None,
                c => c,
            }),
            c => out.push(c),
        }
    }
    Some(out)
}
