//! What the engine tells about itself: system tables, metrics, explanations.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use tidemill_rules::Explanation;
use tidemill_rules::why::Selector;
use tidemill_types::{Error, ErrorKind, Result, StreamSchema, did_you_mean};
use tidemill_zones::{Table, TableSnapshot, Zones};

use crate::engine::Engine;
use crate::queries::QueryInfo;
use crate::reevaluation;
use crate::transfers;
use crate::{EventSelector, LedgerCounts, Metric, MetricKind, RuleInfo, StreamInfo};

/// System tables that are made when they are asked for, in the order they are listed.
pub const SYSTEM_TABLES: [&str; 10] = [
    "streams",
    "partitions",
    "tablets",
    "rules",
    "queries",
    "ledger",
    "transfers",
    "collections",
    "sources",
    "problems",
];

impl Engine {
    /// All streams with their counts.
    pub fn streams(&self) -> Vec<StreamInfo> {
        let core = &self.core;
        let tables = core.program.streams().iter().zip(&core.tables);
        tables.map(|(schema, table)| self.stream_info(schema, table, true)).collect()
    }

    /// Streams with stored events that the app does not declare: they can be asked, and take no more events.
    pub fn former_streams(&self) -> Vec<StreamInfo> {
        let tables = self.core.former_tables().iter();
        tables.map(|(schema, table)| self.stream_info(schema, table, false)).collect()
    }

    fn stream_info(&self, schema: &Arc<StreamSchema>, table: &Table, declared: bool) -> StreamInfo {
        StreamInfo {
            schema: schema.clone(),
            ledger: self.core.ledger(&schema.name),
            rows_in_table: table.tablet_rows() + table.pending_rows(),
            tail_rows: table.pending_rows(),
            tablets: table.snapshot().tablets.len() as u64,
            declared,
        }
    }

    /// One stream with its counts.
    ///
    /// Errors: `NotFound` with the names there are.
    pub fn stream(&self, name: &str) -> Result<StreamInfo> {
        self.stream_schema(name)?;
        self.streams()
            .into_iter()
            .find(|s| s.schema.name == name)
            .ok_or_else(|| Error::internal(format!("stream `{name}` has no table")))
    }

    /// Names of all streams that have a table: those of the app in order of declaration, then those that only earlier
    /// apps declared.
    pub fn stream_names(&self) -> Vec<String> {
        let former = self.core.former_tables().iter().map(|(s, _)| s);
        self.core.program.streams().iter().chain(former).map(|s| s.name.clone()).collect()
    }

    /// The table of a stream at this instant; `None` for an unknown stream.
    pub fn table_snapshot(&self, stream: &str) -> Option<TableSnapshot> {
        let declared = self.core.program.stream_index(stream).and_then(|at| self.core.tables.get(at));
        let former = || self.core.former_tables().iter().find(|(s, _)| s.name == stream).map(|(_, t)| t);
        declared.or_else(former).map(|table| table.snapshot())
    }

    /// The table of refused rows at this instant.
    pub fn rejected_snapshot(&self) -> TableSnapshot {
        self.core.rejected.snapshot()
    }

    /// All tables' place and store.
    pub fn zones(&self) -> &Zones {
        &self.core.zones
    }

    /// Waits until everything that is in the log now is applied, so that what is read next holds every acknowledged row.
    pub fn catch_up(&self) -> Result<()> {
        let core = &self.core;
        let ends: Vec<_> = core.partitions().iter().map(|p| core.log.end(p.id)).collect();
        for (partition, end) in core.partitions().iter().zip(ends) {
            partition.wait_applied(end, core)?;
        }
        Ok(())
    }

    /// Rules in order of declaration, event rules first.
    pub fn rules(&self) -> Vec<RuleInfo> {
        let core = &self.core;
        let mut rules: Vec<RuleInfo> = core
            .program
            .rules()
            .iter()
            .map(|r| RuleInfo {
                name: r.name.clone(),
                kind: "event",
                source: r.stream.clone(),
                priority: r.priority.into(),
                fired: 0,
                errors: 0,
                last_error: None,
            })
            .collect();
        for partition in core.partitions() {
            let state = partition.state.read();
            for rule in &mut rules {
                if let Some(counts) = state.executor.counters().rule(&rule.name) {
                    rule.fired += counts.fired;
                    rule.errors += counts.errors;
                    rule.last_error = rule.last_error.take().or_else(|| counts.last_error.clone());
                }
            }
        }
        let counts = core.aggregates.lock();
        for aggregate in core.program.aggregates() {
            let counts = counts.get(&aggregate.name).cloned().unwrap_or_default();
            rules.push(RuleInfo {
                name: aggregate.name.clone(),
                kind: "aggregate",
                source: aggregate.source.clone(),
                priority: 0,
                fired: counts.runs,
                errors: counts.errors,
                last_error: counts.last_error,
            });
        }
        rules
    }

    /// Why a rule (or every rule) fired or did not: for the event with that id, or for the latest event with those
    /// fields of each partition. Of the last events of each partition it is kept what rules did; for older ones the rules run again over
    /// stored events, which needs SQL, and the answer says so.
    ///
    /// Errors: `NotFound` for an unknown rule, or when no event matches; `LimitReached` when too many events lie in front of it.
    pub fn why(&self, rule: Option<&str>, event: &EventSelector) -> Result<Vec<Explanation>> {
        let core = &self.core;
        if let Some(name) = rule
            && !core.program.rules().iter().any(|r| r.name == name)
        {
            if core.program.aggregates().iter().any(|a| a.name == name) {
                return Err(Error::invalid(format!(
                    "rule `{name}` is an aggregate: it runs over all events, not for one"
                )));
            }
            let rules = core.program.rules();
            let known = rules.iter().map(|r| r.name.as_str());
            return Err(Error::not_found(format!("no rule `{name}`{}", did_you_mean(name, known))));
        }
        let selector = match event {
            EventSelector::Id(id) => Selector::Id(*id),
            EventSelector::Fields(fields) => Selector::Fields {
                stream: rule
                    .and_then(|name| core.program.rules().into_iter().find(|r| r.name == name))
                    .map(|r| r.stream),
                fields: fields.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect(),
            },
        };
        let mut found = Vec::new();
        for partition in core.partitions() {
            match partition.state.read().trace.explain(&core.program, &selector, rule) {
                Ok(explanation) => found.push(explanation),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        if found.is_empty() && core.analytics.get().is_some() {
            found = reevaluation::explain(core, rule, event)?;
            if found.is_empty() {
                return Err(Error::not_found(format!("no event {event} is stored that these rules saw")));
            }
        }
        if found.is_empty() {
            return Err(Error::not_found(format!(
                "no event {event} among those that can be explained: the last {} of each partition that these rules saw (why_events)",
                core.settings.why_events
            )));
        }
        Ok(found)
    }

    /// The rows of a system table; `None` for an unknown one. `system.rejected` is a kept table of its own.
    pub fn system_table(&self, name: &str) -> Option<RecordBatch> {
        let columns = match name {
            "streams" => self.streams_table(),
            "partitions" => self.partitions_table(),
            "tablets" => self.tablets_table(),
            "rules" => self.rules_table(),
            "queries" => self.queries_table(),
            "ledger" => self.ledger_table(),
            "transfers" => self.transfers_table(),
            "collections" => self.collections_table(),
            "sources" => self.sources_table(),
            "problems" => vec![text("problem", self.health().problems)],
            _ => return None,
        };
        let fields: Vec<Field> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        Some(
            RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
                .expect("columns of one table have one length"),
        )
    }

    fn streams_table(&self) -> Columns {
        let streams = [self.streams(), self.former_streams()].concat();
        let fields =
            |s: &StreamInfo| s.fields().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>().join(", ");
        let name = |s: &StreamInfo, i: &usize| s.schema.fields[*i].name.clone();
        vec![
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
        ]
    }

    fn partitions_table(&self) -> Columns {
        let core = &self.core;
        let all = core.partitions();
        vec![
            int("partition", all.iter().map(|p| p.id.0.into())),
            int("log_start", all.iter().map(|p| core.log.start(p.id).0)),
            int("log_end", all.iter().map(|p| core.log.end(p.id).0)),
            int("durable", all.iter().map(|p| core.log.durable(p.id).0)),
            int("applied", all.iter().map(|p| p.applied().0)),
            int("inbox_records", all.iter().map(|p| p.apply_queue.depth().0 as u64)),
            int("inbox_bytes", all.iter().map(|p| p.apply_queue.depth().1 as u64)),
            int("documents_bytes", all.iter().map(|p| p.state.read().store.bytes())),
        ]
    }

    fn tablets_table(&self) -> Columns {
        let former = self.core.former_tables().iter().map(|(stream, table)| (stream, table));
        let tablets: Vec<_> = self
            .core
            .all_tables()
            .chain(former)
            .flat_map(|(s, t)| {
                t.snapshot().tablets.iter().map(|tablet| (s.name.clone(), tablet.clone())).collect::<Vec<_>>()
            })
            .collect();
        vec![
            text("stream", tablets.iter().map(|(s, _)| s.clone())),
            text("path", tablets.iter().map(|(_, t)| self.core.zones.display_path(&t.path))),
            int("rows", tablets.iter().map(|(_, t)| t.rows)),
            int("bytes", tablets.iter().map(|(_, t)| t.size)),
        ]
    }

    fn rules_table(&self) -> Columns {
        let rules = self.rules();
        vec![
            text("rule", rules.iter().map(|r| r.name.clone())),
            text("kind", rules.iter().map(|r| r.kind.to_owned())),
            text("source", rules.iter().map(|r| r.source.clone())),
            signed("priority", rules.iter().map(|r| r.priority)),
            int("fired", rules.iter().map(|r| r.fired)),
            int("errors", rules.iter().map(|r| r.errors)),
            text_or_null("last_error", rules.iter().map(|r| r.last_error.clone())),
        ]
    }

    fn queries_table(&self) -> Columns {
        let all = self.queries();
        vec![
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
        ]
    }

    fn ledger_table(&self) -> Columns {
        let streams = [self.streams(), self.former_streams()].concat();
        vec![
            text("stream", streams.iter().map(|s| s.schema.name.clone())),
            int("received", streams.iter().map(|s| s.ledger.received)),
            int("stored", streams.iter().map(|s| s.ledger.stored)),
            int("duplicate", streams.iter().map(|s| s.ledger.duplicate)),
            int("rejected", streams.iter().map(|s| s.ledger.rejected)),
            int("rows_in_table", streams.iter().map(|s| s.rows_in_table)),
            bool(
                "balanced",
                streams.iter().map(|s| s.ledger.balances() && s.rows_in_table == s.ledger.stored),
            ),
        ]
    }

    fn transfers_table(&self) -> Columns {
        let all = transfers::list(&self.core);
        vec![
            int("from_partition", all.iter().map(|t| t.from.0.into())),
            int("to_partition", all.iter().map(|t| t.to.0.into())),
            int("sent", all.iter().map(|t| t.sent)),
            int("received", all.iter().map(|t| t.received)),
            signed("on_the_way", all.iter().map(|t| t.sent as i64 - t.received as i64)),
        ]
    }

    fn collections_table(&self) -> Columns {
        let all = self.collections();
        vec![
            text("collection", all.iter().map(|c| c.name.clone())),
            int("documents", all.iter().map(|c| c.documents)),
            int("bytes", all.iter().map(|c| c.bytes)),
            bool("replicated", all.iter().map(|c| c.replicated)),
            text_or_null("key", all.iter().map(|c| c.key.clone())),
        ]
    }

    fn sources_table(&self) -> Columns {
        let mut rows = Vec::new();
        for partition in self.core.partitions() {
            for (name, position) in &partition.state.read().sources {
                rows.push((name.clone(), u64::from(partition.id.0), *position));
            }
        }
        rows.sort();
        vec![
            text("source", rows.iter().map(|r| r.0.clone())),
            int("partition", rows.iter().map(|r| r.1)),
            int("position", rows.iter().map(|r| r.2)),
        ]
    }

    /// Everything that is counted.
    pub fn metrics(&self) -> Vec<Metric> {
        let core = &self.core;
        let streams = self.streams();
        let rules = self.rules();
        let count = |c: &std::sync::atomic::AtomicU64| vec![(Vec::new(), c.load(Ordering::Relaxed) as f64)];
        let by_stream = |f: &dyn Fn(&LedgerCounts) -> u64| {
            streams.iter().map(|s| (vec![("stream", s.schema.name.clone())], f(&s.ledger) as f64)).collect()
        };
        let by_partition = |f: &dyn Fn(&crate::partition::Partition) -> u64| {
            core.partitions().iter().map(|p| (vec![("partition", p.id.to_string())], f(p) as f64)).collect()
        };
        let by_rule = |f: &dyn Fn(&RuleInfo) -> u64| {
            rules.iter().map(|r| (vec![("rule", r.name.clone())], f(r) as f64)).collect()
        };
        let queries = self.queries();
        let by_query = |f: &dyn Fn(&QueryInfo) -> u64| {
            queries
                .iter()
                .map(|q| (vec![("file", q.file.clone()), ("query", q.name.clone())], f(q) as f64))
                .collect()
        };
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
                count(&core.counts.accepted),
            ),
            metric(
                "tidemill_log_records_applied_total",
                "Log records applied since start.",
                Counter,
                count(&core.counts.records),
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
                count(&core.counts.tablets),
            ),
            metric(
                "tidemill_flush_duration_microseconds_total",
                "Time spent in flushes since start.",
                Counter,
                count(&core.counts.flush_us),
            ),
            metric(
                "tidemill_checkpoints_published_total",
                "Checkpoints published since start.",
                Counter,
                count(&core.counts.checkpoints),
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
                by_partition(&|p| p.apply_queue.depth().1 as u64),
            ),
            metric(
                "tidemill_documents_bytes",
                "Bytes of documents in memory.",
                Gauge,
                by_partition(&|p| p.state.read().store.bytes()),
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
        ]
    }
}

type Columns = Vec<(&'static str, ArrayRef)>;

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

fn signed(name: &'static str, values: impl Iterator<Item = i64>) -> (&'static str, ArrayRef) {
    (name, Arc::new(Int64Array::from_iter_values(values)))
}

fn bool(name: &'static str, values: impl Iterator<Item = bool>) -> (&'static str, ArrayRef) {
    (name, Arc::new(values.map(Some).collect::<BooleanArray>()))
}
