//! Canonical text: the same tree, laid out in one way, comments kept.
//!
//! Each clause of a query begins a line. Keywords are in lower case, names without backticks where they need none.

mod definition;
mod expr;
mod inline;
mod items;
mod list;
mod output;
mod query;
mod state;
mod variables;

use self::variables::Placeholders;
use super::parser::parse_with_tokens;
use crate::diagnostic::Diagnostic;
use crate::printer;
use crate::source::SourceFile;

pub use crate::printer::LINE_CHARS_MAX;
pub(super) use inline::expr_text;

/// Marks the printer of this language.
enum Siddhi {}

type Printer<'a> = printer::Printer<'a, Siddhi>;

/// The text of the app `file` in canonical form; ends in a newline. Variables `${NAME}` stay as they are.
///
/// Errors: the diagnostics, when there are errors among them; a text that cannot be read is left as it is. A variable
/// can be read where a number or a name could stand, and as a part of a name.
pub fn format(file: &SourceFile) -> Result<String, Vec<Diagnostic>> {
    let mut placeholders = Placeholders::new(file);
    loop {
        let diagnostics = match format_plain(&placeholders.file(file)) {
            Ok(text) => return Ok(placeholders.restore(text)),
            Err(diagnostics) => diagnostics,
        };
        if !diagnostics.iter().any(|d| placeholders.retry_as_name(d)) {
            return Err(diagnostics.into_iter().map(|d| placeholders.restore_in(d)).collect());
        }
    }
}

fn format_plain(file: &SourceFile) -> Result<String, Vec<Diagnostic>> {
    let (parsed, tokens) = parse_with_tokens(file);
    if parsed.has_errors() {
        return Err(parsed.diagnostics);
    }
    let mut printer = Printer::new(file, &tokens.tokens, &tokens.comments);
    printer.app(&parsed.app);
    Ok(printer.out)
}
