//! Decision whether and how an app can be deployed on stored data. A pure function of two apps and facts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidemill_docs::CollectionSpec;
use tidemill_rules::catalog::Entity;
use tidemill_types::{PartitionId, StreamSchema};
use tidemill_zones::StoredColumn;

use super::StoredData;
use super::stored_data::StoredCollection;
use crate::directory::datadir::StreamDeclaration;
use crate::queries::compile::{CompiledApp, DeclarationSite};
use crate::queries::{Partitioner, Queries, Unit, successor};

/// Deployed app, and what earlier apps left.
pub struct DeployedApp<'a> {
    /// The compiled app.
    pub compiled: &'a CompiledApp,
    /// Streams with stored events that this app does not declare.
    pub former: &'a BTreeMap<String, StreamDeclaration>,
    /// Partitioner that placed its events without a key.
    pub partitioner: &'a Partitioner,
}

/// App to be deployed.
pub struct NewApp<'a> {
    /// The compiled app.
    pub compiled: &'a CompiledApp,
    /// Partitions of the data directory.
    pub partitions: u32,
}

/// Plan of a deploy that is possible.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeployPlan {
    /// Differences, and their effect on stored data, one line each.
    pub changes: Vec<String>,
    /// Streams with stored events that the new app does not declare.
    pub former: BTreeMap<String, StreamDeclaration>,
    /// Streams without a key whose events stay in their partition, although the new queries would place them
    /// in another.
    pub pinned_streams: BTreeMap<String, PartitionId>,
}

/// Reason against a deploy: the location in the app, the stored data, and a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeployConflict {
    site: Option<DeclarationSite>,
    /// `event E`, `entity M`.
    declaration: String,
    /// The stored and the requested declaration.
    conflict: String,
    remedy: String,
}

impl fmt::Display for DeployConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site: place, declaration, conflict, remedy } = self;
        match place {
            Some(place) => write!(f, "{place}: {declaration}: {conflict}; {remedy}"),
            None => write!(f, "{declaration}: {conflict}; {remedy}"),
        }
    }
}

impl DeployPlan {
    /// Compares the apps with each other and with the stored data.
    ///
    /// Errors: all conflicts with the stored data.
    pub fn new(
        before: &DeployedApp<'_>,
        after: &NewApp<'_>,
        facts: &StoredData,
    ) -> Result<Self, Vec<DeployConflict>> {
        let mut planner =
            Planner { before, after, stored: facts, plan: Self::default(), conflicts: Vec::new() };
        planner.former_streams();
        for stream in after.compiled.program.streams() {
            planner.stream(stream);
        }
        planner.former_entities();
        for entity in after.compiled.program.entities() {
            planner.entity(entity);
        }
        planner.rules();
        planner.queries();
        if planner.conflicts.is_empty() { Ok(planner.plan) } else { Err(planner.conflicts) }
    }
}

struct Planner<'a> {
    before: &'a DeployedApp<'a>,
    after: &'a NewApp<'a>,
    stored: &'a StoredData,
    plan: DeployPlan,
    conflicts: Vec<DeployConflict>,
}

impl Planner<'_> {
    fn add_change(&mut self, what: String) {
        self.plan.changes.push(what);
    }

    /// Returns the declaration of a stream by the deployed app, or by an earlier one.
    fn deployed_stream(&self, name: &str) -> Option<StreamDeclaration> {
        let program = &self.before.compiled.program;
        match program.stream_index(name) {
            Some(at) => Some(StreamDeclaration::from_schema(
                &program.streams()[at],
                self.before.partitioner.for_stream(name),
            )),
            None => self.before.former.get(name).cloned(),
        }
    }

    fn rows(&self, stream: &str) -> u64 {
        self.stored.tables.get(stream).map_or(0, |table| table.rows)
    }

    /// Plans the streams that the new app does not declare.
    fn former_streams(&mut self) {
        let declares = |name: &str| self.after.compiled.program.stream_index(name).is_some();
        let earlier = self.before.former.iter().filter(|(name, _)| !declares(name));
        self.plan.former = earlier.map(|(name, was)| (name.clone(), was.clone())).collect();
        for stream in self.before.compiled.program.streams().iter().filter(|s| !declares(&s.name)) {
            let rows = self.rows(&stream.name);
            if rows == 0 {
                self.add_change(format!("event {} is gone; it has no stored events", stream.name));
                continue;
            }
            self.plan.former.extend(self.deployed_stream(&stream.name).map(|was| (stream.name.clone(), was)));
            self.add_change(format!(
                "event {} is gone; its {} {} and can be asked",
                stream.name,
                event_count(rows),
                stay(rows)
            ));
        }
    }

    fn stream(&mut self, stream: &StreamSchema) {
        let name = &stream.name;
        let home = self.partitioner().for_stream(name);
        let new = StreamDeclaration::from_schema(stream, home);
        let rows = self.rows(name);
        let deployed = self.before.compiled.program.stream_index(name).is_some();
        if !deployed {
            self.add_change(match rows {
                0 => format!("event {name} is new"),
                _ => format!("event {name} is back and goes on after its {}", event_count(rows)),
            });
        }
        self.columns(&new, name);
        let Some(was) = self.deployed_stream(name) else { return };
        self.fields(name, &was, &new);
        self.key(name, &was, &new, rows);
        if was.id != new.id {
            let made_of = if new.id.is_empty() { "none".to_owned() } else { join_names(&new.id) };
            let stored = match rows {
                0 => String::new(),
                _ if new.id.is_empty() => "; from now on every event is stored".to_owned(),
                _ => format!(
                    "; from now on duplicates are found among new events, not among the {}",
                    event_count(rows)
                ),
            };
            self.add_change(format!("event {name}: its id is {made_of}{stored}"));
        }
        if was.time != new.time {
            let from = new.time.as_ref().map_or("the time of arrival".to_owned(), |time| format!("`{time}`"));
            self.add_change(format!("event {name}: the time of new events is {from}"));
        }
        // duplicates are detected within one partition, so events without a key must not move to another
        if let Some(home) = was.home.filter(|kept| *kept != home)
            && new.key.is_none()
            && !new.id.is_empty()
            && was.id == new.id
            && rows > 0
        {
            self.plan.pinned_streams.insert(name.clone(), home);
        }
    }

    fn partitioner(&self) -> Partitioner {
        self.after.compiled.queries.partitioner(&self.after.compiled.program, self.after.partitions)
    }

    fn reject_event(&mut self, name: &str, conflict: String, remedy: String) {
        let place = self.after.compiled.stream_site(name);
        self.conflicts.push(DeployConflict {
            site: place,
            declaration: format!("event {name}"),
            conflict,
            remedy,
        });
    }

    /// Checks that each declared field fits its stored column.
    fn columns(&mut self, new: &StreamDeclaration, name: &str) {
        let Some(table) = self.stored.tables.get(name) else { return };
        for field in &new.fields {
            let held = table.columns.iter().filter(|c| c.in_files);
            for column in held.filter(|c| c.name.eq_ignore_ascii_case(&field.name)) {
                if column.name != field.name {
                    self.reject_event(
                        name,
                        format!(
                            "its field `{}` differs from the stored column `{}` in case only, which readers of the \
                             table do not distinguish",
                            field.name, column.name
                        ),
                        format!("declare `{}`, or give the field another name", column.name),
                    );
                } else if !column.accepts(field.ty) {
                    let stored = type_of(column);
                    self.reject_event(
                        name,
                        format!(
                            "its field `{}` is declared as {}, and in {} it is {stored}",
                            field.name,
                            field.ty,
                            stored_event_count(table.rows)
                        ),
                        format!(
                            "declare `{}: {stored}` again, or give the new field another name beside it",
                            field.name
                        ),
                    );
                }
            }
        }
    }

    fn fields(&mut self, name: &str, was: &StreamDeclaration, new: &StreamDeclaration) {
        let find =
            |of: &StreamDeclaration, field: &str| of.fields.iter().find(|f| f.name == field).map(|f| f.ty);
        let stored = |field: &str| {
            let columns = self.stored.tables.get(name).map_or(&[][..], |t| &t.columns);
            columns.iter().any(|c| c.name == field && c.in_files)
        };
        let mut changes = Vec::new();
        for field in &new.fields {
            match find(was, &field.name) {
                Some(ty) if ty == field.ty => {}
                Some(ty) => changes.push(format!("`{}` is {} and was {ty}", field.name, field.ty)),
                None if stored(&field.name) => {
                    changes.push(format!("field `{}` is back, with what is stored of it", field.name));
                }
                None => changes.push(format!("field `{}` is new; stored events have none", field.name)),
            }
        }
        for field in was.fields.iter().filter(|f| find(new, &f.name).is_none()) {
            changes.push(match stored(&field.name) {
                true => {
                    format!("field `{}` is gone; it stays in the table and is null from now on", field.name)
                }
                false => format!("field `{}` is gone", field.name),
            });
        }
        for change in changes {
            self.add_change(format!("event {name}: {change}"));
        }
    }

    /// Checks a change of the key. Stored events, the ids remembered for them and query state about them are
    /// in the partition of the key.
    fn key(&mut self, name: &str, was: &StreamDeclaration, new: &StreamDeclaration, rows: u64) {
        if was.key == new.key {
            return;
        }
        let shown = |key: &Option<String>| key.as_ref().map_or("none".to_owned(), |key| format!("`{key}`"));
        let declared = self.after.compiled.stream_site(name).is_none_or(|place| place.declared);
        let ids = !was.id.is_empty() || !new.id.is_empty();
        if (rows > 0 && (declared || ids)) || self.affects_query_state(name) {
            let remedy = match &was.key {
                Some(key) => format!("keep the key `{key}`"),
                None => "leave the key out".to_owned(),
            };
            self.reject_event(
                name,
                format!(
                    "its key is {} and was {}, by which {} and what belongs to them are spread over partitions",
                    shown(&new.key),
                    shown(&was.key),
                    stored_event_count(rows)
                ),
                format!("{remedy}, declare an event with another name, or use a new data directory"),
            );
            return;
        }
        self.add_change(format!("event {name}: its key is {}", shown(&new.key)));
    }

    /// Returns whether a query that continues with its state reads the stream, and one of its input streams
    /// has stored events.
    fn affects_query_state(&self, name: &str) -> bool {
        let (before, after) = (self.before.compiled, self.after.compiled);
        let Some(at) = before.program.stream_index(name) else { return false };
        let stored = |unit: &Unit| {
            unit.inputs.keys().any(|stream| self.rows(&before.program.streams()[*stream].name) > 0)
        };
        before.queries.readers(at).iter().map(|unit| &before.queries.units[*unit]).any(|unit| {
            before.queries.is_stateful(unit)
                && successor(&before.queries, unit, &after.queries).is_some()
                && stored(unit)
        })
    }

    /// Plans the entities that the new app does not declare.
    fn former_entities(&mut self) {
        let after = &self.after.compiled.program;
        for entity in self.before.compiled.program.entities() {
            if after.entity_key(&entity.name).is_none() {
                let kept = self.stored.collections.get(&entity.name).map_or(0, |c| c.documents);
                self.add_change(format!(
                    "entity {} is gone; its {} {}",
                    entity.name,
                    document_count(kept),
                    stay(kept)
                ));
            }
        }
    }

    fn reject_entity(&mut self, name: &str, conflict: String, remedy: String) {
        let place = self.after.compiled.entity_site(name);
        self.conflicts.push(DeployConflict {
            site: place,
            declaration: format!("entity {name}"),
            conflict,
            remedy,
        });
    }

    fn entity(&mut self, entity: &Entity) {
        let name = &entity.name;
        let was = self.before.compiled.program.entity_key(name);
        let Some(stored) = self.stored.collections.get(name) else {
            self.add_change(format!("entity {name} is new"));
            return;
        };
        if was.is_none() {
            self.add_change(format!(
                "entity {name} is declared over its {}",
                document_count(stored.documents)
            ));
        }
        let before = self.conflicts.len();
        self.entity_key(entity, was, stored);
        self.entity_placement(entity, stored);
        for (fields, why) in &stored.violations {
            let fields = fields.join(", ");
            self.reject_entity(
                name,
                format!("its index ({fields}) cannot be made: {why}"),
                "correct the documents first, or leave the index out".to_owned(),
            );
        }
        if self.conflicts.len() == before {
            self.indexes(name, &stored.spec, &entity.spec());
        }
    }

    fn entity_key(&mut self, entity: &Entity, was: Option<&str>, stored: &StoredCollection) {
        let Entity { name, key, .. } = entity;
        let elsewhere = "declare an entity with another name, or use a new data directory";
        match was {
            Some(was) if was != key && stored.documents > 0 => self.reject_entity(
                name,
                format!(
                    "its key is `{key}` and was `{was}`, which is the `_id` of {}",
                    stored_document_count(stored.documents)
                ),
                format!("keep the key `{was}`, {elsewhere}"),
            ),
            Some(was) if was != key => self.add_change(format!("entity {name}: its key is `{key}`")),
            Some(_) => {}
            None => {
                if let Some(misfit) = &stored.key_mismatch {
                    self.reject_entity(
                        name,
                        format!("its key is `{key}`, and {misfit}"),
                        format!("declare the key that is the `_id` of its documents, {elsewhere}"),
                    );
                }
            }
        }
    }

    fn entity_placement(&mut self, entity: &Entity, stored: &StoredCollection) {
        let wanted = entity.spec();
        if wanted.has_same_placement(&stored.spec) {
            return;
        }
        let place = |spec: &CollectionSpec| match spec.shard_key {
            None if !spec.replicated => format!("spread by its key `{}`", entity.key),
            _ => spec.placement(),
        };
        if stored.documents == 0 {
            self.add_change(format!("entity {}: it is {}", entity.name, place(&wanted)));
            return;
        }
        self.reject_entity(
            &entity.name,
            format!(
                "it is declared as {}, and {} {} {}",
                place(&wanted),
                stored_document_count(stored.documents),
                if stored.documents == 1 { "is" } else { "are" },
                place(&stored.spec)
            ),
            "declare it as it was, declare an entity with another name, or use a new data directory"
                .to_owned(),
        );
    }

    fn indexes(&mut self, name: &str, stored: &CollectionSpec, wanted: &CollectionSpec) {
        let shown = |index: &tidemill_docs::IndexSpec| {
            let fields: Vec<&str> = index.fields.iter().map(|(field, _)| field.as_str()).collect();
            format!("{}index ({})", if index.unique { "unique " } else { "" }, fields.join(", "))
        };
        for index in wanted.indexes.iter().filter(|i| !stored.indexes.contains(i)) {
            self.add_change(format!("entity {name}: its {} is built", shown(index)));
        }
        for index in stored.indexes.iter().filter(|i| !wanted.indexes.contains(i)) {
            self.add_change(format!("entity {name}: its {} is dropped", shown(index)));
        }
    }

    fn rules(&mut self) {
        let texts = |compiled: &CompiledApp| -> BTreeMap<String, String> {
            let rules = compiled.program.rules().into_iter().map(|r| (r.name, r.text));
            let aggregates = compiled.program.aggregates().iter().map(|a| (a.name.clone(), format!("{a:?}")));
            rules.chain(aggregates).collect()
        };
        for change in differences("rule", &texts(self.before.compiled), &texts(self.after.compiled)) {
            self.add_change(change);
        }
    }

    fn queries(&mut self) {
        let (before, after) = (&self.before.compiled.queries, &self.after.compiled.queries);
        let names = |queries: &Queries| -> BTreeSet<String> {
            queries.files.iter().map(|f| f.name.clone()).collect()
        };
        let (old, new) = (names(before), names(after));
        for file in new.difference(&old) {
            self.add_change(format!("{file} is new; its queries begin with the next event"));
        }
        for file in &old {
            let units = before.units.iter().filter(|u| before.files[u.file].name == *file);
            let lost = units
                .filter(|unit| before.is_stateful(unit) && successor(before, unit, after).is_none())
                .count();
            let identity =
                |queries: &Queries| queries.files.iter().find(|f| f.name == *file).map(|f| f.identity);
            match (identity(after), lost) {
                (None, 0) => self.add_change(format!("{file} is no longer part of the app")),
                (None, _) => {
                    self.add_change(format!("{file} is no longer part of the app; its state is dropped"))
                }
                (same, _) if same == identity(before) => {}
                (Some(_), 0) => self.add_change(format!("{file} has changed")),
                (Some(_), _) => {
                    self.add_change(format!(
                        "{file} has changed; its state is dropped and its queries begin anew"
                    ));
                }
            }
        }
    }
}

/// Lists by name what is new, gone or changed.
fn differences(what: &str, old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |name: &&String| match (old.get(*name), new.get(*name)) {
        (None, _) => Some("is new"),
        (_, None) => Some("is gone"),
        (before, after) if before != after => Some("has changed"),
        _ => None,
    };
    all.iter().filter_map(|name| Some(format!("{what} {name} {}", change(name)?))).collect()
}

fn type_of(column: &StoredColumn) -> &str {
    column.ty.map_or(column.type_name.as_str(), |ty| ty.name())
}

fn join_names(fields: &[String]) -> String {
    fields.iter().map(|f| format!("`{f}`")).collect::<Vec<_>>().join(", ")
}

fn event_count(n: u64) -> String {
    count_noun(n, "stored event")
}

/// Counts stored events in messages where there may be none, because query state may come from other streams.
fn stored_event_count(n: u64) -> String {
    if n == 0 { "its events".to_owned() } else { format!("the {}", event_count(n)) }
}

fn document_count(n: u64) -> String {
    count_noun(n, "document")
}

fn stored_document_count(n: u64) -> String {
    format!("the {}", count_noun(n, "stored document"))
}

fn stay(n: u64) -> &'static str {
    if n == 1 { "stays" } else { "stay" }
}

fn count_noun(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
