//! The sources of an app: those of `app.toml`, and `@source(type='file')` of `*.siddhi` files.

use std::path::PathBuf;
use std::sync::Arc;

use tidemill_connect::{Catalog, ConnectorConfig, ConnectorContext, MergedSource, Source};
use tidemill_files::{ColumnOptions, Dialect, FileInput, FileSource, Format, ReadOptions};
use tidemill_flow::io::file::{FileMapper, InputFile as FileSourceConfig};
use tidemill_flow::{Connectors, catalog};
use tidemill_types::{Error, Result, StreamSchema, did_you_mean};

use super::append::{SourcePositions, split_positions};
use super::reshape::ReshapedSource;
use crate::app::{App, SourceConfig, SourceFormat};
use crate::connectors::{AppSource, file_sources};
use crate::node::Node;
use crate::queries::QueryFile;
use crate::queries::files::{file_format, file_path};

/// Rows per batch of a source.
const BATCH_ROWS: usize = 8192;
/// Maximum length of a line of a source in `app.toml`, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Source that an app declares.
pub(super) enum SourceSpec {
    /// `[[source]]` of `app.toml`.
    Configured(SourceConfig),
    /// `@source(type='file')`.
    File(FileSourceSpec),
    /// Connector to another system.
    Connector(ConnectorSpec),
    /// Several of a file with `@app:playback`, which are merged by time as in `tidemill replay`.
    Merged { name: String, files: Vec<FileSourceSpec> },
}

/// Connector that an annotation names.
pub(super) struct ConnectorSpec {
    name: String,
    stream: catalog::CatalogStream,
    dir: PathBuf,
    config: ConnectorConfig,
    catalog: Arc<Catalog>,
}

/// File that an annotation names.
pub(super) struct FileSourceSpec {
    name: String,
    stream: catalog::CatalogStream,
    path: PathBuf,
    config: FileSourceConfig,
}

/// Returns the sources of the deployed app, in the order in which it declares them.
pub(super) fn of_app(node: &Node) -> Vec<SourceSpec> {
    let mut specs: Vec<SourceSpec> =
        node.app.deployment.app.sources.iter().cloned().map(SourceSpec::Configured).collect();
    for file in &node.app.deployment.queries.files {
        let mut files = of_file(&node.app.deployment.app, file);
        if file.plan.playback && files.len() > 1 {
            let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
            let hash = xxhash_rust::xxh3::xxh3_64(names.join("\n").as_bytes());
            specs.push(SourceSpec::Merged { name: format!("{}: {hash:016x}", file.name), files });
        } else {
            specs.extend(files.drain(..).map(SourceSpec::File));
        }
        specs.extend(
            connectors_of_file(&node.app.deployment.app, file).into_iter().map(SourceSpec::Connector),
        );
    }
    specs
}

fn connectors_of_file(app: &App, file: &QueryFile) -> Vec<ConnectorSpec> {
    let Connectors::Catalog(catalog) = app.registry().connectors().clone() else { return vec![] };
    let spec = |source: AppSource<'_>| ConnectorSpec {
        name: source.name,
        stream: source.stream.clone(),
        dir: file_path(app, file, ""),
        config: source.config.clone(),
        catalog: catalog.clone(),
    };
    file_sources(file).into_iter().map(spec).collect()
}

fn of_file(app: &App, file: &QueryFile) -> Vec<FileSourceSpec> {
    let streams = file.plan.catalog.streams();
    let sources = file.plan.file_sources.iter().map(|source| {
        let stream = streams[source.stream].clone();
        // the position belongs to this file and stream: another file is read from its beginning
        let name = format!("{}: {} to {}", file.name, source.path, stream.name);
        let path = file_path(app, file, &source.path);
        FileSourceSpec { name, stream, path, config: source.clone() }
    });
    sources.collect()
}

impl SourceSpec {
    /// Returns the name under which the position is stored.
    pub fn name(&self) -> &str {
        match self {
            Self::Configured(config) => &config.name,
            Self::File(file) => &file.name,
            Self::Connector(connector) => &connector.name,
            Self::Merged { name, .. } => name,
        }
    }

    /// Returns the stream of rejected rows that name none; empty if rows name their streams.
    pub fn stream(&self) -> &str {
        match self {
            Self::Configured(config) => config.stream.as_deref().unwrap_or_default(),
            Self::File(file) => &file.stream.name,
            Self::Connector(connector) => &connector.stream.name,
            Self::Merged { .. } => "",
        }
    }

    /// Opens the source where it stopped.
    ///
    /// Errors: the stream is not declared; those of [`FileSource::open`].
    pub fn open(&self, node: &Node) -> Result<Box<dyn Source>> {
        let start = SourcePositions::read(node, self.name())?.start();
        match self {
            Self::Connector(connector) => connector.open(node),
            Self::Configured(config) => Ok(Box::new(open_configured(node, config, start)?)),
            Self::File(file) => file.open(node, start),
            Self::Merged { name, files } => {
                let sources = files.iter().map(|file| file.open(node, 0)).collect::<Result<_>>()?;
                Ok(Box::new(MergedSource::new(name.clone(), sources, start)))
            }
        }
    }
}

fn open_configured(node: &Node, config: &SourceConfig, start: u64) -> Result<FileSource> {
    let streams = match &config.stream {
        Some(name) => vec![declared_stream(node, &config.name, name)?],
        None => node.app.deployment.program.streams().to_vec(),
    };
    let format = match config.format {
        SourceFormat::Ndjson => Format::Json,
        SourceFormat::Csv => Format::Csv { header: true, delimiter: b',' },
        SourceFormat::Avro => Format::Avro(tidemill_files::Codec::Null),
        SourceFormat::Parquet => Format::Parquet,
    };
    let options = ReadOptions {
        batch_rows: BATCH_ROWS,
        line_bytes_max: LINE_BYTES_MAX,
        dialect: Dialect::Plain,
        start,
        ..ReadOptions::default()
    };
    let columns = ColumnOptions::default();
    let input = FileInput { format, streams, stream_field: config.stream_field.clone(), options, columns };
    FileSource::open(&config.name, &config.path, &input)
}

fn declared_stream(node: &Node, source: &str, name: &str) -> Result<Arc<StreamSchema>> {
    let found = node.app.deployment.streams.get(name).map(|(stream, _)| stream.clone());
    found.ok_or_else(|| {
        let known = node.app.deployment.streams.keys().map(String::as_str);
        Error::invalid(format!("source `{source}`: no stream `{name}`{}", did_you_mean(name, known)))
    })
}

impl ConnectorSpec {
    fn open(&self, node: &Node) -> Result<Box<dyn Source>> {
        let stream = declared_stream(node, &self.name, &self.stream.name)?;
        let message_schema = incoming_schema(&self.stream, &stream)?;
        let reshaped = message_schema.fields != stream.fields;
        let context = ConnectorContext {
            name: self.name.clone(),
            writer: self.name.clone(),
            app: node.app.deployment.app.name.clone(),
            schema: message_schema,
            dir: self.dir.clone(),
            mapper: None,
            shares_partitions: false,
        };
        let starts = split_positions(node, &self.name)?;
        let opened = self.catalog.open_source(&self.config, &context, starts);
        let source = opened.map_err(|e| Error::invalid(format!("source {}: {e}", self.name)))?;
        if reshaped {
            return Ok(Box::new(ReshapedSource::new(source, stream)));
        }
        Ok(Box::new(source))
    }
}

impl FileSourceSpec {
    fn open(&self, node: &Node, start: u64) -> Result<Box<dyn Source>> {
        let stream = declared_stream(node, &self.name, &self.stream.name)?;
        let in_file = incoming_schema(&self.stream, &stream)?;
        let options = ReadOptions {
            batch_rows: BATCH_ROWS,
            complete: matches!(self.config.mapper, FileMapper::Json { complete: true }),
            event_time: self.config.time,
            start,
            ..ReadOptions::default()
        };
        let reshaped = in_file.fields != stream.fields;
        let input = FileInput::of_stream(file_format(&self.config.mapper)?, in_file, options);
        let source = FileSource::open(&self.name, &self.path, &input)?;
        if reshaped {
            return Ok(Box::new(ReshapedSource::new(source, stream)));
        }
        Ok(Box::new(source))
    }
}

/// Returns the schema of what comes in: the attributes of the app's stream. Those are fields of the engine's
/// stream, which may have others and another order. If they are all of them, it is the engine's stream itself, whose rows
/// need nothing else: its key says where they go, its id which of them are duplicates.
fn incoming_schema(of_app: &catalog::CatalogStream, stream: &Arc<StreamSchema>) -> Result<Arc<StreamSchema>> {
    let field = |name: &String| stream.require_field(name).map(|index| stream.fields[index].clone());
    let fields = of_app.attributes.iter().map(|(name, _)| field(name)).collect::<Result<Vec<_>>>()?;
    if fields == stream.fields {
        return Ok(stream.clone());
    }
    let time = stream.time.map(|index| &stream.fields[index].name);
    let time = time.and_then(|time| fields.iter().position(|field| field.name == *time));
    Ok(Arc::new(StreamSchema { name: stream.name.clone(), fields, key: None, id: vec![], time }))
}
