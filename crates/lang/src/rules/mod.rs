//! The rule language (`*.rules`): syntax tree, parser, formatter. The language is documented in
//! `docs/rules.md`.

pub mod ast;
pub mod diagnostic_codes;
mod format;
mod keywords;
mod parser;
mod structural_text;

use std::fmt;

pub use format::{LINE_CHARS_MAX, format};
pub use keywords::{KEYWORDS, RESERVED};
pub use parser::{Parsed, parse};
pub use structural_text::structural_text;

/// Maximum depth of an expression tree. A chain of operators of one precedence (`a or b or c`) counts one
/// level per operator.
pub const EXPR_DEPTH_MAX: usize = 256;

/// Maximum nesting of brackets and operands that the parser accepts.
pub const NESTING_MAX: usize = 128;

/// Formats the expression on one line, as the formatter does.
impl fmt::Display for ast::Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format::write_expr(self, f)
    }
}
