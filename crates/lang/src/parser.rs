//! Core of the recursive-descent parsers of both languages: the tokens of a file with a position, and the reports of what is missing.
//!
//! A grammar rule that fails has already reported a diagnostic and returns [`SyntaxError`]; the enclosing list of statements or items
//! then skips to a token at which it can resume. So one run reports several errors, and the tree contains everything that could be
//! parsed. Each language adds its grammar to `Parser<'_, L>`, where `L` has what differs in the reports.

use std::marker::PhantomData;

use crate::diagnostic::{Diagnostic, DiagnosticSink, Severity};
use crate::lexer::{Token, TokenKind, Tokens};
use crate::operator::BinaryOp;
use crate::source::{SourceFile, Span};

/// Wording and codes of one language's reports.
pub(crate) trait Language {
    /// Name in sentences, such as `SiddhiQL`.
    const NAME: &'static str;
    /// Name of the end of a source, such as `the end of the file`.
    const END: &'static str;
    /// Text that closes a block.
    const BLOCK_CLOSER: &'static str;
    /// Maximum nesting of expressions and blocks, and the report beyond it with its help.
    const NESTING: (usize, &'static str, &'static str);
    /// Code of an unexpected token.
    const UNEXPECTED: &'static str;
    /// Code of an unclosed bracket.
    const UNCLOSED: &'static str;
    /// Code of a missing `;`.
    const SEMICOLON: &'static str;
    /// Code of `=` in place of `==`.
    const ASSIGN_FOR_EQUALS: &'static str;
    /// Code of a word or operator of another language.
    const FOREIGN: &'static str;
    /// Code of too deep a nesting.
    const TOO_DEEP: &'static str;

    /// Returns whether a name cannot be spelled like `word`.
    fn is_reserved(word: &str) -> bool;
}

/// A grammar rule failed after reporting a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyntaxError {
    /// The statement is dropped; parsing resumes in its block.
    Statement,
    /// The item is dropped, because it is incomplete or a block of it is not closed.
    Item,
}

/// Result of a grammar rule.
pub(crate) type Parse<T> = Result<T, SyntaxError>;

/// Position in the tokens of a file.
pub(crate) struct Parser<'a, L> {
    pub(crate) file: &'a SourceFile,
    /// Never empty; the last token is [`TokenKind::End`].
    pub(crate) tokens: &'a [Token],
    pub(crate) at: usize,
    sink: &'a mut DiagnosticSink,
    nesting: usize,
    language: PhantomData<L>,
}

impl<'a, L: Language> Parser<'a, L> {
    /// Creates a parser at the first of `tokens`, which are those of `file`.
    pub(crate) fn new(file: &'a SourceFile, tokens: &'a Tokens, sink: &'a mut DiagnosticSink) -> Self {
        Self { file, tokens: &tokens.tokens, at: 0, sink, nesting: 0, language: PhantomData }
    }

    // ---- tokens

    pub(crate) fn token(&self) -> &'a Token {
        self.nth(0)
    }

    /// Returns the token `n` positions ahead, or the end token.
    pub(crate) fn nth(&self, n: usize) -> &'a Token {
        // the last token is the end token
        &self.tokens[(self.at + n).min(self.tokens.len() - 1)]
    }

    pub(crate) fn span(&self) -> Span {
        self.token().span
    }

    pub(crate) fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    /// Advances past the current token and returns its source range.
    pub(crate) fn bump(&mut self) -> Span {
        let span = self.span();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        span
    }

    /// Returns the source range of the previous token.
    pub(crate) fn previous(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    /// Returns the range from `start` to the end of the previous token.
    pub(crate) fn span_since(&self, start: Span) -> Span {
        start.to(self.previous())
    }

    pub(crate) fn text(&self, token: &Token) -> &'a str {
        self.file.slice(token.span)
    }

    /// Returns the unquoted word `n` tokens ahead; `None` if that token is not a word.
    pub(crate) fn word(&self, n: usize) -> Option<&'a str> {
        let token = self.nth(n);
        (token.kind == TokenKind::Word).then(|| self.text(token))
    }

    /// Returns whether the token `n` positions ahead can be a name in its current spelling.
    pub(crate) fn is_name(&self, n: usize) -> bool {
        match self.nth(n).kind {
            TokenKind::Word => self.word(n).is_some_and(|word| !L::is_reserved(word)),
            TokenKind::Quoted(_) => true,
            _ => false,
        }
    }

    pub(crate) fn is_punct(&self, n: usize, punct: &str) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if p == punct)
    }

    pub(crate) fn is_punct_of(&self, n: usize, puncts: &[&str]) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if puncts.contains(&p))
    }

    pub(crate) fn eat(&mut self, punct: &str) -> Option<Span> {
        self.is_punct(0, punct).then(|| self.bump())
    }

    /// Consumes `punct`, or reports that it is missing; `context` says where, as in "after the rule's name".
    pub(crate) fn expect(&mut self, punct: &str, context: &str) -> Parse<Span> {
        match self.eat(punct) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected(&[&format!("`{punct}`")], context)),
        }
    }

    /// Returns the number of `opener`s without a `closer` between the token `start` and the current one.
    pub(crate) fn open_since(&self, start: usize, opener: &str, closer: &str) -> usize {
        self.tokens[start..self.at].iter().fold(0, |open: usize, token| match token.kind {
            TokenKind::Punct(p) if p == opener => open + 1,
            TokenKind::Punct(p) if p == closer => open.saturating_sub(1),
            _ => open,
        })
    }

    /// Runs `inner` one nesting level deeper; reports an error at the limit of [`Language::NESTING`].
    pub(crate) fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= L::NESTING.0 {
            return Err(self.report_too_deep(self.span()));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    // ---- diagnostics

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
        if self.sink.is_full() {
            // no more diagnostics can be added, so parsing stops
            self.at = self.tokens.len() - 1;
        }
    }

    /// Reports that one of `expected` was expected at the current token.
    pub(crate) fn report_unexpected(&mut self, expected: &[&str], context: &str) -> SyntaxError {
        self.report_unexpected_with(expected, context, None)
    }

    pub(crate) fn report_unexpected_with(
        &mut self,
        expected: &[&str],
        context: &str,
        help: Option<String>,
    ) -> SyntaxError {
        let space = if context.is_empty() { "" } else { " " };
        let message =
            format!("expected {}{space}{context}, found {}", one_of(expected), self.describe_token());
        let mut diagnostic =
            Diagnostic::error(L::UNEXPECTED, self.error_span(), message).expected(expected.to_vec());
        diagnostic.help = help;
        self.report(diagnostic);
        SyntaxError::Statement
    }

    /// Reports that the bracket or block at `open` is not closed before the current token.
    pub(crate) fn report_unclosed(&mut self, open: Span) -> SyntaxError {
        let opener = self.file.slice(open);
        let closer = match opener {
            "(" => ")",
            "[" => "]",
            _ => L::BLOCK_CLOSER,
        };
        let message = format!("this `{opener}` is not closed");
        let found = format!("`{closer}` is missing before this");
        let here = self.error_span();
        self.report(
            Diagnostic::error(L::UNCLOSED, open, message)
                .expected([format!("`{closer}`")])
                .help(format!("write `{closer}` where it ends"))
                .note_at(here, found),
        );
        SyntaxError::Statement
    }

    /// Reports that the `;` after a `what` is missing before the current token.
    pub(crate) fn report_no_semicolon(&mut self, what: &str) {
        let message = format!("expected `;` after the {what}");
        let place = self.previous().at_end();
        self.report(Diagnostic::error(L::SEMICOLON, place, message).expected(["`;`"]).help("write `;` here"));
    }

    /// Reports that the operator at the current token is that of another language, and `ours` is meant.
    pub(crate) fn report_foreign_operator(&mut self, ours: &str) {
        let written = self.text(self.token());
        let diagnostic = if written == "=" {
            let message = "`=` sets a value and does not compare";
            Diagnostic::error(L::ASSIGN_FOR_EQUALS, self.span(), message)
                .help("to compare two values, write `==`")
        } else {
            let message = format!("`{written}` is not an operator of {}", L::NAME);
            Diagnostic::error(L::FOREIGN, self.span(), message).help(format!("write `{ours}`"))
        };
        self.report(diagnostic.expected([format!("`{ours}`")]));
    }

    pub(crate) fn report_too_deep(&mut self, span: Span) -> SyntaxError {
        let (_, message, help) = L::NESTING;
        self.report(Diagnostic::error(L::TOO_DEEP, span, message).help(help));
        SyntaxError::Statement
    }

    /// Returns the range to report for a missing token: the current one, or at the end of the source the
    /// position after the last token.
    pub(crate) fn error_span(&self) -> Span {
        if self.at_end() { self.previous().at_end() } else { self.span() }
    }

    /// Describes the current token for messages.
    pub(crate) fn describe_token(&self) -> String {
        let token = self.token();
        let text: String = self.text(token).chars().take(40).collect();
        match token.kind {
            TokenKind::End => L::END.to_owned(),
            TokenKind::Word if L::is_reserved(&text) => format!("the keyword `{text}`"),
            TokenKind::Str(_) => format!("the string {text}"),
            TokenKind::Quoted(_) => format!("the name {text}"),
            TokenKind::Body(_) => "`{`".to_owned(),
            _ => format!("`{text}`"),
        }
    }
}

/// Returns whether a diagnostic is an error, so that the tree must not be used.
pub(crate) fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|d| d.severity == Severity::Error)
}

/// Returns the binary operator that `punct` is in both languages, and whether it is in the spelling of another language.
pub(crate) fn binary_operator(punct: &str) -> Option<(BinaryOp, bool)> {
    Some(match punct {
        "==" => (BinaryOp::Eq, false),
        "!=" => (BinaryOp::Ne, false),
        "<" => (BinaryOp::Lt, false),
        "<=" => (BinaryOp::Le, false),
        ">" => (BinaryOp::Gt, false),
        ">=" => (BinaryOp::Ge, false),
        "+" => (BinaryOp::Add, false),
        "-" => (BinaryOp::Sub, false),
        "*" => (BinaryOp::Mul, false),
        "/" => (BinaryOp::Div, false),
        "%" => (BinaryOp::Rem, false),
        "=" | "===" => (BinaryOp::Eq, true),
        "<>" | "!==" => (BinaryOp::Ne, true),
        "&" => (BinaryOp::And, true),
        "|" => (BinaryOp::Or, true),
        _ => return None,
    })
}

/// Joins alternatives: `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of(expected: &[&str]) -> String {
    match expected {
        [] => "something else".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
