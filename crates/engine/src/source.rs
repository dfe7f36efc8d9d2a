//! File sources: each file is read once, in order, and resumes at its stored position without duplicating
//! rows.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use bson::raw::RawDocument;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use tidemill_types::{Error, PartitionId, Result, StreamSchema};

use crate::app::{DocumentsConfig, SourceConfig, SourceFormat};
use crate::core::Core;
use crate::entry::{Entry, Events, RejectedRow};
use crate::ingest::{self, DecodedRows, Decoder};
use crate::queries::Partitioner;

/// Rows per chunk that is sent.
const CHUNK_ROWS: usize = 8192;
/// Bytes of documents per record.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Starts a thread that loads the app's documents and then reads all its sources, each on its own thread.
pub fn start(core: &Arc<Core>) -> Result<Vec<JoinHandle<()>>> {
    let shared = core.clone();
    let thread = std::thread::Builder::new().name("sources".into()).spawn(move || run(&shared));
    Ok(vec![thread.map_err(|e| Error::unavailable("cannot start the sources' thread").with_source(e))?])
}

fn run(core: &Arc<Core>) {
    for config in &core.deployment.app.documents {
        if let Err(e) = load_documents(core, config) {
            core.health.report_source_problem(&config.collection, &e);
        }
    }
    // rules need the documents, so they are applied before the first event is sent
    core.in_flight.wait_until_drained_or(|| core.sources_stopping());
    if core.sources_stopping() {
        return;
    }
    std::thread::scope(|scope| {
        for config in &core.deployment.app.sources {
            scope.spawn(move || {
                if let Err(e) = read_events(core, config) {
                    core.health.report_source_problem(&config.name, &e);
                }
            });
        }
    });
}

fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    let gz = path.extension().is_some_and(|e| e == "gz");
    Ok(if gz {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 18, file)))
    } else {
        Box::new(file)
    })
}

fn unreadable(path: &Path, e: std::io::Error) -> Error {
    let kind = if e.kind() == std::io::ErrorKind::NotFound {
        tidemill_types::ErrorKind::NotFound
    } else {
        tidemill_types::ErrorKind::Unavailable
    };
    Error::new(kind, format!("{}: cannot be read", path.display())).with_source(e)
}

/// Reader of the lines of a file, without surrounding whitespace. `next` is the number of the next line, from
/// 0.
struct LineReader {
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    next: u64,
}

impl LineReader {
    fn open(path: &Path) -> Result<Self> {
        Ok(Self { input: BufReader::with_capacity(1 << 20, open(path)?), line: Vec::new(), next: 0 })
    }

    /// Reads the next line and its number.
    fn read(&mut self, path: &Path) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let n = (&mut self.input)
            .take(LINE_BYTES_MAX as u64 + 1)
            .read_until(b'\n', &mut self.line)
            .map_err(|e| unreadable(path, e).context(format!("line {}", self.next + 1)))?;
        if n == 0 {
            return Ok(None);
        }
        if n > LINE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "{}: line {} is longer than {LINE_BYTES_MAX} bytes",
                path.display(),
                self.next + 1
            )));
        }
        let number = self.next;
        self.next += 1;
        Ok(Some((number, self.line.trim_ascii())))
    }
}

/// Position of a source in every partition. The source resumes at the minimum; each partition skips the rows
/// it has.
struct SourcePositions {
    name: String,
    by_partition: Vec<u64>,
}

impl SourcePositions {
    fn read(core: &Core, name: &str) -> Self {
        let of = core
            .partitions()
            .iter()
            .map(|p| p.state.read().sources.get(name).copied().unwrap_or(0))
            .collect();
        Self { name: name.to_owned(), by_partition: of }
    }

    fn start(&self) -> u64 {
        self.by_partition.iter().copied().min().unwrap_or(0)
    }
}

/// Loads a file of documents. A file whose content has changed counts as a new source, so it is loaded again.
fn load_documents(core: &Arc<Core>, config: &DocumentsConfig) -> Result<()> {
    let hash = file_hash(&config.path)?;
    let positions = SourcePositions::read(core, &format!("documents:{}:{hash:016x}", config.collection));
    let spec = core.collection_spec(&config.collection)?;
    let mut lines = LineReader::open(&config.path)?;
    let mut chunks: Vec<Vec<u8>> = vec![Vec::new(); core.partitions().len()];
    while let Some((number, line)) = lines.read(&config.path)? {
        if core.sources_stopping() {
            return Ok(());
        }
        if number < positions.start() || line.is_empty() {
            continue;
        }
        let doc = match parse_document(core, &config.collection, line) {
            Ok(doc) => doc,
            Err(e) => {
                core.health.report_source_problem(
                    &config.collection,
                    &e.context(format!("{}: line {}", config.path.display(), number + 1)),
                );
                continue;
            }
        };
        let raw = RawDocument::from_bytes(&doc)
            .map_err(|e| Error::internal("a document that was just made").with_source(e))?;
        let homes = match core.partition_of_document(&spec, raw) {
            Some(p) => p.0 as usize..p.0 as usize + 1,
            None => 0..chunks.len(),
        };
        for p in homes {
            if number >= positions.by_partition[p] {
                chunks[p].extend_from_slice(&doc);
                if chunks[p].len() >= CHUNK_BYTES {
                    let documents = std::mem::take(&mut chunks[p]).into();
                    append_documents(core, p, &config.collection, &positions.name, number + 1, documents)?;
                }
            }
        }
    }
    let end = lines.next;
    for (p, chunk) in chunks.into_iter().enumerate() {
        if positions.by_partition[p] < end {
            append_documents(core, p, &config.collection, &positions.name, end, chunk.into())?;
        }
    }
    Ok(())
}

fn append_documents(
    core: &Arc<Core>,
    p: usize,
    collection: &str,
    source: &str,
    position: u64,
    documents: Bytes,
) -> Result<()> {
    let source = Some((source.to_owned(), position));
    append_with_retry(core, p, || Entry::LoadDocuments {
        source: source.clone(),
        collection: collection.to_owned(),
        documents: documents.clone(),
    })
}

/// Calls `each` with the documents of a file, in order; invalid lines are skipped.
pub fn for_each_document(
    core: &Core,
    config: &DocumentsConfig,
    mut each: impl FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut lines = LineReader::open(&config.path)?;
    while let Some((_, line)) = lines.read(&config.path)? {
        if let Ok(doc) = parse_document(core, &config.collection, line) {
            each(doc)?;
        }
    }
    Ok(())
}

/// Parses a line of JSON as a document of the collection, and adds its `_id`.
pub fn parse_document(core: &Core, collection: &str, line: &[u8]) -> Result<Bytes> {
    let json: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|e| Error::invalid(format!("not a JSON object: {e}")))?;
    let doc =
        bson::Document::try_from(json).map_err(|e| Error::invalid(format!("not extended JSON: {e}")))?;
    let raw =
        bson::RawDocumentBuf::try_from(&doc).map_err(|e| Error::invalid(format!("not a document: {e}")))?;
    Ok(core.with_id(collection, &raw)?.into_bytes().into())
}

fn file_hash(path: &Path) -> Result<u64> {
    let mut file = File::open(path).map_err(|e| unreadable(path, e))?;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(|e| unreadable(path, e))? {
            0 => return Ok(hash.digest()),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// Reads a file of events and sends them.
fn read_events(core: &Arc<Core>, config: &SourceConfig) -> Result<()> {
    let positions = SourcePositions::read(core, &config.name);
    let streams: Vec<Arc<StreamSchema>> = match &config.stream {
        Some(name) => {
            let (stream, _) = core.deployment.streams.get(name).ok_or_else(|| {
                let known = core.deployment.streams.keys().map(String::as_str);
                Error::invalid(format!(
                    "source `{}`: no stream `{name}`{}",
                    config.name,
                    tidemill_types::did_you_mean(name, known)
                ))
            })?;
            vec![stream.clone()]
        }
        None => core.deployment.program.streams().to_vec(),
    };
    match config.format {
        SourceFormat::Ndjson => read_ndjson(core, config, &positions, &streams),
        SourceFormat::Csv => read_csv(core, config, &positions, &streams[0]),
    }
}

fn read_ndjson(
    core: &Arc<Core>,
    config: &SourceConfig,
    positions: &SourcePositions,
    streams: &[Arc<StreamSchema>],
) -> Result<()> {
    let mut decoder = Decoder::new(streams, config.stream_field.as_deref());
    let mut lines = LineReader::open(&config.path)?;
    let start = positions.start();
    while let Some((number, line)) = lines.read(&config.path)? {
        if number < start || line.is_empty() {
            continue;
        }
        match &config.stream_field {
            Some(field) => decoder.push_json_row_with_stream(field, number, line, core.clock.now()),
            None => decoder.push_json_row(0, number, line, core.clock.now()),
        }
        if decoder.rows_read() >= CHUNK_ROWS {
            send(core, config, positions, decoder.finish(), number + 1, false)?;
            if core.sources_stopping() {
                return Ok(());
            }
        }
    }
    send(core, config, positions, decoder.finish(), lines.next, true)
}

fn read_csv(
    core: &Arc<Core>,
    config: &SourceConfig,
    positions: &SourcePositions,
    stream: &Arc<StreamSchema>,
) -> Result<()> {
    let mut decoder = Decoder::new(std::slice::from_ref(stream), None);
    let mut reader = ingest::csv_reader(open(&config.path)?);
    let columns = ingest::csv_columns(stream, &mut reader).map_err(|e| e.context(config.path.display()))?;
    let start = positions.start();
    let mut number = 0;
    for record in reader.records() {
        if number >= start {
            match record {
                Ok(record) => decoder.push_text_row(0, number, &columns, &record, core.clock.now()),
                Err(e) if e.is_io_error() => {
                    return Err(Error::unavailable(format!("{}: cannot be read", config.path.display()))
                        .with_source(e));
                }
                Err(e) => decoder.reject(0, number, e.to_string()),
            }
        }
        number += 1;
        if decoder.rows_read() >= CHUNK_ROWS {
            send(core, config, positions, decoder.finish(), number, false)?;
            if core.sources_stopping() {
                return Ok(());
            }
        }
    }
    send(core, config, positions, decoder.finish(), number, true)
}

/// Sends a chunk that ends at `position`. Each record has the source's name and position, so that a partition
/// never takes a row twice and none is skipped after a crash. With `end`, every partition stores the
/// position.
fn send(
    core: &Arc<Core>,
    config: &SourceConfig,
    positions: &SourcePositions,
    decoded: DecodedRows,
    position: u64,
    end: bool,
) -> Result<()> {
    let mut rejected = rejected_rows(config, &decoded, positions, &core.deployment.partitioner);
    rejected.values().flatten().for_each(|row| core.source_rejections.add(&config.name, row));
    let mut split = decoded.rows.split_from(
        &decoded.row_numbers,
        &positions.by_partition,
        &core.deployment.partitioner,
    )?;
    for (p, rows) in split.drain(..).enumerate() {
        let rejected = rejected.remove(&p).unwrap_or_default();
        if rows.is_none() && rejected.is_empty() && !(end && positions.by_partition[p] < position) {
            continue;
        }
        let rows = rows.unwrap_or_default();
        core.counts.accepted.fetch_add(rows.len() as u64, Ordering::Relaxed);
        append_with_retry(core, p, || {
            Entry::Events(Events {
                source: Some((positions.name.clone(), position)),
                parts: rows.parts.clone(),
                order: rows.order.clone(),
                rejected: rejected.clone(),
                ..Events::default()
            })
        })?;
    }
    Ok(())
}

/// Groups bad rows by the partition whose ledger counts them.
fn rejected_rows(
    config: &SourceConfig,
    decoded: &DecodedRows,
    positions: &SourcePositions,
    homes: &Partitioner,
) -> HashMap<usize, Vec<RejectedRow>> {
    let mut rejected: HashMap<usize, Vec<RejectedRow>> = HashMap::new();
    for bad in &decoded.rejected {
        let stream = bad.stream.clone().or_else(|| config.stream.clone()).unwrap_or_default();
        let p = homes.for_stream(&stream).0 as usize;
        if bad.row_number >= positions.by_partition[p] {
            rejected.entry(p).or_default().push(RejectedRow {
                stream,
                kind: "malformed".into(),
                reason: bad.reason.clone(),
                raw: bad.raw.clone(),
                origin: format!("{}:{}", config.name, bad.row_number + 1),
            });
        }
    }
    rejected
}

/// Retries until the log accepts the entry: a file source can wait for a full disk or a busy partition.
fn append_with_retry(core: &Arc<Core>, p: usize, entry: impl Fn() -> Entry) -> Result<()> {
    let partition = &core.partitions()[p];
    debug_assert_eq!(partition.id, PartitionId(p as u32));
    loop {
        let result = partition
            .apply_queue
            .wait_for_room(&*core.clock, Duration::from_secs(1))
            .and_then(|()| core.check_disk_space())
            .and_then(|()| partition.write(core, entry(), core.deployment.settings.durability, None));
        match result {
            Ok(_) => return Ok(()),
            Err(e) if !e.kind().is_retryable() || core.sources_stopping() => return Err(e),
            Err(e) => {
                tracing::debug!(partition = p, error = %e, "a source waits");
                core.clock.sleep(Duration::from_millis(20));
            }
        }
    }
}
