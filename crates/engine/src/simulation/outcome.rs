//! What engines have made of their input, read from their tables and documents.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use object_store::ObjectStoreExt;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use tidemill_docs::get_path;
use tidemill_types::{PartitionId, Value, column, event_json};
use tidemill_zones::sim_store::FaultyStore;

use super::model::{ModelRow, Outcome};
use crate::api::LedgerCounts;
use crate::lifecycle::transfers;
use crate::node::Node;

/// Returns the outcome of engines that have all partitions of one log together, with tables in `store`. They know the same version of each
/// table.
///
/// Errors: what cannot be read.
pub fn of(nodes: &[&Node], store: &FaultyStore) -> Result<Outcome, String> {
    let rows = |stream: &str| rows(nodes, store, stream);
    let documents = |collection: &str, value: &str| documents(nodes, collection, value);
    Ok(Outcome {
        orders: rows("Order")?,
        bigs: rows("Big")?,
        sales: rows("Sale")?,
        totals: rows("Totals")?,
        counted: rows("Counted")?,
        seen: documents("Seen", "n")?,
        regions: documents("Region", "total")?,
    })
}

/// Checks the ledgers of all streams, and that partitions have taken what others sent. Returns the number of stored events.
///
/// Errors: what does not balance.
pub fn check_ledgers(nodes: &[&Node]) -> Result<u64, String> {
    let Some(first) = nodes.first() else { return Err("there is no engine".into()) };
    let mut all = 0;
    for (stream, table) in first.app.tables.streams() {
        let mut ledger = LedgerCounts::default();
        nodes.iter().for_each(|node| ledger.add(&node.ledger(&stream.name, |_| true)));
        let tails = nodes.iter().filter_map(|node| node.app.tables.by_name(&stream.name));
        let tails: u64 = tails.map(|table| table.pending_rows()).sum();
        let rows = table.tablet_rows() + tails + table.removed_rows();
        if !ledger.balances() || ledger.stored != rows {
            return Err(format!("the ledger of {} is {ledger:?}, its table has {rows} rows", stream.name));
        }
        all += rows;
    }
    let mut sent_and_received: BTreeMap<(PartitionId, PartitionId), (u64, u64)> = BTreeMap::new();
    for transfer in nodes.iter().flat_map(|node| transfers::list_here(node)) {
        let counts = sent_and_received.entry((transfer.from, transfer.to)).or_default();
        counts.0 += transfer.sent;
        counts.1 += transfer.received;
    }
    match sent_and_received.into_iter().find(|(_, (sent, received))| sent != received) {
        None => Ok(all),
        Some(((from, to), counts)) => Err(format!(
            "partition {from} sent and partition {to} received {counts:?} events: some were lost or doubled"
        )),
    }
}

/// Returns the ids of all documents of a collection, with a whole number that is a field of theirs.
///
/// Errors: a document without it.
pub fn documents(nodes: &[&Node], collection: &str, value: &str) -> Result<Vec<(String, i64)>, String> {
    let mut all = Vec::new();
    for partition in nodes.iter().flat_map(|node| node.owned.replicas()) {
        let state = partition.state.read();
        let Some(collection) = state.store.collection(collection) else { continue };
        for doc in collection.documents() {
            let raw = bson::raw::RawDocument::from_bytes(&doc).map_err(|e| e.to_string())?;
            match (get_path(raw, "_id"), get_path(raw, value)) {
                (Value::Str(id), Value::Int(value)) => all.push((id.to_string(), value)),
                (Value::Int(id), Value::Int(value)) => all.push((id.to_string(), value)),
                _ => return Err(format!("a document of another shape: {raw:?}")),
            }
        }
    }
    Ok(all)
}

/// Reads all rows of a table, from its tablets and its tails.
fn rows(nodes: &[&Node], store: &FaultyStore, stream: &str) -> Result<Vec<ModelRow>, String> {
    let Some(first) = nodes.first() else { return Err("there is no engine".into()) };
    let table = first.app.tables.by_name(stream).ok_or_else(|| format!("no table {stream}"))?;
    let schema = first.app.deployment.stream(stream).map_err(|e| e.to_string())?;
    let tails = nodes.iter().filter_map(|node| node.app.tables.by_name(stream));
    let mut batches: Vec<RecordBatch> = tails.flat_map(|table| table.snapshot().tail).collect();
    for tablet in table.snapshot().tablets.iter() {
        let bytes = first.host.runtime.block_on(async { store.get(&tablet.path).await?.bytes().await });
        let bytes = bytes.map_err(|e| e.to_string())?;
        let mut options = ArrowReaderOptions::new();
        if let Some(keys) = first.host.zones.tablet_keys() {
            options = options.with_file_decryption_properties(keys.for_reading().map_err(|e| e.to_string())?);
        }
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options);
        let reader = reader.and_then(|b| b.build());
        for batch in reader.map_err(|e| e.to_string())? {
            batches.push(batch.map_err(|e| e.to_string())?);
        }
    }
    let mut rows = Vec::new();
    for batch in &batches {
        let number = |name: &str, row: usize| {
            let at = batch.schema_ref().index_of(name).ok()?;
            match tidemill_types::row_value(batch, at, row) {
                Value::Int(n) => Some(n),
                _ => None,
            }
        };
        for row in 0..batch.num_rows() {
            let id = |name| number(name, row).ok_or_else(|| format!("{stream}: a row without {name}"));
            let position = (id(column::PARTITION)?, id(column::OFFSET)?, id(column::ROW)?);
            rows.push(ModelRow { position, fields: event_json(schema, batch, row) });
        }
    }
    Ok(rows)
}
