//! Formatter: prints the syntax tree in the canonical layout and preserves comments.
//!
//! Each clause of a query begins a line. Keywords are in lower case; names have backticks only where they
//! need them.

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

/// Language marker of the SiddhiQL printer.
enum Siddhi {}

type Printer<'a> = printer::Printer<'a, Siddhi>;

/// Returns the app `file` in canonical layout; the result ends in a newline. Variables `${NAME}` are
/// preserved.
///
/// Errors: all diagnostics, if one of them is an error. A variable is accepted in the position of a number or
/// a name, and as a part of a name.
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
