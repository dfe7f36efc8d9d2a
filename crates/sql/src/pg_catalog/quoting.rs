//! Names as SQL writes them.

/// Returns a name as SQL writes it: in double quotes unless it is a word in lower case.
pub(super) fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !RESERVED.split(' ').any(|word| word == name);
    match is_plain {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Words that PostgreSQL keeps for itself.
const RESERVED: &str = "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint \
    create current_catalog current_date current_role current_time current_timestamp current_user default \
    deferrable desc distinct do else end except false fetch for foreign from grant group having in \
    initially intersect into lateral leading limit localtime localtimestamp not null offset on only or \
    order placing primary references returning select session_user some symmetric table then to trailing \
    true union unique user using variadic when where window";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_have_to_be() {
        for (name, written) in [
            ("a_1", "a_1"),
            ("_id", "_id"),
            ("TakeOff", "\"TakeOff\""),
            ("order", "\"order\""),
            ("1a", "\"1a\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(name), written);
        }
    }
}
