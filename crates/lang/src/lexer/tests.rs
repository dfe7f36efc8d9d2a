use super::*;
use crate::source::Sources;

fn kinds(text: &str) -> Vec<TokenKind> {
    kinds_of(&LexicalSyntax::RULES, text)
}

fn kinds_of(dialect: &LexicalSyntax, text: &str) -> Vec<TokenKind> {
    let mut sources = Sources::default();
    let id = sources.add("t", text);
    let mut sink = DiagnosticSink::default();
    let out = lex(sources.get(id).expect("just added"), dialect, &mut sink);
    assert_eq!(sink.finish(), []);
    out.tokens.into_iter().map(|t| t.kind).collect()
}

#[test]
fn numbers() {
    assert_eq!(
        kinds("1 1_000 1.5 1e3 1.5E-3 7.x 18446744073709551615"),
        [
            TokenKind::Int(1),
            TokenKind::Int(1000),
            TokenKind::Float(1.5),
            TokenKind::Float(1000.0),
            TokenKind::Float(0.0015),
            TokenKind::Int(7),
            TokenKind::Punct("."),
            TokenKind::Word,
            TokenKind::Int(u64::MAX),
            TokenKind::End,
        ]
    );
}

#[test]
fn strings_and_names() {
    assert_eq!(
        kinds(r#"'a"\'\n' "\u{e4}" `a b`"#),
        [
            TokenKind::Str("a\"'\n".to_owned()),
            TokenKind::Str("ä".to_owned()),
            TokenKind::Quoted("a b".to_owned()),
            TokenKind::End,
        ]
    );
}

#[test]
fn a_quoted_string_reads_back_as_itself() {
    let text = "a\"b\\c\n\r\t\u{0}\u{7f}ä€😀'`";
    assert_eq!(kinds(&text::quote(text)), [TokenKind::Str(text.to_owned()), TokenKind::End]);
}

#[test]
fn longer_punctuation_comes_first() {
    let all = LexicalSyntax::RULES.punctuation;
    for (i, p) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|q| !p.starts_with(q)), "{p} can never be read");
        assert_eq!(kinds(p)[0], TokenKind::Punct(p), "{p}");
    }
}

#[test]
fn first_on_line_ignores_comments() {
    let mut sink = DiagnosticSink::default();
    let file = SourceFile::new(FileId(0), "t", "a b\r\n /* x */ c /*\n*/ d // e\r\nf");
    let out = lex(&file, &LexicalSyntax::RULES, &mut sink);
    let first: Vec<bool> = out.tokens.iter().map(|t| t.first_on_line).collect();
    assert_eq!(first, [true, false, true, true, true, false]);
    let comments: Vec<&str> = out.comments.iter().map(|c| file.slice(c.span)).collect();
    assert_eq!(comments, ["/* x */", "/*\n*/", "// e"]);
}

#[test]
fn siddhi_numbers_have_types() {
    assert_eq!(
        kinds_of(&LexicalSyntax::SIDDHI, "5 5L 5.5 .5 1e3 1.0E-2F 5d 3f 5days 00012 sec...year"),
        [
            TokenKind::Int(5),
            TokenKind::Long(5),
            TokenKind::Float(5.5),
            TokenKind::Float(0.5),
            TokenKind::Float(1000.0),
            TokenKind::Single(0.01),
            TokenKind::Float(5.0),
            TokenKind::Single(3.0),
            TokenKind::Int(5),
            TokenKind::Word,
            TokenKind::Int(12),
            TokenKind::Word,
            TokenKind::Punct("..."),
            TokenKind::Word,
            TokenKind::End,
        ]
    );
}

#[test]
fn siddhi_points_need_no_digits_before_an_exponent_or_a_type() {
    assert_eq!(
        kinds_of(&LexicalSyntax::SIDDHI, "5.f 5.D 5.e3 5.E-1f 5.first 5.e 5."),
        [
            TokenKind::Single(5.0),
            TokenKind::Float(5.0),
            TokenKind::Float(5000.0),
            TokenKind::Single(0.5),
            TokenKind::Int(5),
            TokenKind::Punct("."),
            TokenKind::Word,
            TokenKind::Int(5),
            TokenKind::Punct("."),
            TokenKind::Word,
            TokenKind::Int(5),
            TokenKind::Punct("."),
            TokenKind::End,
        ]
    );
}

#[test]
fn siddhi_texts_have_no_escapes() {
    let text = |text: &str| TokenKind::Str(text.to_owned());
    assert_eq!(
        kinds_of(
            &LexicalSyntax::SIDDHI,
            "'a\\n' \"it's\" \"\"\"say \"hi\"\nit's\"\"\" '' \"\" -- '\n `a b`/* to the end"
        ),
        [
            text("a\\n"),
            text("it's"),
            text("say \"hi\"\nit's"),
            text(""),
            text(""),
            TokenKind::Quoted("a b".to_owned()),
            TokenKind::End,
        ]
    );
}

#[test]
fn siddhi_bodies_hold_braces_in_pairs() {
    let body = |text: &str| TokenKind::Body(text.to_owned());
    assert_eq!(
        kinds_of(
            &LexicalSyntax::SIDDHI,
            "{ if (a) { return '}'; } }{ // }\n}{/* } */}{ \"\\\"}\" }{ don't }{ \\' } 1"
        ),
        [
            body(" if (a) { return '}'; } "),
            body(" // }\n"),
            body("/* } */"),
            body(" \"\\\"}\" "),
            body(" don't "),
            body(" \\' "),
            TokenKind::Int(1),
            TokenKind::End,
        ]
    );
}
