//! A script cut into statements.

/// The statements of `text` that end with `;`, without it, and what comes after the last of them.
///
/// A semicolon in quotes or in a comment ends nothing.
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

/// Whether there is nothing in `text` but spaces and finished comments.
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

/// The statements of a script with what must be run of them, each with as many empty lines before it as stand before it
/// in the script, so that the lines of errors are those of the script.
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
    // a doubled quote ends one text and begins another: nothing between them matters here
    end.map_or(bytes.len(), |end| at + end + 2)
}

fn after_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |end| at + end + 1)
}

/// Comments may be inside one another.
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
