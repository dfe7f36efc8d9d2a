//! Words with a meaning. They have it only where they are expected: every one may be a name, in any case.

/// All keywords, units of time and types aside.
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

/// Words that begin a clause after what a query reads.
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

/// Words that may follow a stream that is read, apart from those that begin a clause.
pub(super) const AFTER_SOURCE: [&str; 11] =
    ["as", "join", "inner", "left", "right", "full", "outer", "unidirectional", "on", "within", "per"];

/// Words that are not read as a name everywhere a name may stand, so that the formatter quotes them.
pub(super) const QUOTED: [&str; 5] = ["not", "true", "false", "every", "from"];

/// Whether `word` is one of `words`, in any case.
pub(super) fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|w| w.eq_ignore_ascii_case(word))
}
