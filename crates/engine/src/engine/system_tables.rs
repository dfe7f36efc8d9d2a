//! System tables: what the engine reports about itself in SQL.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use tidemill_zones::CacheStats;

use tidemill_types::Result;

use super::Engine;
use crate::api::StreamInfo;
use crate::lifecycle::transfers;

/// System tables that are made when they are asked for, in the order they are listed.
pub const SYSTEM_TABLES: [&str; 13] = [
    "streams",
    "partitions",
    "tablets",
    "zones",
    "rules",
    "queries",
    "ledger",
    "transfers",
    "collections",
    "sources",
    "sinks",
    "cache",
    "problems",
];

impl Engine {
    /// The rows of a system table; `None` for an unknown one. `system.rejected` is a kept table of its own.
    ///
    /// Errors: `Unavailable` while a partition that the table tells of cannot be asked.
    pub fn system_table(&self, name: &str) -> Result<Option<RecordBatch>> {
        let columns = match name {
            "streams" => self.streams_table()?,
            "partitions" => self.partitions_table(),
            "tablets" => self.tablets_table(),
            "zones" => self.zones_table(),
            "rules" => self.rules_table()?,
            "queries" => self.queries_table()?,
            "ledger" => self.ledger_table()?,
            "transfers" => self.transfers_table()?,
            "collections" => self.collections_table()?,
            "sources" => self.sources_table()?,
            "sinks" => self.sinks_table(),
            "cache" => self.cache_table(),
            "problems" => vec![text("problem", self.health().problems)],
            _ => return Ok(None),
        };
        let fields: Vec<Field> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(Some(batch.expect("columns of one table have one length")))
    }

    fn streams_table(&self) -> Result<SystemColumns> {
        let streams = [self.streams()?, self.former_streams()?].concat();
        let fields =
            |s: &StreamInfo| s.fields().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>().join(", ");
        let name = |s: &StreamInfo, i: &usize| s.schema.fields[*i].name.clone();
        Ok(vec![
            text("stream", streams.iter().map(|s| s.schema.name.clone())),
            text("fields", streams.iter().map(fields)),
            text_or_null("key", streams.iter().map(|s| s.schema.key.as_ref().map(|i| name(s, i)))),
            text(
                "id",
                streams.iter().map(|s| s.schema.id.iter().map(|i| name(s, i)).collect::<Vec<_>>().join(", ")),
            ),
            text_or_null("time", streams.iter().map(|s| s.schema.time.as_ref().map(|i| name(s, i)))),
            int("rows", streams.iter().map(|s| s.ledger.stored)),
            int("tail_rows", streams.iter().map(|s| s.tail_rows)),
            int("tablets", streams.iter().map(|s| s.tablets)),
            bool("declared", streams.iter().map(|s| s.declared)),
        ])
    }

    fn partitions_table(&self) -> SystemColumns {
        let node = &self.node;
        let all = node.owned.replicas();
        let views: Vec<_> = all.iter().map(|p| p.view()).collect();
        let digests = || views.iter().map(|view| Some((view.next, view.digest?)));
        vec![
            int("partition", all.iter().map(|p| p.id.0.into())),
            int("log_start", all.iter().map(|p| node.host.log.start(p.id).0)),
            int("log_end", all.iter().map(|p| node.host.log.end(p.id).0)),
            int("durable", all.iter().map(|p| node.host.log.durable(p.id).0)),
            int("applied", all.iter().map(|p| p.applied().0)),
            int("inbox_records", all.iter().map(|p| node.host.backlog_depth(p.id).0 as u64)),
            int("inbox_bytes", all.iter().map(|p| node.host.backlog_depth(p.id).1 as u64)),
            int("documents_bytes", views.iter().map(|view| view.documents.bytes())),
            text_or_null("digest", digests().map(|d| d.map(|(_, digest)| digest.to_string()))),
            int_or_null("digest_since", digests().map(|d| d.map(|(_, digest)| digest.since.0))),
            int_or_null("digest_upto", digests().map(|d| d.map(|(next, _)| next.0))),
        ]
    }

    fn tablets_table(&self) -> SystemColumns {
        let tables = &self.node.app.tables;
        let tablets: Vec<_> = tables
            .writable()
            .chain(tables.former())
            .flat_map(|(s, t)| {
                t.snapshot().tablets.iter().map(|tablet| (s.name.clone(), tablet.clone())).collect::<Vec<_>>()
            })
            .collect();
        vec![
            text("stream", tablets.iter().map(|(s, _)| s.clone())),
            text("path", tablets.iter().map(|(_, t)| self.node.host.zones.display_path(&t.path))),
            int("rows", tablets.iter().map(|(_, t)| t.rows)),
            int("bytes", tablets.iter().map(|(_, t)| t.size)),
            int("level", tablets.iter().map(|(_, t)| t.level.into())),
        ]
    }

    /// One row per stream and zone: the tail in memory, flushed tablets, merged tablets.
    fn zones_table(&self) -> SystemColumns {
        let tables = &self.node.app.tables;
        let mut zones: Vec<(String, &str, u64, u64, u64)> = Vec::new();
        for (stream, table) in tables.writable().chain(tables.former()) {
            let tablets = table.tablets();
            zones.push((stream.name.clone(), "tail", 0, table.pending_rows(), table.pending_bytes()));
            for (zone, is_in_zone) in [("flushed", true), ("merged", false)] {
                let of_zone = || tablets.iter().filter(|tablet| (tablet.level == 0) == is_in_zone);
                let rows = of_zone().map(|tablet| tablet.rows).sum();
                let bytes = of_zone().map(|tablet| tablet.size).sum();
                zones.push((stream.name.clone(), zone, of_zone().count() as u64, rows, bytes));
            }
        }
        vec![
            text("stream", zones.iter().map(|zone| zone.0.clone())),
            text("zone", zones.iter().map(|zone| zone.1.to_owned())),
            int("tablets", zones.iter().map(|zone| zone.2)),
            int("rows", zones.iter().map(|zone| zone.3)),
            int("bytes", zones.iter().map(|zone| zone.4)),
        ]
    }

    /// One row if there is a cache of tablets, otherwise none.
    fn cache_table(&self) -> SystemColumns {
        let stats = self.node.host.zones.cache_stats();
        let one = |value: fn(&CacheStats) -> u64| stats.iter().map(value);
        vec![
            int("memory_hits", one(|stats| stats.memory_hits)),
            int("disk_hits", one(|stats| stats.disk_hits)),
            int("misses", one(|stats| stats.misses)),
            int("missed_bytes", one(|stats| stats.missed_bytes)),
            int("errors", one(|stats| stats.errors)),
            int("memory_bytes", one(|stats| stats.memory_bytes)),
        ]
    }

    fn rules_table(&self) -> Result<SystemColumns> {
        let rules = self.rules()?;
        Ok(vec![
            text("rule", rules.iter().map(|r| r.name.clone())),
            text("kind", rules.iter().map(|r| r.kind.to_owned())),
            text("source", rules.iter().map(|r| r.source.clone())),
            signed("priority", rules.iter().map(|r| r.priority)),
            int("fired", rules.iter().map(|r| r.fired)),
            int("errors", rules.iter().map(|r| r.errors)),
            text_or_null("last_error", rules.iter().map(|r| r.last_error.clone())),
        ])
    }

    fn queries_table(&self) -> Result<SystemColumns> {
        let all = self.queries()?;
        Ok(vec![
            text("file", all.iter().map(|q| q.file.clone())),
            text("query", all.iter().map(|q| q.name.clone())),
            text("runs", all.iter().map(|q| q.runs.clone())),
            text("why", all.iter().map(|q| q.why.clone())),
            text_or_null("exec_group", all.iter().map(|q| q.group.clone())),
            text("keeps", all.iter().map(|q| q.keeps.clone())),
            int("emitted", all.iter().map(|q| q.emitted)),
            int("errors", all.iter().map(|q| q.errors)),
            int("lost", all.iter().map(|q| q.lost)),
            text_or_null("last_error", all.iter().map(|q| q.last_error.clone())),
        ])
    }

    fn ledger_table(&self) -> Result<SystemColumns> {
        let streams = [self.streams()?, self.former_streams()?].concat();
        Ok(vec![
            text("stream", streams.iter().map(|s| s.schema.name.clone())),
            int("received", streams.iter().map(|s| s.ledger.received)),
            int("stored", streams.iter().map(|s| s.ledger.stored)),
            int("duplicate", streams.iter().map(|s| s.ledger.duplicate)),
            int("rejected", streams.iter().map(|s| s.ledger.rejected)),
            int("mismatched", streams.iter().map(|s| s.ledger.mismatched)),
            int("rows_in_table", streams.iter().map(|s| s.rows_in_table)),
            int("removed", streams.iter().map(|s| s.removed)),
            bool("balanced", streams.iter().map(StreamInfo::balances)),
        ])
    }

    fn transfers_table(&self) -> Result<SystemColumns> {
        let all = transfers::list(&self.node)?;
        Ok(vec![
            int("from_partition", all.iter().map(|t| t.from.0.into())),
            int("to_partition", all.iter().map(|t| t.to.0.into())),
            int("sent", all.iter().map(|t| t.sent)),
            int("received", all.iter().map(|t| t.received)),
            signed("on_the_way", all.iter().map(|t| t.sent as i64 - t.received as i64)),
        ])
    }

    fn collections_table(&self) -> Result<SystemColumns> {
        let all = self.collections()?;
        Ok(vec![
            text("collection", all.iter().map(|c| c.name.clone())),
            int("documents", all.iter().map(|c| c.documents)),
            int("bytes", all.iter().map(|c| c.bytes)),
            bool("replicated", all.iter().map(|c| c.replicated)),
            text_or_null("key", all.iter().map(|c| c.key.clone())),
        ])
    }

    fn sources_table(&self) -> Result<SystemColumns> {
        let mut rows = Vec::new();
        for (partition, progress) in (0..).zip(self.node.progress()?) {
            rows.extend(progress.sources.into_iter().map(|(name, position)| (name, partition, position)));
        }
        rows.sort();
        Ok(vec![
            text("source", rows.iter().map(|r| r.0.clone())),
            int("partition", rows.iter().map(|r| r.1)),
            int("position", rows.iter().map(|r| r.2)),
        ])
    }

    fn sinks_table(&self) -> SystemColumns {
        let all = self.sinks();
        vec![
            text("sink", all.iter().map(|s| s.name.clone())),
            text("stream", all.iter().map(|s| s.stream.clone())),
            int("emitted", all.iter().map(|s| s.emitted)),
            int("delivered", all.iter().map(|s| s.delivered)),
            int("failed", all.iter().map(|s| s.failed)),
            int("waiting", all.iter().map(|s| s.waiting)),
            int("waiting_bytes", all.iter().map(|s| s.waiting_bytes)),
            text_or_null("problem", all.iter().map(|s| s.problem.clone())),
        ]
    }
}

type SystemColumns = Vec<(&'static str, ArrayRef)>;

fn text(name: &'static str, values: impl IntoIterator<Item = String>) -> (&'static str, ArrayRef) {
    (name, Arc::new(StringArray::from_iter_values(values)))
}

fn text_or_null(
    name: &'static str,
    values: impl Iterator<Item = Option<String>>,
) -> (&'static str, ArrayRef) {
    (name, Arc::new(values.collect::<StringArray>()))
}

/// Counts stay far below 2^63; one that did not would show as the largest there is.
fn int(name: &'static str, values: impl Iterator<Item = u64>) -> (&'static str, ArrayRef) {
    signed(name, values.map(|n| i64::try_from(n).unwrap_or(i64::MAX)))
}

fn int_or_null(name: &'static str, values: impl Iterator<Item = Option<u64>>) -> (&'static str, ArrayRef) {
    let values = values.map(|n| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
    (name, Arc::new(values.collect::<Int64Array>()))
}

fn signed(name: &'static str, values: impl Iterator<Item = i64>) -> (&'static str, ArrayRef) {
    (name, Arc::new(Int64Array::from_iter_values(values)))
}

fn bool(name: &'static str, values: impl Iterator<Item = bool>) -> (&'static str, ArrayRef) {
    (name, Arc::new(values.map(Some).collect::<BooleanArray>()))
}
