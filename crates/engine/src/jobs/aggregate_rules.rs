//! Aggregate rules: SQL over everything, on a schedule or on demand, written back as documents that rules read.

use bson::raw::RawDocument;
use tidemill_rules::Aggregate;
use tidemill_types::{Error, PartitionId, Result};

use crate::entry::Entry;
use crate::node::Node;

/// Bytes of documents in one record.
const RECORD_BYTES: usize = 1 << 20;

/// Runs an aggregate rule, by its position in the program, if there is SQL to run it with. The outcome is
/// counted and shown in `system.rules`; the schedule continues after a failure.
pub fn run_scheduled(node: &Node, index: usize) {
    if node.app.analytics.get().is_some() && node.does_shared_work() {
        let _ = run(node, &node.app.deployment.program.aggregates()[index]);
    }
}

/// Runs an aggregate rule now, and returns how many documents it wrote.
///
/// Errors: `Unavailable` without SQL; those of its SQL and of the documents that it writes.
pub fn run(node: &Node, aggregate: &Aggregate) -> Result<u64> {
    let result = compute(node, aggregate);
    let mut all = node.app.aggregates.lock();
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

fn compute(node: &Node, aggregate: &Aggregate) -> Result<u64> {
    let analytics =
        node.app.analytics.get().ok_or_else(|| Error::unavailable("there is no SQL in this engine"))?;
    let mut written = 0;
    for insert in &aggregate.inserts {
        let batches = analytics.query(&insert.sql_at(node.host.clock.now()))?;
        let spec = node.collection_spec(&insert.entity)?;
        let mut by_partition: Vec<Vec<u8>> = vec![Vec::new(); node.host.partitions()];
        let mut entries = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let Some(doc) = insert.document(batch, row)? else { continue };
                let doc = node.with_id(&insert.entity, &doc)?;
                written += 1;
                let home = node.partition_of_document(
                    &spec,
                    RawDocument::from_bytes(doc.as_bytes())
                        .map_err(|e| Error::internal("an insight is not a document").with_source(e))?,
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
        for reply in node.write_and_wait(entries, None)? {
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
