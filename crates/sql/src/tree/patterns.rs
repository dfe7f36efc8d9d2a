//! Patterns of text: `SIMILAR TO` becomes a regular expression of the whole text, `LIKE … ESCAPE` one with backslashes.
//!
//! DataFusion takes the pattern of `SIMILAR TO` for a regular expression of a part, and no escape character but the backslash.

use datafusion::logical_expr::sqlparser::ast::{BinaryOperator, Expr, Value, ValueWithSpan};
use datafusion::logical_expr::sqlparser::tokenizer::Location;

use super::chains::take;
use super::first_place;
use crate::functions::LIKE_PATTERN;
use crate::pg_catalog::call;

/// Replaces the pattern at `expr`.
///
/// Errors: the reason why a pattern is invalid, with its place.
pub(super) fn replace(expr: &mut Expr) -> Result<(), (Location, String)> {
    match expr {
        Expr::SimilarTo { pattern, escape_char, .. } => {
            let at = first_place(pattern);
            let Some(text) = text(pattern) else {
                return Err((at, "the pattern of SIMILAR TO must be a constant text, or use ~".to_owned()));
            };
            let escape = escape(escape_char.as_ref()).map_err(|why| (at, why))?;
            let regex = to_regex(text, escape)
                .map_err(|why| (at, format!("the pattern '{text}' of SIMILAR TO {why}")))?;
            if let Expr::SimilarTo { negated, expr: of, .. } = take(expr) {
                let op = match negated {
                    true => BinaryOperator::PGRegexNotMatch,
                    false => BinaryOperator::PGRegexMatch,
                };
                let right = Expr::Value(Value::SingleQuotedString(regex).with_empty_span());
                *expr = Expr::BinaryOp { left: of, op, right: Box::new(right) };
            }
        }
        Expr::Like { pattern, escape_char: Some(with), .. }
        | Expr::ILike { pattern, escape_char: Some(with), .. }
            if !is_backslash(with) =>
        {
            let at = first_place(pattern);
            let escape = escape(Some(with)).map_err(|why| (at, why))?;
            let constant = |text: String| Expr::Value(Value::SingleQuotedString(text).with_empty_span());
            **pattern =
                match text(pattern) {
                    Some(text) => constant(with_backslashes(text, escape).ok_or_else(|| {
                        (at, format!("the pattern '{text}' ends with its escape character"))
                    })?),
                    None => {
                        let escape = constant(escape.map_or_else(String::new, String::from));
                        call(LIKE_PATTERN, vec![take(pattern), escape])
                    }
                };
            if let Expr::Like { escape_char, .. } | Expr::ILike { escape_char, .. } = expr {
                *escape_char = None;
            }
        }
        _ => {}
    }
    Ok(())
}

fn text(pattern: &Expr) -> Option<&str> {
    match pattern {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) => text(inner),
        _ => None,
    }
}

fn is_backslash(with: &ValueWithSpan) -> bool {
    matches!(&with.value, Value::SingleQuotedString(text) if text == "\\")
}

/// Returns the escape character; `None` if it is disabled.
fn escape(with: Option<&ValueWithSpan>) -> Result<Option<char>, String> {
    let Some(with) = with else { return Ok(Some('\\')) };
    let Value::SingleQuotedString(text) = &with.value else {
        return Err("ESCAPE is followed by a character in quotes: write, for example, ESCAPE '!'".to_owned());
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (first, None) => Ok(first),
        _ => Err(format!("ESCAPE is followed by one character, found '{text}'")),
    }
}

/// Returns a pattern of LIKE whose escape character is the backslash; `None` if nothing follows an escape character.
pub(crate) fn with_backslashes(pattern: &str, escape: Option<char>) -> Option<String> {
    let mut out = String::with_capacity(pattern.len() + 4);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                let c = chars.next()?;
                if matches!(c, '%' | '_' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    Some(out)
}

/// Returns the regular expression of a pattern of SIMILAR TO.
fn to_regex(pattern: &str, escape: Option<char>) -> Result<String, &'static str> {
    let mut out = String::from("^(?s:");
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                let c = chars.next().ok_or("ends with its escape character")?;
                out.push_str(&literal(c));
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                // a bracket that comes first is one of the characters
                let mut rest = chars.clone();
                if rest.next() == Some('^') {
                    out.push('^');
                    chars.next();
                }
                if chars.clone().next() == Some(']') {
                    out.push_str("\\]");
                    chars.next();
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' if chars.clone().next() == Some(':') => {
                // a class by its name
                out.push('[');
                for c in chars.by_ref() {
                    out.push(c);
                    if c == ']' {
                        break;
                    }
                }
            }
            '&' | '~' | '[' if in_class => out.push_str(&literal(c)),
            '-' | '^' if in_class => out.push(c),
            c if in_class => out.push_str(&literal(c)),
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => out.push(c),
            c => out.push_str(&literal(c)),
        }
    }
    if in_class {
        return Err("has a bracket [ without ]");
    }
    out.push_str(")$");
    Ok(out)
}

/// Returns a character as a regular expression.
fn literal(c: char) -> String {
    regex::escape(c.encode_utf8(&mut [0; 4]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_to_matches_the_whole_text() {
        let matches = |pattern: &str, text: &str| {
            regex::Regex::new(&to_regex(pattern, Some('\\')).unwrap()).unwrap().is_match(text)
        };
        for (pattern, yes, no) in [
            ("a%", "abc", "ba"),
            ("a.c", "a.c", "abc"),
            ("(a|b)%", "bx", "xb"),
            ("_+", "ab", ""),
            ("[^a-c]d", "xd", "ad"),
            ("[]%]x", "]x", "ax"),
            ("a{2,3}", "aaa", "a"),
            ("\\%\\_", "%_", "ab"),
            ("[[:digit:]]+", "12", "a"),
            ("^a$", "^a$", "a"),
            ("%", "a\nb", "\u{0}x\u{0}"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(pattern == "%" || !matches(pattern, no), "{pattern} {no}");
        }
        assert!(to_regex("[a", Some('\\')).is_err());
        assert!(to_regex("a\\", Some('\\')).is_err());
        assert!(to_regex("a\\", None).is_ok());
    }

    #[test]
    fn escapes_become_backslashes() {
        assert_eq!(with_backslashes("a!%b!!\\", Some('!')).as_deref(), Some("a\\%b!\\\\"));
        assert_eq!(with_backslashes("a!", Some('!')), None);
        assert_eq!(with_backslashes("\\%", None).as_deref(), Some("\\\\%"));
    }
}
