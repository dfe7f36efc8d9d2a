//! Count of nested brackets, taken before the parser recurses into them.
//!
//! The parser limits the nesting of expressions and queries, but not of types: `array<array<…` and `int[][]…`
//! nest as deeply as the text is long.

use datafusion::logical_expr::sqlparser::dialect::GenericDialect;
use datafusion::logical_expr::sqlparser::tokenizer::{Token, Tokenizer};

/// Maximum nested brackets, or consecutive groups of `[…]`. More than the parser allows of the nesting that
/// it limits.
const BRACKETS_MAX: usize = 200;

/// Returns whether `text` has more than [`BRACKETS_MAX`] nested brackets, which no real query has.
pub(crate) fn too_many(text: &str) -> bool {
    let opening = text.bytes().filter(|b| matches!(b, b'(' | b'[' | b'{' | b'<')).take(BRACKETS_MAX + 1);
    if opening.count() <= BRACKETS_MAX {
        return false;
    }
    // text that cannot be tokenized is rejected by the parser, with the location
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, text).tokenize() else { return false };
    let mut open = 0_usize;
    let mut in_row = 0_usize;
    let mut type_before = false;
    for token in tokens.iter().filter(|t| !matches!(t, Token::Whitespace(_))) {
        match token {
            Token::LParen | Token::LBrace => open += 1,
            Token::LBracket => {
                open += 1;
                in_row += 1;
            }
            Token::Lt if type_before => open += 1,
            Token::RParen | Token::RBrace | Token::RBracket | Token::Gt => open = open.saturating_sub(1),
            Token::ShiftRight => open = open.saturating_sub(2),
            Token::Number(..) => {}
            _ => in_row = 0,
        }
        if open > BRACKETS_MAX || in_row > BRACKETS_MAX {
            return true;
        }
        type_before = matches!(token, Token::Word(w) if ["array", "struct", "map"]
            .iter()
            .any(|name| w.value.eq_ignore_ascii_case(name)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brackets_inside_one_another_count() {
        assert!(too_many(&"array<".repeat(201)));
        assert!(too_many(&format!("int{}", "[]".repeat(201))));
        assert!(too_many(&format!("cast(1 as {}", "nullable(".repeat(201))));
        assert!(!too_many(&"a < b and ".repeat(1_000)));
        assert!(!too_many(&"f(x[1]), ".repeat(1_000)));
        assert!(!too_many(&format!("select '{}'", "(".repeat(1_000))));
    }
}
