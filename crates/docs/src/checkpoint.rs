//! Checkpoints: the documents of a store as a stream of checksummed blocks.
//!
//! The format is described in `docs/formats/checkpoint-docs.md`. In short: eight bytes of magic, then blocks
//! of kind, length, CRC32C and contents: a collection, its documents, the next collection, and an end block
//! with the number of both.

use std::io::{ErrorKind as IoKind, Read, Write};

use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::StoreLimits;
use crate::sequence::{self, Sequence};
use crate::spec::CollectionSpec;
use crate::store::{Store, StoreSnapshot};
use crate::values::raw::{elements, le_i32, tag};

const MAGIC: &[u8; 8] = b"TMDOCS\0\x02";
/// Version of files without sequences.
const FIRST_VERSION: u8 = 1;
const COLLECTION: u8 = 1;
const DOCUMENTS: u8 = 2;
const END: u8 = 3;
const SEQUENCES: u8 = 4;
const NEWEST: u8 = 5;
/// Bytes of a block header: kind, length, checksum.
const HEAD_BYTES: usize = 9;
/// Limit on the bytes of a block with several documents; a larger document is a block of its own.
const BLOCK_BYTES: usize = 64 << 10;

impl Store {
    /// Reads a checkpoint written by [`StoreSnapshot::write_to`], and no byte after it.
    ///
    /// Bounds: memory for the store and one block, which is 64 KiB or one document. Errors: `Corrupt` with
    /// the byte position for anything else, `Unavailable` when reading fails, `LimitReached` when the
    /// documents exceed the limits.
    pub fn read_from(input: &mut impl Read, limits: StoreLimits) -> Result<Self> {
        let mut reader = BlockReader {
            input,
            at: 0,
            block: Vec::new(),
            block_at: 0,
            max: limits.document_bytes_max.max(BLOCK_BYTES),
        };
        reader.magic()?;
        let mut store = Self::new(limits);
        let mut current: Option<String> = None;
        let mut counted = CheckpointCounts::default();
        let mut sequences = Vec::new();
        loop {
            match reader.next()? {
                COLLECTION => {
                    let spec: CollectionSpec = bson::deserialize_from_slice(&reader.block).map_err(|e| {
                        reader.damaged(format!("expected the definition of a collection: {e}"))
                    })?;
                    if store.collection(&spec.name).is_some() {
                        return Err(reader.damaged(format!("duplicate collection `{}`", spec.name)));
                    }
                    store.create_collection(&spec)?;
                    current = Some(spec.name);
                    counted.collections += 1;
                }
                DOCUMENTS => {
                    let Some(name) = &current else {
                        return Err(reader.damaged("expected a collection before its documents".into()));
                    };
                    counted.documents +=
                        reader.documents(&mut store, name, &std::mem::take(&mut sequences))?;
                }
                SEQUENCES => {
                    let decoded = sequence::decode(&reader.block);
                    sequences = decoded.map_err(|e| reader.damaged(e.to_string()))?;
                }
                NEWEST => {
                    let newest = <[u8; 8]>::try_from(reader.block.as_slice()).ok().map(u64::from_le_bytes);
                    let newest = newest
                        .ok_or_else(|| reader.damaged("expected one sequence of eight bytes".into()))?;
                    let Some(name) = &current else {
                        return Err(reader.damaged("expected a collection before its newest sequence".into()));
                    };
                    store.require(name)?.rows.raise_newest(Sequence::from_number(newest));
                }
                END => {
                    reader.check_counts(&counted)?;
                    return Ok(store);
                }
                other => return Err(reader.damaged(format!("unknown kind of block {other}"))),
            }
        }
    }
}

/// Compares all blocks of a checkpoint with their checksums, and reads no byte after it. Returns the number of documents.
///
/// Bounds: memory for one block. Errors: `Corrupt` with the byte position; `Unavailable` when reading fails.
pub fn check_checkpoint(input: &mut impl Read) -> Result<u64> {
    let max = StoreLimits::default().document_bytes_max.max(BLOCK_BYTES);
    let mut reader = BlockReader { input, at: 0, block: Vec::new(), block_at: 0, max };
    reader.magic()?;
    let mut counted = CheckpointCounts::default();
    loop {
        match reader.next()? {
            COLLECTION => counted.collections += 1,
            DOCUMENTS => counted.documents += reader.each_document(|_, _| Ok(()))?,
            SEQUENCES | NEWEST => {}
            END => {
                reader.check_counts(&counted)?;
                return Ok(counted.documents);
            }
            other => return Err(reader.damaged(format!("unknown kind of block {other}"))),
        }
    }
}

#[derive(Default, PartialEq)]
struct CheckpointCounts {
    collections: u64,
    documents: u64,
}

impl StoreSnapshot {
    /// Writes the checkpoint. Errors: `Unavailable` when writing fails.
    pub fn write_to(&self, output: &mut impl Write) -> Result<()> {
        output.write_all(MAGIC).map_err(write_error)?;
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        for collection in self.collections() {
            let spec = collection.spec();
            let spec = bson::serialize_to_vec(spec)
                .map_err(|e| DocsError::bad_value(format!("collection `{}`: {e}", spec.name)))?;
            write_block(output, COLLECTION, &spec)?;
            let (mut sequences, mut newest) = (Vec::new(), Sequence::default());
            for (_, row) in collection.rows.iter() {
                if !block.is_empty() && block.len() + row.doc.len() > BLOCK_BYTES {
                    write_documents(output, &mut block, &mut sequences)?;
                }
                block.extend_from_slice(&row.doc);
                sequences.push(row.sequence);
                newest = newest.max(row.sequence);
            }
            if !block.is_empty() {
                write_documents(output, &mut block, &mut sequences)?;
            }
            block.shrink_to(BLOCK_BYTES);
            // those of deleted documents count, so that a replay gives the sequences that the first run gave
            if collection.rows.newest() > newest {
                write_block(output, NEWEST, &collection.rows.newest().number().to_le_bytes())?;
            }
        }
        let end = bson::rawdoc! { "collections": self.collections().count() as i64, "documents": self.len() as i64 };
        write_block(output, END, end.as_bytes())
    }
}

/// Writes documents and before them their sequences, unless they have none. Empties both.
fn write_documents(
    output: &mut impl Write,
    block: &mut Vec<u8>,
    sequences: &mut Vec<Sequence>,
) -> Result<()> {
    if sequences.iter().any(|sequence| *sequence != Sequence::default()) {
        let mut encoded = Vec::with_capacity(2 * sequences.len());
        sequence::encode(sequences, &mut encoded);
        write_block(output, SEQUENCES, &encoded)?;
    }
    write_block(output, DOCUMENTS, block)?;
    block.clear();
    sequences.clear();
    Ok(())
}

fn write_error(e: std::io::Error) -> DocsError {
    DocsError::new(ErrorCode::Io, format!("cannot write the documents checkpoint: {e}"))
}

fn write_block(output: &mut impl Write, kind: u8, contents: &[u8]) -> Result<()> {
    // a block is at most a document and BLOCK_BYTES, far below 4 GiB
    let len = u32::try_from(contents.len())
        .map_err(|_| crate::values::validate::too_large(contents.len(), u32::MAX as usize))?;
    output.write_all(&[kind]).map_err(write_error)?;
    output.write_all(&len.to_le_bytes()).map_err(write_error)?;
    output.write_all(&checksum(kind, len, contents).to_le_bytes()).map_err(write_error)?;
    output.write_all(contents).map_err(write_error)
}

/// Returns the CRC32C over kind, length and contents.
fn checksum(kind: u8, len: u32, contents: &[u8]) -> u32 {
    let head = crc32c::crc32c_append(crc32c::crc32c(&[kind]), &len.to_le_bytes());
    crc32c::crc32c_append(head, contents)
}

struct BlockReader<'i, R> {
    input: &'i mut R,
    /// Number of bytes read so far.
    at: u64,
    block: Vec<u8>,
    /// Position of the current block in the input.
    block_at: u64,
    max: usize,
}

impl<R: Read> BlockReader<'_, R> {
    fn damaged(&self, why: String) -> DocsError {
        corrupt(self.block_at, &why)
    }

    fn fill<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|e| self.read_error(e))?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn read_error(&self, e: std::io::Error) -> DocsError {
        match e.kind() {
            IoKind::UnexpectedEof => corrupt(self.at, "expected more bytes, found the end"),
            _ => DocsError::new(
                ErrorCode::Io,
                format!("cannot read the documents checkpoint at byte {}: {e}", self.at),
            ),
        }
    }

    fn magic(&mut self) -> Result<()> {
        let found: [u8; 8] = self.fill()?;
        if found.starts_with(&MAGIC[..7]) && (FIRST_VERSION..=MAGIC[7]).contains(&found[7]) {
            return Ok(());
        }
        if found.starts_with(b"TMDOCS\0") {
            return Err(corrupt(
                7,
                &format!(
                    "format version {}, expected {}: use the version of Tidemill that wrote it",
                    found[7], MAGIC[7]
                ),
            ));
        }
        Err(corrupt(
            0,
            &format!(
                "expected {:?}, found {:?}",
                MAGIC.escape_ascii().to_string(),
                found.escape_ascii().to_string()
            ),
        ))
    }

    /// Reads a block into `self.block` and returns its kind.
    fn next(&mut self) -> Result<u8> {
        self.block_at = self.at;
        let head: [u8; HEAD_BYTES] = self.fill()?;
        let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = head;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if len as usize > self.max {
            return Err(self.damaged(format!("expected a block of at most {} bytes, found {len}", self.max)));
        }
        self.block.clear();
        self.block.shrink_to(BLOCK_BYTES);
        // grows as bytes are read: a wrong length does not reserve memory
        let got = self
            .input
            .by_ref()
            .take(len.into())
            .read_to_end(&mut self.block)
            .map_err(|e| self.read_error(e))?;
        self.at += got as u64;
        if got < len as usize {
            return Err(corrupt(
                self.at,
                &format!("expected {} more bytes of the block, found the end", len as usize - got),
            ));
        }
        let (expected, found) = (u32::from_le_bytes([c0, c1, c2, c3]), checksum(kind, len, &self.block));
        if expected != found {
            return Err(self
                .damaged(format!("block of {len} bytes has checksum {found:08x}, expected {expected:08x}")));
        }
        Ok(kind)
    }

    /// Inserts the documents of the block into the collection and returns their number.
    fn documents(&self, store: &mut Store, name: &str, sequences: &[Sequence]) -> Result<u64> {
        let collection = store.require(name)?;
        let mut sequence = sequences.iter().copied();
        let count = self.each_document(|doc, at| {
            let sequence = sequence.next().unwrap_or_default();
            collection.restore(doc, sequence).map(drop).map_err(|e| match e.error_code() {
                ErrorCode::StoreFull | ErrorCode::DocumentTooLarge => e,
                _ => corrupt(at, &e.to_string()),
            })
        })?;
        match sequences.len() as u64 {
            0 => Ok(count),
            found if found == count => Ok(count),
            found => Err(self.damaged(format!("{count} documents with {found} sequences"))),
        }
    }

    /// Calls `visit` with each document of the block and its position. Returns their number.
    fn each_document(&self, mut visit: impl FnMut(&[u8], u64) -> Result<()>) -> Result<u64> {
        let mut rest = self.block.as_slice();
        let mut count = 0;
        while !rest.is_empty() {
            let at = self.block_at + (HEAD_BYTES + self.block.len() - rest.len()) as u64;
            let len =
                le_i32(rest).and_then(|n| usize::try_from(n).ok()).filter(|n| (5..=rest.len()).contains(n));
            let Some(len) = len else {
                return Err(corrupt(at, "expected a document"));
            };
            let (doc, behind) = rest.split_at(len);
            visit(doc, at)?;
            count += 1;
            rest = behind;
        }
        Ok(count)
    }

    fn check_counts(&self, counted: &CheckpointCounts) -> Result<()> {
        let mut told = CheckpointCounts::default();
        crate::values::validate::check(&self.block, &StoreLimits::default())
            .map_err(|e| self.damaged(e.to_string()))?;
        for e in elements(&self.block).filter(|e| e.value.tag == tag::INT64) {
            let count = u64::try_from(e.value.i64()).unwrap_or(u64::MAX);
            match e.name {
                b"collections" => told.collections = count,
                b"documents" => told.documents = count,
                _ => {}
            }
        }
        if told == *counted {
            return Ok(());
        }
        Err(self.damaged(format!(
            "expected {} collections with {} documents, found {} with {}",
            told.collections, told.documents, counted.collections, counted.documents
        )))
    }
}

fn corrupt(at: u64, why: &str) -> DocsError {
    DocsError::new(
        ErrorCode::DataCorruption,
        format!("documents checkpoint, byte {at}: {why}; take another checkpoint"),
    )
}
