//! Lexer of both languages: source text to tokens and comments.
//!
//! The differences between the languages are data: a [`LexicalSyntax`]. The lexer always reaches the end of the
//! source text; unreadable input becomes a diagnostic and, where that helps the parser, a substitute token.

mod number;
mod siddhi;
pub mod text;
pub mod units;
mod unterminated;

use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::source::{FILE_BYTES_MAX, FileId, SourceFile, Span};

pub(crate) use unterminated::drop_follow_on_errors;

/// Codes of the lexer's diagnostics.
pub mod diagnostic_codes {
    /// File larger than [`FILE_BYTES_MAX`](crate::source::FILE_BYTES_MAX).
    pub const TOO_LARGE: &str = "L0001";
    /// Character that is not part of the language.
    pub const CHARACTER: &str = "L0101";
    /// Unterminated string.
    pub const OPEN_STRING: &str = "L0102";
    /// Unterminated comment.
    pub const OPEN_COMMENT: &str = "L0103";
    /// Unterminated name in backticks.
    pub const OPEN_NAME: &str = "L0104";
    /// Empty name in backticks.
    pub const EMPTY_NAME: &str = "L0107";
    /// Unknown escape sequence in a string.
    pub const ESCAPE: &str = "L0105";
    /// Number that cannot be represented.
    pub const NUMBER: &str = "L0106";
    /// Character that is not allowed in a string with these quotes.
    pub const TEXT_CHARACTER: &str = "L0108";
    /// Unterminated function body.
    pub const OPEN_BODY: &str = "L0109";
    /// Variable `${…}` without a value.
    pub const VARIABLE: &str = "L0110";
}

/// Lexical syntax of a language.
#[derive(Debug)]
pub struct LexicalSyntax {
    /// Prefix of a comment that runs to the end of the line.
    pub line_comment: &'static str,
    /// Punctuation and operators, longest first.
    pub punctuation: &'static [&'static str],
    /// Syntax of strings and numbers.
    pub values: ValueSyntax,
}

/// Syntax of strings and numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueSyntax {
    /// Single-line strings with escapes; numbers with `_` between digits.
    Rules,
    /// Strings without escapes, numbers with a type suffix, function bodies in braces; an unterminated
    /// comment runs to the end of the source.
    Siddhi,
}

impl LexicalSyntax {
    /// The rule language. Some of the punctuation is not part of it and is recognized only to be explained in
    /// diagnostics.
    pub const RULES: Self = Self {
        line_comment: "//",
        punctuation: &[
            "===", "!==", "==", "!=", "<>", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "++", "--", "&&", "||",
            "->", "=>", "::", ":=", "**", "(", ")", "{", "}", "[", "]", ",", ";", ":", ".", "=", "<", ">",
            "+", "-", "*", "/", "%", "!", "?", "&", "|", "^", "~", "@", "#",
        ],
        values: ValueSyntax::Rules,
    };

    /// SiddhiQL. Some of the punctuation is not part of it and is recognized only to be explained in
    /// diagnostics.
    pub const SIDDHI: Self = Self {
        line_comment: "--",
        punctuation: &[
            "...", "===", "!==", "==", "!=", "<>", "<=", ">=", "=>", "&&", "||", "->", "(", ")", "[", "]",
            "}", ",", ";", ":", ".", "=", "<", ">", "+", "-", "*", "/", "%", "!", "?", "&", "|", "^", "~",
            "@", "#",
        ],
        values: ValueSyntax::Siddhi,
    };
}

/// Kind of a token, with its value.
#[derive(Debug, Clone, PartialEq)]
pub enum TokenKind {
    /// Unquoted name or keyword.
    Word,
    /// Name in backticks, without them.
    Quoted(String),
    /// Integer; an int in SiddhiQL.
    Int(u64),
    /// SiddhiQL: a long, such as `5L`.
    Long(u64),
    /// Number with a fraction or an exponent; finite in the rule language, a double in SiddhiQL.
    Float(f64),
    /// SiddhiQL: a float, such as `5f`.
    Single(f32),
    /// String, escapes resolved.
    Str(String),
    /// SiddhiQL: function body, without its braces.
    Body(String),
    /// One of [`LexicalSyntax::punctuation`].
    Punct(&'static str),
    /// End of the source.
    End,
}

/// A token and its source range.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Kind and value.
    pub kind: TokenKind,
    /// Source range.
    pub span: Span,
    /// True for the first token of its line.
    pub first_on_line: bool,
}

/// A comment: `// …` or `-- …` without the line ending, or `/* … */`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comment {
    /// Source range, comment markers included.
    pub span: Span,
    /// True for a line comment.
    pub line: bool,
}

/// All tokens of a file, ending with [`TokenKind::End`], and its comments.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Tokens in source order, never empty.
    pub tokens: Vec<Token>,
    /// Comments in source order.
    pub comments: Vec<Comment>,
}

/// Tokenizes all of `file`.
///
/// Bounds: a file above [`FILE_BYTES_MAX`] is reported as a diagnostic and yields only the end token.
pub fn lex(file: &SourceFile, dialect: &LexicalSyntax, sink: &mut DiagnosticSink) -> Tokens {
    let end = u32::try_from(file.text().len()).unwrap_or(u32::MAX);
    lex_in(file, Span::new(file.id(), 0, end), dialect, sink)
}

/// Tokenizes the range `within` of `file`, as if the file ended there.
pub(crate) fn lex_in(
    file: &SourceFile,
    within: Span,
    dialect: &LexicalSyntax,
    sink: &mut DiagnosticSink,
) -> Tokens {
    let text = file.text();
    let mut lexer = Lexer {
        file: file.id(),
        text: text.get(..within.end as usize).unwrap_or(text),
        dialect,
        sink,
        at: within.start as usize,
        at_line_start: true,
        out: Tokens::default(),
    };
    if file.text().len() > FILE_BYTES_MAX {
        let start = lexer.span(0, 0);
        let message = format!("file too large: {} bytes, limit of {FILE_BYTES_MAX} bytes", file.text().len());
        lexer.sink.push(
            Diagnostic::error(diagnostic_codes::TOO_LARGE, start, message)
                .help("split it into several files"),
        );
        lexer.push(TokenKind::End, 0);
        return lexer.out;
    }
    lexer.run();
    lexer.out
}

struct Lexer<'a> {
    file: FileId,
    text: &'a str,
    dialect: &'a LexicalSyntax,
    sink: &'a mut DiagnosticSink,
    /// Offset of the next byte, always on a character boundary.
    at: usize,
    /// True if no token has been read on this line yet.
    at_line_start: bool,
    out: Tokens,
}

impl<'a> Lexer<'a> {
    fn run(&mut self) {
        if self.at == 0 && self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        while let Some(c) = self.peek() {
            if self.sink.is_full() {
                break;
            }
            self.step(c);
        }
        let end = self.text.len();
        self.at = end;
        self.push(TokenKind::End, end);
    }

    /// Reads the token, comment or whitespace that begins with `c`.
    fn step(&mut self, c: char) {
        let rest = self.rest();
        if c == '\n' {
            self.at += 1;
            self.at_line_start = true;
        } else if c.is_whitespace() {
            self.at += c.len_utf8();
        } else if rest.starts_with(self.dialect.line_comment) {
            self.line_comment();
        } else if rest.starts_with("/*") {
            self.block_comment();
        } else if is_word_start(c) {
            self.word();
        } else if self.dialect.values == ValueSyntax::Siddhi && self.siddhi_value(c) {
            // the call has read the value
        } else if c.is_ascii_digit() {
            self.number();
        } else if c == '"' || c == '\'' {
            self.string(c);
        } else if c == '`' {
            self.quoted_name();
        } else if let Some(p) = self.dialect.punctuation.iter().find(|p| rest.starts_with(**p)) {
            let start = self.at;
            self.at += p.len();
            self.push(TokenKind::Punct(p), start);
        } else {
            self.report_unknown_character(c);
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Advances past the characters for which `keep` returns true.
    fn skip_while(&mut self, keep: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !keep(c)).unwrap_or(rest.len());
    }

    fn span(&self, start: usize, end: usize) -> Span {
        // offsets are below FILE_BYTES_MAX, which fits in 32 bits
        Span::new(self.file, start as u32, end as u32)
    }

    fn push(&mut self, kind: TokenKind, start: usize) {
        let span = self.span(start, self.at);
        self.out.tokens.push(Token { kind, span, first_on_line: self.at_line_start });
        self.at_line_start = false;
    }

    fn line_comment(&mut self) {
        let start = self.at;
        self.skip_while(|c| !matches!(c, '\n' | '\r'));
        // the carriage return is part of the line ending
        let end = start + self.text[start..self.at].trim_end().len();
        self.out.comments.push(Comment { span: self.span(start, end), line: true });
    }

    fn block_comment(&mut self) {
        let start = self.at;
        let Some(length) = self.text[start + 2..].find("*/") else {
            if self.dialect.values == ValueSyntax::Siddhi {
                self.at = self.text.len();
                let end = self.text.trim_end().len();
                self.out.comments.push(Comment { span: self.span(start, end), line: false });
                return;
            }
            let open = self.span(start, start + 2);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::OPEN_COMMENT, open, "this comment is not closed")
                    .expected(["`*/`"])
                    .help("put `*/` where the comment ends"),
            );
            self.at = self.text.len();
            return;
        };
        self.at = start + 2 + length + 2;
        self.out.comments.push(Comment { span: self.span(start, self.at), line: false });
        self.at_line_start |= self.text[start..self.at].contains('\n');
    }

    fn word(&mut self) {
        let start = self.at;
        self.skip_while(is_word_part);
        if self.peek().is_some_and(char::is_alphabetic) {
            return self.foreign_word(start);
        }
        self.push(TokenKind::Word, start);
    }

    /// Reports a word with letters beyond ASCII and treats it as a name in backticks.
    fn foreign_word(&mut self, start: usize) {
        self.skip_while(|c| c.is_alphanumeric() || c == '_');
        let name = &self.text[start..self.at];
        let span = self.span(start, self.at);
        let shown: String = name.chars().take(40).collect();
        let message = format!("`{shown}` has characters other than a-z, A-Z, 0-9 and _");
        self.sink.push(
            Diagnostic::error(diagnostic_codes::CHARACTER, span, message)
                .help(format!("write it in backticks: `` `{shown}` ``")),
        );
        self.push(TokenKind::Quoted(name.to_owned()), start);
    }

    fn report_unknown_character(&mut self, first: char) {
        let start = self.at;
        if first.is_alphabetic() {
            return self.foreign_word(start);
        }
        self.at += first.len_utf8();
        let plain = lookalike(first);
        let kind = plain.and_then(|plain| match plain {
            "\"" | "'" => Some(self.typographic_string()),
            _ => self.dialect.punctuation.iter().find(|p| **p == plain).map(|p| TokenKind::Punct(p)),
        });
        let span = self.span(start, start + first.len_utf8());
        let message = format!("unexpected character `{}`", first.escape_debug());
        let mut diagnostic = Diagnostic::error(diagnostic_codes::CHARACTER, span, message);
        diagnostic.help = plain.map(|plain| match plain {
            "&&" => "write `and`".to_owned(),
            "||" => "write `or`".to_owned(),
            "!" => "write `not`".to_owned(),
            _ => format!("write `{plain}`"),
        });
        self.sink.push(diagnostic);
        if let Some(kind) = kind {
            self.push(kind, start);
        }
    }

    /// Reads the rest of a string between typographic quotes; an empty string if it does not end on this
    /// line.
    fn typographic_string(&mut self) -> TokenKind {
        let line = self.rest().split('\n').next().unwrap_or("");
        let is_quote = |c: char| c == '"' || c == '\'' || matches!(lookalike(c), Some("\"" | "'"));
        let Some((end, quote)) = line.char_indices().find(|(_, c)| is_quote(*c)) else {
            return TokenKind::Str(String::new());
        };
        let value = line[..end].to_owned();
        self.at += end + quote.len_utf8();
        TokenKind::Str(value)
    }
}

fn is_word_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_word_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns whether `text` can be written as a name without backticks; keywords are not considered.
pub fn is_word(text: &str) -> bool {
    text.starts_with(is_word_start) && text.chars().all(is_word_part)
}

/// Returns the ASCII punctuation that was probably meant by a character from a word processor or another
/// notation.
fn lookalike(c: char) -> Option<&'static str> {
    Some(match c {
        '“' | '”' | '„' | '«' | '»' => "\"",
        '‘' | '’' | '‚' | '´' => "'",
        '–' | '—' | '−' => "-",
        '≠' => "!=",
        '≤' => "<=",
        '≥' => ">=",
        '×' | '·' => "*",
        '÷' => "/",
        '；' => ";",
        '：' => ":",
        '，' => ",",
        '（' => "(",
        '）' => ")",
        '∧' => "&&",
        '∨' => "||",
        '¬' => "!",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
