//! Substitution of variables `${NAME}` in the source text of an app.

use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::lexer::diagnostic_codes;
use crate::source::{SourceFile, Span};

/// Returns `file` with each `${NAME}` replaced by the value that `lookup` returns for the name. Values are
/// not searched for variables.
///
/// Spans of the parsed result refer to the substituted text; line numbers are unchanged if no value contains
/// a line break. Errors: a diagnostic for each variable without a value.
pub fn substitute(
    file: &SourceFile,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<SourceFile, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let mut out = String::with_capacity(file.text().len());
    let mut rest = file.text();
    while let Some(at) = rest.find("${") {
        let after = &rest[at + 2..];
        let name = &after[..after.find(|c: char| !is_name_part(c)).unwrap_or(after.len())];
        let end = at + 2 + name.len();
        if name.is_empty() || !rest[end..].starts_with('}') {
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        out.push_str(&rest[..at]);
        match lookup(name) {
            Some(value) => out.push_str(&value),
            None => {
                let start = file.text().len() - rest.len() + at;
                sink.push(variable_without_value(file, start, name));
            }
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    let diagnostics = sink.finish();
    if diagnostics.is_empty() { Ok(SourceFile::new(file.id(), file.name(), out)) } else { Err(diagnostics) }
}

fn variable_without_value(file: &SourceFile, start: usize, name: &str) -> Diagnostic {
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let span = Span::new(file.id(), offset(start), offset(start + "${}".len() + name.len()));
    Diagnostic::error(diagnostic_codes::VARIABLE, span, format!("`${{{name}}}` has no value"))
        .help(format!(
            "give it one: `--set {name}=VALUE`, `{name} = \"VALUE\"` under [vars] in app.toml, or the environment \
             variable `{name}`"
        ))
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn replaced(text: &str) -> Result<String, Vec<(u32, u32)>> {
        let file = SourceFile::new(FileId(0), "a.siddhi", text);
        let lookup = |name: &str| (name == "A_1").then(|| "${A_1}'".to_owned());
        match substitute(&file, lookup) {
            Ok(file) => Ok(file.text().to_owned()),
            Err(diagnostics) => Err(diagnostics.iter().map(|d| (d.span.start, d.span.end)).collect()),
        }
    }

    #[test]
    fn values_replace_names_once() {
        assert_eq!(replaced("x ${A_1}, ${A_1}").as_deref(), Ok("x ${A_1}', ${A_1}'"));
        for same in ["", "$", "${", "${}", "${A_1", "${A.1}", "${ä}", "$A_1 {A_1}"] {
            assert_eq!(replaced(same).as_deref(), Ok(same));
        }
    }

    #[test]
    fn each_variable_without_a_value_is_reported() {
        assert_eq!(replaced("ä ${B} ${A_1}${C}"), Err(vec![(3, 7), (14, 18)]));
    }
}
