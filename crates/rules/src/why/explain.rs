//! Answers why a rule fired for an event, or why it did not.

use serde::{Deserialize, Serialize};
use tidemill_docs::DocBytes;
use tidemill_types::{Error, EventId, Result, did_you_mean, event_json};

use super::render::{self, RenderedTerm};
use super::trace::{Trace, TraceOutcome, TraceRecord, TracedPart, TracedRun};
use crate::expr::eval::truth;
use crate::expr::value::document_json;
use crate::expr::{Bindings, Columns, Row};
use crate::plan::{Check, RulePlan, Step};
use crate::program::Program;

/// Selects the event to explain.
#[derive(Debug, Clone, PartialEq)]
pub enum Selector {
    /// The event with this id.
    Id(EventId),
    /// The latest event with these values in these fields.
    Fields {
        /// Name of the stream; `None` searches all streams that have the fields.
        stream: Option<String>,
        /// Field and value; a string also matches a number or time that is formatted so.
        fields: Vec<(String, serde_json::Value)>,
    },
}

/// Explanation of what the rules did with an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name of the stream.
    pub stream: String,
    /// Event id.
    pub id: String,
    /// Fields of the event as a JSON object.
    pub event: serde_json::Value,
    /// Outcome of each requested rule, in the order in which they run.
    pub rules: Vec<RuleOutcome>,
    /// Set when the event was no longer traced and the rules ran again over stored events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_again: Option<ReevaluationInfo>,
}

/// Basis of an explanation for which the rules ran again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReevaluationInfo {
    /// Number of stored events of the partition that the rules ran over, up to and including the explained
    /// one.
    pub events: u64,
    /// Sentences on how far the documents equal those of that time.
    pub notes: Vec<String>,
}

/// Outcome of one rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleOutcome {
    /// Name of the rule.
    pub rule: String,
    /// Outcome for the explained event.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Outcome of a rule for an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The rule fired, once for each combination of documents.
    Fired {
        /// The first firings.
        firings: Vec<RuleFiring>,
        /// Number of further firings that were not recorded.
        more: u32,
    },
    /// The rule did not fire.
    NotFired {
        /// The condition that failed, counted from 1.
        condition: usize,
        /// Source text of the failed condition, or of the part of it that failed.
        text: String,
        /// Line of that text.
        line: u32,
        /// Values that the condition depends on.
        values: Vec<RenderedTerm>,
        /// Why it failed, as a sentence.
        reason: String,
        /// Documents that the conditions before it found.
        bindings: Vec<BoundDocument>,
    },
    /// The conditions held, but the firing failed.
    Failed {
        /// Error message.
        message: String,
        /// Documents that the actions were about to use.
        bindings: Vec<BoundDocument>,
    },
    /// The event was a duplicate, so no rule ran on it.
    Duplicate,
    /// The trace had no room for the record that would answer.
    Unknown,
}

/// A firing of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleFiring {
    /// Documents that the conditions found, as they were before the firing.
    pub bindings: Vec<BoundDocument>,
    /// Source text of the actions.
    pub actions: Vec<String>,
    /// Ids of the emitted events that stayed in this partition.
    pub emitted: Vec<String>,
}

/// A document bound by a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BoundDocument {
    /// Name in the rule.
    pub name: String,
    /// Name of the entity.
    pub entity: String,
    /// The document as plain JSON.
    pub document: serde_json::Value,
}

/// An event in the trace.
struct TracedEvent<'t> {
    run: &'t TracedRun,
    part: &'t TracedPart,
    row: usize,
    own_row: u32,
}

impl Trace {
    /// Explains what the rules did with an event: all rules of its stream, or the one named `rule`.
    ///
    /// `program` must be the program that ran. Errors: `NotFound` for an event that is not in the trace and
    /// for an unknown rule, `Invalid` for a rule of another stream.
    pub fn explain(&self, program: &Program, selector: &Selector, rule: Option<&str>) -> Result<Explanation> {
        let only = rule.map(|name| rule_named(program, name)).transpose()?;
        let found = self.find(program, selector, only)?;
        let schema = &program.catalog().streams[found.part.stream];
        if let Some(rule) = only.filter(|r| r.stream != found.part.stream) {
            let wanted = &program.catalog().streams[rule.stream].name;
            return Err(Error::invalid(format!(
                "rule {} runs on {wanted} events; this is a {} event",
                rule.name, schema.name
            )));
        }
        let columns = Columns::new(schema, &found.part.batch)?;
        let row = Row::Batch(&columns, found.row);
        let asked = program
            .stream_rules(found.part.stream)
            .rules
            .iter()
            .filter(|i| only.is_none_or(|rule| rule.name == program.plans()[**i].name));
        let rules = asked.map(|i| RuleOutcome {
            rule: program.plans()[*i].name.to_string(),
            outcome: outcome(program, *i, row, &found),
        });
        let id = EventId { partition: found.run.partition, offset: found.run.offset, row: found.own_row };
        Ok(Explanation {
            stream: schema.name.clone(),
            id: id.to_string(),
            event: event_json(schema, &found.part.batch, found.row).into(),
            rules: rules.collect(),
            evaluated_again: None,
        })
    }

    fn find(
        &self,
        program: &Program,
        selector: &Selector,
        only: Option<&RulePlan>,
    ) -> Result<TracedEvent<'_>> {
        match selector {
            Selector::Id(id) => {
                let found = self.runs().find_map(|turn| {
                    let (part, row) = turn.find(id)?;
                    Some(TracedEvent { run: turn, part, row, own_row: id.row })
                });
                found.ok_or_else(|| {
                    Error::not_found(format!(
                        "event {id} is not among the last {} events, for which explanations are kept",
                        self.events()
                    ))
                })
            }
            Selector::Fields { stream, fields } => {
                let streams = self.streams(program, stream.as_deref(), fields, only)?;
                let found = self.runs().find_map(|turn| {
                    streams.iter().filter_map(|s| latest(program, turn, *s, fields)).max_by_key(|f| f.own_row)
                });
                found.ok_or_else(|| {
                    let wanted: Vec<String> = fields.iter().map(|(n, v)| format!("{n} = {v}")).collect();
                    Error::not_found(format!(
                        "no event with {} is among the last {} events, for which explanations are kept",
                        wanted.join(" and "),
                        self.events()
                    ))
                })
            }
        }
    }

    /// Returns the streams that may have an event with these fields.
    fn streams(
        &self,
        program: &Program,
        name: Option<&str>,
        fields: &[(String, serde_json::Value)],
        only: Option<&RulePlan>,
    ) -> Result<Vec<usize>> {
        let catalog = program.catalog();
        let candidates: Vec<usize> = match (name, only) {
            (Some(name), _) => {
                let stream = catalog.stream(name).ok_or_else(|| {
                    let hint = did_you_mean(name, catalog.stream_names());
                    Error::not_found(format!("there is no stream `{name}`{hint}"))
                })?;
                fields.iter().try_for_each(|(f, _)| catalog.streams[stream].require_field(f).map(drop))?;
                vec![stream]
            }
            (None, Some(rule)) => vec![rule.stream],
            (None, None) => (0..catalog.streams.len()).collect(),
        };
        let has_all = |s: &usize| fields.iter().all(|(f, _)| catalog.streams[*s].field_index(f).is_some());
        let having: Vec<usize> = candidates.iter().copied().filter(has_all).collect();
        match (having.is_empty(), candidates.first(), fields.first()) {
            (true, Some(stream), Some((field, _))) => {
                Err(catalog.streams[*stream].require_field(field).err().unwrap_or_else(|| {
                    Error::invalid(format!("no stream has all of the given fields, `{field}` included"))
                }))
            }
            _ => Ok(having),
        }
    }
}

fn rule_named<'p>(program: &'p Program, name: &str) -> Result<&'p RulePlan> {
    program.plans().iter().find(|r| r.name.as_ref() == name).ok_or_else(|| {
        if program.aggregates().iter().any(|a| a.name == name) {
            return Error::invalid(format!(
                "rule `{name}` is an aggregate: it runs over all events, not on one"
            ));
        }
        let known: Vec<&str> = program.plans().iter().map(|r| r.name.as_ref()).collect();
        Error::not_found(format!("there is no rule `{name}`{}", did_you_mean(name, known)))
    })
}

fn latest<'t>(
    program: &Program,
    turn: &'t TracedRun,
    stream: usize,
    fields: &[(String, serde_json::Value)],
) -> Option<TracedEvent<'t>> {
    let schema = &program.catalog().streams[stream];
    let wanted: Vec<(usize, &serde_json::Value)> =
        fields.iter().map(|(name, value)| Some((schema.field_index(name)?, value))).collect::<Option<_>>()?;
    let matches = turn.events_of(stream).filter(|(part, row, _)| {
        let Ok(columns) = Columns::new(schema, &part.batch) else { return false };
        wanted.iter().all(|(column, value)| render::equals_json(&columns.value(*column, *row), value))
    });
    matches
        .map(|(part, row, own_row)| TracedEvent { run: turn, part, row, own_row })
        .max_by_key(|f| f.own_row)
}

fn outcome(program: &Program, id: usize, row: Row<'_>, found: &TracedEvent<'_>) -> Outcome {
    if !found.part.is_no_duplicate(found.row) {
        return Outcome::Duplicate;
    }
    let rule = &program.plans()[id];
    let records: Vec<&TraceRecord> =
        found.run.records.iter().filter(|r| r.row == found.own_row && r.rule as usize == id).collect();
    if records.iter().any(|r| matches!(r.what, TraceOutcome::Fired(_))) {
        return fired(program, rule, &records, found);
    }
    for record in &records {
        let docs = found.run.docs(record);
        match record.what {
            TraceOutcome::Error(place) => {
                return Outcome::Failed {
                    message: found.run.message(place).to_owned(),
                    bindings: bindings(program, rule, docs),
                };
            }
            TraceOutcome::Missed(step, filter) => {
                return missed(program, rule, row, docs, step as usize, filter);
            }
            TraceOutcome::Fired(_) | TraceOutcome::FiredMore(_) => {}
        }
    }
    let frame = Bindings::new(row);
    match rule.checks.iter().find(|c| truth(&c.expr, &frame) != Some(true)) {
        Some(check) => not_fired(program, rule, check, &frame, &[]),
        None => Outcome::Unknown,
    }
}

fn fired(program: &Program, rule: &RulePlan, records: &[&TraceRecord], found: &TracedEvent<'_>) -> Outcome {
    let actions: Vec<String> =
        rule.action_spans.iter().map(|span| render::one_line(program.text(*span))).collect();
    let mut firings = Vec::new();
    let mut more = 0;
    for record in records {
        match &record.what {
            TraceOutcome::Fired(rows) => {
                let ids = rows.clone().map(|row| EventId {
                    partition: found.run.partition,
                    offset: found.run.offset,
                    row,
                });
                // events for other partitions have row numbers, but are not in the trace
                let emitted =
                    ids.filter(|id| found.run.find(id).is_some()).map(|id| id.to_string()).collect();
                let bindings = bindings(program, rule, found.run.docs(record));
                firings.push(RuleFiring { bindings, actions: actions.clone(), emitted });
            }
            TraceOutcome::FiredMore(n) => more += n,
            TraceOutcome::Missed(..) | TraceOutcome::Error(_) => {}
        }
    }
    Outcome::Fired { firings, more }
}

fn bindings(program: &Program, rule: &RulePlan, docs: &[Option<DocBytes>]) -> Vec<BoundDocument> {
    let named = rule
        .slots
        .iter()
        .zip(docs)
        .filter_map(|(slot, doc)| Some((slot.name.as_ref()?, slot, doc.as_ref()?)));
    named
        .map(|(name, slot, doc)| BoundDocument {
            name: name.to_string(),
            entity: program.catalog().entities[slot.entity].name.clone(),
            document: bson::RawDocument::from_bytes(doc.as_ref())
                .map_or(serde_json::Value::Null, document_json),
        })
        .collect()
}

/// Explains a failed condition on documents.
fn missed(
    program: &Program,
    rule: &RulePlan,
    row: Row<'_>,
    docs: &[Option<DocBytes>],
    step: usize,
    filter: Option<u32>,
) -> Outcome {
    let frame = Bindings::bound(row, docs);
    match rule.steps.get(step) {
        Some(Step::Filter(check)) => not_fired(program, rule, check, &frame, docs),
        Some(Step::Lookup(lookup)) => {
            let failed = filter.filter(|_| !lookup.negated).and_then(|f| lookup.filters.get(f as usize));
            match failed {
                Some(check) => not_fired(program, rule, check, &frame, docs),
                None => {
                    let values = lookup
                        .source
                        .values()
                        .into_iter()
                        .map(|x| render::rendered_term(program, rule, x, &frame));
                    let (values, reason) =
                        (values.collect(), render::not_found(program, rule, lookup, &frame));
                    Outcome::NotFired {
                        condition: lookup.condition + 1,
                        text: render::one_line(program.text(lookup.span)),
                        line: program.line(lookup.span),
                        values,
                        reason,
                        bindings: bindings(program, rule, docs),
                    }
                }
            }
        }
        None => Outcome::Unknown,
    }
}

fn not_fired(
    program: &Program,
    rule: &RulePlan,
    check: &Check,
    frame: &Bindings<'_>,
    docs: &[Option<DocBytes>],
) -> Outcome {
    Outcome::NotFired {
        condition: check.condition + 1,
        text: render::one_line(program.text(check.expr.span)),
        line: program.line(check.expr.span),
        values: render::condition_terms(program, rule, &check.expr, frame),
        reason: render::reason(program, rule, &check.expr, frame),
        bindings: bindings(program, rule, docs),
    }
}
