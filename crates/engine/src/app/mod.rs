//! An app: a directory of `*.rules`, `*.siddhi`, `app.toml` and tests.

pub mod app_toml;
pub mod connectors;
pub mod settings;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};
use tidemill_flow::registry::ConnectionSettings;
use tidemill_flow::{Connectors, Registry, model_paths};
use tidemill_types::{Duration, Error, Mismatch, Result};
use toml::de::ValueDeserializer;

use crate::app::app_toml::{ConnectorTable, ConnectorTables};
use crate::app::connectors::AppConnector;
use crate::app::settings::Settings;
use crate::document_tables;

/// Maximum size of one file of an app, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// App as read from its directory.
#[derive(Debug, Clone, Default)]
pub struct App {
    /// Name of the app.
    pub name: String,
    /// Directory against which relative paths of sources resolve. Empty for an app created from strings.
    pub dir: PathBuf,
    /// Rule files (`*.rules`), ordered by name.
    pub rules: Vec<AppFile>,
    /// SiddhiQL files (`*.siddhi`), ordered by name.
    pub queries: Vec<AppFile>,
    /// Rule tests (`*.test`), anywhere below the directory.
    pub tests: Vec<AppFile>,
    /// Variables of `[vars]`, which replace `${name}` in paths and queries.
    pub vars: BTreeMap<String, String>,
    /// Connections that queries name by `ref` and `datasource`.
    pub connections: ConnectionSettings,
    /// Engine settings.
    pub settings: Settings,
    /// Documents loaded before the sources start.
    pub documents: Vec<DocumentsConfig>,
    /// Settings of the tables of streams, by the name of the stream.
    pub tables: BTreeMap<String, TableConfig>,
    /// Sources of events other than the network.
    pub sources: Vec<SourceConfig>,
    /// Sources and sinks of connectors to other systems in `app.toml`.
    pub connected: Vec<AppConnector>,
    /// Queries whose results are shown when the sources have ended.
    pub summary: Vec<SummaryConfig>,
    /// Commands suggested after the summary; `${data_dir}` is replaced by the data directory.
    pub try_next: Vec<String>,
    source: AppSource,
    registry: Option<Registry>,
    connectors: Option<Connectors>,
    takes_open_values: bool,
}

/// Input from which an app was created; sufficient to create it again without its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppSource {
    dir: PathBuf,
    fallback_name: String,
    rules: Vec<AppFile>,
    #[serde(default)]
    queries: Vec<AppFile>,
    toml: Option<String>,
    set: Vec<(String, String)>,
    /// Files of models that queries name, by the paths that are written there. They are part of the app, so that a replay
    /// predicts by the same models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    models: Vec<AppFile>,
}

/// A text file of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppFile {
    /// Path relative to the app's directory.
    pub name: String,
    /// Contents of the file.
    pub text: String,
}

/// Documents that are loaded into a collection at start; each replaces the one with its `_id`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentsConfig {
    /// Name of the collection.
    pub collection: String,
    /// NDJSON file, optionally `.gz`, relative to the app's directory.
    pub path: PathBuf,
}

/// Settings of the table of a stream: `[tables.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TableConfig {
    /// Time to live of events, counted from their time; `None` keeps them for ever.
    #[serde(deserialize_with = "time_to_live")]
    pub ttl: Option<Duration>,
    /// Treatment of an event with a value that does not have the type of its field.
    pub mismatch: Mismatch,
}

/// Deserializes `"30 days"`; a time to live is longer than nothing.
fn time_to_live<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let ttl = Duration::parse(&text).map_err(serde::de::Error::custom)?;
    if ttl <= Duration::default() {
        return Err(serde::de::Error::custom(format!(
            "ttl is {text}: expected more than 0, such as \"30 days\""
        )));
    }
    Ok(Some(ttl))
}

/// A query that is part of an app's summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryConfig {
    /// Heading of the result.
    pub title: String,
    /// SQL text of the query.
    pub sql: String,
    /// Line of `app.toml` on which the query begins, from 1.
    pub line: u32,
}

/// `[[summary]]` as written in `app.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SummaryToml {
    title: String,
    sql: toml::Spanned<String>,
}

impl SummaryToml {
    /// Computes the line of the query in `text`, the file from which it was parsed.
    fn with_line(self, text: &str) -> SummaryConfig {
        let before = text.get(..self.sql.span().start).unwrap_or_default();
        let line = 1 + before.matches('\n').count() as u32;
        SummaryConfig { title: self.title, sql: self.sql.into_inner(), line }
    }
}

/// Source of events.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name of the source; its position is stored under this name.
    pub name: String,
    /// Kind of the source.
    #[serde(rename = "type")]
    pub kind: SourceKind,
    /// Path of the file, relative to the app's directory. NDJSON and CSV may be compressed (`.gz`).
    pub path: PathBuf,
    /// Format of the file.
    pub format: SourceFormat,
    /// Stream of all rows. Exclusive with `stream_field`.
    pub stream: Option<String>,
    /// Field of each row that names its stream.
    pub stream_field: Option<String>,
}

/// Kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A file, read once from start to end.
    File,
}

/// Format of a file of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceFormat {
    /// One JSON object per line.
    Ndjson,
    /// A header line with field names, then one row per line.
    Csv,
    /// Avro object container.
    Avro,
    /// Parquet.
    Parquet,
}

impl SourceFormat {
    /// Returns what messages call a file of the format.
    fn noun(self) -> &'static str {
        match self {
            Self::Ndjson => "an NDJSON file",
            Self::Csv => "a CSV file",
            Self::Avro => "an Avro file",
            Self::Parquet => "a Parquet file",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AppToml {
    name: Option<String>,
    vars: BTreeMap<String, String>,
    refs: BTreeMap<String, BTreeMap<String, String>>,
    datasources: BTreeMap<String, BTreeMap<String, String>>,
    settings: Settings,
    documents: Vec<DocumentsConfig>,
    tables: BTreeMap<String, TableConfig>,
    // read one by one, with the lines of their keys
    source: Vec<toml::Table>,
    sink: Vec<toml::Table>,
    summary: Vec<SummaryToml>,
    try_next: Vec<String>,
}

impl App {
    /// Returns a hash of what decides what becomes of a record: rules, queries and `app.toml`, the settings that bound the state, and the
    /// variables that queries use. Nodes of a cluster find out by it that they run the same app. Where the app lies does not count, nor do
    /// other settings of a start.
    pub fn content_hash(&self) -> String {
        let content = AppSource {
            dir: PathBuf::new(),
            fallback_name: String::new(),
            set: Vec::new(),
            ..self.source.clone()
        };
        let is_used =
            |name: &str| self.queries.iter().any(|file| file.text.contains(&format!("${{{name}}}")));
        let vars: BTreeMap<_, _> = self.vars.iter().filter(|(name, _)| is_used(name)).collect();
        let content = serde_json::to_vec(&(content, self.settings.result_settings(), vars));
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&content.unwrap_or_default()))
    }

    /// Reads the app in the directory `path`, or the app of a single file, `*.siddhi` or `*.rules`. `set` has
    /// values of variables; they override those of `[vars]`.
    ///
    /// A directory without rules and queries is an app, too: documents and SQL alone.
    ///
    /// An app of a single file takes only `[vars]`, `[refs]` and `[datasources]` from an `app.toml` in its directory,
    /// and the tests of the file `*.test` with the same stem.
    ///
    /// Errors: `NotFound` if the directory or file does not exist; `Invalid` with file and line.
    pub fn read(path: &Path, set: &[(String, String)]) -> Result<Self> {
        // absolute, so that the deployed app finds its files from any working directory
        let absolute = std::path::absolute(path).map_err(|e| {
            Error::unavailable(format!("{}: no absolute path", path.display())).with_source(e)
        })?;
        if absolute.is_file() {
            return Self::read_file(&absolute, set);
        }
        if !absolute.is_dir() {
            return Err(Error::not_found(format!(
                "{}: no such file or directory; an app is a directory with *.rules or *.siddhi files and app.toml, or \
                 one such file",
                path.display()
            )));
        }
        Self::read_dir(absolute, set)
    }

    fn read_dir(dir: PathBuf, set: &[(String, String)]) -> Result<Self> {
        let mut files = AppFiles::default();
        collect_files(&dir, &dir, &mut files)?;
        let AppFiles { rules, queries, tests } = files;
        let toml = dir.join("app.toml");
        let toml = if toml.exists() { Some(read_text(&toml)?) } else { None };
        let name = dir.file_name().map_or_else(|| "app".into(), |n| n.to_string_lossy().into_owned());
        let source =
            AppSource { dir, fallback_name: name, rules, queries, toml, set: set.to_vec(), models: vec![] };
        Ok(Self { tests, ..Self::from_source(source)?.with_models_read()? })
    }

    fn read_file(path: &Path, set: &[(String, String)]) -> Result<Self> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = AppFile { name: name(path), text: read_text(path)? };
        let (mut rules, mut queries) = (vec![], vec![]);
        match path.extension().and_then(|e| e.to_str()) {
            Some("rules") => rules.push(file),
            Some("siddhi") => queries.push(file),
            _ => {
                return Err(Error::invalid(format!(
                    "{}: an app of one file is a *.siddhi or a *.rules file",
                    path.display()
                )));
            }
        }
        let dir = path.parent().map(Path::to_owned).unwrap_or_default();
        let shared = read_shared(&dir)?;
        let toml = (!shared.is_empty()).then(|| shared.to_string());
        let fallback_name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let source =
            AppSource { dir, fallback_name, rules, queries, toml, set: set.to_vec(), models: vec![] };
        let test = path.with_extension("test");
        let tests = match test.is_file() {
            true => vec![AppFile { name: name(&test), text: read_text(&test)? }],
            false => vec![],
        };
        Ok(Self { tests, ..Self::from_source(source)?.with_models_read()? })
    }

    /// Reads the files of models that queries name. One that is not there is an error of the query, which knows its place.
    ///
    /// Errors: a file cannot be read, or is too large.
    fn with_models_read(mut self) -> Result<Self> {
        let variable = |name: &str| self.vars.get(name).cloned().or_else(|| std::env::var(name).ok());
        let mut models: Vec<AppFile> = vec![];
        for written in self.queries.iter().flat_map(|file| model_paths(&file.text)) {
            // a variable without a value is an error of the file
            let Ok(name) = expand(written, &variable) else { continue };
            let path = self.dir.join(&name);
            if path.is_file() && models.iter().all(|model| model.name != name) {
                models.push(AppFile { name, text: read_text(&path)? });
            }
        }
        self.source.models = models;
        Ok(self)
    }

    /// Returns the files of models that queries name, by their paths.
    pub fn model_files(&self) -> BTreeMap<String, String> {
        self.source.models.iter().map(|file| (file.name.clone(), file.text.clone())).collect()
    }

    /// Creates the app that `source` describes, without its tests.
    pub fn from_source(source: AppSource) -> Result<Self> {
        let mut app = Self {
            name: source.fallback_name.clone(),
            dir: source.dir.clone(),
            rules: source.rules.clone(),
            queries: source.queries.clone(),
            ..Self::default()
        };
        app.configure(source.toml.as_deref().unwrap_or_default(), &source.set)
            .and_then(|()| app.settings.check())
            .map_err(|e| e.context(app.dir.join("app.toml").display()))?;
        app.settings =
            Settings::from_environment(source.toml.as_deref(), std::env::vars())?.unwrap_or(app.settings);
        app.source = source;
        Ok(app)
    }

    /// Returns the app with other texts for some of its files, or with more files: `*.siddhi` and `*.rules`. What programs added to the app,
    /// functions and connectors, stays.
    ///
    /// Errors: `Invalid` for another file, and for one without a name.
    pub fn with_files(&self, files: Vec<AppFile>) -> Result<Self> {
        let mut source = self.source.clone();
        for file in files {
            let of_kind = match Path::new(&file.name).extension().and_then(|e| e.to_str()) {
                Some("siddhi") => &mut source.queries,
                Some("rules") => &mut source.rules,
                _ => {
                    return Err(Error::invalid(format!(
                        "file `{}`: expected the name of a *.siddhi or a *.rules file",
                        file.name
                    )));
                }
            };
            match of_kind.iter_mut().find(|known| known.name == file.name) {
                Some(known) => *known = file,
                None => of_kind.push(file),
            }
        }
        let (registry, connectors) = (self.registry.clone(), self.connectors.clone());
        Ok(Self { registry, connectors, ..Self::from_source(source)? })
    }

    /// Returns the input from which the app was created.
    pub fn source(&self) -> &AppSource {
        &self.source
    }

    /// Returns the app with a registry of functions, aggregates, windows and others that its queries may use.
    ///
    /// The registry is not stored with the data: a program that opens the data directory has to supply it
    /// again.
    #[must_use]
    pub fn with_registry(self, registry: Registry) -> Self {
        Self { registry: Some(registry), ..self }
    }

    /// Returns the app with what becomes of its connections to other systems, unless that was said before. Like the
    /// registry, this is not stored with the data.
    #[must_use]
    pub fn with_connectors(self, connectors: Connectors) -> Self {
        Self { connectors: self.connectors.or(Some(connectors)), ..self }
    }

    /// Returns the app for a check: values that are filled in before it runs may be open. See
    /// [`Registry::set_takes_open_values`].
    #[must_use]
    pub fn with_open_values(self) -> Self {
        Self { takes_open_values: true, ..self }
    }

    /// Returns the registry of the queries: the one supplied, or the built-in one.
    pub fn registry(&self) -> Cow<'_, Registry> {
        let mut registry = self.registry.clone().unwrap_or_else(Registry::standard);
        document_tables::register(&mut registry);
        registry.set_model_files(self.model_files());
        registry.set_takes_open_values(self.takes_open_values);
        if self.connections != ConnectionSettings::default() || self.connectors.is_some() {
            registry.set_connection_settings(self.connections.clone());
        }
        if let Some(connectors) = &self.connectors {
            registry.set_connectors(connectors.clone());
        }
        Cow::Owned(registry)
    }

    /// Creates an app without a directory from rules only.
    pub fn from_rules(name: &str, rules: &str) -> Self {
        Self::from_texts(name, Some(rules), &[])
    }

    /// Creates an app without a directory from rules, and SiddhiQL files as name and text.
    pub fn from_texts(name: &str, rules: Option<&str>, queries: &[(&str, &str)]) -> Self {
        let file = |name: String, text: &str| AppFile { name, text: text.to_owned() };
        let rules: Vec<_> = rules.iter().map(|text| file(format!("{name}.rules"), text)).collect();
        let queries: Vec<_> = queries.iter().map(|(name, text)| file((*name).to_owned(), text)).collect();
        let source = AppSource {
            fallback_name: name.to_owned(),
            rules: rules.clone(),
            queries: queries.clone(),
            ..AppSource::default()
        };
        Self { name: name.to_owned(), rules, queries, source, ..Self::default() }
    }

    fn configure(&mut self, text: &str, set: &[(String, String)]) -> Result<()> {
        let toml: AppToml = toml::from_str(text).map_err(|e| app_toml::refused(&e))?;
        let tables = ConnectorTables::parse(text);
        let mut vars = toml.vars;
        for (name, value) in set {
            let used = format!("${{{name}}}");
            let is_used = text.contains(&used) || self.queries.iter().any(|file| file.text.contains(&used));
            if !vars.contains_key(name) && !is_used {
                let hint = tidemill_types::did_you_mean(name, vars.keys().map(String::as_str));
                return Err(Error::invalid(format!(
                    "--set {name}=…: [vars] has no `{name}`{hint}, and nothing uses `{used}`"
                )));
            }
            vars.insert(name.clone(), value.clone());
        }
        if let Some(name) = toml.name {
            self.name = name;
        }
        self.connections = ConnectionSettings {
            refs: with_values(toml.refs, "refs", &vars)?,
            datasources: with_values(toml.datasources, "datasources", &vars)?,
        };
        self.settings = toml.settings;
        self.documents = toml.documents;
        self.tables = toml.tables;
        for (is_source, name, count) in
            [(true, "source", toml.source.len()), (false, "sink", toml.sink.len())]
        {
            for table in (0..count).filter_map(|index| tables.get(name, index)) {
                // a file with a format is read once; the connector `file` follows files
                match is_source && table.lines.contains_key("format") {
                    true => self.sources.push(file_source(&table)?),
                    false => self.connected.push(AppConnector::read(is_source, &table)?),
                }
            }
        }
        self.summary = toml.summary.into_iter().map(|s| s.with_line(text)).collect();
        self.try_next = toml.try_next;
        self.vars.clone_from(&vars);
        for documents in &mut self.documents {
            documents.path = self.dir.join(substitute(&documents.path, &vars)?);
        }
        for source in &mut self.sources {
            source.path = self.dir.join(substitute(&source.path, &vars)?);
            if source.stream.is_some() == source.stream_field.is_some() {
                return Err(Error::invalid(format!(
                    "source `{}`: expected either stream = \"NAME\" or stream_field = \"FIELD\"",
                    source.name
                )));
            }
            if source.format != SourceFormat::Ndjson && source.stream.is_none() {
                return Err(Error::invalid(format!(
                    "source `{}`: {} needs stream = \"NAME\"",
                    source.name,
                    source.format.noun()
                )));
            }
        }
        let connected = self.connected.iter().map(AppConnector::name);
        let mut names: Vec<String> = self.sources.iter().map(|s| s.name.clone()).chain(connected).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::invalid(format!(
                "two sources or sinks are called `{}`: give each its own `name`",
                twice[0]
            )));
        }
        Ok(())
    }
}

/// Reads a `[[source]]` with a `format`.
///
/// Errors: `Invalid` with the line of the wrong key.
fn file_source(table: &ConnectorTable<'_>) -> Result<SourceConfig> {
    SourceConfig::deserialize(ValueDeserializer::from(table.value.clone())).map_err(|e| {
        let line = e.span().map_or(table.line, |span| app_toml::line_of(table.text, span.start));
        Error::invalid(format!("line {line}: [[source]]: {}", app_toml::meant(e.message())))
    })
}

/// Reads what apps of single files take from the `app.toml` in their directory, if there is one: `[vars]`, `[refs]` and
/// `[datasources]`.
///
/// Errors: the file cannot be read.
fn read_shared(dir: &Path) -> Result<toml::Table> {
    let path = dir.join("app.toml");
    if !path.exists() {
        return Ok(toml::Table::new());
    }
    let mut all: toml::Table =
        toml::from_str(&read_text(&path)?).map_err(|e| app_toml::refused(&e).context(path.display()))?;
    all.retain(|section, _| ["vars", "refs", "datasources"].contains(&section));
    Ok(all)
}

/// Replaces each `${name}` in the options of connections by the variable's value, which may also be in the environment:
/// passwords do not belong into files.
fn with_values(
    mut connections: BTreeMap<String, BTreeMap<String, String>>,
    section: &str,
    vars: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
    for (name, options) in &mut connections {
        for (option, value) in options {
            *value = expand(value, &|name| vars.get(name).cloned().or_else(|| std::env::var(name).ok())).map_err(
                |wrong| match wrong {
                    Unexpanded::Open => Error::invalid(format!("[{section}.{name}] {option}: `${{` without `}}`")),
                    Unexpanded::Unknown(variable) => Error::invalid(format!(
                        "[{section}.{name}] {option}: there is no variable `{variable}` in [vars] or the environment"
                    )),
                },
            )?;
        }
    }
    Ok(connections)
}

/// Replaces each `${name}` in a path by the variable's value, which is not expanded further.
fn substitute(path: &Path, vars: &BTreeMap<String, String>) -> Result<PathBuf> {
    let text = path.to_string_lossy();
    let expanded = expand(&text, &|name| vars.get(name).cloned()).map_err(|wrong| match wrong {
        Unexpanded::Open => Error::invalid(format!("path `{text}`: `${{` without `}}`")),
        Unexpanded::Unknown(name) => {
            let hint = tidemill_types::did_you_mean(&name, vars.keys().map(String::as_str));
            Error::invalid(format!("path `{text}`: [vars] has no `{name}`{hint}"))
        }
    })?;
    Ok(PathBuf::from(expanded))
}

/// Why a text with variables cannot be expanded.
enum Unexpanded {
    /// A `${` without `}`.
    Open,
    /// A variable without a value.
    Unknown(String),
}

/// Replaces each `${name}` by the value of the variable, which is not expanded further.
fn expand(text: &str, value: &dyn Fn(&str) -> Option<String>) -> Result<String, Unexpanded> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or(Unexpanded::Open)?;
        out.push_str(before);
        out.push_str(&value(name).ok_or_else(|| Unexpanded::Unknown(name.to_owned()))?);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

/// Text files of an app, each kind ordered by path.
#[derive(Default)]
struct AppFiles {
    rules: Vec<AppFile>,
    queries: Vec<AppFile>,
    tests: Vec<AppFile>,
}

/// Collects the files below `dir`.
fn collect_files(root: &Path, dir: &Path, files: &mut AppFiles) -> Result<()> {
    let failed =
        |e: std::io::Error| Error::unavailable(format!("{}: cannot be listed", dir.display())).with_source(e);
    let mut entries =
        std::fs::read_dir(dir).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        // a mounted ConfigMap has its files a second time below `..data`, and editors leave files of this kind
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        let path = entry.path();
        if path.is_dir() {
            collect_files(root, &path, files)?;
            continue;
        }
        let list = match path.extension().and_then(|e| e.to_str()) {
            Some("rules") => &mut files.rules,
            Some("siddhi") => &mut files.queries,
            Some("test") => &mut files.tests,
            _ => continue,
        };
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        list.push(AppFile { name, text: read_text(&path)? });
    }
    Ok(())
}

fn read_text(path: &Path) -> Result<String> {
    let failed =
        |e: std::io::Error| Error::unavailable(format!("{}: cannot be read", path.display())).with_source(e);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > FILE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "{}: {size} bytes; expected at most {FILE_BYTES_MAX}",
            path.display()
        )));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    String::from_utf8(bytes).map_err(|e| {
        Error::invalid(format!("{}: byte {} is not UTF-8", path.display(), e.utf8_error().valid_up_to()))
    })
}
