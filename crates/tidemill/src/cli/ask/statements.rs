//! Splitting of scripts into statements and commands of the prompt.

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
    after_blanks(text).is_empty()
}

/// Part of a script.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A statement, after as many empty lines as there are lines before it in the script, so that line numbers in errors
    /// refer to the script.
    Statement(String),
    /// A line that begins with a backslash, where a statement could begin.
    Command(String),
}

/// Returns the commands and the non-blank statements of a script, in order.
pub fn script(text: &str) -> Vec<Step> {
    let (mut steps, mut rest) = (vec![], text);
    while !rest.is_empty() {
        let start = rest.len() - after_blanks(rest).len();
        if rest[start..].starts_with('\\') {
            let line = rest[start..].lines().next().unwrap_or_default();
            steps.push(Step::Command(line.trim_end().to_owned()));
            rest = &rest[start + line.len()..];
            continue;
        }
        let (complete, open) = first_statement(rest);
        if !is_blank(complete) {
            let before = text[..text.len() - rest.len()].matches('\n').count();
            steps.push(Step::Statement("\n".repeat(before) + complete));
        }
        rest = open;
    }
    steps
}

/// Splits `text` behind its first statement; without a semicolon all of it is one.
fn first_statement(text: &str) -> (&str, &str) {
    match statements(text).0.first() {
        Some(first) => (first, &text[first.len() + 1..]),
        None => (text, ""),
    }
}

/// Returns `text` from the first character that is neither whitespace nor part of a closed comment.
fn after_blanks(text: &str) -> &str {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b if b.is_ascii_whitespace() => at += 1,
            b'-' if bytes.get(at + 1) == Some(&b'-') => at = after_line(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') && text[at..].contains("*/") => {
                at = after_comment(bytes, at);
            }
            _ => break,
        }
    }
    &text[at.min(text.len())..]
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
        let statements = |texts: &[&str]| -> Vec<Step> {
            texts.iter().map(|text| Step::Statement((*text).to_owned())).collect()
        };
        assert_eq!(
            script("select 1; -- one\nselect\n 2;\n;-- end\n"),
            statements(&["select 1", " -- one\nselect\n 2"])
        );
        assert_eq!(script("a;\n\nb"), statements(&["a", "\n\nb"]));
        assert_eq!(script("a;\nb;\nc"), statements(&["a", "\nb", "\n\nc"]));
        assert!(script("-- nothing").is_empty());
    }

    #[test]
    fn lines_with_a_backslash_are_commands_where_a_statement_could_begin() {
        let (statement, command) =
            (|text: &str| Step::Statement(text.to_owned()), |text: &str| Step::Command(text.to_owned()));
        assert_eq!(
            script("\\d\n-- next\n  \\o csv \nselect 1;\\d T\nselect\n'\\d';"),
            [
                command("\\d"),
                command("\\o csv"),
                statement("\n\n\nselect 1"),
                command("\\d T"),
                statement("\n\n\n\nselect\n'\\d'"),
            ]
        );
        // inside of a statement it is not a command, and the parser of SQL says so
        assert_eq!(script("select\n\\d"), [statement("select\n\\d")]);
        assert_eq!(script("\\"), [command("\\")]);
    }
}
