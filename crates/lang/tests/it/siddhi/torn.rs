//! Tests with truncated input, and with a token removed or repeated.

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::lexer::{LexicalSyntax, TokenKind, lex};
use tidemill_lang::siddhi::{format, parse_expression, parse_on_demand};

use super::{case_texts, check_format, file};

fn texts() -> Vec<String> {
    let mut texts = case_texts(include_str!("../../cases/siddhi/trees.txt"));
    texts.extend(case_texts(include_str!("../../cases/siddhi/format.txt")));
    assert!(texts.len() > 20);
    texts
}

/// Returns the start and end offsets of the tokens of `text`, without the end token.
fn tokens(text: &str) -> Vec<(usize, usize)> {
    let file = file(text);
    let tokens = lex(&file, &LexicalSyntax::SIDDHI, &mut DiagnosticSink::default()).tokens;
    let tokens = tokens.iter().filter(|token| token.kind != TokenKind::End);
    tokens.map(|token| (token.span.start as usize, token.span.end as usize)).collect()
}

#[test]
fn every_prefix_is_read_without_panic() {
    for text in texts() {
        for (end, _) in text.char_indices() {
            check_format(&text[..end]);
        }
    }
}

#[test]
fn every_deletion_of_a_token_is_read_without_panic() {
    for text in texts() {
        for (start, end) in tokens(&text) {
            check_format(&format!("{} {}", &text[..start], &text[end..]));
        }
    }
}

#[test]
fn every_repetition_of_a_token_is_read_without_panic() {
    for text in texts() {
        for (start, end) in tokens(&text) {
            check_format(&format!("{} {}", &text[..end], &text[start..]));
        }
    }
}

#[test]
fn comments_anywhere_are_kept() {
    let comments = [" /* c */ ", " -- c\n", "\n\n-- c\n", "\n/* c */\n"];
    for text in texts() {
        // an unterminated comment swallows text inserted after it
        let Ok(canonical) = format(&file(text)) else { continue };
        let before = canonical.matches("/* c */").count() + canonical.matches("-- c\n").count();
        for (i, (start, _)) in tokens(&canonical).into_iter().enumerate() {
            let inserted = comments[i % comments.len()];
            let with = format!("{}{inserted}{}", &canonical[..start], &canonical[start..]);
            let formatted = check_format(&with).expect("comments change nothing");
            let after = formatted.matches("/* c */").count() + formatted.matches("-- c\n").count();
            assert_eq!(after, before + 1, "the comment is lost from\n{with}");
        }
    }
}

#[test]
fn on_demand_queries_and_expressions_are_read_without_panic() {
    for text in case_texts(include_str!("../../cases/siddhi/on_demand.txt")) {
        for (start, end) in tokens(&text) {
            let _ = parse_on_demand(&file(&text[..end]));
            let _ = parse_on_demand(&file(format!("{} {}", &text[..start], &text[end..])));
        }
    }
    for text in case_texts(include_str!("../../cases/siddhi/expression.txt")) {
        for (start, end) in tokens(&text) {
            let _ = parse_expression(&file(&text[..end]));
            let _ = parse_expression(&file(format!("{} {}", &text[..start], &text[end..])));
        }
    }
}
