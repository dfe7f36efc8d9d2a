//! The front end of the languages: sources, diagnostics, lexer, syntax trees, parsers and formatters.
//!
//! Text in, tree and diagnostics out. Nothing in here does I/O, and no text, however broken, makes it panic.
//! What names mean (does the stream exist, is the relation local) is decided by the crates that compile the trees.

pub mod diagnostic;
pub mod lexer;
mod operator;
mod printer;
pub mod rules;
pub mod siddhi;
pub mod source;

pub use diagnostic::{Diagnostic, Severity, render_all};
pub use source::{FileId, SourceFile, Sources, Span};
