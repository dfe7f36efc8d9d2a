//! Parts of the text of an `INSERT`, by their places in it.
//!
//! Queries and expressions in the statement are planned from the text in which everything else is blank, so that their errors have the
//! places of the statement:
//!
//! ```text
//! INSERT INTO s (a) SELECT x FROM t RETURNING a        the statement
//!                   SELECT x FROM t                    its query
//!                                   ␣␣␣SELECT a FROM s its RETURNING
//! INSERT INTO s VALUES (1, now()), (2, lower($1))      the statement
//! SELECT                   now() ,     lower($1)       its expressions
//! ```

use std::ops::Range;

use datafusion::logical_expr::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use tidemill_database::first_word;
use tidemill_types::{Error, Result};

use crate::dialect::TidemillDialect;
use crate::error::place;

/// Places in bytes of the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Cells of `VALUES`, by row.
    pub cells: Vec<Vec<Range<usize>>>,
    /// The query behind the columns.
    pub source: Range<usize>,
    /// The word `RETURNING`.
    pub returning: Option<Range<usize>>,
    /// End of the statement without a semicolon.
    pub end: usize,
}

/// A token without white space.
struct Part {
    token: Token,
    range: Range<usize>,
}

impl Part {
    /// Returns whether it is this word, without quotes.
    fn is(&self, keyword: &str) -> bool {
        matches!(&self.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword))
    }

    /// Returns how much deeper in brackets the next token is.
    fn depth(&self) -> i32 {
        match self.token {
            Token::LParen | Token::LBracket | Token::LBrace => 1,
            Token::RParen | Token::RBracket | Token::RBrace => -1,
            _ => 0,
        }
    }
}

impl Parts {
    /// Finds the parts of a statement that was parsed; `has_columns` if it lists columns.
    ///
    /// Errors: `Internal` for one that does not look like what was parsed.
    pub fn of(text: &str, has_columns: bool) -> Result<Self> {
        let all = parts(text)?;
        let unlike = || Error::internal("the parts of an INSERT were not found in its text");
        let mut at = 0;
        if has_columns {
            at = all.iter().position(|part| part.token == Token::LParen).ok_or_else(unlike)?;
            at = after_group(&all, at).ok_or_else(unlike)?;
        } else {
            let begins = |part: &Part| {
                part.token == Token::LParen
                    || ["SELECT", "WITH", "VALUES", "VALUE", "TABLE", "FROM", "DEFAULT"]
                        .iter()
                        .any(|word| part.is(word))
            };
            // the name of the table comes first: INSERT INTO name
            at += all.iter().skip(3).position(begins).ok_or_else(unlike)? + 3;
        }
        let first = all.get(at).ok_or_else(unlike)?;
        let (mut depth, mut end, mut returning) = (0, all.len(), None);
        for (next, part) in all.iter().enumerate().skip(at) {
            if depth == 0 && part.is("RETURNING") {
                returning = Some(part.range.clone());
                end = end.min(next);
                break;
            }
            if depth == 0 && part.is("ON") && all.get(next + 1).is_some_and(|part| part.is("CONFLICT")) {
                end = end.min(next);
            }
            depth += part.depth();
        }
        let last = all[..end].last().map_or(first.range.end, |part| part.range.end);
        let cells = match first.is("VALUES") || first.is("VALUE") {
            true => cells(&all[at + 1..end]),
            false => Vec::new(),
        };
        let source = first.range.start..last.max(first.range.start);
        Ok(Self { cells, source, returning, end: all.last().map_or(0, |part| part.range.end) })
    }

    /// Returns the query behind the columns, at its place.
    pub fn query(&self, text: &str) -> String {
        blank(&text[..self.source.start]) + &text[self.source.clone()]
    }

    /// Returns the query for `RETURNING`, at its place; `from` is its table.
    pub fn returning_query(&self, text: &str, from: &str) -> Option<String> {
        let word = self.returning.clone()?;
        Some(format!("{}   SELECT{} FROM {from}", blank(&text[..word.start]), &text[word.end..self.end]))
    }

    /// Returns a query for some cells, given by row and column in order, each at its place. Behind them come the values of `parameters`.
    pub fn expressions(&self, text: &str, wanted: &[(usize, usize)], parameters: &[usize]) -> Option<String> {
        let mut out = String::with_capacity(text.len());
        // `INSERT` has as many letters as `SELECT`
        let begin = first_word(text).as_ptr() as usize - text.as_ptr() as usize;
        out += &blank(&text[..begin]);
        out += "SELECT";
        let mut done = begin + "SELECT".len();
        for (number, (row, column)) in wanted.iter().enumerate() {
            let cell = self.cells.get(*row)?.get(*column)?;
            let mut between = blank(text.get(done..cell.start)?);
            if number > 0 {
                // a comma or a bracket stood before the cell
                between.pop();
                between.push(',');
            }
            out += &between;
            out += text.get(cell.clone())?;
            done = cell.end;
        }
        for (number, parameter) in parameters.iter().enumerate() {
            let comma = if number > 0 || !wanted.is_empty() { ", " } else { " " };
            out += &format!("{comma}${parameter}");
        }
        Some(out)
    }

    /// Returns the place of a cell for errors.
    pub fn place_of_cell(&self, text: &str, row: usize, column: usize) -> Option<String> {
        self.cells.get(row)?.get(column).map(|cell| place_of(text, cell.start))
    }
}

/// Returns the place of a byte, as errors begin with it.
pub(super) fn place_of(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    place(text, line as u64, column as u64)
}

/// Returns white space with the lines and characters of a text.
fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

fn parts(text: &str) -> Result<Vec<Part>> {
    let tokens = Tokenizer::new(&TidemillDialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|e| Error::invalid(e.to_string()))?;
    let mut cursor = TextCursor { text, line: 1, column: 1, at: 0 };
    let visible =
        |token: &TokenWithSpan| !matches!(token.token, Token::Whitespace(_) | Token::EOF | Token::SemiColon);
    let parts = tokens.into_iter().filter(visible).map(|token| {
        let start = cursor.byte_of(token.span.start);
        let end = cursor.byte_of(token.span.end);
        Part { token: token.token, range: start..end }
    });
    Ok(parts.collect())
}

/// Walk over a text by lines and columns that grow.
struct TextCursor<'t> {
    text: &'t str,
    line: u64,
    column: u64,
    at: usize,
}

impl TextCursor<'_> {
    fn byte_of(&mut self, location: Location) -> usize {
        let rest = self.text[self.at..].chars();
        for c in rest {
            if (self.line, self.column) >= (location.line, location.column) {
                break;
            }
            self.at += c.len_utf8();
            match c {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
        }
        self.at
    }
}

/// Returns the index behind the group that begins with the bracket at `at`.
fn after_group(all: &[Part], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (next, part) in all.iter().enumerate().skip(at) {
        depth += part.depth();
        if depth == 0 {
            return Some(next + 1);
        }
    }
    None
}

/// Returns the cells of `(a, b), (c, d)`.
fn cells(all: &[Part]) -> Vec<Vec<Range<usize>>> {
    let mut rows = Vec::new();
    let mut row: Vec<Range<usize>> = Vec::new();
    let (mut depth, mut cell) = (0, None::<Range<usize>>);
    for part in all {
        let before = depth;
        depth += part.depth();
        let is_end = before == 1 && (depth == 0 || part.token == Token::Comma);
        if is_end {
            row.extend(cell.take());
            if depth == 0 {
                rows.push(std::mem::take(&mut row));
            }
        } else if before >= 1 {
            cell = Some(cell.map_or(part.range.clone(), |cell| cell.start..part.range.end));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_keep_their_places() {
        let text =
            "INSERT INTO \"é s\" (a, b)\n  SELECT x, f(y) FROM t ON CONFLICT DO NOTHING RETURNING a, é;";
        let parts = Parts::of(text, true).unwrap();
        let query = parts.query(text);
        assert_eq!(query, format!("{}\n  SELECT x, f(y) FROM t", " ".repeat(24)));
        let returning = parts.returning_query(text, "s AS r").unwrap();
        assert!(returning.ends_with("   SELECT a, é FROM s AS r"), "{returning}");
        assert_eq!(
            returning.rfind("a, é").map(|at| returning[..at].chars().count()),
            Some(text[..text.rfind("a, é").unwrap()].chars().count())
        );
    }

    #[test]
    fn cells_are_found_whatever_is_in_them() {
        let text = "/* c */ INSERT INTO s VALUES ('a, (', now()), (ARRAY[1, 2], (1 + $2)) RETURNING x";
        let parts = Parts::of(text, false).unwrap();
        let cells: Vec<Vec<&str>> =
            parts.cells.iter().map(|row| row.iter().map(|cell| &text[cell.clone()]).collect()).collect();
        assert_eq!(cells, [vec!["'a, ('", "now()"], vec!["ARRAY[1, 2]", "(1 + $2)"]]);
        let query = parts.expressions(text, &[(0, 1), (1, 1)], &[1]).unwrap();
        let words: Vec<&str> = query.split_whitespace().collect();
        assert_eq!(words.join(" "), "SELECT now() ,(1 + $2), $1");
        assert_eq!(query.find("now()"), text.find("now()"));
        assert_eq!(query.find("(1 +"), text.find("(1 +"));
        assert_eq!(place_of("a\nbé x", 6), "line 2, column 4 (`bé x`)");
    }
}
