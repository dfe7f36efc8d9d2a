//! Parser, from the documentation of the grammar.

mod expression;
mod select;
mod show;

use std::collections::BTreeMap;

use crate::error::{Expected, ParseError};
use crate::keywords::is_keyword;
use crate::lexer::{InfluxToken, TokenReader};
use crate::syntax::{InfluxStatement, LIST_MAX, NESTING_MAX, PATTERNS_MAX, STATEMENTS_MAX};

/// Value of a bound parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum BoundValue {
    /// Whole number.
    Integer(i64),
    /// Number with a point.
    Float(f64),
    /// Text.
    Text(String),
    /// True or false.
    Boolean(bool),
    /// Regular expression.
    Regex(String),
    /// Name of a field or measurement.
    Name(String),
    /// Duration in nanoseconds.
    Duration(i64),
}

/// Values of bound parameters, by name.
pub type BoundValues = BTreeMap<String, BoundValue>;

/// Parses the object of `params=`: numbers, texts, true and false, and `{"regex": …}`, `{"identifier": …}`, `{"duration": …}` and
/// `{"string": …}`, `{"float": …}`, `{"integer": …}`.
///
/// Errors: text that is not such an object.
pub fn parameters(json: &str) -> Result<BoundValues, ParseError> {
    use serde_json::Value as Json;
    let wrong = |message: String| ParseError::said(format!("error parsing query parameters: {message}"));
    let Ok(Json::Object(members)) = serde_json::from_str(json) else {
        return Err(wrong("expected a JSON object such as {\"name\": \"value\"}".to_owned()));
    };
    let value = |value: Json| {
        Some(match value {
            Json::Bool(value) => BoundValue::Boolean(value),
            Json::String(value) => BoundValue::Text(value),
            Json::Number(value) => match value.as_i64() {
                Some(value) => BoundValue::Integer(value),
                None => BoundValue::Float(value.as_f64()?),
            },
            Json::Object(members) if members.len() == 1 => match members.into_iter().next()? {
                (kind, Json::String(value)) => match kind.as_str() {
                    "regex" => BoundValue::Regex(value),
                    "identifier" | "ident" => BoundValue::Name(value),
                    "string" => BoundValue::Text(value),
                    "duration" => BoundValue::Duration(crate::lexer::duration(&value)?),
                    _ => return None,
                },
                (kind, Json::Number(value)) => match kind.as_str() {
                    "float" | "number" => BoundValue::Float(value.as_f64()?),
                    "integer" => BoundValue::Integer(value.as_i64()?),
                    "duration" => BoundValue::Duration(value.as_i64()?),
                    _ => return None,
                },
                _ => return None,
            },
            _ => return None,
        })
    };
    let value = |name: &str, json: Json| {
        value(json).ok_or_else(|| {
            wrong(format!(
                "`{name}`: expected a number, a text, true, false, or an object with one of `regex`, `identifier`, `string`, \
                 `duration`, `float`, `integer`"
            ))
        })
    };
    if json.contains("\\u0000") {
        return Err(wrong("the character NUL is not allowed".to_owned()));
    }
    members.into_iter().map(|(name, found)| Ok((name.clone(), value(&name, found)?))).collect()
}

/// Parses the statements of a query, which `;` separates.
///
/// Errors: the first token that does not fit, with its place and the tokens that would.
pub fn parse(text: &str, parameters: &BoundValues) -> Result<Vec<InfluxStatement>, ParseError> {
    let mut parser = StatementParser { lexer: TokenReader::new(text)?, parameters, depth: 0, patterns: 0 };
    let mut statements = Vec::new();
    loop {
        while parser.takes_symbol(";")? {}
        if parser.peek()?.0 == InfluxToken::End {
            return Ok(statements);
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(ParseError::said(format!("the query has more than {STATEMENTS_MAX} statements")));
        }
        statements.push(parser.statement()?);
        match parser.peek()?.0 {
            InfluxToken::End | InfluxToken::Symbol(";") => {}
            _ => return parser.expected(";"),
        }
    }
}

/// Words that begin a statement.
const STATEMENTS: &[&str] =
    &["SELECT", "DELETE", "SHOW", "CREATE", "DROP", "EXPLAIN", "GRANT", "REVOKE", "ALTER", "SET", "KILL"];

pub(crate) struct StatementParser<'a> {
    lexer: TokenReader<'a>,
    parameters: &'a BoundValues,
    depth: usize,
    patterns: usize,
}

impl StatementParser<'_> {
    fn peek(&mut self) -> Result<(InfluxToken, usize), ParseError> {
        let at = self.lexer.offset();
        let next = self.next();
        self.lexer.rewind(at);
        next
    }

    /// Returns the next token, and the value of a bound parameter as the token that it stands for.
    fn next(&mut self) -> Result<(InfluxToken, usize), ParseError> {
        let (token, at) = self.lexer.next()?;
        let InfluxToken::Parameter(name) = &token else { return Ok((token, at)) };
        let Some(value) = self.parameters.get(name) else {
            // a place where no value may stand tells its own error
            return Ok((token, at));
        };
        let token = match value.clone() {
            BoundValue::Integer(value) => InfluxToken::Integer(Some(value)),
            BoundValue::Float(value) => InfluxToken::Number(value),
            BoundValue::Text(value) => InfluxToken::Text(value),
            BoundValue::Boolean(value) => InfluxToken::Word(if value { "true" } else { "false" }.to_owned()),
            BoundValue::Regex(value) => InfluxToken::Regex(value),
            BoundValue::Name(value) => InfluxToken::Quoted(value),
            BoundValue::Duration(value) => InfluxToken::Duration(value),
        };
        Ok((token, at))
    }

    /// Returns an error about the next token.
    fn expected<T>(&mut self, expected: impl Into<Expected>) -> Result<T, ParseError> {
        let (token, at) = self.next()?;
        if let InfluxToken::Parameter(name) = &token
            && !self.parameters.contains_key(name)
        {
            return Err(ParseError::said(format!("missing parameter: {name}")));
        }
        Err(self.lexer.unexpected(&token, at, expected))
    }

    /// Takes a keyword or another word without quotes, in any case, if it is next.
    fn takes_word(&mut self, word: &str) -> Result<bool, ParseError> {
        let at = self.lexer.offset();
        let is_next =
            matches!(self.lexer.next()?.0, InfluxToken::Word(found) if found.eq_ignore_ascii_case(word));
        if !is_next {
            self.lexer.rewind(at);
        }
        Ok(is_next)
    }

    fn word(&mut self, word: &'static str) -> Result<(), ParseError> {
        if self.takes_word(word)? { Ok(()) } else { self.expected(word) }
    }

    fn takes_symbol(&mut self, symbol: &str) -> Result<bool, ParseError> {
        let at = self.lexer.offset();
        let is_next = matches!(self.lexer.next()?.0, InfluxToken::Symbol(found) if found == symbol);
        if !is_next {
            self.lexer.rewind(at);
        }
        Ok(is_next)
    }

    fn symbol(&mut self, symbol: &'static str) -> Result<(), ParseError> {
        if self.takes_symbol(symbol)? { Ok(()) } else { self.expected(symbol) }
    }

    /// Takes a name, in quotes or as a word that is not a keyword.
    fn takes_name(&mut self) -> Result<Option<String>, ParseError> {
        let at = self.lexer.offset();
        match self.next()?.0 {
            InfluxToken::Quoted(name) => Ok(Some(name)),
            InfluxToken::Word(word) if !is_keyword(&word) => Ok(Some(word)),
            _ => {
                self.lexer.rewind(at);
                Ok(None)
            }
        }
    }

    fn name(&mut self) -> Result<String, ParseError> {
        match self.takes_name()? {
            Some(name) => Ok(name),
            None => self.expected("identifier"),
        }
    }

    /// Takes a regular expression if one is next, and checks it.
    fn takes_regex(&mut self) -> Result<Option<String>, ParseError> {
        let at = self.lexer.offset();
        let token = match self.lexer.regex()? {
            Some(token) => token,
            None => self.next()?.0,
        };
        let InfluxToken::Regex(pattern) = token else {
            self.lexer.rewind(at);
            return Ok(None);
        };
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(ParseError::said(format!(
                "the query has more than {PATTERNS_MAX} regular expressions"
            )));
        }
        match crate::pattern::compile(&pattern) {
            Ok(_) => Ok(Some(pattern)),
            Err(reason) => {
                let place = self.lexer.place(at);
                Err(ParseError::said(format!(
                    "error parsing regexp: {reason} at line {}, char {}",
                    place.line, place.character
                )))
            }
        }
    }

    fn regex(&mut self) -> Result<String, ParseError> {
        match self.takes_regex()? {
            Some(pattern) => Ok(pattern),
            None => self.expected("regex"),
        }
    }

    /// Returns whether another item follows one of `count` items.
    fn takes_comma(&mut self, count: usize) -> Result<bool, ParseError> {
        let is_next = self.takes_symbol(",")?;
        if is_next && count == LIST_MAX {
            let place = self.lexer.place(self.lexer.offset());
            return Err(ParseError::said(format!(
                "more than {LIST_MAX} items in a list at line {}, char {}",
                place.line, place.character
            )));
        }
        Ok(is_next)
    }

    /// Calls `parse` one level further down.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth == NESTING_MAX {
            let place = self.lexer.place(self.lexer.offset());
            return Err(ParseError::said(format!(
                "more than {NESTING_MAX} brackets, calls and subqueries within one another at line {}, char {}",
                place.line, place.character
            )));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn statement(&mut self) -> Result<InfluxStatement, ParseError> {
        let start = self.lexer.offset();
        let (first, at) = self.next()?;
        let InfluxToken::Word(word) = &first else {
            return Err(self.lexer.unexpected(&first, at, STATEMENTS));
        };
        match word.to_ascii_uppercase().as_str() {
            "SELECT" => self.select_or_into(start),
            "SHOW" => self.show(start),
            "CREATE" => {
                if self.takes_word("DATABASE")? {
                    return self.create_database();
                }
                let known = ["CONTINUOUS", "DATABASE", "USER", "RETENTION", "SUBSCRIPTION"];
                self.unsupported(start, &known)
            }
            "DROP" => {
                let known = [
                    "CONTINUOUS",
                    "DATABASE",
                    "MEASUREMENT",
                    "RETENTION",
                    "SERIES",
                    "SHARD",
                    "SUBSCRIPTION",
                    "USER",
                ];
                self.unsupported(start, &known)
            }
            "ALTER" => self.unsupported(start, &["RETENTION"]),
            "KILL" => self.unsupported(start, &["QUERY"]),
            "SET" => self.unsupported(start, &["PASSWORD"]),
            "DELETE" | "EXPLAIN" | "GRANT" | "REVOKE" => self.unsupported(start, &[]),
            _ => Err(self.lexer.unexpected(&first, at, STATEMENTS)),
        }
    }

    /// Takes a whole statement that is known and not supported, whose second word is one of `second`.
    fn unsupported(&mut self, start: usize, second: &[&str]) -> Result<InfluxStatement, ParseError> {
        if !second.is_empty() {
            match self.peek()?.0 {
                InfluxToken::Word(word) if second.iter().any(|known| known.eq_ignore_ascii_case(&word)) => {}
                _ => return self.expected(second),
            }
        }
        loop {
            match self.lexer.next() {
                Ok((InfluxToken::End | InfluxToken::Symbol(";"), at)) => {
                    self.lexer.rewind(at);
                    break;
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        let text = self.lexer.slice(start, self.lexer.offset()).trim().to_owned();
        let words = text.split_ascii_whitespace().take(if second.is_empty() { 1 } else { 2 });
        let name = words.map(str::to_ascii_uppercase).collect::<Vec<_>>().join(" ");
        Ok(InfluxStatement::Unsupported { name, text })
    }

    fn create_database(&mut self) -> Result<InfluxStatement, ParseError> {
        let name = self.name()?;
        if self.takes_word("WITH")? {
            let mut clauses = 0;
            loop {
                if self.takes_word("DURATION")? {
                    if !self.takes_word("INF")? {
                        match self.next()? {
                            (InfluxToken::Duration(_), _) => {}
                            (token, at) => return Err(self.lexer.unexpected(&token, at, "duration")),
                        }
                    }
                } else if self.takes_word("REPLICATION")? {
                    self.integer()?;
                } else if self.takes_word("SHARD")? {
                    self.word("DURATION")?;
                    match self.next()? {
                        (InfluxToken::Duration(_), _) => {}
                        (token, at) => return Err(self.lexer.unexpected(&token, at, "duration")),
                    }
                } else if self.takes_word("NAME")? {
                    self.name()?;
                } else if clauses == 0 {
                    return self.expected("DURATION, NAME, REPLICATION, SHARD");
                } else {
                    break;
                }
                clauses += 1;
            }
        }
        Ok(InfluxStatement::CreateDatabase(name))
    }

    fn integer(&mut self) -> Result<u64, ParseError> {
        let at = self.lexer.offset();
        match self.next()?.0 {
            InfluxToken::Integer(Some(value)) if value >= 0 => Ok(value.unsigned_abs()),
            _ => {
                self.lexer.rewind(at);
                self.expected("integer")
            }
        }
    }

    /// Takes a number behind a word such as `LIMIT`; 0 without the word.
    fn limit(&mut self, word: &str) -> Result<u64, ParseError> {
        if self.takes_word(word)? { self.integer() } else { Ok(0) }
    }
}
