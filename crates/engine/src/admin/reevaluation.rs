//! Explanations of events whose traces are no longer retained, by running the rules again over stored events.
//!
//! A partition's documents follow from the files of `[[documents]]` and from what rules did with the
//! partition's events. They are rebuilt in a separate store, event by event in log order, with the rules that
//! are deployed now. Writes of documents by requests and aggregate rules are not stored as events. To detect
//! such writes, the documents rebuilt from all events are compared with the current ones.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use bson::raw::RawDocument;
use tidemill_docs::{Collection, DocBytes, Store, get_path};
use tidemill_rules::plan::Action;
use tidemill_rules::why::{ReevaluationInfo, Selector};
use tidemill_rules::{
    ExecutionContext, Executor, Explanation, Program, RecordPosition, Route, StreamPart, Trace, TraceLimits,
};
use tidemill_types::decode::FieldValue;
use tidemill_types::{
    Error, EventId, FieldType, Offset, PartitionId, Result, StreamSchema, Timestamp, Value, column, row_value,
};

use crate::api::EventSelector;
use crate::app::DocumentsConfig;
use crate::node::Node;
use crate::sources;
use crate::state;

/// Maximum stored events of a partition that are replayed for an answer.
const EVENTS_MAX: u64 = 1_000_000;
/// Approximate number of events per read.
const EVENTS_PER_READ: usize = 32_768;

/// Explains a stored event as `why` does: the one with that id, or the latest of each partition with those
/// field values.
///
/// Errors: `NotFound` when no event matches; `LimitReached` when too many events precede it.
pub fn explain(node: &Node, rule: Option<&str>, event: &EventSelector) -> Result<Vec<Explanation>> {
    let found = find_events(node, rule, event)?;
    found.into_iter().map(|(stream, id)| Reevaluation { node, rule, stream, id }.explain()).collect()
}

fn query(node: &Node, text: &str) -> Result<Vec<RecordBatch>> {
    let sql = node.app.analytics.get().ok_or_else(|| Error::unavailable("there is no SQL in this engine"))?;
    sql.query(text)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Finds the selected events, each with the index of its stream.
fn find_events(node: &Node, rule: Option<&str>, event: &EventSelector) -> Result<Vec<(usize, EventId)>> {
    let program = &node.app.deployment.program;
    let of_rule = rule.and_then(|name| program.plans().iter().find(|r| r.name.as_ref() == name));
    let mut latest: Vec<(usize, EventId)> = Vec::new();
    for (number, stream) in program.streams().iter().enumerate() {
        if of_rule.is_some_and(|rule| rule.stream != number) {
            continue;
        }
        let Some(condition) = condition(stream, event) else { continue };
        let text = format!(
            "SELECT DISTINCT ON (_partition) _partition, _offset, _row FROM events.{} WHERE {condition} \
             ORDER BY _partition, _offset DESC, _row DESC",
            quoted(&stream.name)
        );
        for batch in query(node, &text)? {
            for row in 0..batch.num_rows() {
                let id = event_id(&batch, row)?;
                match latest.iter_mut().find(|(_, other)| other.partition == id.partition) {
                    Some(other) if other.1 < id => *other = (number, id),
                    Some(_) => {}
                    None => latest.push((number, id)),
                }
            }
        }
    }
    Ok(latest)
}

/// Returns the SQL condition on stored events of the stream; `None` if none can match.
fn condition(stream: &StreamSchema, event: &EventSelector) -> Option<String> {
    match event {
        EventSelector::Id(EventId { partition, offset, row }) => {
            Some(format!("_partition = {} AND _offset = {} AND _row = {row}", partition.0, offset.0))
        }
        EventSelector::Fields(fields) => {
            let terms = fields.iter().map(|(name, text)| {
                let field = &stream.fields[stream.field_index(name)?];
                Some(format!("{} = {}", quoted(name), literal(field.ty, text)?))
            });
            Some(terms.collect::<Option<Vec<_>>>()?.join(" AND "))
        }
    }
}

/// Returns the SQL literal of `text` as a value of a field; `None` if the field cannot have that value.
fn literal(ty: FieldType, text: &str) -> Option<String> {
    Some(match ty {
        FieldType::Bool => text.parse::<bool>().ok()?.to_string(),
        FieldType::Int | FieldType::Long => text.parse::<i64>().ok()?.to_string(),
        FieldType::Float => {
            let number = text.parse::<f32>().ok().filter(|n| n.is_finite())?;
            format!("CAST({number:?} AS REAL)")
        }
        FieldType::Double => {
            let number = text.parse::<f64>().ok().filter(|n| n.is_finite())?;
            format!("CAST({number:?} AS DOUBLE)")
        }
        FieldType::String => format!("'{}'", text.replace('\'', "''")),
        FieldType::Time => {
            let time = Timestamp::parse(text).ok()?;
            format!("arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", time.0)
        }
        FieldType::Object => return None,
    })
}

fn number(batch: &RecordBatch, name: &str, row: usize) -> Result<i64> {
    let at = batch.schema_ref().index_of(name);
    match at.map(|i| row_value(batch, i, row)) {
        Ok(Value::Int(n)) => Ok(n),
        _ => Err(Error::internal(format!("a stored event without `{name}`"))),
    }
}

fn event_id(batch: &RecordBatch, row: usize) -> Result<EventId> {
    Ok(EventId {
        partition: PartitionId(number(batch, column::PARTITION, row)? as u32),
        offset: Offset(number(batch, column::OFFSET, row)? as u64),
        row: number(batch, column::ROW, row)? as u32,
    })
}

/// Explanation of one event.
struct Reevaluation<'c> {
    node: &'c Node,
    rule: Option<&'c str>,
    stream: usize,
    id: EventId,
}

/// Result of replaying events.
struct ReevaluationResult {
    explanation: Option<Explanation>,
    /// Number of events up to and including the explained one.
    events: u64,
    store: Store,
}

impl Reevaluation<'_> {
    fn explain(&self) -> Result<Explanation> {
        let names = self.relevant_entities(self.rule);
        let present = self.node.with_view(self.id.partition, |view| {
            let present = names
                .iter()
                .filter_map(|name| Some((name.clone(), view.documents.collection(name)?.documents())));
            (present.collect::<Vec<_>>(), view.next)
        });
        let (present, next) = present.ok_or_else(|| {
            Error::unavailable(format!(
                "event {}: nothing is kept of what rules did with it, and this node cannot run them again without partition {}: ask a                  node that has it, see `tidemill cluster status`",
                self.id, self.id.partition
            ))
        })?;
        let before = self.count(self.id.offset.next())?;
        if before > EVENTS_MAX {
            return Err(Error::limit(format!(
                "event {}: nothing is kept of what rules did with it, and to run them again would take {before} stored events \
                 of partition {} (at most {EVENTS_MAX})",
                self.id, self.id.partition
            )));
        }
        let all = self.count(next)?;
        let files = self.load_documents()?;
        if all > EVENTS_MAX {
            let done = self.replay_rules(&files, &[], self.id.offset.next())?;
            let note = format!(
                "whether requests or aggregates wrote documents was not looked at: the partition has {all} events"
            );
            return self.build_explanation(done, vec![note]);
        }
        let done = self.replay_rules(&files, &[], next)?;
        let (notes, outside) = self.compare_documents(&done.store, &present);
        if outside.is_empty() {
            return self.build_explanation(done, notes);
        }
        let done = self.replay_rules(&files, &outside, self.id.offset.next())?;
        self.build_explanation(done, notes)
    }

    fn build_explanation(&self, done: ReevaluationResult, notes: Vec<String>) -> Result<Explanation> {
        let explanation =
            done.explanation.ok_or_else(|| Error::internal("a stored event was not found again"))?;
        let again = ReevaluationInfo { events: done.events, notes };
        Ok(Explanation { evaluated_again: Some(again), ..explanation })
    }

    /// Returns the entities whose documents affect the rule (all rules, if none is named): those that it
    /// reads, those read by rules that write these, and so on.
    fn relevant_entities(&self, rule: Option<&str>) -> BTreeSet<String> {
        let program = &self.node.app.deployment.program;
        let reads = |entities: &mut BTreeSet<usize>, plan: &tidemill_rules::plan::RulePlan| {
            entities.extend(plan.slots.iter().map(|slot| slot.entity));
        };
        let mut entities = BTreeSet::new();
        for plan in program.plans().iter().filter(|p| rule.is_none_or(|name| p.name.as_ref() == name)) {
            reads(&mut entities, plan);
        }
        loop {
            let before = entities.len();
            for plan in program.plans() {
                let writes = plan.actions.iter().filter_map(|action| match action {
                    Action::Update { slot, .. } | Action::Delete { slot } => Some(plan.slots[*slot].entity),
                    Action::Insert { entity, .. } => Some(*entity),
                    Action::Emit { .. } => None,
                });
                if writes.into_iter().any(|entity| entities.contains(&entity)) {
                    reads(&mut entities, plan);
                }
            }
            if entities.len() == before {
                break;
            }
        }
        entities.into_iter().map(|entity| program.entities()[entity].name.clone()).collect()
    }

    /// Returns the streams that rules read, and that of the event.
    fn streams(&self) -> Vec<usize> {
        let program = &self.node.app.deployment.program;
        let ruled = |stream: usize| !program.stream_rules(stream).rules.is_empty();
        (0..program.streams().len()).filter(|i| ruled(*i) || *i == self.stream).collect()
    }

    fn count(&self, end: Offset) -> Result<u64> {
        let mut total = 0;
        for stream in self.streams() {
            let text = format!(
                "SELECT count(*) AS n FROM events.{} WHERE _partition = {} AND _offset < {}",
                quoted(&self.node.app.deployment.program.streams()[stream].name),
                self.id.partition.0,
                end.0
            );
            for batch in query(self.node, &text)? {
                total += u64::try_from(number(&batch, "n", 0)?).unwrap_or_default();
            }
        }
        Ok(total)
    }

    /// Loads the documents of the app's files that belong to the partition, by collection.
    fn load_documents(&self) -> Result<Vec<(String, Vec<DocBytes>)>> {
        let read = |config: &DocumentsConfig| {
            let spec = self.node.collection_spec(&config.collection)?;
            let mut documents = Vec::new();
            sources::for_each_document(self.node, config, |doc| {
                let raw = RawDocument::from_bytes(&doc)
                    .map_err(|e| Error::internal("a document that was just made").with_source(e))?;
                if self.node.partition_of_document(&spec, raw).is_none_or(|home| home == self.id.partition) {
                    documents.push(doc);
                }
                Ok(())
            })?;
            Ok((config.collection.clone(), documents))
        };
        self.node.app.deployment.app.documents.iter().map(read).collect()
    }

    /// Runs the rules over the events before `end`.
    fn replay_rules(
        &self,
        files: &[(String, Vec<DocBytes>)],
        outside: &[(String, Vec<DocBytes>)],
        end: Offset,
    ) -> Result<ReevaluationResult> {
        let program = &self.node.app.deployment.program;
        let mut store = Store::new(state::store_limits(&self.node.app.deployment.settings));
        for spec in program.collections() {
            store.create_collection(spec)?;
        }
        for (name, documents) in files.iter().chain(outside) {
            let collection = store.require(name)?;
            for doc in documents {
                // as when a file is loaded, a document replaces the one with its `_id`
                if collection.replace(doc.clone()).is_ok_and(|done| done.before.is_none()) {
                    // an invalid document was rejected and reported when the file was loaded
                    let _ = collection.insert(doc.clone());
                }
            }
        }
        let mut run =
            RuleReplay { program, executor: Executor::new(program), host: ScratchContext { store } };
        let streams = self.streams();
        let mut outcome = None;
        let (mut events, mut from, mut width) = (0_u64, 0_u64, 1024_u64);
        while from < end.0 {
            let to = from.saturating_add(width).min(end.0);
            let window = self.read_events(&streams, from, to)?;
            for event in &window {
                if self.id.offset == event.offset && self.id.row == event.row {
                    let mut trace = Trace::new(TraceLimits::default());
                    run.event(self.id.partition, event, &mut trace)?;
                    let selector = Selector::Id(self.id);
                    outcome = Some((trace.explain(program, &selector, self.rule)?, events + 1));
                    continue;
                }
                run.event(self.id.partition, event, &mut Trace::off())?;
                events += 1;
            }
            width = match window.len() {
                n if n < EVENTS_PER_READ / 2 => width.saturating_mul(2),
                n if n > EVENTS_PER_READ => (width / 2).max(1),
                _ => width,
            };
            from = to;
        }
        let (explanation, events) = outcome.map_or((None, events), |(found, n)| (Some(found), n));
        Ok(ReevaluationResult { explanation, events, store: run.host.store })
    }

    /// Reads the stored events of a range of records, in the order in which they were applied.
    fn read_events(&self, streams: &[usize], from: u64, to: u64) -> Result<Vec<StoredEvent>> {
        let mut events = Vec::new();
        for stream in streams {
            let schema = &self.node.app.deployment.program.streams()[*stream];
            let text = format!(
                "SELECT * FROM events.{} WHERE _partition = {} AND _offset >= {from} AND _offset < {to}",
                quoted(&schema.name),
                self.id.partition.0
            );
            for batch in query(self.node, &text)? {
                let own = event_columns(schema, &batch)?;
                for row in 0..batch.num_rows() {
                    let id = event_id(&batch, row)?;
                    let one = own.slice(row, 1);
                    events.push(StoredEvent { stream: *stream, offset: id.offset, row: id.row, batch: one });
                }
            }
        }
        events.sort_unstable_by_key(|event| (event.offset, event.row));
        Ok(events)
    }

    /// Compares the current documents with the rebuilt ones. Returns notes on all differences, and the
    /// current documents that were not rebuilt.
    fn compare_documents(
        &self,
        made: &Store,
        present: &[(String, Vec<DocBytes>)],
    ) -> (Vec<String>, Vec<(String, Vec<DocBytes>)>) {
        let (mut notes, mut outside) = (Vec::new(), Vec::new());
        for (name, documents) in present {
            let made = made.collection(name);
            let find = |doc: &DocBytes| made.and_then(|made| made.get(&id_of(doc)?));
            let absent: Vec<DocBytes> = documents.iter().filter(|doc| find(doc).is_none()).cloned().collect();
            let differ = documents.iter().filter(|doc| find(doc).is_some_and(|other| other != *doc)).count();
            let kept = documents.len() - absent.len();
            let gone = made.map_or(0, Collection::len).saturating_sub(kept);
            if !absent.is_empty() {
                notes.push(format!(
                    "{} {name} documents come neither from events nor from files of the app: they are taken as they are now",
                    absent.len()
                ));
                outside.push((name.clone(), absent));
            }
            if differ > 0 {
                notes.push(format!(
                    "{differ} {name} documents are not now what events and files make of them: something else wrote them, and \
                     when is not known"
                ));
            }
            if gone > 0 {
                notes.push(format!(
                    "{gone} {name} documents that events and files make are not there any more: something else deleted them, \
                     and when is not known"
                ));
            }
        }
        if notes.is_empty() {
            let names: Vec<&str> = present.iter().map(|(name, _)| name.as_str()).collect();
            if !names.is_empty() {
                notes.push(format!(
                    "events and files make exactly the documents of {} that are there now",
                    names.join(", ")
                ));
            }
        }
        (notes, outside)
    }
}

fn id_of(doc: &DocBytes) -> Option<Value<'_>> {
    RawDocument::from_bytes(doc.as_ref()).ok().map(|raw| get_path(raw, "_id"))
}

/// Selects the columns that rules see from the stored ones.
fn event_columns(schema: &StreamSchema, stored: &RecordBatch) -> Result<RecordBatch> {
    let own = schema.batch_schema();
    let columns = own.fields().iter().map(|field| {
        stored.column_by_name(field.name()).cloned().ok_or_else(|| {
            Error::internal(format!("stored events of {} without `{}`", schema.name, field.name()))
        })
    });
    RecordBatch::try_new(own.clone(), columns.collect::<Result<Vec<_>>>()?)
        .map_err(|e| Error::internal("stored events of another shape").with_source(e))
}

/// Stored event, as a batch of one row.
struct StoredEvent {
    stream: usize,
    offset: Offset,
    row: u32,
    batch: RecordBatch,
}

struct RuleReplay<'p> {
    program: &'p Program,
    executor: Executor,
    host: ScratchContext,
}

impl RuleReplay<'_> {
    fn event(&mut self, partition: PartitionId, event: &StoredEvent, trace: &mut Trace) -> Result<()> {
        let part = StreamPart { stream: event.stream, batch: &event.batch, keep: None };
        let at = RecordPosition {
            partition,
            offset: event.offset,
            first_row: event.row,
            first_emitted_row: u32::MAX,
        };
        self.executor.apply_at(self.program, &mut self.host, &[part], None, at, trace).map(|_| ())
    }
}

/// Execution context with a partition's documents but without the partition: events that rules emit are
/// discarded, because they are among the stored events already.
struct ScratchContext {
    store: Store,
}

impl ExecutionContext for ScratchContext {
    fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    fn store_ref(&self) -> &Store {
        &self.store
    }

    fn route(&self, _stream: usize, _key: Option<&str>) -> Route {
        Route::Remote(PartitionId(u32::MAX))
    }

    fn admit(&mut self, _stream: usize, _id: &[FieldValue]) -> bool {
        false
    }
}
