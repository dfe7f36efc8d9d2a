//! Regular expressions and numbers with the semantics of Java.

pub(crate) mod java_regex;
pub(crate) mod java_regex_class;
pub(crate) mod java_regex_syntax;
pub(crate) mod literal_pattern;
pub(crate) mod number;
