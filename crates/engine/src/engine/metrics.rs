//! Metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_zones::CacheStats;

use super::Engine;
use crate::api::{LedgerCounts, Metric, MetricKind, RuleInfo};
use crate::partition::Partition;
use crate::query_info;
use crate::query_info::QueryInfo;
use crate::sinks::SinkInfo;

impl Engine {
    /// Returns all metrics. Those of streams, rules and queries count what happened in own partitions.
    pub fn metrics(&self) -> Vec<Metric> {
        let node = &self.node;
        let streams = self.stream_infos(node.app.tables.streams(), true, &[]);
        let counters = query_info::owned_counters(node);
        let rules = self.rules_with(&counters);
        let count = |c: &AtomicU64| vec![(Vec::new(), c.load(Ordering::Relaxed) as f64)];
        let by_stream = |f: &dyn Fn(&LedgerCounts) -> u64| {
            streams.iter().map(|s| (vec![("stream", s.schema.name.clone())], f(&s.ledger) as f64)).collect()
        };
        let by_partition = |f: &dyn Fn(&Partition) -> u64| {
            node.owned.all().iter().map(|p| (vec![("partition", p.id.to_string())], f(p) as f64)).collect()
        };
        let by_rule = |f: &dyn Fn(&RuleInfo) -> u64| {
            rules.iter().map(|r| (vec![("rule", r.name.clone())], f(r) as f64)).collect()
        };
        let queries = query_info::queries(node, &counters);
        let by_query = |f: &dyn Fn(&QueryInfo) -> u64| {
            queries
                .iter()
                .map(|q| (vec![("file", q.file.clone()), ("query", q.name.clone())], f(q) as f64))
                .collect()
        };
        let sinks = self.sinks();
        let by_sink = |f: &dyn Fn(&SinkInfo) -> u64| {
            sinks
                .iter()
                .map(|s| (vec![("sink", s.name.clone()), ("stream", s.stream.clone())], f(s) as f64))
                .collect()
        };
        let cache = node.host.zones.cache_stats();
        let of_cache = |value: fn(&CacheStats) -> u64| {
            cache.iter().map(|stats| (Vec::new(), value(stats) as f64)).collect::<Vec<_>>()
        };
        let by_tier = cache.iter().flat_map(|stats| {
            [("memory", stats.memory_hits), ("disk", stats.disk_hits)]
                .map(|(tier, hits)| (vec![("tier", tier.to_owned())], hits as f64))
        });
        let by_tier = by_tier.collect();
        let metric = |name, help, kind, samples| Metric { name, help, kind, samples };
        use MetricKind::{Counter, Gauge};
        vec![
            metric(
                "tidemill_events_received_total",
                "Events received, emitted ones included.",
                Counter,
                by_stream(&|l| l.received),
            ),
            metric("tidemill_events_stored_total", "Events stored.", Counter, by_stream(&|l| l.stored)),
            metric(
                "tidemill_events_duplicate_total",
                "Events dropped as duplicates.",
                Counter,
                by_stream(&|l| l.duplicate),
            ),
            metric(
                "tidemill_events_rejected_total",
                "Events refused with a reason.",
                Counter,
                by_stream(&|l| l.rejected),
            ),
            metric(
                "tidemill_events_accepted_total",
                "Events accepted from senders and sources since start.",
                Counter,
                count(&node.app.counts.accepted),
            ),
            metric(
                "tidemill_log_records_applied_total",
                "Log records applied since start.",
                Counter,
                count(&node.app.counts.records),
            ),
            metric(
                "tidemill_query_emitted_events_total",
                "Events that queries put out.",
                Counter,
                by_query(&|q| q.emitted),
            ),
            metric(
                "tidemill_query_errors_total",
                "Calls that queries could not work off.",
                Counter,
                by_query(&|q| q.errors),
            ),
            metric(
                "tidemill_tablets_committed_total",
                "Parquet tablets committed since start.",
                Counter,
                count(&node.app.counts.tablets),
            ),
            metric(
                "tidemill_flush_duration_microseconds_total",
                "Time spent in flushes since start.",
                Counter,
                count(&node.app.counts.flush_us),
            ),
            metric(
                "tidemill_tablets_merged_total",
                "Large tablets merged from smaller ones since start.",
                Counter,
                count(&node.app.counts.consolidations),
            ),
            metric(
                "tidemill_tablet_cache_hits_total",
                "Blocks of tablets that the cache had since start.",
                Counter,
                by_tier,
            ),
            metric(
                "tidemill_tablet_cache_misses_total",
                "Blocks of tablets read from the object store since start.",
                Counter,
                of_cache(|stats| stats.misses),
            ),
            metric(
                "tidemill_tablet_cache_missed_bytes_total",
                "Bytes of these blocks.",
                Counter,
                of_cache(|stats| stats.missed_bytes),
            ),
            metric(
                "tidemill_tablet_cache_errors_total",
                "Blocks that the cache had and could not read since start.",
                Counter,
                of_cache(|stats| stats.errors),
            ),
            metric(
                "tidemill_tablet_cache_memory_bytes",
                "Memory of the blocks of tablets in the cache.",
                Gauge,
                of_cache(|stats| stats.memory_bytes),
            ),
            metric(
                "tidemill_expired_rows_total",
                "Rows of tablets that expired as a whole since start.",
                Counter,
                count(&node.app.counts.expired),
            ),
            metric(
                "tidemill_checkpoints_published_total",
                "Checkpoints published since start.",
                Counter,
                count(&node.app.counts.checkpoints),
            ),
            metric(
                "tidemill_checkpoint_pause_microseconds",
                "Longest time that the last checkpoint kept a partition from its next record.",
                Gauge,
                count(&node.app.counts.checkpoint_pause_us),
            ),
            metric(
                "tidemill_rule_fired_total",
                "Rule firings; runs for aggregate rules.",
                Counter,
                by_rule(&|r| r.fired),
            ),
            metric(
                "tidemill_rule_errors_total",
                "Rule firings that failed and were rolled back.",
                Counter,
                by_rule(&|r| r.errors),
            ),
            metric(
                "tidemill_partition_applied_offset",
                "The offset after the last applied record.",
                Gauge,
                by_partition(&|p| p.applied().0),
            ),
            metric(
                "tidemill_partition_inbox_bytes",
                "Bytes written to the log but not applied.",
                Gauge,
                by_partition(&|p| node.host.backlog_depth(p.id).1 as u64),
            ),
            metric(
                "tidemill_documents_bytes",
                "Bytes of documents in memory, with their indexes.",
                Gauge,
                by_partition(&|p| {
                    let view = p.view();
                    view.documents.bytes() + view.documents.derived_bytes()
                }),
            ),
            metric(
                "tidemill_table_tail_rows",
                "Rows in memory tails, not yet in a tablet.",
                Gauge,
                streams
                    .iter()
                    .map(|s| (vec![("stream", s.schema.name.clone())], s.tail_rows as f64))
                    .collect(),
            ),
            metric(
                "tidemill_sink_emitted_events_total",
                "Events for a sink since it exists.",
                Counter,
                by_sink(&|s| s.emitted),
            ),
            metric(
                "tidemill_sink_delivered_events_total",
                "Events that the other side of a sink has acknowledged.",
                Counter,
                by_sink(&|s| s.delivered),
            ),
            metric(
                "tidemill_sink_failed_events_total",
                "Events that the other side of a sink has refused for good.",
                Counter,
                by_sink(&|s| s.failed),
            ),
            metric(
                "tidemill_sink_waiting_events",
                "Events that wait for the other side of a sink.",
                Gauge,
                by_sink(&|s| s.waiting),
            ),
            metric(
                "tidemill_sink_waiting_bytes",
                "Bytes of events that wait for the other side of a sink, in memory and on the disk.",
                Gauge,
                by_sink(&|s| s.waiting_bytes),
            ),
        ]
    }
}
