//! Texts of keys and values.
//!
//! A key or a value may be in single or double quotes; inside of them, `\` takes the meaning from the next character.

use std::collections::HashSet;

use super::Layout;

/// Value of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PairText {
    /// Text without quotes.
    pub(super) text: String,
    /// True if the text was in quotes.
    pub(super) quoted: bool,
}

/// Parses pairs.
///
/// Errors: what was expected and where; a key that occurs twice.
pub(super) fn parse(text: &str, layout: &Layout) -> Result<Vec<(String, PairText)>, String> {
    let mut pairs = vec![];
    let mut keys = HashSet::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (key, behind) = part(rest, &[layout.separator.as_str()])?;
        let Some(behind) = behind.strip_prefix(layout.separator.as_str()) else {
            let (found, separator) = (rest.lines().next().unwrap_or_default(), &layout.separator);
            return Err(format!("expected a key, `{separator}` and a value, found `{found}`"));
        };
        let ends = [layout.delimiter.as_str(), "\n"];
        let (value, behind) = part(behind.trim_start_matches(' '), &ends)?;
        if !keys.insert(key.text.clone()) {
            return Err(format!("the key `{}` occurs twice", key.text));
        }
        pairs.push((key.text, value));
        rest = match ends.iter().find_map(|end| behind.strip_prefix(end)) {
            Some(next) => next.trim_start(),
            None if behind.is_empty() => behind,
            None => {
                return Err(format!("expected `{}` behind the value, found `{behind}`", layout.delimiter));
            }
        };
    }
    Ok(pairs)
}

/// Parses a text in quotes, or one that ends before one of `ends`. Returns it and what is behind it.
fn part<'t>(text: &'t str, ends: &[&str]) -> Result<(PairText, &'t str), String> {
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
        let plain = PairText { text: text[..end].trim().to_owned(), quoted: false };
        return Ok((plain, &text[end..]));
    };
    let mut inside = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, c)) => inside.push(c),
                None => break,
            },
            c if c == quote => {
                let mut behind = &text[at + 1..];
                if !ends.iter().any(|end| behind.starts_with(end)) {
                    behind = behind.trim_start_matches([' ', '\t', '\r']);
                }
                return Ok((PairText { text: inside, quoted: true }, behind));
            }
            c => inside.push(c),
        }
    }
    Err(format!("the text that begins with {} has no quote at its end", &text[..quote.len_utf8()]))
}

/// Writes a pair.
pub(super) fn write(key: &str, value: &str, quoted: bool, layout: &Layout, out: &mut String) {
    if !out.is_empty() {
        out.push_str(&layout.delimiter);
    }
    let is_special = |text: &str| {
        text.trim() != text
            || text.is_empty()
            || text.contains(['\'', '"', '\\', '\n'])
            || text.contains(&layout.delimiter)
            || text.contains(&layout.separator)
    };
    write_part(key, is_special(key), out);
    out.push_str(&layout.separator);
    let has_end = value.contains(&layout.delimiter) || value.contains(['\'', '"', '\\', '\n']);
    write_part(value, quoted || has_end, out);
}

fn write_part(text: &str, quoted: bool, out: &mut String) {
    match quoted {
        false => out.push_str(text),
        true => {
            out.push('\'');
            out.push_str(&text.replace('\\', "\\\\").replace('\'', "\\'"));
            out.push('\'');
        }
    }
}
