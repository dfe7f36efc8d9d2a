//! Places in `app.toml`, and errors that name them.

use std::collections::BTreeMap;

use tidemill_lang::{Diagnostic, FileId, Sources, Span, render_all};
use tidemill_types::{Error, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Name of the file in messages.
pub const FILE: &str = "app.toml";

/// Returns an error of the parser with the line that it is about, and for an unknown key the known one that was meant.
pub fn refused(error: &toml::de::Error) -> Error {
    let text = error.to_string();
    let message = error.message();
    // the parser shows the line first and ends with the message
    match text.trim_end().strip_suffix(message) {
        Some(place) => Error::invalid(format!("{place}{}", meant(message))),
        None => Error::invalid(meant(message)),
    }
}

/// Returns a message of the parser with the name that was meant in place of the list of all names, if one is near.
pub fn meant(message: &str) -> String {
    let unknown =
        ["unknown field `", "unknown variant `"].into_iter().find_map(|start| message.strip_prefix(start));
    let Some((name, rest)) = unknown.and_then(|rest| rest.split_once('`')) else { return message.to_owned() };
    let kind = if message.starts_with("unknown variant") { "value" } else { "key" };
    let known = rest.split('`').skip(1).step_by(2);
    match nearest(name, known) {
        Some(meant) => format!("unknown {kind} `{name}`. Did you mean `{meant}`?"),
        None => format!("unknown {kind} `{name}`{rest}"),
    }
}

/// Tables of `[[source]]` and `[[sink]]` with their places, in the order in which they stand.
pub struct ConnectorTables<'t> {
    text: &'t str,
    root: Option<Spanned<DeTable<'t>>>,
}

impl<'t> ConnectorTables<'t> {
    /// Parses a file. One that is not TOML has no tables; who reads its contents reports that.
    pub fn parse(text: &'t str) -> Self {
        Self { text, root: DeTable::parse(text).ok() }
    }

    /// Returns the table at `index` of the array `name`.
    pub fn get(&self, name: &str, index: usize) -> Option<ConnectorTable<'t>> {
        let root = self.root.as_ref()?.get_ref();
        let (_, value) = root.iter().find(|(key, _)| key.get_ref() == name)?;
        let DeValue::Array(all) = value.get_ref() else { return None };
        let value = all.get(index)?.clone();
        let mut lines = BTreeMap::new();
        collect_lines(self.text, "", value.get_ref(), &mut lines);
        Some(ConnectorTable { text: self.text, line: line_of(self.text, value.span().start), value, lines })
    }
}

/// Table of `[[source]]` or `[[sink]]`.
pub struct ConnectorTable<'t> {
    /// Contents of the file.
    pub text: &'t str,
    /// Line on which the table begins, from 1.
    pub line: usize,
    /// The table.
    pub value: Spanned<DeValue<'t>>,
    /// Lines of its keys; those of tables in it have their names in front: `options.topic`.
    pub lines: BTreeMap<String, usize>,
}

fn collect_lines(text: &str, prefix: &str, value: &DeValue<'_>, lines: &mut BTreeMap<String, usize>) {
    let DeValue::Table(table) = value else { return };
    for (key, value) in table.iter() {
        let name = format!("{prefix}{}", key.get_ref());
        lines.insert(name.clone(), line_of(text, key.span().start));
        collect_lines(text, &format!("{name}."), value.get_ref(), lines);
    }
}

/// Returns the line of a byte, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.get(..at).unwrap_or_default().matches('\n').count()
}

/// Renders diagnostics of a text that has the same lines as `app.toml`, with the lines of `app.toml`.
pub fn render(wrong: &[Diagnostic], made: &Sources, app_toml: &str) -> String {
    let mut sources = Sources::default();
    let file = sources.add(FILE, app_toml);
    let moved: Vec<Diagnostic> = wrong
        .iter()
        .map(|diagnostic| {
            let line = made.get(diagnostic.span.file).map(|made| made.position(diagnostic.span.start).line);
            let span = line.map_or(Span::new(file, 0, 0), |line| span_of_line(app_toml, file, line));
            // notes refer to places in the same text, where only this line is real
            let notes = diagnostic.notes.iter().cloned().map(|mut note| {
                note.span = None;
                note
            });
            Diagnostic { span, notes: notes.collect(), ..diagnostic.clone() }
        })
        .collect();
    render_all(&moved, &sources)
}

/// Returns what is written on a line, without the space around it.
fn span_of_line(text: &str, file: FileId, line: u32) -> Span {
    let before: usize = text.split_inclusive('\n').take(line as usize - 1).map(str::len).sum();
    let contents = text.get(before..).unwrap_or_default().lines().next().unwrap_or_default();
    let start = before + (contents.len() - contents.trim_start().len());
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span::new(file, offset(start), offset(start + contents.trim().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_stands_in_place_of_the_list() {
        for (message, expected) in [
            (
                "unknown field `compresion`, expected one of `codec`, `compression`, `level`",
                "unknown key `compresion`. Did you mean `compression`?",
            ),
            ("unknown field `tll`, expected `ttl` or `mismatch`", "unknown key `tll`. Did you mean `ttl`?"),
            ("unknown field `colour`, expected `ttl`", "unknown key `colour`, expected `ttl`"),
            (
                "unknown variant `cvs`, expected one of `ndjson`, `csv`",
                "unknown value `cvs`. Did you mean `csv`?",
            ),
            ("missing field `stream`", "missing field `stream`"),
        ] {
            assert_eq!(meant(message), expected);
        }
    }

    #[test]
    fn tables_know_the_lines_of_their_keys() {
        let text = "name = 'x'\n\n[[sink]]\ntype = 'a'\n\n[[sink]]\ntype = 'b'\n[sink.options]\n# x\npublisher.url = 'u'\n";
        let tables = ConnectorTables::parse(text);
        let second = tables.get("sink", 1).unwrap();
        assert_eq!((second.line, second.lines["type"]), (6, 7));
        assert_eq!(second.lines["options.publisher.url"], 10);
        assert!(tables.get("sink", 2).is_none() && tables.get("source", 0).is_none());
    }
}
