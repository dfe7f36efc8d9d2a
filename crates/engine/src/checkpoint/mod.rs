//! Checkpoint files: the state of one partition at an offset.

pub mod inspect;

use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_docs::{Store, StoreSnapshot, WriteTimes};
use tidemill_log::disk::{Disk, FileReader, FileWriter, create_dir_durably};
use tidemill_rules::{Counters, Executor, Program, TraceImage};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::api::LedgerCounts;
use crate::commit::{Decision, Decisions, SessionWrites, SharedCommits, TransactionId};
use crate::crash_points;
use crate::dedupe::{Dedupe, IdQueue, RunInfo, Segment};
use crate::deployment::Deployment;
use crate::digest::{EffectDigest, SavedDigest};
use crate::entry;
use crate::entry::{Emission, Entry, EntryEncoder, Streams};
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::queries::Queries;
use crate::queries::runtime::{FrozenUnit, QueryCountsByFile, QueryState, SavedUnit};
use crate::state::{PartitionState, TransferCounts, new_trace, store_limits};

const MAGIC: &[u8; 8] = b"TMCKPT01";
/// In the name of a second checkpoint of one offset.
const COPY_SUFFIX: &str = "-copy";

/// A [`StateImage`] that is taken while the owner waits. Documents, ids and the large parts of queries are shared with the
/// state, so taking it needs little time.
pub struct FrozenImage {
    image: StateImage,
    queries: Vec<FrozenUnit>,
}

/// A copy of a [`PartitionState`]. Documents and ids are shared with the state; the states of queries are serialised.
pub struct StateImage {
    meta: CheckpointMeta,
    ids: Vec<(String, IdQueue)>,
    query_state: Vec<u8>,
    outbox: Vec<u8>,
    write_times: Vec<u8>,
    sessions: Vec<u8>,
    store: StoreSnapshot,
    trace: TraceImage,
}

#[derive(Serialize, Deserialize)]
struct CheckpointMeta {
    next: Offset,
    sources: BTreeMap<String, u64>,
    /// Epoch of the node that reads the sources, if nodes of a cluster take turns.
    #[serde(default, skip_serializing_if = "is_default")]
    source_epoch: u64,
    provenance: BTreeMap<u32, Offset>,
    #[serde(default)]
    forwarded: BTreeMap<u32, Offset>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    transactions: BTreeMap<u32, Offset>,
    #[serde(default, skip_serializing_if = "is_default")]
    transaction_order: i64,
    ledger: BTreeMap<String, LedgerCounts>,
    rules: Counters,
    #[serde(default)]
    queries: QueryCountsByFile,
    /// The units of queries whose states are in the section behind the ids.
    #[serde(default)]
    units: Vec<SavedUnit>,
    /// Streams with ids in the next section, and how many.
    ids: Vec<(String, u64)>,
    /// Emissions in the section behind the states of queries: the partition that each belongs to, and its bytes.
    #[serde(default)]
    outbox: Vec<(u32, u64)>,
    /// Bytes of the section behind the emissions: which records changed documents last.
    #[serde(default)]
    write_times: u64,
    /// Bytes of the section behind the times of writes: the last writes of client sessions.
    #[serde(default)]
    sessions: u64,
    /// True if changes of documents are kept.
    #[serde(default)]
    collects_changes: bool,
    /// Decisions on transactions of several partitions, by their ids.
    #[serde(default)]
    decisions: Vec<(String, Decision)>,
    /// `None` in a checkpoint of a version that did not count.
    #[serde(default)]
    transfers: Option<TransferCounts>,
    /// The fields that those ids are made of. Missing in checkpoints of the first versions.
    #[serde(default)]
    id_fields: BTreeMap<String, Vec<String>>,
    /// The one of those fields that is the time of the events.
    #[serde(default)]
    id_times: BTreeMap<String, String>,
    /// The segments of those ids. Missing in checkpoints of versions that forgot older ids.
    #[serde(default)]
    id_segments: BTreeMap<String, Vec<Segment>>,
    /// The files with older ids.
    #[serde(default)]
    id_runs: BTreeMap<String, Vec<RunInfo>>,
    /// The latest time of a record, in microseconds. Missing in checkpoints of versions that took times as the log has them.
    #[serde(default)]
    time: Option<i64>,
    /// Digest of the effects of the records, if the process computed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<SavedDigest>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl FrozenImage {
    /// Takes an image of `state`. `outbox` is what this state's records emitted for other partitions and is not known to be on
    /// the disk of their logs.
    ///
    /// Errors: `Internal` when the state of the queries cannot be saved.
    pub fn new(state: &PartitionState, queries: &Queries, outbox: &[Emission]) -> Result<Self> {
        let outbox = if is_planted(PlantedBug::CheckpointWithoutOutbox) { &[] } else { outbox };
        let entries = encode_outbox(outbox)?;
        let ids: Vec<(String, IdQueue)> = state
            .dedupe
            .iter()
            .filter(|_| !is_planted(PlantedBug::CheckpointWithoutIds))
            .map(|(stream, d)| (stream.clone(), d.ids()))
            .collect();
        let write_times = encode_write_times(&state.store.write_times());
        let sessions = state.sessions.to_bytes();
        let queries = state.query_state.with_runtimes(|flow| flow.freeze(queries))?;
        let image = StateImage {
            meta: CheckpointMeta {
                next: state.next,
                sources: BTreeMap::clone(&state.sources),
                source_epoch: state.source_epoch,
                provenance: state.provenance.clone(),
                forwarded: state.forwarded.clone(),
                transactions: state.transactions.clone(),
                transaction_order: state.transaction_order,
                queries: state.query_state.with_runtimes(|flow| flow.counts.clone()),
                units: Vec::new(),
                ledger: state.ledger.iter().map(|(stream, counts)| (stream.to_string(), *counts)).collect(),
                rules: state.executor.counters().clone(),
                ids: ids.iter().map(|(stream, ids)| (stream.clone(), ids.len() as u64)).collect(),
                outbox: entries.iter().map(|(target, entry)| (*target, entry.len() as u64)).collect(),
                write_times: write_times.len() as u64,
                collects_changes: state.store.collects_changes(),
                sessions: sessions.len() as u64,
                decisions: state.decisions.iter().map(|(id, d)| (id.to_hex(), d.clone())).collect(),
                transfers: Some(TransferCounts::clone(&state.transfers)),
                id_fields: state.id_fields.clone(),
                id_times: state.id_times.clone(),
                id_segments: of_streams(state, Dedupe::segments),
                id_runs: of_streams(state, Dedupe::run_infos),
                time: Some(state.time.0),
                digest: state.digest.as_ref().map(|digest| digest.saved()),
            },
            ids,
            query_state: Vec::new(),
            outbox: entries.into_iter().flat_map(|(_, entry)| entry).collect(),
            write_times,
            sessions,
            store: state.store.snapshot(),
            trace: state.trace.image(),
        };
        Ok(Self { image, queries })
    }

    /// Serialises the states of queries. Until it is done, the owner copies the parts of them that it changes.
    ///
    /// Errors: as [`Self::new`].
    pub fn serialise(self) -> Result<StateImage> {
        let Self { mut image, queries } = self;
        for unit in queries {
            image.meta.units.push(unit.write(&mut image.query_state)?);
        }
        Ok(image)
    }
}

impl StateImage {
    /// The last record of each other partition that belongs to a transaction which is in the image, by partition. The logs must have them
    /// on the disk before the checkpoint counts, or a crash could take a part of a committed transaction.
    pub fn last_commits(&self) -> BTreeMap<u32, Offset> {
        let mut last = BTreeMap::new();
        for (_, decision) in self.meta.decisions.iter().filter(|(_, decision)| decision.committed) {
            for (partition, offset) in &decision.offsets {
                let known = last.entry(*partition).or_insert(*offset);
                *known = (*known).max(*offset);
            }
        }
        last
    }

    /// The files with ids of events that it names, by stream.
    pub fn id_runs(&self) -> &BTreeMap<String, Vec<RunInfo>> {
        &self.meta.id_runs
    }

    /// The offset up to which records are in it.
    pub fn next(&self) -> Offset {
        self.meta.next
    }

    /// Writes it to `dir`, named by its offset, so that after a crash it is there whole or not at all. Beside a checkpoint
    /// of that offset a `copy` takes the place of an older one to fall back to, so that the log between the two may go.
    ///
    /// Format: magic, `u32` length and CRC32C of a JSON section, that section, `u32` CRC32C of the ids, the ids
    /// (16 bytes each, little-endian); where the first section names units of queries the same of their states
    /// (`docs/formats/flow-state.md`), one after another; where it names emissions the same of their log entries
    /// (`docs/formats/entries.md`); where it has bytes of write times the same of them: a `u64` for whole collections, then `u16` and
    /// `u64` for each bucket; where it has bytes of sessions the same of a BSON document with them; then the documents as in `docs/formats/checkpoint-docs.md`.
    pub fn save(&self, disk: &dyn Disk, dir: &Path, copy: bool) -> Result<PathBuf> {
        let name = if copy { copy_name(self.meta.next) } else { file_name(self.meta.next) };
        let path = dir.join(name);
        let failed = |e: std::io::Error| {
            Error::unavailable(format!("{}: cannot be written", path.display())).with_source(e)
        };
        create_dir_durably(disk, dir).map_err(failed)?;
        let step = |what: &str| crash_points::before(|| format!("{what} {}", path.display()));
        let temporary = path.with_extension("tmp");
        step("write beside");
        let written = self.write_file(disk, &temporary).and_then(|()| {
            step("replace");
            disk.rename(&temporary, &path)
        });
        written.inspect_err(|_| remove_temporary(disk, &temporary)).map_err(failed)?;
        step("sync the directory of");
        disk.sync_dir(dir).map_err(failed)?;
        Ok(path)
    }

    fn write_file(&self, disk: &dyn Disk, path: &Path) -> std::io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, FileWriter::new(disk.create(path)?));
        self.write(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.into_file().sync()
    }

    /// Writes what `why` can explain next to the checkpoint, so that it can after a restart. Recovery does not need the file, so
    /// its rename may be lost; a file that is there is whole.
    ///
    /// Errors: `Unavailable` when it cannot be written.
    pub fn save_trace(&self, disk: &dyn Disk, dir: &Path, program: &Program) -> Result<()> {
        let path = trace_path(&dir.join(file_name(self.meta.next)));
        let failed = |e: std::io::Error| {
            Error::unavailable(format!("{}: cannot be written", path.display())).with_source(e)
        };
        let temporary = path.with_extension("why.tmp");
        let written = disk.create(&temporary).map_err(failed).and_then(|file| {
            let mut out = BufWriter::with_capacity(1 << 20, FileWriter::new(file));
            self.trace.write_to(program, &mut out).map_err(|e| e.context(path.display()))?;
            let synced =
                out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|w| w.into_file().sync());
            synced.and_then(|()| disk.rename(&temporary, &path)).map_err(failed)
        });
        written.inspect_err(|_| remove_temporary(disk, &temporary))
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let meta = serde_json::to_vec(&self.meta)?;
        out.write_all(MAGIC)?;
        out.write_all(&(meta.len() as u32).to_le_bytes())?;
        out.write_all(&crc32c::crc32c(&meta).to_le_bytes())?;
        out.write_all(&meta)?;
        let ids: Vec<u8> =
            self.ids.iter().flat_map(|(_, ids)| ids.iter()).flat_map(|id| id.to_le_bytes()).collect();
        out.write_all(&crc32c::crc32c(&ids).to_le_bytes())?;
        out.write_all(&ids)?;
        if !self.meta.units.is_empty() {
            out.write_all(&crc32c::crc32c(&self.query_state).to_le_bytes())?;
            out.write_all(&self.query_state)?;
        }
        if !self.meta.outbox.is_empty() {
            out.write_all(&crc32c::crc32c(&self.outbox).to_le_bytes())?;
            out.write_all(&self.outbox)?;
        }
        if !self.write_times.is_empty() {
            out.write_all(&crc32c::crc32c(&self.write_times).to_le_bytes())?;
            out.write_all(&self.write_times)?;
        }
        out.write_all(&crc32c::crc32c(&self.sessions).to_le_bytes())?;
        out.write_all(&self.sessions)?;
        self.store.write_to(out).map_err(std::io::Error::other)
    }
}

/// Returns the result of `of` for each stream with ids.
fn of_streams<T>(state: &PartitionState, of: impl Fn(&Dedupe) -> Vec<T>) -> BTreeMap<String, Vec<T>> {
    state.dedupe.iter().map(|(stream, ids)| (stream.clone(), of(ids))).collect()
}

/// Removes what a failed write left: on a full disk the next attempt needs the room.
fn remove_temporary(disk: &dyn Disk, temporary: &Path) {
    // if it cannot be removed now, the next attempt begins it anew
    let _ = disk.remove(temporary);
}

/// Checkpoint files in `dir`, copies included, oldest first.
pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<(Offset, PathBuf)>> {
    let failed = |e| Error::unavailable(format!("{}: cannot be listed", dir.display())).with_source(e);
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut found = Vec::new();
    for name in names {
        if let Some(offset) = offset_of_file(&name) {
            found.push((offset, dir.join(name)));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the offset after the last record in a checkpoint, or the copy of one, of this name; `None` for other files.
pub fn offset_of_file(name: &str) -> Option<Offset> {
    let name = name.strip_suffix(".ckpt")?;
    name.strip_suffix(COPY_SUFFIX).unwrap_or(name).parse().ok().map(Offset)
}

/// The explanations beside a checkpoint.
fn trace_path(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension("why")
}

/// Writes the copy of a checkpoint, unless it exists; when this returns it is on the disk.
pub fn copy_checkpoint(disk: &dyn Disk, dir: &Path, next: Offset) -> Result<()> {
    let (checkpoint, copy) = (dir.join(file_name(next)), dir.join(copy_name(next)));
    if disk.open(&copy).is_ok() {
        return Ok(());
    }
    let failed = |e: std::io::Error| {
        Error::unavailable(format!("{}: cannot be written", copy.display())).with_source(e)
    };
    let temporary = copy.with_extension("tmp");
    crash_points::before(|| format!("write beside {}", copy.display()));
    let copied = copy_file(disk, &checkpoint, &temporary).and_then(|()| disk.rename(&temporary, &copy));
    copied.inspect_err(|_| remove_temporary(disk, &temporary)).map_err(failed)?;
    disk.sync_dir(dir).map_err(failed)
}

/// Removes a checkpoint and the explanations beside it.
pub fn remove(disk: &dyn Disk, checkpoint: &Path) -> Result<()> {
    let failed =
        |path: &Path, e| Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e);
    let why = trace_path(checkpoint);
    if disk.open(&why).is_ok() {
        disk.remove(&why).map_err(|e| failed(&why, e))?;
    }
    disk.remove(checkpoint).map_err(|e| failed(checkpoint, e))
}

/// Takes back what `why` could explain when the checkpoint was written. Returns what is wrong with it, if anything.
pub fn load_trace(
    disk: &dyn Disk,
    checkpoint: &Path,
    state: &mut PartitionState,
    program: &Program,
) -> Option<String> {
    let path = trace_path(checkpoint);
    let told = |e: Error| Some(format!("{}: {e}; why explains events from there on only", path.display()));
    match disk.open(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => told(Error::unavailable("cannot be opened").with_source(e)),
        Ok(file) => {
            let mut input = BufReader::with_capacity(1 << 20, FileReader::new(file));
            state.trace.read_from(program, &mut input).map_or_else(told, |_| None)
        }
    }
}

fn file_name(next: Offset) -> String {
    format!("{:020}.ckpt", next.0)
}

fn copy_name(next: Offset) -> String {
    format!("{:020}{COPY_SUFFIX}.ckpt", next.0)
}

fn copy_file(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    let mut input = FileReader::new(disk.open(from)?);
    let mut output = FileWriter::new(disk.create(to)?);
    io::copy(&mut input, &mut output)?;
    output.into_file().sync()
}

/// A checkpoint that was read.
pub struct LoadedCheckpoint {
    /// The state.
    pub state: PartitionState,
    /// Files of queries whose state was dropped, as they have changed.
    pub dropped_files: Vec<String>,
    /// Emissions that were not known to be on the disk of the log that they belong to.
    pub outbox: Vec<Emission>,
    /// True if the checkpoint has its transfers; earlier versions did not count them.
    pub counts_transfers: bool,
}

/// Reads a checkpoint file of `partition`. `since`: the first record that the deployed app may apply; a checkpoint at
/// that offset was taken under the app before it.
///
/// Errors: `Corrupt` with the file and what is wrong in it.
pub fn load(
    disk: &dyn Disk,
    path: &Path,
    deployment: &Deployment,
    partition: PartitionId,
    since: Offset,
) -> Result<LoadedCheckpoint> {
    let file = disk
        .open(path)
        .map_err(|e| Error::unavailable(format!("{}: cannot be opened", path.display())).with_source(e))?;
    let mut input = BufReader::with_capacity(1 << 20, FileReader::new(file));
    read(&mut input, deployment, partition, since).map_err(|e| e.context(path.display()))
}

fn read(
    input: &mut impl Read,
    deployment: &Deployment,
    partition: PartitionId,
    since: Offset,
) -> Result<LoadedCheckpoint> {
    let Deployment { program, queries, settings, .. } = deployment;
    let meta = read_meta(input)?;
    let crc = read_u32(input)?;
    let mut actual = 0;
    let mut dedupe = BTreeMap::new();
    for (stream, n) in &meta.ids {
        let mut ids = Vec::new();
        let mut id = [0; 16];
        for _ in 0..*n {
            read_exact(input, &mut id, "its ids")?;
            actual = crc32c::crc32c_append(actual, &id);
            ids.push(u128::from_le_bytes(id));
        }
        let segments = meta.id_segments.get(stream).cloned().unwrap_or_default();
        let runs = meta.id_runs.get(stream).cloned().unwrap_or_default();
        dedupe.insert(stream.clone(), Dedupe::restore(settings.dedupe_ids, ids.into_iter(), segments, runs));
    }
    if actual != crc {
        return Err(Error::corrupt("the ids do not match their checksum"));
    }
    let mut flow = QueryState::new(queries, partition);
    let mut lost = Vec::new();
    if !meta.units.is_empty() {
        let bytes = read_section(input, meta.units.iter().map(|u| u.bytes), "the states of queries")?;
        lost = flow.get_mut().restore(queries, partition, &meta.units, &bytes)?;
    }
    flow.get_mut().counts = meta.queries;
    let mut outbox = Vec::new();
    if !meta.outbox.is_empty() {
        let bytes = read_section(input, meta.outbox.iter().map(|(_, bytes)| *bytes), "the emissions")?;
        // at a deploy everything has arrived, and the emissions are written as the app before knew its streams
        if meta.next > since {
            outbox = decode_outbox(&meta.outbox, bytes, &deployment.streams)?;
        }
    }
    let counts_transfers = meta.transfers.is_some();
    let mut write_times = WriteTimes::default();
    if meta.write_times > 0 {
        let bytes = read_section(input, std::iter::once(meta.write_times), "the times of writes")?;
        write_times = decode_write_times(&bytes)?;
    }
    let mut sessions = SessionWrites::default();
    if meta.sessions > 0 {
        let bytes = read_section(input, std::iter::once(meta.sessions), "the sessions")?;
        sessions = SessionWrites::from_bytes(&bytes)?;
    }
    let mut decisions = Decisions::new();
    for (id, decision) in meta.decisions {
        let id = TransactionId::parse_str(&id);
        let id = id.map_err(|e| Error::corrupt("the id of a transaction cannot be read").with_source(e))?;
        decisions.insert(id, decision);
    }
    let digest = meta.digest.as_ref().map(EffectDigest::restore).transpose()?.flatten().map(Box::new);
    let mut store = Store::read_from(input, store_limits(settings))?;
    store.restore_write_times(&write_times);
    store.collect_changes(meta.collects_changes);
    let state = PartitionState {
        partition,
        store,
        dedupe,
        id_fields: meta.id_fields,
        id_times: meta.id_times,
        sources: Arc::new(meta.sources),
        source_epoch: meta.source_epoch,
        provenance: meta.provenance,
        forwarded: meta.forwarded,
        transactions: meta.transactions,
        transaction_order: meta.transaction_order,
        transfers: Arc::new(meta.transfers.unwrap_or_default()),
        query_state: flow,
        ledger: meta.ledger.into_iter().map(|(stream, counts)| (Arc::from(stream), counts)).collect(),
        executor: Executor::with_counters(program, &meta.rules),
        trace: new_trace(settings),
        shared_commits: SharedCommits::of(partition, &decisions),
        decisions,
        sessions,
        next: meta.next,
        time: Timestamp(meta.time.unwrap_or(i64::MIN)),
        digest,
    }
    .prepare_for_app(program, settings)?
    .prepare_tables(deployment)?;
    Ok(LoadedCheckpoint { state, dropped_files: lost, outbox, counts_transfers })
}

/// Reads magic and first section.
fn read_meta(input: &mut impl Read) -> Result<CheckpointMeta> {
    let mut magic = [0; 8];
    read_exact(input, &mut magic, "its header")?;
    if &magic != MAGIC {
        return Err(Error::corrupt("byte 0: not a checkpoint of this format"));
    }
    let (len, crc) = (read_u32(input)? as usize, read_u32(input)?);
    if len > 64 << 20 {
        return Err(Error::corrupt(format!("byte 8: a section of {len} bytes; expected at most 64 MiB")));
    }
    let mut json = vec![0; len];
    read_exact(input, &mut json, "its first section")?;
    if crc32c::crc32c(&json) != crc {
        return Err(Error::corrupt("byte 16: the first section does not match its checksum"));
    }
    serde_json::from_slice(&json)
        .map_err(|e| Error::corrupt("byte 16: the first section cannot be read").with_source(e))
}

/// A section of parts with these lengths, behind its checksum.
fn read_section(input: &mut impl Read, lengths: impl Iterator<Item = u64>, what: &str) -> Result<Vec<u8>> {
    let crc = read_u32(input)?;
    let expected: u64 = lengths.sum();
    let mut bytes = Vec::new();
    let read = input.take(expected).read_to_end(&mut bytes);
    read.map_err(|e| Error::corrupt(format!("{what} cannot be read")).with_source(e))?;
    if bytes.len() as u64 != expected || crc32c::crc32c(&bytes) != crc {
        return Err(Error::corrupt(format!("{what} do not match their checksum")));
    }
    Ok(bytes)
}

fn encode_write_times(times: &WriteTimes) -> Vec<u8> {
    if *times == WriteTimes::default() {
        return Vec::new();
    }
    let mut out = times.all.to_le_bytes().to_vec();
    for (bucket, last) in &times.buckets {
        out.extend(bucket.to_le_bytes());
        out.extend(last.to_le_bytes());
    }
    out
}

fn decode_write_times(bytes: &[u8]) -> Result<WriteTimes> {
    let damaged = || Error::corrupt("the times of writes end in the middle of one");
    let (all, buckets) = bytes.split_first_chunk().ok_or_else(damaged)?;
    let mut times = WriteTimes { all: u64::from_le_bytes(*all), buckets: Vec::new() };
    for entry in buckets.chunks(10) {
        let (bucket, last) = entry.split_first_chunk().ok_or_else(damaged)?;
        let last = last.try_into().map_err(|_| damaged())?;
        times.buckets.push((u16::from_le_bytes(*bucket), u64::from_le_bytes(last)));
    }
    Ok(times)
}

/// Emissions as log entries, with the partition that each belongs to.
fn encode_outbox(outbox: &[Emission]) -> Result<Vec<(u32, Vec<u8>)>> {
    let mut encoder = EntryEncoder::default();
    let mut entry = |e: &Emission| Ok((e.target.0, encoder.encode(&e.entry)?));
    outbox.iter().map(&mut entry).collect()
}

fn decode_outbox(parts: &[(u32, u64)], bytes: Vec<u8>, streams: &Streams) -> Result<Vec<Emission>> {
    let mut rest = Bytes::from(bytes);
    let emission = |(target, len): &(u32, u64)| match entry::decode(&rest.split_to(*len as usize), streams)? {
        entry @ (Entry::Events(_) | Entry::Transaction(_)) => {
            Ok(Emission { target: PartitionId(*target), entry })
        }
        _ => Err(Error::corrupt("the emissions hold an entry that no partition emits")),
    };
    parts.iter().map(emission).collect()
}

fn read_exact(input: &mut impl Read, buffer: &mut [u8], what: &str) -> Result<()> {
    input.read_exact(buffer).map_err(|e| Error::corrupt(format!("the file ends in {what}")).with_source(e))
}

fn read_u32(input: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    read_exact(input, &mut bytes, "a length or checksum")?;
    Ok(u32::from_le_bytes(bytes))
}

/// Returns the directory of the checkpoints of `partition`.
pub fn checkpoint_dir(data: &Path, partition: PartitionId) -> PathBuf {
    data.join("checkpoints").join(format!("p{:05}", partition.0))
}
