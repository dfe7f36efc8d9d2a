//! Files in another language: one hint helps more than an error for each of its words.

use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};

/// Language that a file may be written in by mistake.
struct Foreign {
    /// Beginnings of lines that only this language has, in lower case with single spaces.
    beginnings: &'static [&'static str],
    /// Message that names the language of the file.
    message: &'static str,
    /// Help that says what to write instead.
    help: &'static str,
}

/// Languages that are mistaken for SiddhiQL.
const IN_QUERIES: [Foreign; 1] = [Foreign {
    beginnings: &[
        "create table ",
        "create temporary table ",
        "create stream ",
        "create view ",
        "create materialized view ",
        "create source ",
        "create sink ",
    ],
    message: "this is SQL; continuous queries are written in SiddhiQL",
    help: "declare `define stream S (name string, n int);` and write `from S[n > 1] select name, n insert into T;`. \
           docs/coming-from has both side by side. SQL asks stored events: `tidemill sql`",
}];

/// Languages that are mistaken for rules.
const IN_RULES: [Foreign; 2] = [
    Foreign {
        beginnings: &[
            "rule \"",
            "rule '",
            "package ",
            "import ",
            "global ",
            "declare ",
            "dialect ",
            "salience ",
            "$",
        ],
        message: "this is a rule of Drools; rules are written in another language here",
        help: "write `rule Name { when { x: Stream(field > 1); } then { emit Other { field: x.field }; } }`: a name without \
               quotes, blocks in braces, variables without `$`. docs/rules.md begins with an example",
    },
    Foreign {
        beginnings: &["create table ", "create stream ", "create view "],
        message: "this is SQL; rules are written in another language",
        help: "declare `event S { name: string, n: int };`. SQL asks stored events: `tidemill sql`",
    },
];

/// Replaces the errors of a file of SiddhiQL that is in another language by a hint.
pub(crate) fn in_queries(errors: Vec<Diagnostic>, file: &SourceFile, code: &'static str) -> Vec<Diagnostic> {
    replaced(errors, file, code, &IN_QUERIES)
}

/// Replaces the errors of a file of rules that is in another language by a hint.
pub(crate) fn in_rules(errors: Vec<Diagnostic>, file: &SourceFile, code: &'static str) -> Vec<Diagnostic> {
    replaced(errors, file, code, &IN_RULES)
}

fn replaced(
    errors: Vec<Diagnostic>,
    file: &SourceFile,
    code: &'static str,
    languages: &[Foreign],
) -> Vec<Diagnostic> {
    let Some(first) = errors.first() else { return errors };
    // only where the first error is: the rest of the file may be good, with one statement of the other language in it
    let (line, start) = file.line(file.position(first.span.start).line);
    let beginning = line.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase() + " ";
    let is_in = |language: &&Foreign| language.beginnings.iter().any(|start| beginning.starts_with(start));
    let Some(language) = languages.iter().find(is_in) else { return errors };
    let start = start + (line.len() - line.trim_start().len()) as u32;
    let span = Span::new(first.span.file, start, start + line.trim().len() as u32);
    vec![Diagnostic::error(code, span, language.message).help(language.help)]
}
