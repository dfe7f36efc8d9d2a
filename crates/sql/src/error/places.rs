//! Places of constants and functions that an error names without saying where they are.

use datafusion::logical_expr::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::dialect::TidemillDialect;

/// Names under which errors mention functions that have another name in the query.
const ALIASES: [(&str, &str); 3] =
    [("date_bin", "time_bucket"), ("percentile_cont", "percentile"), ("first_value", "first")];

/// Returns the place of the first constant text, or else of the function, that `message` quotes.
pub(super) fn of_words(text: &str, message: &str) -> Option<Location> {
    let tokens = Tokenizer::new(&TidemillDialect, text).tokenize_with_location().ok()?;
    let quoted = quoted(message);
    let constant = quoted.iter().find_map(|word| {
        tokens.iter().find(|t| matches!(&t.token, Token::SingleQuotedString(s) if s == word && !s.is_empty()))
    });
    if let Some(found) = constant {
        return Some(found.span.start);
    }
    let called =
        message.split_once("no function ").and_then(|(_, rest)| rest.split_once('(')).map(|(name, _)| name);
    let names = called.into_iter().chain(quoted);
    names.into_iter().find_map(|name| {
        let alias = ALIASES.iter().filter(|(known, _)| *known == name).map(|(_, alias)| *alias);
        std::iter::once(name).chain(alias).find_map(|name| call(&tokens, name))
    })
}

/// Returns the words of a message that are in quotes of any kind.
fn quoted(message: &str) -> Vec<&str> {
    let mut found = vec![];
    for quote in ['`', '\'', '"'] {
        found.extend(message.split(quote).skip(1).step_by(2));
    }
    found
}

/// Returns the place of the first call of a function.
fn call(tokens: &[TokenWithSpan], name: &str) -> Option<Location> {
    let mut tokens = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).peekable();
    while let Some(token) = tokens.next() {
        let is_name = matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case(name));
        if is_name && tokens.peek().is_some_and(|next| next.token == Token::LParen) {
            return Some(token.span.start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, message: &str) -> Option<(u64, u64)> {
        of_words(text, message).map(|at| (at.line, at.column))
    }

    #[test]
    fn constants_come_before_functions() {
        let text = "select f(x),\n  time_bucket('5 minuts', t) from r where s = 'f'";
        assert_eq!(place(text, "`5 minuts` is no interval"), Some((2, 15)));
        assert_eq!(place(text, "there is no function date_bin(int)"), Some((2, 3)));
        assert_eq!(place(text, "`f`: expected f(x, y)"), Some((2, 47)));
        assert_eq!(place("select F (1)", "`f`: expected f(x, y)"), Some((1, 8)));
        assert_eq!(place(text, "division by zero"), None);
    }
}
