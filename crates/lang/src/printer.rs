//! What every formatter does: lines, indentation, comments.
//!
//! Where a line breaks depends on the tree and on where comments stand, never on how the text was laid out before,
//! so formatting twice changes nothing. A comment stays with what follows it, or with what stands before it on its
//! line; one in the middle of an expression moves behind it.

mod comments;

use std::collections::HashMap;
use std::marker::PhantomData;

use crate::lexer::{Comment, Token, TokenKind};
use crate::source::SourceFile;

/// Longest line, in characters, as far as breaking at commas and operators can reach it.
pub const LINE_CHARS_MAX: usize = 100;

/// Spaces of one level of indentation.
pub(crate) const INDENT: &str = "  ";

/// A text in the making. What is written into it is added by the formatter of the language `L`.
pub(crate) struct Printer<'a, L> {
    pub(crate) file: &'a SourceFile,
    pub(crate) tokens: &'a [Token],
    comments: &'a [Comment],
    /// The first comment not yet written.
    next_comment: usize,
    /// Where each opening bracket is closed; byte to byte.
    closers: HashMap<u32, u32>,
    pub(crate) out: String,
    pub(crate) indent: usize,
    /// Nothing was written yet in this block, so no empty line may come.
    pub(crate) block_start: bool,
    /// An empty line must come before whatever is next.
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

    /// Characters on the last line, or its indentation when it is still empty.
    pub(crate) fn column(&self) -> usize {
        let line = &self.out[self.out.rfind('\n').map_or(0, |i| i + 1)..];
        if line.is_empty() { self.indent * INDENT.len() } else { line.chars().count() }
    }

    /// Characters left on the line, keeping two for what closes or ends it.
    pub(crate) fn room(&self) -> usize {
        LINE_CHARS_MAX.saturating_sub(self.column() + 2)
    }

    // ---- the text as it was

    /// The first token that begins at or after the byte `at`.
    pub(crate) fn token_from(&self, at: u32) -> usize {
        self.tokens.partition_point(|t| t.span.start < at)
    }

    /// The first `bracket` at or after the byte `at`. The text was parsed, so it is there.
    pub(crate) fn bracket_from(&self, at: u32, bracket: &str) -> u32 {
        let tokens = &self.tokens[self.token_from(at)..];
        let found = tokens.iter().find(|t| matches!(t.kind, TokenKind::Punct(p) if p == bracket));
        found.map_or(at, |t| t.span.start)
    }

    /// The byte of the bracket that closes the one at `open`.
    pub(crate) fn closer(&self, open: u32) -> u32 {
        self.closers.get(&open).copied().unwrap_or(open)
    }
}

/// Where each opening bracket is closed. In a text without errors they pair up.
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
