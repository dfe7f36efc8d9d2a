//! Front end of both languages: source files, diagnostics, lexer, syntax trees, parsers and formatters.
//!
//! Turns source text into a syntax tree and diagnostics. Nothing in this crate does I/O, and no source text,
//! however malformed, makes it panic. Name resolution (does the stream exist, is the relation local) is left
//! to the crates that compile the trees.

pub mod diagnostic;
mod foreign;
pub mod lexer;
mod operator;
mod parser;
mod printer;
pub mod rules;
mod secrets;
pub mod siddhi;
pub mod source;

pub use diagnostic::{Diagnostic, Severity, render_all};
pub use source::{FileId, SourceFile, Sources, Span};
