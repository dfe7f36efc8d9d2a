//! First word of a statement.

/// Returns whether a statement writes events: its first word, after comments, is `INSERT`.
pub fn is_insert(text: &str) -> bool {
    first_word(text).eq_ignore_ascii_case("INSERT")
}

/// Returns the first word of a statement; comments before it do not count.
pub fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if rest.starts_with("/*") {
            rest = after_comment(rest).trim_start();
        } else {
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    &rest[..end]
}

/// Returns what follows the comment at the beginning of a text, which may have comments inside.
fn after_comment(text: &str) -> &str {
    let (mut depth, mut rest) = (0_usize, text);
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix("/*") {
            depth += 1;
            rest = inner;
        } else if let Some(after) = rest.strip_prefix("*/") {
            depth -= 1;
            rest = after;
            if depth == 0 {
                return rest;
            }
        } else {
            let mut characters = rest.chars();
            characters.next();
            rest = characters.as_str();
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_before_the_first_word_do_not_count() {
        for (text, word) in [
            (" insert into a", "insert"),
            ("-- x\n/* a /* b */ c */INSERT(", "INSERT"),
            ("/* insert", ""),
            ("--", ""),
            ("SELECT 1", "SELECT"),
            ("é", ""),
        ] {
            assert_eq!(first_word(text), word, "{text}");
        }
        assert!(is_insert("Insert INTO a VALUES (1)") && !is_insert("INSERTED"));
    }
}
