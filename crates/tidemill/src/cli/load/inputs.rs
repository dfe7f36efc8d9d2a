//! What the arguments of a load name: standard input, files, and objects of stores.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::LoadFormat;
use super::objects::{self, Object};

/// Extensions, without those of compression, and their formats.
const EXTENSIONS: [(&str, LoadFormat); 8] = [
    ("csv", LoadFormat::Csv),
    ("ndjson", LoadFormat::Ndjson),
    ("jsonl", LoadFormat::Ndjson),
    ("json", LoadFormat::Ndjson),
    ("parquet", LoadFormat::Parquet),
    ("avro", LoadFormat::Avro),
    ("lp", LoadFormat::LineProtocol),
    ("influx", LoadFormat::LineProtocol),
];

/// One input, with its format.
#[derive(Debug)]
pub struct Input {
    /// Location of the input.
    pub place: Place,
    /// Its format.
    pub format: LoadFormat,
}

/// Location of an input.
#[derive(Debug)]
pub enum Place {
    /// Standard input.
    Stdin,
    /// A file, by its absolute path.
    File(PathBuf),
    /// An object of a store.
    Object(Object),
}

impl Input {
    /// Returns whether it is standard input.
    pub fn is_stdin(&self) -> bool {
        matches!(self.place, Place::Stdin)
    }

    /// Returns its size in bytes, as it is stored; `None` if that is not known.
    pub fn bytes(&self) -> Option<u64> {
        match &self.place {
            Place::Stdin => None,
            Place::File(path) => std::fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| m.len()),
            Place::Object(object) => Some(object.bytes),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Stdin => f.write_str("standard input"),
            Place::File(path) => path.display().fmt(f),
            Place::Object(object) => f.write_str(&object.url),
        }
    }
}

/// Returns the inputs that the arguments name, in their order; those of a directory and of a pattern by name.
///
/// Errors: an argument names nothing, or something whose format is not known.
pub fn expand(arguments: &[String], format: Option<LoadFormat>) -> anyhow::Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for argument in arguments {
        let places = places(argument, format.is_some())?;
        ensure!(!places.is_empty(), "{argument}: {}", nothing_found());
        for place in places {
            let format = match format {
                Some(format) => format,
                None => format_of(&place)?,
            };
            inputs.push(Input { place, format });
        }
    }
    let stdins = inputs.iter().filter(|input| input.is_stdin()).count();
    ensure!(stdins <= 1, "standard input can be read once: expected one `-`, found {stdins}");
    Ok(inputs)
}

fn nothing_found() -> String {
    let extensions: Vec<String> = EXTENSIONS.iter().map(|(extension, _)| format!(".{extension}")).collect();
    format!(
        "no file found; of a directory, files with {} are loaded, or all with `--format`",
        extensions.join(" ")
    )
}

fn places(argument: &str, any_name: bool) -> anyhow::Result<Vec<Place>> {
    if argument == "-" {
        return Ok(vec![Place::Stdin]);
    }
    if argument.contains("://") {
        let is_known = |name: &str| any_name || extension_format(name).is_some();
        return Ok(objects::find(argument, is_known)?.into_iter().map(Place::Object).collect());
    }
    let path = Path::new(argument);
    if path.is_dir() {
        return files_of(path, any_name);
    }
    if path.exists() {
        return Ok(vec![Place::File(std::path::absolute(path)?)]);
    }
    if !argument.contains(['*', '?', '[']) {
        bail!("{argument}: no such file or directory");
    }
    let mut places = Vec::new();
    for found in glob::glob(argument).with_context(|| format!("{argument}: not a pattern"))? {
        let found = found.with_context(|| argument.to_owned())?;
        if !found.is_dir() {
            places.push(Place::File(std::path::absolute(found)?));
        }
    }
    Ok(places)
}

fn files_of(dir: &Path, any_name: bool) -> anyhow::Result<Vec<Place>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && !name.starts_with('.') && (any_name || extension_format(&name).is_some()) {
            files.push(std::path::absolute(path)?);
        }
    }
    files.sort();
    Ok(files.into_iter().map(Place::File).collect())
}

fn format_of(place: &Place) -> anyhow::Result<LoadFormat> {
    let name = match place {
        Place::Stdin => bail!("the format of standard input is not known: expected `--format FORMAT`"),
        Place::File(path) => path.to_string_lossy().into_owned(),
        Place::Object(object) => object.url.clone(),
    };
    extension_format(&name).with_context(|| {
        let extensions: Vec<&str> = EXTENSIONS.iter().map(|(extension, _)| *extension).collect();
        format!(
            "{name}: its name does not tell its format: expected one of .{} (and then .gz or .zst), or `--format FORMAT`",
            extensions.join(" .")
        )
    })
}

fn extension_format(name: &str) -> Option<LoadFormat> {
    let name = name.to_lowercase();
    let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    let (_, extension) = plain.rsplit_once('.')?;
    EXTENSIONS.iter().find(|(known, _)| *known == extension).map(|(_, format)| *format)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(argument: &Path, format: Option<LoadFormat>) -> Vec<String> {
        let inputs = expand(&[argument.to_str().unwrap().to_owned()], format).unwrap();
        let name = |input: &Input| match &input.place {
            Place::File(path) => {
                format!("{} {:?}", path.file_name().unwrap().to_string_lossy(), input.format)
            }
            other => format!("{other:?}"),
        };
        inputs.iter().map(name).collect()
    }

    #[test]
    fn arguments_name_files_patterns_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.CSV.gz", "c.lp.zst", "notes.txt", ".hidden.csv"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(names(dir.path(), None), ["a.CSV.gz Csv", "b.csv Csv", "c.lp.zst LineProtocol"]);
        assert_eq!(names(dir.path(), Some(LoadFormat::Csv)).len(), 4);
        assert_eq!(names(&dir.path().join("?.csv"), None), ["b.csv Csv"]);
        assert_eq!(names(&dir.path().join("notes.txt"), Some(LoadFormat::Ndjson)), ["notes.txt Ndjson"]);
    }

    #[test]
    fn arguments_that_name_nothing_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("notes.txt"), "").unwrap();
        let error = |name: &str, format| {
            let argument = if name.is_empty() { dir.path().into() } else { dir.path().join(name) };
            format!("{:#}", expand(&[argument.to_str().unwrap().to_owned()], format).unwrap_err())
        };
        assert!(error("x.csv", None).contains("no such file or directory"));
        assert!(error("*.csv", None).contains("no file found"));
        assert!(error("", None).contains("no file found; of a directory, files with .csv"));
        assert!(error("notes.txt", None).contains("or `--format FORMAT`"));
        let twice = expand(&["-".into(), "-".into()], Some(LoadFormat::Csv)).unwrap_err();
        assert!(twice.to_string().contains("expected one `-`, found 2"));
        let unknown = expand(&["-".into()], None).unwrap_err();
        assert!(unknown.to_string().contains("the format of standard input is not known"));
    }
}
