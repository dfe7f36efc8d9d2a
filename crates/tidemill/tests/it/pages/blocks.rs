//! Blocks of a page, and comparison of actual with shown output.

/// Fenced block.
pub struct Block<'t> {
    /// Line of the opening fence, from 1.
    pub line: usize,
    /// Words after the fence.
    pub words: Vec<&'t str>,
    /// Contents of the block.
    pub lines: Vec<&'t str>,
}

/// Returns the blocks of a page, in order.
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(words), None) => {
                let words = words.split_whitespace().collect();
                open = Some(Block { line: number + 1, words, lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// Splits lines into commands, each with its output. A command that ends in `\` continues on the next line.
pub fn commands<'t>(lines: &[&'t str]) -> Vec<(String, Vec<&'t str>)> {
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (_, Some((command, _))) if goes_on => {
                command.push('\n');
                command.push_str(line);
            }
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push(line),
            (None, None) => panic!("a console block begins with `$ `: {line}"),
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// Returns whether `found` matches `shown`: `…` matches any text, alone on a line any lines.
pub fn is_shown(shown: &[&str], found: &[&str]) -> bool {
    match shown.split_first() {
        None => found.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=found.len()).any(|skipped| is_shown(rest, &found[skipped..]))
        }
        Some((first, rest)) => {
            found.split_first().is_some_and(|(line, others)| is_line(first, line) && is_shown(rest, others))
        }
    }
}

fn is_line(shown: &str, found: &str) -> bool {
    let (shown, found) = (shown.trim_end(), found.trim_end());
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| found.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[test]
fn ellipses_stand_for_anything() {
    assert!(is_shown(&["a", "…", "c…e"], &["a", "b", "b", "c d e"]));
    assert!(is_shown(&["a", "…"], &["a"]));
    assert!(!is_shown(&["a", "c"], &["a", "b", "c"]));
    assert!(!is_shown(&["a…c"], &["a b"]));
}
