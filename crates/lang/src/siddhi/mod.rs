//! SiddhiQL 5 (`*.siddhi`): syntax tree, parser, formatter.
//!
//! [`parse`] reads an app, [`parse_on_demand`] a query that is run once, [`parse_expression`] the text given to an
//! `expression` window. Where the text may hold variables `${NAME}`, [`substitute`] comes first.

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

/// Deepest expression tree. A chain of operators of one rank (`a or b or c`) counts one level per operator.
pub const EXPR_DEPTH_MAX: usize = 256;

/// Deepest nesting of brackets, operands, annotations and queries that the parser follows.
pub const NESTING_MAX: usize = 128;

/// As the formatter writes it, on one line.
impl fmt::Display for ast::Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format::expr_text(self))
    }
}
