//! Keywords. None is reserved: each has a meaning only where the grammar expects it, and may be used as a
//! name, in any case.

/// All keywords except time units and types.
pub const KEYWORDS: [&str; 60] = [
    "aggregate",
    "aggregation",
    "all",
    "and",
    "app",
    "as",
    "asc",
    "at",
    "begin",
    "by",
    "current",
    "define",
    "delete",
    "desc",
    "end",
    "events",
    "every",
    "expired",
    "false",
    "first",
    "for",
    "from",
    "full",
    "function",
    "group",
    "having",
    "in",
    "inner",
    "insert",
    "into",
    "is",
    "join",
    "last",
    "left",
    "limit",
    "not",
    "null",
    "of",
    "offset",
    "on",
    "or",
    "order",
    "outer",
    "output",
    "partition",
    "per",
    "return",
    "right",
    "select",
    "set",
    "snapshot",
    "stream",
    "table",
    "trigger",
    "true",
    "unidirectional",
    "update",
    "window",
    "with",
    "within",
];

/// Words that begin a clause after the input of a query.
pub(super) const CLAUSES: [&str; 12] = [
    "select",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "output",
    "insert",
    "delete",
    "update",
    "return",
    "aggregate",
];

/// Words other than those of [`CLAUSES`] that may follow a stream in the input of a query.
pub(super) const AFTER_SOURCE: [&str; 11] =
    ["as", "join", "inner", "left", "right", "full", "outer", "unidirectional", "on", "within", "per"];

/// Words that are not accepted as a name in every position of a name, so the formatter puts them in
/// backticks.
pub(super) const QUOTED: [&str; 5] = ["not", "true", "false", "every", "from"];

/// Returns whether `word` is one of `words`, compared without case.
pub(super) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}
