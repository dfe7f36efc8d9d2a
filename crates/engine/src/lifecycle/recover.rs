//! From a data directory to a running state: checkpoint, replay, checks.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::RecvTimeoutError;
use tidemill_types::{Error, Field, Offset, PartitionId, Result, StreamSchema};
use tidemill_zones::{StoredTable, Zones, ZonesOptions};

use crate::app::settings::Settings;
use crate::apply::LogEntry;
use crate::checkpoint;
use crate::checkpoint::LoadedCheckpoint;
use crate::deployment::Deployment;
use crate::directory::datadir::{DataDir, DeploymentRecord, StreamDeclaration};
use crate::directory::environment::{Environment, TableStore};
use crate::directory::log_id::LogId;
use crate::directory::origin;
use crate::directory::tables_location::open_zones;
use crate::entry;
use crate::entry::Emission;
use crate::host::Host;
use crate::jobs;
use crate::jobs::record_watch;
use crate::lifecycle::report::StartupReport;
use crate::lifecycle::transfers;
use crate::lifecycle::transfers::ArrivedEmissions;
use crate::node::Node;
use crate::partition::Partition;
use crate::process::services::Process;
use crate::process::spawn::spawn;
use crate::queries::compile::compile_app_for;
use crate::running_app::RunningApp;
use crate::sinks::{DeliverySink, SinkSet, StreamSink};
use crate::state::PartitionState;
use crate::state::set_aside;
use crate::tables::TableSet;

/// Log bytes read at once during replay.
const READ_BYTES: usize = 8 << 20;

/// Opens everything below the data directory and brings it to the end of the log.
pub fn open(
    data: &DataDir,
    record: DeploymentRecord,
    environment: &Environment,
) -> Result<(Arc<Node>, StartupReport)> {
    let start = environment.clock.monotonic();
    let mut report = StartupReport::default();
    let DeploymentRecord { app, first_offsets, former, pinned_streams, applied_settings: _ } = record;
    report.warnings.extend(partitions_warning(data, &app.settings));
    let compiled = compile_app_for(&app, data.partitioning())?;
    let partitioner =
        compiled.queries.partitioner(&compiled.program, data.partitions()).with_pinned(&pinned_streams);
    let deployment = Arc::new(Deployment::new(app, compiled, partitioner));
    let opened =
        environment.log.open(data.path(), &deployment.settings, data.partitions(), &environment.clock)?;
    report.warnings.extend(opened.warnings);
    let process = environment.process_for(&deployment.settings)?;
    let zones = open_store(data, &deployment.settings, environment, &process)?;
    if environment.shared.is_some() {
        zones.disown_all();
    }
    let tables = TableSet::open(&deployment, &zones, &process.runtime)?;
    let disk = data.disk().clone();
    let is_shared = environment.shared.is_some();
    let origin = environment.shared.as_ref().and_then(|shared| shared.origin.as_deref());
    if is_shared {
        origin::check_bases(&*opened.log, origin)?;
    }
    let log_id = match origin {
        Some(origin) => LogId::continuing(&origin.directory),
        None => LogId::of(&*environment.log, &deployment.settings, data),
    };
    let sinks = SinkSet::open(disk.clone(), data.path(), &log_id, &deployment, &*opened.log, is_shared)?;
    sinks.move_former_queues(data.partitions())?;
    let (path, log, is_alone) = (data.path().to_owned(), opened.log, process.limits().is_none());
    let host = Host::new(path, disk, &deployment.settings, process, log, zones);
    let host = if is_alone { host } else { host.with_app_name(&deployment.app.name) };
    let host = host.with_set_aside()?.with_log_id(log_id);
    let host = host.with_partition_store(environment.partition_store.clone());
    let host = host.with_effect_digests(environment.effect_digests.clone());
    let host = match &environment.shared {
        Some(shared) => host.with_shared(shared),
        None => host,
    };
    host.set_aside.remove_old(|partition| host.log.start(partition))?;
    let app = RunningApp::new(deployment, tables, sinks).with_first_offsets(first_offsets);
    let node = Arc::new(Node::new(host, app));
    // other processes that share the log may have appended and flushed records since this one has opened it
    let ends = if is_shared { node.host.log.latest_ends()? } else { log_ends(&node) };
    check_tables(&node, &ends)?;
    let mut loaded = Vec::new();
    // those of a process that shares them are opened when it gets them
    let owns_all = environment.shared.is_none();
    for id in node.host.partition_ids().filter(|_| owns_all) {
        let epoch = if node.host.partition_store.is_shared() { data.epoch() } else { 0 };
        node.app.sinks.open_partition(id, epoch, node.host.log.end(id))?;
        loaded.push(load_partition(&node, id, &mut report.warnings)?);
    }
    let mut arrived = ArrivedEmissions::find(&node, &loaded)?;
    arrived.keep_offsets_unique(&node, &mut report)?;
    arrived.send_missing_parts(&node, &loaded)?;
    let arrived = Arc::new(arrived);
    let counts_transfers = loaded.iter().all(|l| l.counts_transfers);
    for mut loaded in loaded {
        let partition = Partition::new(loaded.state, node.host.clone(), node.app.clone());
        loaded.outbox.retain(|emission| arrived.is_missing(partition.id, emission));
        partition.enqueue_emissions(loaded.outbox, Vec::new());
        node.owned.add(Arc::new(partition));
    }
    // those of a process that shares partitions are opened with each of them
    if owns_all {
        report.warnings.extend(node.host.changes.open_existing()?);
        for partition in node.owned.all() {
            report.warnings.extend(continue_changes(&node, &partition.state.read())?);
        }
        node.host.partition_ids().for_each(|p| node.host.changes.cut(p, node.host.log.end(p)));
    }
    let decisions: Vec<_> = node.owned.all().iter().map(|p| p.state.read().decisions.clone()).collect();
    if owns_all {
        node.host.commits.begin_recovery(&decisions);
        report.records = replay_all(&node, &log_ends(&node), &arrived)?;
        node.host.commits.end_recovery();
    }
    for partition in node.owned.all() {
        let documents = partition.state.read().store.snapshot();
        documents.collections().for_each(|part| node.host.commits.note_applied(part.newest().time()));
    }
    if owns_all && node.owned.all().iter().all(|p| p.state.read().store.collects_changes()) {
        node.host.changes.set_enabled();
    }
    if counts_transfers {
        report.warnings.extend(transfers::check(&node));
    } else {
        transfers::reset_counts(&node);
    }
    node.app.sinks.forget_others(&*node.host.disk, data.path())?;
    report.warnings.extend(node.app.sinks.abandoned(&*node.host.disk, data.path())?);
    node.owned.all().iter().for_each(|p| p.refresh_next_timer());
    node.owned.all().iter().try_for_each(|p| p.start_consuming())?;
    open_former(&node, &former, data.partitions(), &mut report);
    if owns_all {
        report.warnings.extend(check_ledger(&node));
        node.contradicting_documents().iter().for_each(|problem| tracing::warn!("{problem}"));
    }
    report.millis = (environment.clock.monotonic() - start).as_millis() as u64;
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!(records = report.records, millis = report.millis, "recovered");
    Ok((node, report))
}

/// Returns a warning if the setting `partitions` cannot be followed any more. The default is taken for a
/// setting that was not made.
fn partitions_warning(data: &DataDir, settings: &Settings) -> Option<String> {
    let (has, asked) = (data.partitions(), settings.partitions);
    (asked != has && asked != Settings::default().partitions).then(|| {
        format!(
            "setting partitions = {asked} is not followed: {} was made with {has}, which stays so. Send the events to a \
             new data directory to have {asked}",
            data.path().display()
        )
    })
}

fn open_store(
    data: &DataDir,
    settings: &Settings,
    environment: &Environment,
    process: &Process,
) -> Result<Zones> {
    let options = zones_options(data, settings);
    match &environment.table_store {
        Some(TableStore { store, url }) => {
            let clock = environment.clock.clone();
            let now = Arc::new(move || clock.now());
            let opened = Zones::with_store(store.clone(), url.clone(), data.epoch(), options, now);
            process.runtime.block_on(opened)
        }
        None => process.runtime.block_on(open_zones(data, settings, options)),
    }
}

/// The tail's own bound lies above the one at which applying waits, so that a record is never half applied.
fn zones_options(data: &DataDir, settings: &Settings) -> ZonesOptions {
    ZonesOptions {
        tail_bytes_max: settings.tail_bytes().saturating_mul(4),
        cache_memory_bytes: settings.cache_memory_bytes(),
        cache_dir: Some(data.path().join("cache")),
        keys: settings.encryption.of_tablets(),
        ..settings.zones.clone()
    }
}

/// Opens the tables of streams with stored events that the app does not declare. They can be asked and take no more
/// events, so one that cannot be opened stops nothing.
fn open_former(
    node: &Node,
    declared: &BTreeMap<String, StreamDeclaration>,
    partitions: u32,
    report: &mut StartupReport,
) {
    let mut names = BTreeSet::new();
    for partition in node.owned.all() {
        let view = partition.view();
        let stored = view.ledger.iter().filter(|(_, counts)| counts.stored > 0);
        names.extend(
            stored.map(|(name, _)| name.to_string()).filter(|n| !node.app.deployment.streams.contains_key(n)),
        );
    }
    // a process that has no partition yet knows those that its deployment tells
    if node.owned.all().is_empty() {
        let is_declared = |name: &String| node.app.deployment.streams.contains_key(name);
        names.extend(declared.keys().filter(|name| !is_declared(name)).cloned());
    }
    let open = |name: &str| {
        let Some(stored) = node.host.runtime.block_on(node.host.zones.stored_table(name))? else {
            return Err(Error::corrupt("its table is missing"));
        };
        let schema = Arc::new(former_schema(name, stored, declared.get(name)));
        let table = node.host.runtime.block_on(node.host.zones.table(&schema, partitions))?;
        Ok((schema, table))
    };
    let mut opened = Vec::new();
    for name in names {
        match open(&name) {
            Ok(table) => opened.push(table),
            Err(e) => report
                .warnings
                .push(format!("stream {name}, which the app no longer declares, cannot be asked: {e}")),
        }
    }
    node.app.tables.set_former(opened);
}

/// A stream as its table tells it, with what the app that declared it said of key, id and time.
fn former_schema(name: &str, stored: StoredTable, declared: Option<&StreamDeclaration>) -> StreamSchema {
    let columns = stored.columns.into_iter().filter(|c| !c.name.starts_with('_'));
    let fields: Vec<Field> = columns.filter_map(|c| Some(Field::new(c.name, c.ty?))).collect();
    let place = |field: &String| fields.iter().position(|f| f.name == *field);
    let (key, id, time) = match declared {
        Some(d) => (
            d.key.as_ref().and_then(place),
            d.id.iter().filter_map(place).collect(),
            d.time.as_ref().and_then(place),
        ),
        None => (None, Vec::new(), None),
    };
    StreamSchema { name: name.to_owned(), fields, key, id, time }
}

/// Loads a partition from its checkpoint, which its log has to continue, and connects its queries with their stores.
///
/// Errors: `Corrupt` without such a checkpoint; those of the stores.
pub fn load_partition(node: &Node, id: PartitionId, warnings: &mut Vec<String>) -> Result<LoadedCheckpoint> {
    let mut loaded = load_state(node, id, node.app.first_offset(id), warnings)?;
    check_log_continuity(node, id, loaded.state.next)?;
    let queries = &node.app.deployment.queries;
    loaded.state.query_state.get_mut().open_stores(queries, &node.host.log_id)?;
    loaded.state.compute_digest(node.host.effect_digests.are_on());
    Ok(loaded)
}

/// The newest readable checkpoint; a damaged one is passed over only when its copy can be read, or when the log still
/// reaches back to the one before and this app may replay it: records before `since` belong to the app before it.
fn load_state(
    node: &Node,
    id: PartitionId,
    since: Offset,
    warnings: &mut Vec<String>,
) -> Result<LoadedCheckpoint> {
    let dir = checkpoint::checkpoint_dir(&node.host.dir, id);
    let files = checkpoint::list(&*node.host.disk, &dir)?;
    let log_start = node.host.log.start(id);
    let mut damage = None;
    let own = files.iter().rev().take_while(|(offset, _)| *offset >= since);
    for (_, path) in own {
        let loaded = checkpoint::load(&*node.host.disk, path, &node.app.deployment, id, since);
        let loaded = loaded.and_then(|mut loaded| {
            loaded.state.open_id_runs(&node.host.disk, &node.host.dir)?;
            Ok(loaded)
        });
        match loaded {
            Ok(mut loaded) => {
                // what the app before it knew is in the checkpoint of the deploy, which has told what becomes of it
                if loaded.state.next > since || since == Offset(0) {
                    for file in &loaded.dropped_files {
                        let warning = dropped_state_warning(node, file);
                        // a file may have had state in several partitions
                        if !warnings.contains(&warning) {
                            warnings.push(warning);
                        }
                    }
                }
                warnings.extend(checkpoint::load_trace(
                    &*node.host.disk,
                    path,
                    &mut loaded.state,
                    &node.app.deployment.program,
                ));
                if let Some(damage) = damage {
                    warnings.push(format!("{damage}; went back to {}", path.display()));
                }
                return Ok(loaded);
            }
            Err(e) if e.kind() == tidemill_types::ErrorKind::Corrupt => damage = Some(e),
            Err(e) => return Err(e),
        }
    }
    let reason = damage.as_ref().map_or_else(|| "there is none".to_owned(), ToString::to_string);
    let from = log_start.max(since);
    if from > Offset(0) {
        let before = if since > log_start {
            "what lies before it belongs to an earlier app"
        } else {
            "the log starts there"
        };
        return Err(Error::corrupt(format!(
            "partition {id}: no readable checkpoint at or after offset {from} ({reason}), and {before}; restore {} from a backup",
            dir.display()
        )));
    }
    if let Some(damage) = damage {
        warnings.push(format!("{damage}; started over from the whole log"));
    }
    let mut state = PartitionState::new(&node.app.deployment, id)?;
    state.open_id_runs(&node.host.disk, &node.host.dir)?;
    Ok(LoadedCheckpoint { state, dropped_files: Vec::new(), outbox: Vec::new(), counts_transfers: true })
}

/// Returns the warning about a file whose saved state is not that of its queries.
fn dropped_state_warning(node: &Node, file: &str) -> String {
    if node.app.deployment.queries.files.iter().any(|f| f.name == file) {
        format!("{file}: its text has changed, so its queries begin anew")
    } else {
        format!("{file} is no longer part of the app; its state is dropped")
    }
}

/// Opens the change log of a partition whose changes are collected. Returns what that repaired.
///
/// Errors: those of [`ChangeLog::continue_partition`](crate::changes::ChangeLog::continue_partition).
pub fn continue_changes(node: &Node, state: &PartitionState) -> Result<Option<String>> {
    match state.store.collects_changes() {
        true => node.host.changes.continue_partition(state.partition, state.next, state.time),
        false => Ok(None),
    }
}

/// Closes what another start opens, although a thread of this one is left behind.
fn close_files(node: &Node) {
    node.app.sinks.all().iter().for_each(StreamSink::close);
    node.app.sinks.deliveries().iter().for_each(DeliverySink::close);
    node.host.changes.close();
    // nothing was appended
    let _ = node.host.log.close();
}

/// Replays every partition on its own thread up to where its log ended at the start.
///
/// Errors: those of the replays. When a record does not end, its thread is left behind; the error says that the record is noted.
fn replay_all(node: &Arc<Node>, ends: &[Offset], arrived: &Arc<ArrivedEmissions>) -> Result<u64> {
    let (sender, results) = crossbeam_channel::unbounded();
    for (partition, end) in node.owned.all().into_iter().zip(ends.iter().copied()) {
        let (node, arrived, sender) = (node.clone(), arrived.clone(), sender.clone());
        spawn(format!("replay-{}", partition.id), move || {
            let replayed = catch_unwind(AssertUnwindSafe(|| {
                let _ended = EndOfReplay(&node, partition.id);
                replay(&node, &partition, end, &arrived)
            }));
            let panicked = |_| Err(Error::internal("a replay thread panicked"));
            let replayed = replayed.unwrap_or_else(panicked);
            drop((node, partition, arrived));
            // no one waits any more when the start has failed
            let _ = sender.send(replayed);
        })?;
    }
    drop(sender);
    let mut records = 0;
    let mut failed = None;
    loop {
        match results.recv_timeout(record_watch::WATCH_INTERVAL) {
            Ok(Ok(replayed)) => records += replayed,
            Ok(Err(e)) => failed = failed.or(Some(e)),
            Err(RecvTimeoutError::Disconnected) => return failed.map_or(Ok(records), Err),
            Err(RecvTimeoutError::Timeout) => {
                for partition in node.owned.all() {
                    if let Some(noted) = record_watch::look(node, &partition) {
                        close_files(node);
                        return Err(set_aside::noted(partition.id, noted?));
                    }
                }
            }
        }
    }
}

/// Tells the other partitions, also after a failure, that one has no more records of transactions that they wait for.
struct EndOfReplay<'c>(&'c Node, PartitionId);

impl Drop for EndOfReplay<'_> {
    fn drop(&mut self) {
        self.0.host.commits.end_replay(self.1);
    }
}

/// Refuses a log that does not join the checkpoint, which is at offset `from`.
fn check_log_continuity(node: &Node, id: PartitionId, from: Offset) -> Result<()> {
    let (start, end) = (node.host.log.start(id), node.host.log.end(id));
    if from > end {
        return Err(Error::corrupt(format!(
            "partition {id}: the checkpoint is at offset {from}, but the log ends at {end}{}; restore the log from a backup",
            last_file(node, id)
        )));
    }
    if from < start {
        return Err(Error::corrupt(format!(
            "partition {id}: the log in {} begins at offset {start}, but the records from offset {from} on are not applied \
             yet: segments before {:020}.seg are missing; restore them from a backup",
            node.host.dir.join("log").join(format!("p{:05}", id.0)).display(),
            start.0
        )));
    }
    Ok(())
}

fn replay(node: &Node, partition: &Partition, end: Offset, arrived: &ArrivedEmissions) -> Result<u64> {
    let missing = |emission: &Emission| arrived.is_missing(partition.id, emission);
    let mut from = partition.applied();
    let mut records = 0;
    while from < end {
        jobs::flush::flush_full_tails(node)?;
        node.app.sinks.flush_if_full()?;
        let batch = node.host.log.read(partition.id, from, READ_BYTES)?;
        for record in batch {
            if record.offset >= end {
                break;
            }
            let entry = entry::decode(&record.payload, &node.app.deployment.streams)
                .map_err(|e| e.context(format!("partition {}, offset {}", partition.id, record.offset)))?;
            from = record.offset.next();
            let record = LogEntry { offset: record.offset, time: record.time, entry, decision: None };
            partition.replay(record, &missing)?;
            records += 1;
        }
    }
    partition.publish();
    Ok(records)
}

fn log_ends(node: &Node) -> Vec<Offset> {
    node.host.partition_ids().map(|p| node.host.log.end(p)).collect()
}

/// Returns the last file of a partition's log for messages, because that is the one that was cut; nothing if the log has no
/// files here.
fn last_file(node: &Node, partition: PartitionId) -> String {
    let dir = format!("p{:05}/", partition.0);
    let files = node.host.log.files(&log_ends(node)).unwrap_or_default();
    let segments =
        files.iter().map(|file| &file.name).filter(|name| name.starts_with(&dir) && name.ends_with(".seg"));
    let path = segments.max().map(|name| node.host.dir.join("log").join(name));
    path.map_or_else(String::new, |path| format!(" in {}", path.display()))
}

/// No table may be ahead of the log: it would take the next events, which get these offsets again, for its own.
fn check_tables(node: &Node, ends: &[Offset]) -> Result<()> {
    for (stream, table) in node.app.tables.writable() {
        for (p, end) in (0..).map(PartitionId).zip(ends) {
            if let Some(committed) = table.committed(p).filter(|committed| committed >= end) {
                return Err(Error::corrupt(format!(
                    "partition {p}: table {} holds rows up to offset {committed}, but the log ends at {end}{}; restore the log from a backup",
                    stream.name,
                    last_file(node, p)
                )));
            }
        }
    }
    Ok(())
}

/// Checks that the tables contain what the ledgers say is stored. Returns a warning for each stream where
/// they do not.
fn check_ledger(node: &Node) -> Vec<String> {
    let mut warnings = Vec::new();
    for (stream, table) in node.app.tables.streams().iter().chain(node.app.tables.former()) {
        let ledger = node.ledger(&stream.name, |_| true);
        let in_table = table.tablet_rows() + table.pending_rows();
        let removed = table.removed_rows();
        if ledger.stored != in_table + removed || !ledger.balances() {
            warnings.push(format!(
                "ledger of {}: received {} = stored {} + duplicate {} + rejected {} must hold, and the table must have as many rows as are stored; it has {in_table}, and {removed} were removed from it",
                stream.name, ledger.received, ledger.stored, ledger.duplicate, ledger.rejected
            ));
        }
    }
    warnings
}
