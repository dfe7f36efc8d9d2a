//! SiddhiQL 5 (`*.siddhi`): syntax tree, parser, formatter.
//!
//! [`parse`] parses an app, [`parse_on_demand`] an on-demand query, [`parse_expression`] the expression given
//! as a string to an `expression` window. If the source may contain variables `${NAME}`, apply [`substitute`]
//! first.

pub mod ast;
pub mod diagnostic_codes;
mod format;
mod keywords;
mod parser;
mod structural_text;
mod units;
mod variables;

use std::fmt;

pub use format::{LINE_CHARS_MAX, format};
pub use keywords::KEYWORDS;
pub use parser::{Parsed, parse, parse_expression, parse_expression_in, parse_on_demand};
pub use structural_text::{on_demand_structural_text, structural_text};
pub use variables::substitute;

/// Maximum depth of an expression tree. A chain of operators of one precedence (`a or b or c`) counts one
/// level per operator.
pub const EXPR_DEPTH_MAX: usize = 256;

/// Maximum nesting of brackets, operands, annotations and queries that the parser accepts.
pub const NESTING_MAX: usize = 128;

/// Formats the expression on one line, as the formatter does.
impl fmt::Display for ast::Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format::expr_text(self))
    }
}
