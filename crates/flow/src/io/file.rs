//! `@source(type='file', …)` and `@sink(type='file', …)`: what they say, checked. Whoever runs the app reads and writes
//! the files.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{Annotation, Element};
use tidemill_types::{FieldType, did_you_mean};

use crate::catalog::Attributes;

/// The mappers of files.
const MAPPERS: [&str; 4] = ["avro", "csv", "json", "parquet"];
/// The codecs of Avro containers that are written.
const CODECS: [&str; 3] = ["null", "deflate", "snappy"];
/// What stands before a path that is written as a URI.
const SCHEMES: [&str; 2] = ["file://", "file:"];

/// A file whose events come to a stream, to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSource {
    /// The stream.
    pub stream: usize,
    /// The file's path.
    pub path: String,
    /// How events lie in it.
    pub mapper: FileMapper,
    /// The attribute that holds the time of an event, milliseconds; without one events come at the time of the clock.
    pub time: Option<usize>,
}

/// A file to which the events of a stream go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSink {
    /// The stream.
    pub stream: usize,
    /// The file's path.
    pub path: String,
    /// How events lie in it.
    pub mapper: FileMapper,
    /// Whether they go behind what is there.
    pub append: bool,
}

/// How events lie in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileMapper {
    /// An Avro object container, its blocks compressed with this codec: `null`, `deflate`, `snappy`.
    Avro(String),
    /// A JSON object a line.
    Json {
        /// Whether an event that lacks an attribute is left out; else the attribute is null.
        complete: bool,
    },
    /// CSV.
    Csv {
        /// Whether the first row names the attributes.
        header: bool,
        /// What stands between two of them.
        delimiter: u8,
    },
    /// Parquet.
    Parquet,
}

/// Whether an annotation connects a stream with a file.
pub(super) fn is_file(annotation: &Annotation) -> bool {
    annotation.element("type").is_some_and(|ty| ty.value.value == "file")
}

/// The files from which a stream gets events. Errors: what is wrong with an option, or is not there.
pub fn sources(
    annotations: &[Annotation],
    stream: usize,
    attributes: &Attributes,
) -> Result<Vec<FileSource>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("source") && is_file(a));
    of.map(|a| {
        let options = AnnotationOptions(a);
        options.check_known(&[
            "type",
            "file.uri",
            "mode",
            "tailing",
            "action.after.process",
            "event.time",
        ])?;
        options.check_value("mode", "line", "files are read line by line")?;
        options.check_value("tailing", "false", "files are read to their end and not watched")?;
        options.check_value("action.after.process", "keep", "files stay where they are")?;
        let time = options.get("event.time").map(|e| event_time(e, attributes)).transpose()?;
        Ok(FileSource { stream, path: options.path()?, mapper: mapper(a, true)?, time })
    })
    .collect()
}

/// The files to which the events of a stream go. Errors: as for [`sources`].
pub fn sinks(annotations: &[Annotation], stream: usize) -> Result<Vec<FileSink>, Diagnostic> {
    let of = annotations.iter().filter(|a| a.is("sink") && is_file(a));
    of.map(|a| {
        let options = AnnotationOptions(a);
        options.check_known(&["type", "file.uri", "append", "add.line.separator", "on.error"])?;
        options.check_value("add.line.separator", "true", "each event has its line")?;
        super::check_on_error(a)?;
        let mapper = mapper(a, false)?;
        let is_text = matches!(mapper, FileMapper::Json { .. } | FileMapper::Csv { .. });
        let append = options.flag("append", is_text)?;
        if let (true, false, Some(written)) = (append, is_text, options.get("append")) {
            let message = "only lines of text can go behind what is in a file";
            return Err(Diagnostic::error("F0614", written.span, message).expected(["append='false'"]));
        }
        Ok(FileSink { stream, path: options.path()?, mapper, append })
    })
    .collect()
}

fn event_time(named: &Element, attributes: &Attributes) -> Result<usize, Diagnostic> {
    let name = &named.value.value;
    let found = attributes.iter().position(|(attribute, _)| attribute == name);
    match found.filter(|i| attributes[*i].1 == FieldType::Long) {
        Some(i) => Ok(i),
        None => {
            let longs = attributes.iter().filter(|(_, ty)| *ty == FieldType::Long);
            let hint = did_you_mean(name, longs.map(|(name, _)| name.as_str()));
            let message = format!("`event.time` is to be an attribute of type long{hint}");
            Err(Diagnostic::error("F0614", named.span, message))
        }
    }
}

fn mapper(annotation: &Annotation, reads: bool) -> Result<FileMapper, Diagnostic> {
    let expected = || MAPPERS.map(|m| format!("@map(type='{m}')"));
    let Some(map) = annotation.nested().find(|n| n.is("map")) else {
        return Err(Diagnostic::error("F0611", annotation.span, "a file needs a mapper").expected(expected()));
    };
    let Some(ty) = map.element("type") else {
        return Err(Diagnostic::error("F0601", map.span, "a mapper needs a type").expected(expected()));
    };
    if let Some(nested) = map.nested().next() {
        let message = format!("`@{}` is not there yet for files", nested.name.name);
        let help = "events have the attributes of the stream, in its order";
        return Err(Diagnostic::error("F0612", nested.span, message).help(help));
    }
    super::check_known(&MAPPERS, &ty.value.value, "mapper of files", ty.span)?;
    let options = AnnotationOptions(map);
    match ty.value.value.as_str() {
        "avro" => {
            let known: &[&str] = if reads { &["type"] } else { &["type", "codec"] };
            options.check_known(known)?;
            let Some(codec) = options.get("codec") else { return Ok(FileMapper::Avro(CODECS[0].into())) };
            super::check_known(&CODECS, &codec.value.value, "codec", codec.span)?;
            Ok(FileMapper::Avro(codec.value.value.clone()))
        }
        "json" => {
            let known: &[&str] = if reads { &["type", "fail.on.missing.attribute"] } else { &["type"] };
            options.check_known(known)?;
            Ok(FileMapper::Json { complete: options.flag("fail.on.missing.attribute", true)? })
        }
        "csv" => {
            let header = if reads { "header.present" } else { "header" };
            options.check_known(&["type", "delimiter", header])?;
            Ok(FileMapper::Csv { header: options.flag(header, false)?, delimiter: options.delimiter()? })
        }
        _ => {
            options.check_known(&["type"])?;
            Ok(FileMapper::Parquet)
        }
    }
}

/// The options in an annotation.
struct AnnotationOptions<'a>(&'a Annotation);

impl<'a> AnnotationOptions<'a> {
    fn get(&self, name: &str) -> Option<&'a Element> {
        self.0.element(name)
    }

    /// Errors: an option that is not among these.
    fn check_known(&self, known: &[&str]) -> Result<(), Diagnostic> {
        match self.0.elements().find(|e| !known.iter().any(|name| e.has_key(name))) {
            None => Ok(()),
            Some(other) => {
                let name = other.key.as_ref().map_or(other.value.value.as_str(), |k| k.value.as_str());
                let hint = did_you_mean(name, known.iter().copied());
                Err(Diagnostic::error("F0612", other.span, format!("there is no option `{name}`{hint}")))
            }
        }
    }

    /// Errors: that the option has another value than the only one that there is.
    fn check_value(&self, name: &str, value: &str, why: &str) -> Result<(), Diagnostic> {
        match self.get(name).filter(|e| !e.value.value.eq_ignore_ascii_case(value)) {
            None => Ok(()),
            Some(other) => {
                let message = format!("`{name}` can only be '{value}' so far: {why}");
                Err(Diagnostic::error("F0614", other.span, message))
            }
        }
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Diagnostic> {
        let Some(written) = self.get(name) else { return Ok(default) };
        match written.value.value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(Diagnostic::error("F0614", written.span, format!("`{name}` is true or false"))
                .expected([format!("{name}='true'"), format!("{name}='false'")])),
        }
    }

    fn delimiter(&self) -> Result<u8, Diagnostic> {
        let Some(written) = self.get("delimiter") else { return Ok(b',') };
        match written.value.value.as_str() {
            "\\t" => Ok(b'\t'),
            text => match text.as_bytes() {
                [one] if *one != b'"' && !matches!(one, b'\n' | b'\r') => Ok(*one),
                _ => Err(Diagnostic::error("F0614", written.span, "`delimiter` is one ASCII character")),
            },
        }
    }

    fn path(&self) -> Result<String, Diagnostic> {
        let Some(uri) = self.get("file.uri") else {
            return Err(
                Diagnostic::error("F0613", self.0.span, "`file` needs the file").expected(["file.uri='…'"])
            );
        };
        let text = &uri.value.value;
        let path = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        if path.is_empty() {
            return Err(Diagnostic::error("F0613", uri.span, "`file.uri` names no file"));
        }
        if path.contains("{{") {
            let message = "files that depend on the event are not there yet";
            return Err(Diagnostic::error("F0614", uri.span, message).help("write one path"));
        }
        Ok(path.to_owned())
    }
}
