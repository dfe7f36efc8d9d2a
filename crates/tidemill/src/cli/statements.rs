//! Splitting of scripts into statements.

/// Splits `text` into the statements that end with `;`, without it, and the rest after the last of them.
///
/// Semicolons in quotes and comments are ignored.
pub fn statements(text: &str) -> (Vec<&str>, &str) {
    let bytes = text.as_bytes();
    let mut found = vec![];
    let (mut start, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\'' | b'"' | b'`' => at = after_quote(bytes, at),
            b'-' if bytes.get(at + 1) == Some(&b'-') => at = after_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => at = after_comment(bytes, at),
            b';' => {
                found.push(&text[start..at]);
                at += 1;
                start = at;
            }
            _ => at += 1,
        }
    }
    (found, &text[start..])
}

/// Returns whether `text` has only whitespace and closed comments.
pub fn is_blank(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b if b.is_ascii_whitespace() => at += 1,
            b'-' if bytes.get(at + 1) == Some(&b'-') => at = after_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') && text[at..].contains("*/") => {
                at = after_comment(bytes, at);
            }
            _ => return false,
        }
    }
    true
}

/// Returns the non-blank statements of a script. Each is preceded by as many empty lines as there are lines
/// before it in the script, so that line numbers in errors refer to the script.
pub fn script(text: &str) -> Vec<String> {
    let (mut all, rest) = statements(text);
    all.push(rest);
    let mut lines = 0;
    let mut script = vec![];
    for statement in all {
        if !is_blank(statement) {
            script.push("\n".repeat(lines) + statement);
        }
        lines += statement.matches('\n').count();
    }
    script
}

fn after_quote(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let end = bytes[at + 1..].iter().position(|b| *b == quote);
    // a doubled quote ends one string and begins another: nothing is between them
    end.map_or(bytes.len(), |end| at + end + 2)
}

fn after_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |end| at + end + 1)
}

/// Returns the end of a comment. Comments may be nested.
fn after_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_semicolon_outside_of_text_and_comments_ends_a_statement() {
        assert_eq!(statements("select 1; select 2;"), (vec!["select 1", " select 2"], ""));
        assert_eq!(statements("select ';''; --' -- ;\n; x"), (vec!["select ';''; --' -- ;\n"], " x"));
        assert_eq!(
            statements("a /* ; /* ; */ ; */ \";\" `;` ; b"),
            (vec!["a /* ; /* ; */ ; */ \";\" `;` "], " b")
        );
        for open in ["select 'abc;", "/* ; ", "\"x;", "-- ;"] {
            assert_eq!(statements(open), (vec![], open));
        }
    }

    #[test]
    fn comments_alone_are_nothing_to_run() {
        for blank in ["", " \n", "-- x", "/* x */ -- y\n "] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for open in ["x", "-- x\ny", "/* x", "'"] {
            assert!(!is_blank(open), "{open:?}");
        }
    }

    #[test]
    fn a_script_keeps_its_lines() {
        assert_eq!(script("select 1; -- one\nselect\n 2;\n;-- end\n"), ["select 1", " -- one\nselect\n 2"]);
        assert_eq!(script("a;\n\nb"), ["a", "\n\nb"]);
        assert_eq!(script("a;\nb;\nc"), ["a", "\nb", "\n\nc"]);
        assert!(script("-- nothing").is_empty());
    }
}
