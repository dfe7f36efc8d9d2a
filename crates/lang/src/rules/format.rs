//! Canonical text: the same tree, laid out in one way, comments kept.

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

/// Marks the printer of this language.
enum Rules {}

type Printer<'a> = printer::Printer<'a, Rules>;

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
