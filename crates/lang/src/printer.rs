//! Infrastructure shared by the formatters: lines, indentation, comments.
//!
//! Line breaks depend on the tree and on the positions of comments, never on the previous layout, so
//! formatting is idempotent. A comment stays attached to the construct after it, or to the one before it on
//! its line; a comment inside an expression moves after the expression.

mod comments;

use std::collections::HashMap;
use std::marker::PhantomData;

use crate::lexer::{Comment, Token, TokenKind};
use crate::source::SourceFile;

/// Maximum line length, in characters, as far as breaking at commas and operators can achieve it.
pub const LINE_CHARS_MAX: usize = 100;

/// Indentation of one level.
pub(crate) const INDENT: &str = "  ";

/// Output buffer of a formatter. The formatter of the language `L` adds the methods that print its syntax
/// tree.
pub(crate) struct Printer<'a, L> {
    pub(crate) file: &'a SourceFile,
    pub(crate) tokens: &'a [Token],
    comments: &'a [Comment],
    /// Index of the first comment not printed yet.
    next_comment: usize,
    /// Offset of each opening bracket to the offset of its closing bracket, in bytes.
    closers: HashMap<u32, u32>,
    pub(crate) out: String,
    pub(crate) indent: usize,
    /// Nothing has been printed in this block yet, so an empty line must not be printed.
    pub(crate) block_start: bool,
    /// An empty line must precede the next construct.
    pub(crate) force_blank: bool,
    language: PhantomData<L>,
}

impl<'a, L> Printer<'a, L> {
    pub(crate) fn new(file: &'a SourceFile, tokens: &'a [Token], comments: &'a [Comment]) -> Self {
        Self {
            file,
            tokens,
            comments,
            next_comment: 0,
            closers: closers(tokens),
            out: String::with_capacity(file.text().len() + 64),
            indent: 0,
            block_start: true,
            force_blank: false,
            language: PhantomData,
        }
    }

    pub(crate) fn write(&mut self, text: &str) {
        if self.out.is_empty() || self.out.ends_with('\n') {
            for _ in 0..self.indent {
                self.out.push_str(INDENT);
            }
        }
        self.out.push_str(text);
    }

    pub(crate) fn newline(&mut self) {
        self.out.push('\n');
    }

    /// Returns the number of characters on the last line, or its indentation if the line is still empty.
    pub(crate) fn column(&self) -> usize {
        let line = &self.out[self.out.rfind('\n').map_or(0, |i| i + 1)..];
        if line.is_empty() { self.indent * INDENT.len() } else { line.chars().count() }
    }

    /// Returns the number of characters left on the line, minus two reserved for closing and terminating
    /// punctuation.
    pub(crate) fn room(&self) -> usize {
        LINE_CHARS_MAX.saturating_sub(self.column() + 2)
    }

    // ---- the source text

    /// Returns the index of the first token that begins at or after the byte `at`.
    pub(crate) fn token_from(&self, at: u32) -> usize {
        self.tokens.partition_point(|t| t.span.start < at)
    }

    /// Returns the offset of the first `bracket` at or after the byte `at`. It exists because the source
    /// parsed without errors.
    pub(crate) fn bracket_from(&self, at: u32, bracket: &str) -> u32 {
        let tokens = &self.tokens[self.token_from(at)..];
        let found = tokens.iter().find(|t| matches!(t.kind, TokenKind::Punct(p) if p == bracket));
        found.map_or(at, |t| t.span.start)
    }

    /// Returns the offset of the bracket that closes the one at the byte `open`.
    pub(crate) fn closer(&self, open: u32) -> u32 {
        self.closers.get(&open).copied().unwrap_or(open)
    }
}

/// Maps the offset of each opening bracket to that of its closing bracket. Brackets are balanced in source
/// text without errors.
fn closers(tokens: &[Token]) -> HashMap<u32, u32> {
    let mut open = Vec::new();
    let mut closers = HashMap::new();
    for token in tokens {
        match token.kind {
            TokenKind::Punct("(" | "[" | "{") => open.push(token.span.start),
            TokenKind::Punct(")" | "]" | "}") => {
                if let Some(start) = open.pop() {
                    closers.insert(start, token.span.start);
                }
            }
            _ => {}
        }
    }
    closers
}
