//! Keywords. Most have a meaning only where the grammar expects them, so fields may be called `key` or
//! `time`.

/// Words that are names only in backticks, except after a dot and as a key in `{…}`.
pub const RESERVED: [&str; 9] = ["and", "or", "not", "in", "true", "false", "null", "now", "let"];

/// Words that structure a file: names that are declared or bound need backticks if they equal one of them.
pub const KEYWORDS: [&str; 11] =
    ["event", "entity", "relation", "rule", "when", "then", "aggregate", "groupby", "do", "over", "every"];

/// Keywords that begin an item.
pub(super) const ITEMS: [&str; 4] = ["event", "entity", "relation", "rule"];

/// Keywords that begin an action.
pub(super) const ACTIONS: [&str; 6] = ["update", "unset", "insert", "upsert", "delete", "emit"];

/// Returns whether `word` needs backticks wherever a name is used.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Returns whether `word` needs backticks where it is declared or bound.
pub(super) fn is_keyword(word: &str) -> bool {
    is_reserved(word) || KEYWORDS.contains(&word)
}
