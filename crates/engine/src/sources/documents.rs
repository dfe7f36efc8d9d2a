//! Files of documents, loaded before the first event.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bson::raw::RawDocument;
use bytes::Bytes;
use tidemill_files::LineReader;
use tidemill_types::{Error, Result, nearest, repeated_key};

use super::append::SourcePositions;
use super::reader::SourceReader;
use crate::app::DocumentsConfig;
use crate::entry::{Entry, SourcePosition};
use crate::node::Node;

/// Bytes of documents per record.
const CHUNK_BYTES: usize = 1 << 20;
/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Loads a file of documents. A file whose content has changed counts as a new source, so it is loaded again. A collection
/// that no entity declares is created, unless its name looks like that of an entity.
pub(super) fn load_documents(reader: &SourceReader, config: &DocumentsConfig) -> Result<()> {
    let node = reader.node();
    let hash = file_hash(&config.path)?;
    let positions = SourcePositions::read(node, &format!("documents:{}:{hash:016x}", config.collection))?;
    let entities = node.app.deployment.program.collections().iter().map(|entity| entity.name.as_str());
    if nearest(&config.collection, entities).is_none() {
        node.create_missing_collection(&config.collection, None)?;
    }
    let spec = node.collection_spec(&config.collection)?;
    let mut lines = LineReader::open(&config.path, LINE_BYTES_MAX)?;
    let mut chunks: Vec<Vec<u8>> = vec![Vec::new(); node.host.partitions()];
    while let Some((number, line)) = read_line(&mut lines, &config.path)? {
        if reader.is_stopping() {
            return Ok(());
        }
        if number < positions.start() || line.is_empty() {
            continue;
        }
        let doc = match parse_document(node, &config.collection, line) {
            Ok(doc) => doc,
            Err(e) => {
                node.host.health.report_source_problem(
                    &config.collection,
                    &e.context(format!("{}: line {}", config.path.display(), number + 1)),
                );
                continue;
            }
        };
        let raw = RawDocument::from_bytes(&doc)
            .map_err(|e| Error::internal("a document that was just made").with_source(e))?;
        let homes = match node.partition_of_document(&spec, raw) {
            Some(p) => p.0 as usize..p.0 as usize + 1,
            None => 0..chunks.len(),
        };
        for p in homes {
            if number >= positions.by_partition[p] {
                chunks[p].extend_from_slice(&doc);
                if chunks[p].len() >= CHUNK_BYTES {
                    let documents = std::mem::take(&mut chunks[p]).into();
                    append_documents(reader, p, &config.collection, &positions.name, number + 1, documents)?;
                }
            }
        }
    }
    let end = lines.lines_read();
    for (p, chunk) in chunks.into_iter().enumerate() {
        if positions.by_partition[p] < end {
            append_documents(reader, p, &config.collection, &positions.name, end, chunk.into())?;
        }
    }
    Ok(())
}

fn append_documents(
    reader: &SourceReader,
    p: usize,
    collection: &str,
    source: &str,
    position: u64,
    documents: Bytes,
) -> Result<()> {
    let source = Some(SourcePosition { name: source.to_owned(), position, epoch: reader.epoch() });
    let load = || Entry::LoadDocuments {
        source: source.clone(),
        collection: collection.to_owned(),
        documents: documents.clone(),
    };
    reader.append(p, load).map(drop)
}

/// Calls `each` with the documents of a file, in order; invalid lines are skipped.
pub fn for_each_document(
    node: &Node,
    config: &DocumentsConfig,
    mut each: impl FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut lines = LineReader::open(&config.path, LINE_BYTES_MAX)?;
    while let Some((_, line)) = read_line(&mut lines, &config.path)? {
        if let Ok(doc) = parse_document(node, &config.collection, line) {
            each(doc)?;
        }
    }
    Ok(())
}

/// Parses a line of JSON as a document of the collection, and adds its `_id`.
pub fn parse_document(node: &Node, collection: &str, line: &[u8]) -> Result<Bytes> {
    let json: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(line).map_err(|e| Error::invalid(format!("not a JSON object: {e}")))?;
    if let Some(path) = std::str::from_utf8(line).ok().and_then(repeated_key) {
        return Err(Error::invalid(format!("field `{path}` occurs twice")));
    }
    let doc =
        bson::Document::try_from(json).map_err(|e| Error::invalid(format!("not extended JSON: {e}")))?;
    let raw =
        bson::RawDocumentBuf::try_from(&doc).map_err(|e| Error::invalid(format!("not a document: {e}")))?;
    Ok(node.with_checked_id(collection, &raw)?.into_bytes().into())
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

/// Reads the next line and its number, from 0.
fn read_line<'l>(lines: &'l mut LineReader, path: &Path) -> Result<Option<(u64, &'l [u8])>> {
    match lines.next_line().map_err(|e| e.context(path.display()))? {
        Some(line) if line.too_long => Err(Error::invalid(format!(
            "{}: line {} is longer than {LINE_BYTES_MAX} bytes",
            path.display(),
            line.origin.number + 1
        ))),
        line => Ok(line.map(|line| (line.origin.number, line.bytes))),
    }
}

fn unreadable(path: &Path, e: std::io::Error) -> Error {
    let kind = if e.kind() == std::io::ErrorKind::NotFound {
        tidemill_types::ErrorKind::NotFound
    } else {
        tidemill_types::ErrorKind::Unavailable
    };
    Error::new(kind, format!("{}: cannot be read", path.display())).with_source(e)
}
