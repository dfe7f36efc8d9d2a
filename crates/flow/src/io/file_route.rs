//! Who reads and writes a file: the engine, which knows whole files with formats of their own, or the connector `file`
//! of the catalog, which has the options of Siddhi's.
//!
//! What the options say decides. Options that only one of the two has lead to it; options of both are a mistake. A sink
//! that both could write is the engine's, which writes each event exactly once. A source that both could read is the
//! engine's, too, unless its URI has a scheme and nothing says that the file is read once: then it is followed, as in
//! Siddhi, where each URI of a source has a scheme.

use tidemill_connect::{Catalog, OptionSpec};
use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry};
use tidemill_lang::{Diagnostic, Span};

use super::file;

/// Options of annotations that belong to neither.
const COMMON: [&str; 2] = ["type", "on.error"];
/// Name of the connector.
const CONNECTOR: &str = "file";

/// Decides for the files of an app.
pub(crate) struct FileRoute<'c> {
    /// Catalog with the connector, if there is one.
    pub catalog: Option<&'c Catalog>,
    /// True if the app runs on event time: then files are read to their ends, and merged.
    pub playback: bool,
}

/// Evidence that a file belongs to one of the two implementations.
struct Sign {
    /// The option or mapper, as it is written.
    text: String,
    span: Span,
}

impl FileRoute<'_> {
    /// Returns whether the connector reads or writes the file of an annotation.
    ///
    /// Errors: options of both, an option of neither.
    pub(crate) fn uses_connector(&self, annotation: &Annotation) -> Result<bool, Diagnostic> {
        let is_source = annotation.is("source");
        let Some(specs) = self.catalog.and_then(|catalog| connector_options(catalog, is_source)) else {
            return Ok(false);
        };
        let of_engine = engine_signs(annotation, is_source);
        let of_connector = connector_signs(annotation, is_source, specs);
        let unknown = annotation.elements().find(|e| {
            !specs.iter().any(|spec| e.has_key(spec.name)) && !is_engine_option(e, is_source) && !is_common(e)
        });
        match (unknown, of_engine.first(), of_connector.first()) {
            (Some(unknown), ..) => Err(unknown_option(unknown, is_source, specs)),
            (None, Some(engine), Some(connector)) => Err(mixed(engine, connector, is_source, specs)),
            (None, Some(_), None) => Ok(false),
            (None, None, Some(_)) => Ok(true),
            (None, None, None) => Ok(is_source && !self.playback && is_followed_by_default(annotation)),
        }
    }
}

/// Returns the options of the connector.
fn connector_options(catalog: &Catalog, is_source: bool) -> Option<&'static [OptionSpec]> {
    match is_source {
        true => catalog.sources().find(|source| source.name() == CONNECTOR).map(|source| source.options()),
        false => catalog.sinks().find(|sink| sink.name() == CONNECTOR).map(|sink| sink.options()),
    }
}

fn engine_options(is_source: bool) -> &'static [&'static str] {
    if is_source { &file::SOURCE_OPTIONS } else { &file::SINK_OPTIONS }
}

fn is_engine_option(element: &AnnotationEntry, is_source: bool) -> bool {
    engine_options(is_source).iter().any(|name| element.has_key(name))
}

fn is_common(element: &AnnotationEntry) -> bool {
    COMMON.iter().any(|name| element.has_key(name))
}

/// Returns what only the engine understands.
fn engine_signs(annotation: &Annotation, is_source: bool) -> Vec<Sign> {
    let mut signs = vec![];
    if let Some(time) = annotation.element("event.time").filter(|_| is_source) {
        signs.push(Sign::of(time));
    }
    let map = annotation.nested().find(|nested| nested.is("map"));
    if let Some(kind) = map.and_then(|map| map.element("type"))
        && (kind.value.value == "parquet" || (kind.value.value == "avro" && is_container(annotation, map)))
    {
        signs.push(Sign { text: format!("@map(type='{}')", kind.value.value), span: kind.span });
    }
    signs
}

/// Returns whether the mapper `avro` is that of files: it has no schema, which messages need.
fn is_container(annotation: &Annotation, map: Option<&Annotation>) -> bool {
    let is_plain = |map: &Annotation| {
        map.nested().next().is_none() && map.elements().all(|e| e.has_key("type") || e.has_key("codec"))
    };
    map.is_some_and(is_plain)
        && annotation.element("mode").is_none_or(|mode| mode.value.value.eq_ignore_ascii_case("line"))
}

/// Returns what only the connector understands.
fn connector_signs(annotation: &Annotation, is_source: bool, specs: &[OptionSpec]) -> Vec<Sign> {
    let is_of_connector = |element: &&AnnotationEntry| {
        let is_known = specs.iter().any(|spec| element.has_key(spec.name));
        let value = &element.value.value;
        let is_engine_value =
            |name: &str, expected: &str| element.has_key(name) && !value.eq_ignore_ascii_case(expected);
        let has_other_value = match is_source {
            true => {
                is_engine_value("mode", "line")
                    || is_engine_value("tailing", "false")
                    || is_engine_value("action.after.process", "keep")
            }
            false => {
                is_engine_value("add.line.separator", "true")
                    || (element.has_key("file.uri") && value.contains("{{"))
            }
        };
        is_known && (has_other_value || !is_engine_option(element, is_source))
    };
    let mut signs: Vec<Sign> = annotation.elements().filter(is_of_connector).map(Sign::of).collect();
    for nested in annotation.nested() {
        match nested.is("map") {
            true => signs.extend(mapper_sign(nested, is_source)),
            false => signs.push(Sign { text: format!("@{}", nested.name.name), span: nested.span }),
        }
    }
    signs
}

/// Returns what in `@map` only the connector understands.
fn mapper_sign(map: &Annotation, is_source: bool) -> Option<Sign> {
    let kind = map.element("type")?;
    let name = &kind.value.value;
    if let Some(nested) = map.nested().next() {
        return Some(Sign { text: format!("@{}", nested.name.name), span: nested.span });
    }
    match file::mapper_options(name, is_source) {
        None => Some(Sign { text: format!("@map(type='{name}')"), span: kind.span }),
        Some(known) => {
            let other = map.elements().find(|e| !known.iter().any(|name| e.has_key(name)));
            other.map(Sign::of)
        }
    }
}

/// Returns whether a source that both could read is followed.
fn is_followed_by_default(annotation: &Annotation) -> bool {
    let has_scheme = annotation
        .element("file.uri")
        .and_then(|uri| uri.value.value.split_once(':'))
        .is_some_and(|(scheme, _)| scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()));
    has_scheme && annotation.element("tailing").is_none()
}

impl Sign {
    fn of(element: &AnnotationEntry) -> Self {
        let name = element.key.as_ref().map_or("", |key| key.value.as_str());
        // the URI may have a password
        let text = match element.has_key("file.uri") || element.has_key("dir.uri") {
            true => name.to_owned(),
            false => format!("{name}='{}'", element.value.value),
        };
        Self { text, span: element.span }
    }
}

/// Returns a sentence for each of the two with its options.
fn both_sets(is_source: bool, specs: &[OptionSpec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name).collect();
    let (engine, purpose) = match is_source {
        true => (engine_options(true), "reads a whole file once"),
        false => (engine_options(false), "writes one file"),
    };
    let engine: Vec<&str> = engine.iter().copied().filter(|name| !COMMON.contains(name)).collect();
    format!(
        "the engine {purpose}, with {} and the mappers avro, csv, json and parquet; the connector `file` has {}",
        engine.join(", "),
        names.join(", ")
    )
}

fn mixed(engine: &Sign, connector: &Sign, is_source: bool, specs: &[OptionSpec]) -> Diagnostic {
    let message = format!(
        "`{}` and `{}` cannot be used together: the first is for a file that the engine {} itself, the second for the \
         connector `file`",
        engine.text,
        connector.text,
        if is_source { "reads" } else { "writes" },
    );
    Diagnostic::error("F0616", connector.span, message).help(both_sets(is_source, specs))
}

fn unknown_option(unknown: &AnnotationEntry, is_source: bool, specs: &[OptionSpec]) -> Diagnostic {
    let name = unknown.key.as_ref().map_or(unknown.value.value.as_str(), |key| key.value.as_str());
    let known = specs.iter().map(|spec| spec.name).chain(engine_options(is_source).iter().copied());
    let hint = tidemill_types::did_you_mean(name, known);
    Diagnostic::error("F0612", unknown.span, format!("unknown option `{name}`{hint}"))
        .help(both_sets(is_source, specs))
}
