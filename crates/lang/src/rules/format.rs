//! Formatter: prints the syntax tree in the canonical layout and preserves comments.

mod expr;
mod inline;
mod items;
mod list;

use super::ast::Module;
use super::keywords::{RESERVED, is_keyword};
use super::parser::parse_with_tokens;
use crate::diagnostic::Diagnostic;
use crate::lexer::{TokenKind, is_word};
use crate::printer::{self, INDENT};
use crate::source::SourceFile;

pub use crate::printer::LINE_CHARS_MAX;
pub(super) use inline::write_expr;

/// Language marker of the printer for rules.
enum Rules {}

type Printer<'a> = printer::Printer<'a, Rules>;

/// Returns `file` in canonical layout; the result ends in a newline unless it is empty.
///
/// Errors: all diagnostics, if one of them is an error.
pub fn format(file: &SourceFile) -> Result<String, Vec<Diagnostic>> {
    let (parsed, tokens) = parse_with_tokens(file);
    if parsed.has_errors() {
        return Err(parsed.diagnostics);
    }
    let mut printer = Printer::new(file, &tokens.tokens, &tokens.comments);
    printer.module(&parsed.module);
    Ok(printer.out)
}

impl Printer<'_> {
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

    /// Returns the offset of the first word `word` at or after the byte `at` that is not inside brackets
    /// opened after `at`.
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

/// Returns `name` as it is written in a reference.
fn reference(name: &str) -> String {
    // a word that differs from a keyword only in case is rejected as a misspelling, so it also gets backticks
    let quoted = !is_word(name) || RESERVED.contains(&name.to_ascii_lowercase().as_str());
    if quoted { format!("`{name}`") } else { name.to_owned() }
}

/// Returns `name` as it is written in a declaration or binding.
fn declared(name: &str) -> String {
    if is_keyword(name) { format!("`{name}`") } else { reference(name) }
}

/// Returns `name` as it is written after a dot.
fn member(name: &str) -> String {
    if is_word(name) { name.to_owned() } else { format!("`{name}`") }
}

#[cfg(test)]
mod tests;
