//! Canonical text: the same tree, laid out in one way, comments kept.
//!
//! Where a line breaks depends on the tree and on where comments stand, never on how the text was laid out before,
//! so formatting twice changes nothing. A comment stays with what follows it, or with what stands before it on its
//! line; one in the middle of an expression moves behind it.

mod comments;
mod expr;
mod flat;
mod items;
mod list;

use std::collections::HashMap;

use super::ast::Module;
use super::keywords::{RESERVED, is_keyword};
use super::parser::parse_with_tokens;
use crate::diagnostic::Diagnostic;
use crate::lexer::{Comment, Token, TokenKind, is_word};
use crate::source::SourceFile;

pub(super) use flat::write_expr;

/// Longest line, in characters, as far as breaking at commas and operators can reach it.
pub const LINE_CHARS_MAX: usize = 100;

/// Spaces of one level of indentation.
const INDENT: &str = "  ";

/// The text of `file` in canonical form; ends in a newline unless it is empty.
///
/// Errors: the diagnostics, when there are errors among them; a text that cannot be read is left as it is.
pub fn format(file: &SourceFile) -> Result<String, Vec<Diagnostic>> {
    let (parsed, tokens) = parse_with_tokens(file);
    if parsed.has_errors() {
        return Err(parsed.diagnostics);
    }
    let mut printer = Printer::new(file, &tokens.tokens, &tokens.comments);
    printer.module(&parsed.module);
    Ok(printer.out)
}

/// A text in the making.
struct Printer<'a> {
    file: &'a SourceFile,
    tokens: &'a [Token],
    comments: &'a [Comment],
    /// The first comment not yet written.
    next_comment: usize,
    /// Where each opening bracket is closed; byte to byte.
    closers: HashMap<u32, u32>,
    out: String,
    indent: usize,
    /// Nothing was written yet in this block, so no empty line may come.
    block_start: bool,
    /// An empty line must come before whatever is next.
    force_blank: bool,
}

impl<'a> Printer<'a> {
    fn new(file: &'a SourceFile, tokens: &'a [Token], comments: &'a [Comment]) -> Self {
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
        }
    }

    fn module(&mut self, module: &Module) {
        let mut previous_tall = false;
        for (i, item) in module.items.iter().enumerate() {
            let span = item.span();
            let tall = self.is_tall(item);
            self.force_blank = i > 0 && (tall || previous_tall);
            previous_tall = tall;
            self.leading(span.start);
            self.separate(span.start);
            self.item(item);
            let limit = module.items.get(i + 1).map_or(u32::MAX, |next| next.span().start);
            self.trailing(span.end, limit);
            self.newline();
        }
        self.leading(u32::MAX);
    }

    fn write(&mut self, text: &str) {
        if self.out.is_empty() || self.out.ends_with('\n') {
            for _ in 0..self.indent {
                self.out.push_str(INDENT);
            }
        }
        self.out.push_str(text);
    }

    fn newline(&mut self) {
        self.out.push('\n');
    }

    /// Characters on the last line, or its indentation when it is still empty.
    fn column(&self) -> usize {
        let line = &self.out[self.out.rfind('\n').map_or(0, |i| i + 1)..];
        if line.is_empty() { self.indent * INDENT.len() } else { line.chars().count() }
    }

    /// Characters left on the line, keeping two for what closes or ends it.
    fn room(&self) -> usize {
        LINE_CHARS_MAX.saturating_sub(self.column() + 2)
    }

    // ---- the text as it was

    /// The first token that begins at or after the byte `at`.
    fn token_from(&self, at: u32) -> usize {
        self.tokens.partition_point(|t| t.span.start < at)
    }

    /// The first `bracket` at or after the byte `at`. The text was parsed, so it is there.
    fn bracket_from(&self, at: u32, bracket: &str) -> u32 {
        let tokens = &self.tokens[self.token_from(at)..];
        let found = tokens.iter().find(|t| matches!(t.kind, TokenKind::Punct(p) if p == bracket));
        found.map_or(at, |t| t.span.start)
    }

    /// The byte of the bracket that closes the one at `open`.
    fn closer(&self, open: u32) -> u32 {
        self.closers.get(&open).copied().unwrap_or(open)
    }

    /// The first word `word` at or after the byte `at` that is not inside brackets opened after `at`.
    fn word_from(&self, at: u32, word: &str) -> Option<u32> {
        let mut i = self.token_from(at);
        while let Some(token) = self.tokens.get(i) {
            match &token.kind {
                TokenKind::Word if self.file.slice(token.span) == word => return Some(token.span.start),
                TokenKind::Punct("(" | "[" | "{") => {
                    i = self.token_from(self.closer(token.span.start)).max(i)
                }
                _ => {}
            }
            i += 1;
        }
        None
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

/// `name` where it refers to something.
fn reference(name: &str) -> String {
    // words that differ from a keyword in case only are refused as a slip, so they are quoted too
    let quoted = !is_word(name) || RESERVED.contains(&name.to_ascii_lowercase().as_str());
    if quoted { format!("`{name}`") } else { name.to_owned() }
}

/// `name` where it is declared or bound.
fn declared(name: &str) -> String {
    if is_keyword(name) { format!("`{name}`") } else { reference(name) }
}

/// `name` after a dot.
fn member(name: &str) -> String {
    if is_word(name) { name.to_owned() } else { format!("`{name}`") }
}

#[cfg(test)]
mod tests;
