//! Words with a meaning. Most have it only where they are expected, so that fields may be called `key` or `time`.

/// Words that are never names without backticks (after a dot and as a key in `{…}` they are).
pub const RESERVED: [&str; 9] = ["and", "or", "not", "in", "true", "false", "null", "now", "let"];

/// Words that structure a file: not to be used, without backticks, to name something that is declared or bound.
pub const KEYWORDS: [&str; 11] =
    ["event", "entity", "relation", "rule", "when", "then", "aggregate", "groupby", "do", "over", "every"];

/// Words that begin an item.
pub(super) const ITEMS: [&str; 4] = ["event", "entity", "relation", "rule"];

/// Words that begin an action.
pub(super) const ACTIONS: [&str; 6] = ["update", "unset", "insert", "upsert", "delete", "emit"];

/// Whether `word` needs backticks wherever a name stands.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// Whether `word` needs backticks where it is declared or bound.
pub(super) fn is_keyword(word: &str) -> bool {
    is_reserved(word) || KEYWORDS.contains(&word)
}
