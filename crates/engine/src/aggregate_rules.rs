//! Aggregate rules: SQL over everything, on a schedule or on demand, written back as documents that rules read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::raw::RawDocument;
use tidemill_rules::Aggregate;
use tidemill_types::{Error, PartitionId, Result, did_you_mean};

use crate::core::Core;
use crate::engine::Engine;
use crate::entry::Entry;

/// Bytes of documents in one record.
const RECORD_BYTES: usize = 1 << 20;

/// Runs each aggregate rule that has a schedule when it is due.
pub fn run(core: &Core) {
    let mut due: HashMap<&str, Instant> = HashMap::new();
    let scheduled: Vec<(&Aggregate, Duration)> = core
        .program
        .aggregates()
        .iter()
        .filter_map(|a| {
            a.every.map(|every| {
                (a, Duration::from_micros(every.0.unsigned_abs()).max(Duration::from_millis(10)))
            })
        })
        .collect();
    let started = Instant::now();
    for (aggregate, every) in &scheduled {
        due.insert(&aggregate.name, started + *every);
    }
    let mut signals = 0;
    while !core.is_stopping() {
        let now = Instant::now();
        for (aggregate, every) in &scheduled {
            if due[aggregate.name.as_str()] <= now && core.analytics.get().is_some() {
                // the outcome is counted and in system.rules; the schedule goes on
                let _ = run_aggregate_rule(core, aggregate);
                due.insert(&aggregate.name, Instant::now() + *every);
            }
        }
        let next = due
            .values()
            .min()
            .map_or(Duration::from_secs(1), |d| d.saturating_duration_since(Instant::now()));
        core.notifier.wait(&mut signals, next.clamp(Duration::from_millis(1), Duration::from_secs(1)));
    }
}

impl Engine {
    /// Runs an aggregate rule now and returns how many documents it wrote.
    ///
    /// Errors: `NotFound` for an unknown rule, `Invalid` for one that is no aggregate.
    pub fn run_aggregate(&self, name: &str) -> Result<u64> {
        let core = &self.core;
        let aggregate = core.program.aggregates().iter().find(|a| a.name == name);
        let Some(aggregate) = aggregate else {
            if core.program.rules().iter().any(|r| r.name == name) {
                return Err(Error::invalid(format!(
                    "rule `{name}` runs on events; only aggregate rules can be run"
                )));
            }
            let known = core.program.aggregates().iter().map(|a| a.name.as_str());
            return Err(Error::not_found(format!("no aggregate rule `{name}`{}", did_you_mean(name, known))));
        };
        run_aggregate_rule(core, aggregate)
    }

    /// Runs every aggregate rule once, in order of declaration, and returns how many documents they wrote.
    ///
    /// Errors: that of the first that failed; the others have run all the same.
    pub fn run_all_aggregates(&self) -> Result<u64> {
        if self.core.is_stopping() {
            return Err(Error::unavailable("the engine is stopping"));
        }
        let runs: Vec<Result<u64>> =
            self.core.program.aggregates().iter().map(|a| run_aggregate_rule(&self.core, a)).collect();
        runs.into_iter().sum()
    }
}

fn run_aggregate_rule(core: &Core, aggregate: &Aggregate) -> Result<u64> {
    let result = compute(core, aggregate);
    let mut all = core.aggregates.lock();
    let counts = all.entry(aggregate.name.clone()).or_default();
    match &result {
        Ok(_) => counts.runs += 1,
        Err(e) => {
            tracing::error!(rule = aggregate.name, error = %e, "an aggregate rule failed");
            counts.errors += 1;
            counts.last_error = Some(e.to_string());
        }
    }
    result
}

fn compute(core: &Core, aggregate: &Aggregate) -> Result<u64> {
    let analytics =
        core.analytics.get().ok_or_else(|| Error::unavailable("there is no SQL in this engine"))?;
    let mut written = 0;
    for insert in &aggregate.inserts {
        let batches = analytics.query(&insert.sql_at(core.clock.now()))?;
        let spec = core.collection_spec(&insert.entity)?;
        let mut by_partition: Vec<Vec<u8>> = vec![Vec::new(); core.partitions().len()];
        let mut entries = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let Some(doc) = insert.document(batch, row)? else { continue };
                let doc = core.with_id(&insert.entity, &doc)?;
                written += 1;
                let home = core.partition_of_document(
                    &spec,
                    RawDocument::from_bytes(doc.as_bytes())
                        .map_err(|e| Error::internal("an insight is no document").with_source(e))?,
                );
                for (p, bytes) in by_partition.iter_mut().enumerate() {
                    if home.is_none_or(|h| h.0 as usize == p) {
                        bytes.extend_from_slice(doc.as_bytes());
                        if bytes.len() >= RECORD_BYTES {
                            entries.push(documents_entry(p, &insert.entity, std::mem::take(bytes)));
                        }
                    }
                }
            }
        }
        let rest = by_partition.into_iter().enumerate().filter(|(_, b)| !b.is_empty());
        entries.extend(rest.map(|(p, bytes)| documents_entry(p, &insert.entity, bytes)));
        for reply in core.write_and_wait(entries, None)? {
            if let Some(error) = reply.outcome.as_ref().and_then(|o| o.errors.first()) {
                return Err(Error::invalid(format!("rule {}: {}", aggregate.name, error.error)));
            }
        }
    }
    Ok(written)
}

fn documents_entry(p: usize, collection: &str, documents: Vec<u8>) -> (PartitionId, Entry) {
    let entry =
        Entry::LoadDocuments { source: None, collection: collection.to_owned(), documents: documents.into() };
    (PartitionId(p as u32), entry)
}
