//! SiddhiQL in the engine: which queries run where, and what a record does to them.
//!
//! A file `*.siddhi` is an app of SiddhiQL. Its streams are streams of the engine; its queries are
//! [placed](placement) and run as one or two *units*: what runs in every partition and what runs in one.
//! `docs/rfcs/0003-flow-in-the-engine.md` describes how events get from queries to rules and back.

// a diagnostic is made once per mistake, where nothing is in a hurry
#![allow(clippy::result_large_err)]

pub mod backtest;
pub mod comparison;
pub mod compile;
pub(crate) mod convert;
pub mod explain;
pub mod files;
mod late_policy;
mod log_lines;
pub(crate) mod output;
mod partitioner;
pub mod placement;
mod properties;
mod retraction_streams;
pub mod runtime;
mod stream_compat;
mod unit_split;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_connect::StoreMonitor;
use tidemill_flow::plan::AppPlan;
use tidemill_rules::Program;
use tidemill_types::{Error, FieldType, PartitionId, Result, did_you_mean};

use crate::app::settings::ChangedQueries;
use crate::directory::partitioning::HomeRule;
use crate::document_tables::DocumentTables;

pub use late_policy::{LatePolicy, LateRule};
pub use log_lines::{LogBatch, LogLines};
pub use partitioner::{BatchPartitioner, Partitioner, Spread};
pub use placement::ElementPlacement;

/// The compiled `*.siddhi` files of an app.
#[derive(Default)]
pub struct Queries {
    /// The files in order of their names.
    pub files: Vec<QueryFile>,
    /// Units that run, in order: the parts of the first file, then those of the second.
    pub units: Vec<Unit>,
    /// By stream of the program, the units that read it.
    readers: Vec<Vec<usize>>,
    /// By stream of the program, the homes of the units that read it and run in one partition, in order.
    reader_homes: Vec<Vec<PartitionId>>,
    /// Streams without a key, by name, whose readers ask for several instances of themselves.
    pub spread: BTreeMap<String, Spread>,
    /// Rule by which files got their homes.
    pub home_rule: HomeRule,
    /// True if rules look at what queries emit, or queries at what rules emit.
    pub rules_and_queries_interact: bool,
    /// Collections that are tables.
    pub document_tables: DocumentTables,
    /// Output of the sinks `log`.
    pub log_lines: Arc<LogLines>,
    /// Problems of tables in other systems, and the word to stop waiting for these.
    pub stores: Arc<StoreMonitor>,
}

/// A file of queries.
pub struct QueryFile {
    /// Its name in the app's directory.
    pub name: String,
    /// The whole file, compiled.
    pub plan: Arc<AppPlan>,
    /// Warnings about the text, ready to print.
    pub warnings: String,
    /// Its tables, named windows and aggregations.
    pub stores: Vec<String>,
    /// Partition of the queries that run in one.
    pub home: PartitionId,
    /// Reason for that partition, for people.
    pub home_reason: &'static str,
    /// Placements of its elements, in order.
    pub placements: Vec<ElementPlacement>,
    /// `@app:playback(idle.time, increment)`, milliseconds.
    pub idle: Option<(i64, i64)>,
    /// Hash of what it means.
    pub identity: u64,
}

/// Name of a unit, by which processes with the same app mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct UnitName {
    /// Name of its file.
    pub file: String,
    /// True if it runs in every partition, false if in the home of its file only.
    pub partitioned: bool,
}

/// Queries of a file that run together.
pub struct Unit {
    /// The file, by position.
    pub file: usize,
    /// True if it runs in every partition, false if in the home of its file only.
    pub partitioned: bool,
    /// The queries.
    pub plan: Arc<AppPlan>,
    /// Hash of what they mean: state is kept under it.
    pub identity: u64,
    /// By stream of the program, how its events go in.
    pub inputs: HashMap<usize, InputMapping>,
    /// By name of a stream of the plan, the mapping of what comes out of it.
    pub outputs: HashMap<String, OutputMapping>,
    /// The same for what is taken back of it, where late events correct what was emitted.
    pub retractions: HashMap<String, OutputMapping>,
    /// The streams of the program that it writes.
    pub writes: BTreeSet<usize>,
}

/// Mapping from events of a stream to events of a unit.
pub struct InputMapping {
    /// The stream of the plan.
    pub stream: usize,
    /// For each of its attributes the field of the stream, and the attribute's type.
    pub fields: Vec<(usize, FieldType)>,
    /// Rule for events that come late; only with `@app:playback`.
    pub late: Option<LateRule>,
}

/// Mapping from the output of a unit to events of a stream.
pub struct OutputMapping {
    /// The stream of the program.
    pub stream: usize,
    /// For each field the attribute; the others stay empty.
    pub attributes: Vec<Option<usize>>,
}

impl Queries {
    /// Returns whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns whether queries of a partition use tables or aggregations in other systems, or databases.
    pub fn has_external_tables(&self, partition: PartitionId) -> bool {
        let mut units = self.units.iter().enumerate().filter(|(number, _)| self.runs_in(*number, partition));
        units.any(|(_, unit)| {
            let mut placed = self.files[unit.file]
                .placements
                .iter()
                .filter(|placed| placed.partitioned == unit.partitioned);
            unit.plan.catalog.stored_tables().any(|table| table.is_elsewhere())
                || placed.any(|placed| placed.queries.iter().any(|(_, facts)| facts.asks_database()))
        })
    }

    /// The units that read a stream, in order.
    pub fn readers(&self, stream: usize) -> &[usize] {
        self.readers.get(stream).map_or(&[], Vec::as_slice)
    }

    /// The partitions to which events of a stream travel: homes of files whose queries read it and run in one partition.
    pub fn reader_homes(&self, stream: usize) -> &[PartitionId] {
        self.reader_homes.get(stream).map_or(&[], Vec::as_slice)
    }

    /// Returns the home of a unit's file.
    pub fn home(&self, unit: usize) -> PartitionId {
        self.files[self.units[unit].file].home
    }

    /// Returns whether a unit runs in a partition.
    pub fn runs_in(&self, unit: usize, partition: PartitionId) -> bool {
        self.units.get(unit).is_some_and(|u| u.partitioned || self.files[u.file].home == partition)
    }

    /// The unit of a file that runs in one partition.
    ///
    /// Errors: `NotFound` for an unknown file, or one without such a unit.
    pub fn global_unit(&self, file: &str) -> Result<usize> {
        let unit = self.units.iter().position(|u| !u.partitioned && self.files[u.file].name == file);
        unit.ok_or_else(|| {
            let known = self.files.iter().map(|f| f.name.as_str());
            Error::not_found(format!("no tables or windows in `{file}`")).with_hint(did_you_mean(file, known))
        })
    }

    /// Returns the unit of a name.
    ///
    /// Errors: `NotFound` for an unknown one.
    pub fn unit(&self, name: &UnitName) -> Result<usize> {
        let is_it = |u: &Unit| u.partitioned == name.partitioned && self.files[u.file].name == name.file;
        let unit = self.units.iter().position(is_it);
        unit.ok_or_else(|| {
            let place = if name.partitioned { "every partition" } else { "one partition" };
            Error::not_found(format!("`{}` has no queries that run in {place}", name.file))
        })
    }

    /// Returns the name of a unit.
    pub fn unit_name(&self, unit: usize) -> UnitName {
        UnitName { file: self.file_name(unit).to_owned(), partitioned: self.units[unit].partitioned }
    }

    /// The file of a unit.
    pub fn file_name(&self, unit: usize) -> &str {
        &self.files[self.units[unit].file].name
    }

    /// Returns whether a unit keeps state between events.
    pub fn is_stateful(&self, unit: &Unit) -> bool {
        let file = &self.files[unit.file];
        let catalog = &unit.plan.catalog;
        let placed = file.placements.iter().filter(|p| p.partitioned == unit.partitioned);
        let queries = placed.flat_map(|p| &p.queries).any(|(_, facts)| !facts.retained_state.is_empty());
        let stores = !unit.partitioned && (!catalog.tables().is_empty() || !unit.plan.windows.is_empty());
        queries || stores
    }

    /// Works out who reads what.
    fn connect(mut self, program: &Program) -> Self {
        let streams = program.streams().len();
        self.readers = vec![Vec::new(); streams];
        self.reader_homes = vec![Vec::new(); streams];
        for (number, unit) in self.units.iter().enumerate() {
            for stream in unit.inputs.keys() {
                self.readers[*stream].push(number);
                if !unit.partitioned {
                    self.reader_homes[*stream].push(self.files[unit.file].home);
                }
            }
        }
        for homes in &mut self.reader_homes {
            homes.sort_unstable();
            homes.dedup();
        }
        self.spread = partitioner::spread_streams(&self, program);
        let emits = program.emits();
        let to_rules = self.units.iter().flat_map(|u| u.outputs.values().chain(u.retractions.values()));
        self.rules_and_queries_interact =
            to_rules.clone().any(|o| !program.stream_rules(o.stream).rules.is_empty())
                || emits.iter().any(|stream| !self.readers[*stream].is_empty());
        self
    }
}

/// Returns the unit of `after` that continues with the state of a unit of `before`.
pub fn successor<'q>(before: &Queries, unit: &Unit, after: &'q Queries) -> Option<&'q Unit> {
    let file = &before.files[unit.file].name;
    after.units.iter().find(|u| u.identity == unit.identity && after.files[u.file].name == *file)
}

/// Checks whether a changed app may take over: files that are gone or mean something else lose their state.
///
/// Errors: `Conflict` naming the files, where the setting says so.
pub fn check_changed(before: &Queries, after: &Queries, setting: ChangedQueries) -> Result<()> {
    let mut lost: Vec<&str> = before
        .units
        .iter()
        .filter(|unit| before.is_stateful(unit) && successor(before, unit, after).is_none())
        .map(|unit| before.files[unit.file].name.as_str())
        .collect();
    lost.dedup();
    if lost.is_empty() || setting == ChangedQueries::Restart {
        return Ok(());
    }
    let (gone, changed): (Vec<&str>, Vec<&str>) =
        lost.into_iter().partition(|name| after.files.iter().all(|file| file.name != *name));
    let mut reasons = Vec::new();
    if !changed.is_empty() {
        reasons.push(format!("{}: changed since it was deployed", changed.join(", ")));
    }
    if !gone.is_empty() {
        reasons.push(format!("{}: no longer part of the app", gone.join(", ")));
    }
    Err(Error::conflict(format!(
        "{}, and the windows, patterns and tables of its queries belong to the text that was deployed; bring that back, \
         deploy changed queries in a file with another name beside it, or drop what they know with \
         changed_queries = \"restart\" under [settings] (TIDEMILL_SETTINGS__CHANGED_QUERIES=restart)",
        reasons.join("; ")
    )))
}
