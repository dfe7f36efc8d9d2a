//! Compilation of partitions: keys, queries, and purging of idle keys.

use std::sync::Arc;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, Annotation, PartitionKeyKind};
use tidemill_types::did_you_mean;

use super::Planner;
use crate::compile::annotations;
use crate::compile::annotations::time;
use crate::compile::compiler::Compiler;
use crate::compile::scope::StreamScope;
use crate::partition::{IdleKeyPurge, KeyPart, PartitionPlan, StreamKeys};

/// Default interval between purges of idle keys: 5 minutes.
const PURGE_INTERVAL_MS: i64 = 5 * 60 * 1000;

impl Planner<'_> {
    /// Compiles a partition with its queries. Errors: all problems found.
    pub(super) fn partition(&mut self, partition: &ast::Partition) -> Result<PartitionPlan, Vec<Diagnostic>> {
        let mut wrong = Vec::new();
        let annotation = annotations::at_most_one(&partition.annotations, "purge");
        let purge = annotation.and_then(|of| of.map_or(Ok(None), purge)).unwrap_or_else(|diagnostic| {
            wrong.push(diagnostic);
            None
        });
        let mut keys: Vec<StreamKeys> = Vec::new();
        for key in &partition.keys {
            match self.key(key) {
                Err(diagnostic) => wrong.push(diagnostic),
                Ok(found) if keys.iter().any(|known| known.stream == found.stream) => {
                    let message = format!("`{}` already has a key in this partition", key.stream.name);
                    let help = "combine several attributes in one expression: `str:concat(a, ' ', b)`";
                    wrong.push(Diagnostic::error("F1008", key.stream.span, message).help(help));
                }
                Ok(found) => keys.push(found),
            }
        }
        self.plan.catalog.begin_partition();
        let mut queries = Vec::with_capacity(partition.queries.len());
        for query in &partition.queries {
            match self.query(query) {
                Ok(query) => queries.push(Arc::new(query)),
                Err(diagnostic) => {
                    wrong.push(diagnostic);
                    self.mark_undefined(query);
                }
            }
        }
        self.plan.catalog.end_partition();
        if wrong.is_empty() { Ok(PartitionPlan::new(keys, queries, purge)) } else { Err(wrong) }
    }

    fn key(&self, key: &ast::PartitionKey) -> Result<StreamKeys, Diagnostic> {
        let catalog = &self.plan.catalog;
        let name = &key.stream.name;
        let Some(stream) = catalog.find(name) else {
            if let Some(table) = catalog.tables().iter().find(|t| t.name == *name) {
                let message = format!("`{name}` is a table: only streams and windows can be partitioned");
                return Err(Diagnostic::error("F1003", key.stream.span, message)
                    .note_at(table.span, "it is defined here")
                    .help("name a stream or a window; all keys share the tables"));
            }
            let known = catalog
                .streams()
                .iter()
                .map(|s| s.name.as_str())
                .filter(|name| !name.starts_with(['#', '!']));
            let hint = did_you_mean(name, known);
            let message = format!("there is no stream `{name}`{hint}");
            return Err(Diagnostic::error("F1003", key.stream.span, message)
                .note("a stream that a query defines can only be named by later partitions"));
        };
        let attributes = &catalog.streams()[stream].attributes;
        let mut scope = StreamScope { stream: name, attributes, tables: catalog.tables() };
        let mut compiler = Compiler { scope: &mut scope, registry: self.registry, aggregates: None };
        let parts = match &key.kind {
            PartitionKeyKind::Value(value) => vec![KeyPart::Value(compiler.compile(value)?)],
            PartitionKeyKind::Ranges(ranges) => {
                let part = |range: &ast::PartitionRange| {
                    let condition = compiler.condition(&range.condition, "a range")?;
                    Ok(KeyPart::Range(condition, range.name.value.clone()))
                };
                ranges.iter().map(part).collect::<Result<_, _>>()?
            }
        };
        Ok(StreamKeys { stream, parts })
    }
}

/// Compiles `@purge(…)` of a partition.
fn purge(annotation: &Annotation) -> Result<Option<IdleKeyPurge>, Diagnostic> {
    const EXAMPLE: &str = "write `@purge(enable='true', interval='10 sec', idle.period='1 hour')`";
    let missing = |key: &str| {
        Diagnostic::error("F1004", annotation.span, format!("`@purge` needs `{key}`")).help(EXAMPLE)
    };
    let enable = annotation.element("enable").ok_or_else(|| missing("enable"))?;
    let enabled = match enable.value.value.trim() {
        value if value.eq_ignore_ascii_case("true") => true,
        value if value.eq_ignore_ascii_case("false") => false,
        other => {
            return Err(Diagnostic::error(
                "F1005",
                enable.span,
                format!("`enable` must be 'true' or 'false', found '{other}'"),
            )
            .help("write 'true' or 'false'"));
        }
    };
    if !enabled {
        return Ok(None);
    }
    let idle = time(annotation.element("idle.period").ok_or_else(|| missing("idle.period"))?)?;
    let interval = annotation.element("interval").map(time).transpose()?.unwrap_or(PURGE_INTERVAL_MS);
    Ok(Some(IdleKeyPurge { interval, idle }))
}
