//! Compilation of `@source(type='file', …)` and `@sink(type='file', …)`. The caller that runs the app reads
//! and writes the files.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Annotation, AnnotationEntry};
use tidemill_types::{FieldType, did_you_mean};

use super::file_route::FileRoute;
use crate::catalog::Attributes;

/// Supported mappers of files.
const MAPPERS: [&str; 4] = ["avro", "csv", "json", "parquet"];
/// Supported codecs for writing Avro containers.
const CODECS: [&str; 3] = ["null", "deflate", "snappy"];
/// Options of a source.
pub(super) const SOURCE_OPTIONS: [&str; 6] =
    ["type", "file.uri", "mode", "tailing", "action.after.process", "event.time"];
/// Options of a sink.
pub(super) const SINK_OPTIONS: [&str; 5] = ["type", "file.uri", "append", "add.line.separator", "on.error"];
/// Prefixes of a path that is given as a URI.
const SCHEMES: [&str; 2] = ["file://", "file:"];

/// File that is read into a stream, up to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Index of the receiving stream.
    pub stream: usize,
    /// Path of the file.
    pub path: String,
    /// Format of the file.
    pub mapper: FileMapper,
    /// Attribute with the time of an event, in milliseconds since 1970; `None` to use the current time.
    pub time: Option<usize>,
}

/// File to which the events of a stream are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Index of the stream.
    pub stream: usize,
    /// Path of the file.
    pub path: String,
    /// Format of the file.
    pub mapper: FileMapper,
    /// True to append to existing content.
    pub append: bool,
}

/// File format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileMapper {
    /// Avro object container; its blocks are compressed with this codec: `null`, `deflate` or `snappy`.
    Avro(String),
    /// One JSON object per line.
    Json {
        /// True to drop an event that lacks an attribute; otherwise the attribute is null.
        complete: bool,
    },
    /// CSV file.
    Csv {
        /// True if the first row contains the attribute names.
        header: bool,
        /// Separator of values, an ASCII character.
        delimiter: u8,
    },
    /// Parquet file.
    Parquet,
}

/// Returns whether an annotation connects a stream with a file, which the engine or the connector `file` reads or writes.
pub fn is_file(annotation: &Annotation) -> bool {
    annotation.element("type").is_some_and(|ty| ty.value.value == "file")
}

/// Compiles the sources of a stream that the engine reads. Errors: an option is invalid or missing.
pub(crate) fn sources(
    annotations: &[Annotation],
    stream: usize,
    attributes: &Attributes,
    route: &FileRoute<'_>,
) -> Result<Vec<InputFile>, Diagnostic> {
    let of = own(annotations, "source", route)?;
    of.into_iter()
        .map(|a| {
            let options = AnnotationOptions(a);
            options.check_known(&SOURCE_OPTIONS)?;
            options.check_value("mode", "line", "files are read line by line")?;
            options.check_value("tailing", "false", "a file is read once, to its end")?;
            options.check_value("action.after.process", "keep", "files are not moved or deleted")?;
            let time = options.get("event.time").map(|e| event_time(e, attributes)).transpose()?;
            Ok(InputFile { stream, path: options.path()?, mapper: mapper(a, true)?, time })
        })
        .collect()
}

/// Compiles the sinks of a stream that the engine writes. Errors: as for [`sources`].
pub(crate) fn sinks(
    annotations: &[Annotation],
    stream: usize,
    route: &FileRoute<'_>,
) -> Result<Vec<OutputFile>, Diagnostic> {
    let of = own(annotations, "sink", route)?;
    of.into_iter()
        .map(|a| {
            let options = AnnotationOptions(a);
            options.check_known(&SINK_OPTIONS)?;
            options.check_value("add.line.separator", "true", "each event is written as a line")?;
            super::check_on_error(a)?;
            let mapper = mapper(a, false)?;
            let is_text = matches!(mapper, FileMapper::Json { .. } | FileMapper::Csv { .. });
            let append = options.flag("append", is_text)?;
            if let (true, false, Some(written)) = (append, is_text, options.get("append")) {
                let message = "only the mappers json and csv can append to a file";
                return Err(Diagnostic::error("F0614", written.span, message).expected(["append='false'"]));
            }
            Ok(OutputFile { stream, path: options.path()?, mapper, append })
        })
        .collect()
}

/// Returns the annotations of this name whose files the engine reads or writes.
fn own<'a>(
    annotations: &'a [Annotation],
    name: &str,
    route: &FileRoute<'_>,
) -> Result<Vec<&'a Annotation>, Diagnostic> {
    let mut own = vec![];
    for annotation in annotations.iter().filter(|a| a.is(name) && is_file(a)) {
        if !route.uses_connector(annotation)? {
            own.push(annotation);
        }
    }
    Ok(own)
}

fn event_time(named: &AnnotationEntry, attributes: &Attributes) -> Result<usize, Diagnostic> {
    let name = &named.value.value;
    let found = attributes.iter().position(|(attribute, _)| attribute == name);
    match found.filter(|i| attributes[*i].1 == FieldType::Long) {
        Some(i) => Ok(i),
        None => {
            let longs = attributes.iter().filter(|(_, ty)| *ty == FieldType::Long);
            let hint = did_you_mean(name, longs.map(|(name, _)| name.as_str()));
            let message = format!("`event.time` must be an attribute of type long{hint}");
            Err(Diagnostic::error("F0614", named.span, message))
        }
    }
}

/// Returns the options of a mapper of files; `None` for an unknown mapper.
pub(super) fn mapper_options(mapper: &str, reads: bool) -> Option<&'static [&'static str]> {
    match (mapper, reads) {
        ("avro", true) | ("parquet", _) => Some(&["type"]),
        ("avro", false) => Some(&["type", "codec"]),
        ("json", true) => Some(&["type", "fail.on.missing.attribute"]),
        ("json", false) => Some(&["type"]),
        ("csv", true) => Some(&["type", "delimiter", "header.present"]),
        ("csv", false) => Some(&["type", "delimiter", "header"]),
        _ => None,
    }
}

fn mapper(annotation: &Annotation, reads: bool) -> Result<FileMapper, Diagnostic> {
    let expected = || MAPPERS.map(|m| format!("@map(type='{m}')"));
    let Some(map) = annotation.nested().find(|n| n.is("map")) else {
        return Err(
            Diagnostic::error("F0611", annotation.span, "a file needs a mapper `@map`").expected(expected())
        );
    };
    let Some(ty) = map.element("type") else {
        return Err(Diagnostic::error("F0601", map.span, "a mapper needs a `type`").expected(expected()));
    };
    if let Some(nested) = map.nested().next() {
        let message = format!("`@{}` is not supported yet for files", nested.name.name);
        let help = "each event has the attributes of the stream, in order";
        return Err(Diagnostic::error("F0612", nested.span, message).help(help));
    }
    super::check_known(&MAPPERS, &ty.value.value, "file mapper", ty.span)?;
    let options = AnnotationOptions(map);
    options.check_known(mapper_options(&ty.value.value, reads).unwrap_or_default())?;
    match ty.value.value.as_str() {
        "avro" => {
            let Some(codec) = options.get("codec") else { return Ok(FileMapper::Avro(CODECS[0].into())) };
            super::check_known(&CODECS, &codec.value.value, "codec", codec.span)?;
            Ok(FileMapper::Avro(codec.value.value.clone()))
        }
        "json" => Ok(FileMapper::Json { complete: options.flag("fail.on.missing.attribute", true)? }),
        "csv" => {
            let header = if reads { "header.present" } else { "header" };
            Ok(FileMapper::Csv { header: options.flag(header, false)?, delimiter: options.delimiter()? })
        }
        _ => Ok(FileMapper::Parquet),
    }
}

/// Options of an annotation.
struct AnnotationOptions<'a>(&'a Annotation);

impl<'a> AnnotationOptions<'a> {
    fn get(&self, name: &str) -> Option<&'a AnnotationEntry> {
        self.0.element(name)
    }

    /// Checks that all options are known. Errors: one is not in `known`.
    fn check_known(&self, known: &[&str]) -> Result<(), Diagnostic> {
        match self.0.elements().find(|e| !known.iter().any(|name| e.has_key(name))) {
            None => Ok(()),
            Some(other) => {
                let name = other.key.as_ref().map_or(other.value.value.as_str(), |k| k.value.as_str());
                let hint = did_you_mean(name, known.iter().copied());
                Err(Diagnostic::error("F0612", other.span, format!("unknown option `{name}`{hint}")))
            }
        }
    }

    /// Checks an option that supports a single value. Errors: it has another value.
    fn check_value(&self, name: &str, value: &str, why: &str) -> Result<(), Diagnostic> {
        match self.get(name).filter(|e| !e.value.value.eq_ignore_ascii_case(value)) {
            None => Ok(()),
            Some(other) => {
                let message = format!("`{name}` only supports '{value}' so far: {why}");
                Err(Diagnostic::error("F0614", other.span, message))
            }
        }
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Diagnostic> {
        let Some(written) = self.get(name) else { return Ok(default) };
        match written.value.value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Diagnostic::error("F0614", written.span, format!("`{name}` must be true or false"))
                .expected([format!("{name}='true'"), format!("{name}='false'")])),
        }
    }

    fn delimiter(&self) -> Result<u8, Diagnostic> {
        let Some(written) = self.get("delimiter") else { return Ok(b',') };
        match written.value.value.as_str() {
            "\\t" => Ok(b'\t'),
            text => match text.as_bytes() {
                [one] if *one != b'"' && !matches!(one, b'\n' | b'\r') => Ok(*one),
                _ => Err(Diagnostic::error(
                    "F0614",
                    written.span,
                    "`delimiter` must be one ASCII character, neither a quote nor a line break",
                )),
            },
        }
    }

    fn path(&self) -> Result<String, Diagnostic> {
        let Some(uri) = self.get("file.uri") else {
            return Err(Diagnostic::error("F0613", self.0.span, "`file` needs the path of the file")
                .expected(["file.uri='…'"]));
        };
        let text = &uri.value.value;
        let path = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        if path.is_empty() {
            return Err(Diagnostic::error(
                "F0613",
                uri.span,
                "`file.uri` is empty: expected the path of a file",
            ));
        }
        if path.contains("{{") {
            let message = "paths that depend on the event are not supported yet";
            return Err(Diagnostic::error("F0614", uri.span, message).help("write a path without `{{…}}`"));
        }
        Ok(path.to_owned())
    }
}
